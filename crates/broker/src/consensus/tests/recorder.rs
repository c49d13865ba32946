//! Keeps what is committed, in place of the control plane.
use crate::consensus::machine::Committed;
use bytes::Bytes;
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(crate) struct Recorder {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    next: Option<u64>,
    entries: Vec<(u64, Bytes)>,
    installed: Option<(u64, Bytes)>,
}

impl Recorder {
    /// Index and bytes of the commands so far.
    pub fn commands(&self) -> Vec<(u64, Bytes)> {
        self.seen.lock().entries.clone()
    }

    /// Index and bytes of the last snapshot of another broker.
    pub fn installed(&self) -> Option<(u64, Bytes)> {
        self.seen.lock().installed.clone()
    }
}

impl Committed for Recorder {
    fn committed(&self, index: u64, bytes: Bytes, proposal: u128) {
        let mut seen = self.seen.lock();
        assert_eq!(seen.next.unwrap_or(index), index, "an entry is missing");
        seen.next = Some(index + 1);
        if proposal != 0 {
            seen.entries.push((index, bytes));
        }
    }

    fn installed(&self, index: u64, state: Bytes) {
        let mut seen = self.seen.lock();
        seen.next = Some(index + 1);
        seen.installed = Some((index, state));
    }
}
