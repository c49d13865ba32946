//! Our own NATS client: it reads messages from raw bytes, so unusual content in one message does not lose others.
//!
//! * `protocol`: the lines of a server, in place; `buffers`: the buffers they are read into; `table`: subscriptions.
//! * `options`, `dial`, `tls`: to a server that has answered `INFO`; `serve`: from there to the end of the connection, and again.
//! * `outgoing`: bytes that wait to be written.
//!
//! One task, [`Client::run`], does all the I/O of a connection; inboxes are called from it and may block it, which leaves
//! messages with the server. Everything else may be called from any thread. After a loss the next server is tried at once,
//! then one after the other, with [`RETRY`] after each round; subscriptions are made again with each connection, before
//! it counts as connected.
mod buffers;
mod dial;
pub(crate) mod headers;
mod options;
mod outgoing;
pub(crate) mod protocol;
mod reason;
mod serve;
mod settings;
mod table;
mod tls;

pub(crate) use buffers::Buffers;
pub(crate) use options::Options;
pub(crate) use outgoing::{Publish, SendError};
pub use reason::Reason;
pub use settings::{NatsSettings, NatsTls};

use bytes::Bytes;
use outgoing::Outgoing;
use parking_lot::Mutex;
use serve::{Pong, Pongs};
use std::sync::Arc;
use std::time::Duration;
use table::Table;
use tokio::sync::oneshot;

/// Wait after each round of attempts to connect.
pub(crate) const RETRY: Duration = Duration::from_millis(250);

/// Why a connection could not be made, or ended.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(reason: Reason, text: String) -> Self {
        Self { reason, text }
    }
}

/// A message that arrived; slices of what was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    /// Any bytes without blanks.
    pub(crate) subject: Bytes,
    /// Likewise; empty = none.
    pub(crate) reply: Bytes,
    /// Header block; empty = none.
    pub(crate) headers: Bytes,
    pub(crate) payload: Bytes,
}

/// Where the messages of a subscription go. Called on the connection's task.
pub(crate) trait Inbox: Send + Sync {
    /// Takes 1 to [`table::RUN`] messages, in order.
    fn take(&self, messages: &mut Vec<Message>);
    /// The server does not permit the subscription.
    fn on_denied(&self, _text: &str) {}
    /// The server permits it after all.
    fn on_granted(&self) {}
}

/// Events of the connection. Called on its task.
pub(crate) trait Observer: Send + Sync {
    /// Connected to this server; all subscriptions are made.
    fn on_connected(&self, server: &str);
    /// The connection could not be made, or is lost. `server` is empty when there is none to try.
    fn on_failure(&self, server: &str, failure: &Failure, was_connected: bool);
    /// The server reported an error that does not end the connection.
    fn on_error(&self, text: &str);
    /// The server will stop soon.
    fn on_lame_duck(&self, server: &str);
}

/// A handle; cheap to clone.
#[derive(Clone)]
pub(crate) struct Client(Arc<Inner>);

struct Inner {
    observer: Arc<dyn Observer>,
    outgoing: Outgoing,
    buffers: Arc<Buffers>,
    /// Locked before `pongs` and what `outgoing` locks.
    table: Mutex<Table>,
    pongs: Mutex<Pongs>,
}

impl Client {
    /// Not connected before [`Client::run`].
    pub(crate) fn new(observer: Arc<dyn Observer>, buffers: Arc<Buffers>) -> Self {
        Self(Arc::new(Inner {
            observer,
            outgoing: Outgoing::default(),
            buffers,
            table: Mutex::default(),
            pongs: Mutex::default(),
        }))
    }

    /// Connects, for ever; to be dropped at the end.
    pub(crate) async fn run(self, options: Options) {
        serve::run(&self.0, &options).await;
    }

    /// Whether it is connected now.
    pub(crate) fn is_connected(&self) -> bool {
        self.0.outgoing.is_open()
    }

    /// Subscribes now and after each connect, until the result is dropped. `group`: queue group, empty = none.
    pub(crate) fn subscribe(
        &self,
        subject: &str,
        group: &str,
        inbox: Arc<dyn Inbox>,
    ) -> Subscription {
        let outgoing = &self.0.outgoing;
        let mut table = self.0.table.lock();
        let sid = table.add(subject.to_owned(), group.to_owned(), inbox, |put| {
            outgoing.put_line(put);
        });
        Subscription {
            client: self.clone(),
            sid,
        }
    }

    /// Publishes; waits while too much waits already.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent.
    pub(crate) async fn publish(&self, message: Publish<'_>) -> Result<(), SendError> {
        self.0.outgoing.publish(message).await
    }

    /// Waits until what was published before is written, or given up with its connection.
    pub(crate) async fn flush(&self) {
        self.0.outgoing.flush().await;
    }

    /// Waits until the server has handled all that was sent before; false when the connection ended or `limit` passed.
    pub(crate) async fn round_trip(&self, limit: Duration) -> bool {
        let (answer, answered) = oneshot::channel();
        self.0.ping(Pong::Waiter(answer));
        matches!(tokio::time::timeout(limit, answered).await, Ok(Ok(())))
    }

    /// Forgets all subscriptions, so that nothing holds what their inboxes hold.
    pub(crate) fn forget(&self) {
        self.0.table.lock().clear();
    }
}

impl Inner {
    /// Sends a PING; `pong` says what its answer is for.
    fn ping(&self, pong: Pong) {
        // Under the lock, so that both are in one order.
        let mut pongs = self.pongs.lock();
        self.outgoing.put_line(|out| {
            out.extend_from_slice(b"PING\r\n");
            pongs.push_back(pong);
        });
    }
}

/// A subscription; unsubscribes when dropped.
pub(crate) struct Subscription {
    client: Client,
    sid: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let inner = &self.client.0;
        let mut table = inner.table.lock();
        if table.remove(self.sid) {
            let line = format!("UNSUB {}\r\n", self.sid);
            let outgoing = &inner.outgoing;
            outgoing.put_line(|out| out.extend_from_slice(line.as_bytes()));
        }
    }
}
