//! Appends for partitions that other brokers lead.
use super::Counter;

/// Each append counts once, and each time it is sent again.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Forwarded {
    pub committed: Counter,
    pub refused: Counter,
    pub expired: Counter,
    pub unknown: Counter,
    pub retried: Counter,
}

impl Forwarded {
    /// Labels and values of `bascule_forwarded_total`: every outcome.
    pub(crate) fn series(&self) -> Vec<(String, u64)> {
        let all = [
            ("committed", &self.committed),
            ("expired", &self.expired),
            ("refused", &self.refused),
            ("retried", &self.retried),
            ("unknown", &self.unknown),
        ];
        let series = all.into_iter();
        series
            .map(|(outcome, count)| (format!("outcome=\"{outcome}\""), count.get()))
            .collect()
    }
}
