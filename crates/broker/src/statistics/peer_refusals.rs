//! Connections of other brokers that were refused, or broke the protocol.
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Every reason, in the order in which they are exported.
const REASONS: [&str; 8] = [
    "address",
    "checksum",
    "io",
    "length",
    "malformed",
    "refused",
    "silent",
    "type",
];

/// The counts, by reason.
#[derive(Debug, Default)]
pub struct PeerRefusals(Mutex<BTreeMap<&'static str, u64>>);

impl PeerRefusals {
    pub(crate) fn add(&self, reason: &'static str) {
        *self.0.lock().entry(reason).or_default() += 1;
    }

    /// Those that there were, by reason.
    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().clone()
    }

    /// Labels and values of `bascule_peer_frames_refused_total`: every reason.
    pub(crate) fn series(&self) -> Vec<(String, u64)> {
        let found = self.all();
        let count = |reason: &str| found.get(reason).copied().unwrap_or_default();
        REASONS
            .iter()
            .map(|reason| (format!("reason=\"{reason}\""), count(reason)))
            .collect()
    }
}
