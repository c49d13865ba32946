//! Records that stay, whatever the settings.
use crate::Log;

impl Log {
    /// Keeps every record from the offset `from` on: retention, compaction and trims stop below it, until the next call.
    /// `None` = nothing is kept. Not stored: to be set again after an open, before anything is removed. A compaction that runs
    /// may still rewrite records that were appended before the call.
    pub fn hold(&self, from: Option<u64>) {
        self.shared.set_hold(from.unwrap_or(u64::MAX));
    }
}
