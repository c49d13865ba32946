//! Bytes that wait to be written to the server: one buffer, bounded in bytes.
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Bytes beyond which publishers wait until some were written.
const ROOM_BYTES: usize = 2 << 20;

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendError {
    /// There is no connection now.
    #[error("server is disconnected")]
    Disconnected,
    /// Larger than the server takes.
    #[error("maximum payload exceeded")]
    TooLarge,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    state: Mutex<State>,
    /// Largest message that the server takes, headers included.
    max_payload: AtomicUsize,
    /// There is something to write.
    filled: Notify,
    /// Something was written, or the connection ended.
    written: Notify,
}

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    /// Bytes taken and written so far, those given up included.
    taken: u64,
    done: u64,
    /// Whether there is a connection, which takes lines of the protocol.
    has_connection: bool,
    /// Whether it takes publishes, too.
    is_open: bool,
}

/// One message to publish.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Publish<'a> {
    pub(crate) subject: &'a str,
    /// Empty = none.
    pub(crate) reply: &'a str,
    /// Whole header block; empty = none.
    pub(crate) headers: &'a [u8],
    pub(crate) payload: &'a [u8],
}

impl Publish<'_> {
    fn put(&self, out: &mut Vec<u8>) {
        let mut number = itoa::Buffer::new();
        let (headers, total) = (self.headers.len(), self.headers.len() + self.payload.len());
        out.reserve(self.subject.len() + self.reply.len() + total + 64);
        out.extend_from_slice(if headers == 0 { b"PUB " } else { b"HPUB " });
        out.extend_from_slice(self.subject.as_bytes());
        out.push(b' ');
        if !self.reply.is_empty() {
            out.extend_from_slice(self.reply.as_bytes());
            out.push(b' ');
        }
        if headers > 0 {
            out.extend_from_slice(number.format(headers).as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(number.format(total).as_bytes());
        for part in [b"\r\n", self.headers, self.payload, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
}

impl Outgoing {
    /// Begins with a connection: `first` is written before anything else. Publishes are taken from [`Outgoing::open`] on.
    pub(super) fn begin(&self, first: &[u8], max_payload: usize) {
        self.max_payload.store(max_payload, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.has_connection = true;
        state.put(|out| out.extend_from_slice(first));
    }

    /// The server's limit changed.
    pub(super) fn set_max_payload(&self, bytes: usize) {
        self.max_payload.store(bytes, Ordering::Relaxed);
    }

    /// Publishes are taken from now on.
    pub(super) fn open(&self) {
        self.state.lock().is_open = true;
    }

    /// The connection ended: nothing is taken, and what was not written is given up.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        (state.has_connection, state.is_open) = (false, false);
        state.bytes = Vec::new();
        state.done = state.taken;
        drop(state);
        self.written.notify_waiters();
    }

    /// Whether publishes are taken.
    pub(super) fn is_open(&self) -> bool {
        self.state.lock().is_open
    }

    /// Adds a line of the protocol, regardless of the bound; adds nothing while there is no connection.
    pub(super) fn put_line(&self, put: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state.lock();
        if state.has_connection {
            state.put(put);
            drop(state);
            self.filled.notify_one();
        }
    }

    /// Adds a message; waits while too much waits already.
    ///
    /// # Errors
    /// [`SendError`]; nothing was added.
    pub(crate) async fn publish(&self, message: Publish<'_>) -> Result<(), SendError> {
        let bytes = message.headers.len() + message.payload.len();
        if bytes > self.max_payload.load(Ordering::Relaxed) {
            // The server would end the connection.
            return Err(if self.is_open() {
                SendError::TooLarge
            } else {
                SendError::Disconnected
            });
        }
        loop {
            let written = self.written.notified();
            tokio::pin!(written);
            // Registered before the check, so that later writes wake it.
            written.as_mut().enable();
            {
                let mut state = self.state.lock();
                if !state.is_open {
                    return Err(SendError::Disconnected);
                }
                if state.bytes.len() < ROOM_BYTES {
                    state.put(|out| message.put(out));
                    break;
                }
            }
            written.await;
        }
        self.filled.notify_one();
        Ok(())
    }

    /// Waits until all that was added before is written, or given up with its connection.
    pub(crate) async fn flush(&self) {
        let until = self.state.lock().taken;
        loop {
            let written = self.written.notified();
            tokio::pin!(written);
            written.as_mut().enable();
            if self.state.lock().done >= until {
                return;
            }
            written.await;
        }
    }

    /// Waits for something to write and swaps it into `out`, which is empty.
    pub(super) async fn next(&self, out: &mut Vec<u8>) {
        loop {
            {
                let mut state = self.state.lock();
                if !state.bytes.is_empty() {
                    std::mem::swap(&mut state.bytes, out);
                    return;
                }
            }
            self.filled.notified().await;
        }
    }

    /// `bytes` were written.
    pub(super) fn on_written(&self, bytes: usize) {
        self.state.lock().done += bytes as u64;
        self.written.notify_waiters();
    }
}

impl State {
    fn put(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        put(&mut self.bytes);
        self.taken += (self.bytes.len() - before) as u64;
    }
}
