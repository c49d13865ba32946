//! A subscription: a task reads and decodes ahead of the caller, up to a bound.
use crate::columns::{Columns, Records};
use crate::error::Effect;
use crate::runtime::{ASK, Home, Patience};
use crate::transport::{Incoming, SubscribeHeaders};
use crate::{Error, Notifier};
use bascule_wire::ErrorCode;
use bascule_wire::liftbridge::delivery::MessageView;
use bascule_wire::subject::SubjectFilter;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Bytes that are decoded and not yet taken, above which the task stops reading (and HTTP/2 stops the broker).
const BUFFER_BYTES: usize = 8 << 20;

/// State shared by the task and the caller.
#[derive(Debug, Default)]
struct Buffer {
    state: Mutex<State>,
    /// Records or the end arrived.
    filled: Condvar,
    /// Records were taken.
    taken: Notify,
    /// Subjects that are wanted; `None` = all.
    filter: Option<SubjectFilter>,
    /// Notified with `filled`.
    notifier: Option<Arc<Notifier>>,
}
impl Buffer {
    fn wants(&self, message: &MessageView) -> bool {
        let filter = self.filter.as_ref();
        filter.is_none_or(|filter| filter.matches(message.subject()))
    }

    fn notify(&self) {
        self.filled.notify_all();
        if let Some(notifier) = &self.notifier {
            notifier.notify();
        }
    }
}
#[derive(Debug, Default)]
struct State {
    columns: Columns,
    /// How the stream ended; returned once all records before it were taken.
    end: Option<Error>,
}

/// An open subscription. Safe to share between threads; each record goes to one of them.
#[derive(Debug)]
pub struct Subscription {
    home: Home,
    buffer: Arc<Buffer>,
    /// Taken from the buffer and not yet handed out.
    front: Mutex<Option<Records>>,
    task: AbortHandle,
    headers: SubscribeHeaders,
}
impl Subscription {
    /// Begins to read. `incoming` is past the handshake.
    pub(crate) fn start(
        home: Home,
        incoming: Incoming,
        headers: SubscribeHeaders,
        filter: Option<SubjectFilter>,
        notifier: Option<Arc<Notifier>>,
    ) -> Result<Self, Error> {
        let buffer = Arc::new(Buffer {
            filter,
            notifier,
            ..Buffer::default()
        });
        let task = home
            .enter()?
            .spawn(read(incoming, buffer.clone()))
            .abort_handle();
        Ok(Self {
            home,
            buffer,
            front: Mutex::new(None),
            task,
            headers,
        })
    }

    /// The partition's incarnation, which the offsets belong to; 0 when the broker does not send it.
    pub fn incarnation(&self) -> u64 {
        self.headers.incarnation
    }

    /// The resolved start offset; `None` when the broker does not send it.
    pub fn start_offset(&self) -> Option<u64> {
        self.headers.start
    }

    /// Up to `max_records` available records, in order; waits at most `timeout` for the first, `None` = there is none.
    ///
    /// # Errors
    /// How the stream ended, once all records before it were returned; `closed`; `forked`.
    pub fn next_batch(
        &self,
        max_records: usize,
        timeout: Duration,
        patience: Patience<'_>,
    ) -> Result<Option<Records>, Error> {
        self.home.enter()?;
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(records) = self.try_next(max_records.max(1))? {
                return Ok(Some(records));
            }
            let mut state = self.buffer.state.lock();
            if state.columns.len() > 0 || state.end.is_some() {
                continue;
            }
            let left = deadline.map_or(ASK, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Ok(None);
            }
            let waited = self.buffer.filled.wait_for(&mut state, left.min(ASK));
            drop(state);
            if waited.timed_out() && patience().is_break() {
                return Err(Error::new(ErrorCode::Closed, "the wait was interrupted"));
            }
        }
    }

    /// Ends the subscription. Idempotent; later calls of [`Self::next_batch`] fail with `closed`.
    pub fn close(&self) {
        self.task.abort();
        self.front.lock().take();
        let mut state = self.buffer.state.lock();
        state.columns = Columns::default();
        state.end = Some(Error::new(ErrorCode::Closed, "the subscription was closed"));
        self.buffer.filled.notify_all();
    }

    /// Available records, without waiting.
    fn try_next(&self, max_records: usize) -> Result<Option<Records>, Error> {
        let mut front = self.front.lock();
        if front.is_none() {
            *front = self.take_buffer()?;
        }
        let Some(records) = front.take() else {
            return Ok(None);
        };
        if records.len() <= max_records {
            return Ok(Some(records));
        }
        *front = Some(records.slice(max_records, records.len() - max_records));
        Ok(Some(records.slice(0, max_records)))
    }

    /// All decoded records; the end of the stream when there are none.
    fn take_buffer(&self) -> Result<Option<Records>, Error> {
        let columns = {
            let mut state = self.buffer.state.lock();
            if state.columns.len() == 0 {
                return state.end.clone().map_or(Ok(None), Err);
            }
            std::mem::take(&mut state.columns)
        };
        self.buffer.taken.notify_one();
        columns.into_records().map(Some)
    }
}
impl Drop for Subscription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task: reads until the stream ends.
async fn read(mut incoming: Incoming, buffer: Arc<Buffer>) {
    let end = loop {
        match step(&mut incoming, &buffer).await {
            Ok(true) => {}
            Ok(false) => {
                break Error::new(ErrorCode::EndOfStream, "the broker ended the subscription");
            }
            Err(error) => break error,
        }
    };
    buffer.state.lock().end.get_or_insert(end);
    buffer.notify();
}

/// Decodes what has been received, then waits for room and for more; false at the end.
async fn step(incoming: &mut Incoming, buffer: &Buffer) -> Result<bool, Error> {
    if decode(incoming, buffer)? {
        buffer.notify();
    }
    while buffer.state.lock().columns.bytes() > BUFFER_BYTES {
        buffer.taken.notified().await;
    }
    let more = incoming.receive(Effect::Read).await?;
    if !more {
        decode(incoming, buffer)?;
    }
    Ok(more)
}

/// Moves whole messages that are wanted into the columns; true when these hold any.
fn decode(incoming: &mut Incoming, buffer: &Buffer) -> Result<bool, Error> {
    let Some(first) = incoming.buffered()? else {
        return Ok(false);
    };
    let mut state = buffer.state.lock();
    let mut next = Some(first);
    while let Some(message) = next {
        let message = MessageView::read(message).ok_or_else(|| {
            Error::new(ErrorCode::Internal, "the broker sent a malformed Message")
        })?;
        if buffer.wants(&message) {
            state.columns.push(&message);
        }
        next = incoming.buffered()?;
    }
    Ok(state.columns.len() > 0)
}
