//! The buffers that the socket is read into. What was read is handed on as slices of them, so a record that waits keeps its
//! whole buffer: [`Buffers::is_pressed`] says when so much is kept that waiting records must be copied instead.
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Size of a buffer, unless a message is larger.
pub(crate) const BUFFER_BYTES: usize = 128 << 10;
/// From so much on a buffer is handed on; less is copied, so that a trickle of messages does not keep a buffer each.
const HAND_ON_BYTES: usize = BUFFER_BYTES / 4;
/// Buffers that are kept for the next reads.
const KEPT: usize = 32;

/// The buffers of one connection.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// Bytes of buffers that somebody still has slices of.
    held: AtomicUsize,
    limit: usize,
    free: Mutex<Vec<Vec<u8>>>,
}

impl Buffers {
    /// `limit`: bytes that slices may keep before [`Buffers::is_pressed`].
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            held: AtomicUsize::new(0),
            limit,
            free: Mutex::default(),
        })
    }

    /// Whether slices keep so much memory that what waits is to be copied.
    pub(crate) fn is_pressed(&self) -> bool {
        self.held.load(Ordering::Relaxed) >= self.limit
    }

    /// An empty buffer.
    pub(crate) fn take(&self) -> Vec<u8> {
        let free = self.free.lock().pop();
        free.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    fn give_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        if buffer.capacity() == BUFFER_BYTES {
            let mut free = self.free.lock();
            if free.len() < KEPT {
                free.push(buffer);
            }
        }
    }

    /// The first `end` bytes of a buffer, to be sliced; `buffer` becomes one with what follows them.
    pub(crate) fn hand_on(self: &Arc<Self>, buffer: &mut Vec<u8>, end: usize) -> Bytes {
        let end = end.min(buffer.len());
        if end < HAND_ON_BYTES.max(buffer.capacity() / 4) {
            let copied = Bytes::copy_from_slice(buffer.get(..end).unwrap_or_default());
            buffer.drain(..end);
            return copied;
        }
        let mut next = self.take();
        next.extend_from_slice(buffer.get(end..).unwrap_or_default());
        let mut filled = std::mem::replace(buffer, next);
        filled.truncate(end);
        self.held.fetch_add(filled.capacity(), Ordering::Relaxed);
        Bytes::from_owner(Held {
            bytes: filled,
            home: self.clone(),
        })
    }
}

/// A buffer that is kept by slices; goes back when the last of them is gone.
struct Held {
    bytes: Vec<u8>,
    home: Arc<Buffers>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.home
            .held
            .fetch_sub(bytes.capacity(), Ordering::Relaxed);
        self.home.give_back(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_copied_and_much_is_handed_on() {
        let buffers = Buffers::new(BUFFER_BYTES);
        let mut buffer = buffers.take();
        buffer.extend_from_slice(b"abcdef");
        assert_eq!(buffers.hand_on(&mut buffer, 4), "abcd");
        assert_eq!(buffer, b"ef");
        assert!(!buffers.is_pressed());

        buffer.resize(HAND_ON_BYTES + 3, 7);
        let all = buffers.hand_on(&mut buffer, HAND_ON_BYTES);
        assert_eq!(
            (all.len(), &all[..2], &buffer[..]),
            (HAND_ON_BYTES, &b"ef"[..], &[7; 3][..])
        );
        assert!(buffers.is_pressed(), "the whole buffer counts");
        let part = all.slice(..1);
        drop(all);
        assert!(buffers.is_pressed(), "a single byte keeps it");
        drop(part);
        assert!(!buffers.is_pressed());
        assert_eq!(buffers.free.lock().len(), 1);
    }
}
