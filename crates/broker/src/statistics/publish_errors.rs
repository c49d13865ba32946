//! Records that were to be published and were not stored, by error code.
use bascule_wire::ErrorCode;
use std::sync::atomic::{AtomicU64, Ordering};

/// The codes that are exported. A closed set: no request of a client adds a series.
const EXPORTED: [ErrorCode; 19] = [
    ErrorCode::InvalidArgument,
    ErrorCode::Unauthenticated,
    ErrorCode::PermissionDenied,
    ErrorCode::StreamNotFound,
    ErrorCode::PartitionNotFound,
    ErrorCode::NotLeader,
    ErrorCode::Unavailable,
    ErrorCode::Busy,
    ErrorCode::DiskFull,
    ErrorCode::Readonly,
    ErrorCode::NotEnoughReplicas,
    ErrorCode::EncryptionKeyMissing,
    ErrorCode::ProducerFenced,
    ErrorCode::TooManyProducers,
    ErrorCode::SequenceGap,
    ErrorCode::OutcomeUnknown,
    ErrorCode::TooLarge,
    ErrorCode::IncorrectOffset,
    ErrorCode::FailedPrecondition,
];

/// The counters, one for each code.
#[derive(Debug)]
pub struct PublishErrors([AtomicU64; ErrorCode::ALL.len()]);

impl Default for PublishErrors {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl PublishErrors {
    pub(crate) fn add(&self, code: ErrorCode, records: u64) {
        if let Some(counter) = self.0.get(code as usize) {
            counter.fetch_add(records, Ordering::Relaxed);
        }
    }

    /// Labels without braces, and the count of each exported code.
    pub(crate) fn series(&self) -> Vec<(String, u64)> {
        let counters = EXPORTED.iter().filter_map(|code| {
            let counter = self.0.get(*code as usize)?;
            Some((code, counter.load(Ordering::Relaxed)))
        });
        counters
            .map(|(code, count)| (format!("code=\"{code}\""), count))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_a_counter_of_its_own() {
        let errors = PublishErrors::default();
        for (place, code) in EXPORTED.into_iter().enumerate() {
            errors.add(code, place as u64 + 1);
        }
        let series = errors.series();
        let values: Vec<u64> = series.iter().map(|(_, value)| *value).collect();
        assert_eq!(values, (1..=19).collect::<Vec<u64>>());
        assert_eq!(series[0].0, "code=\"invalid_argument\"");
    }
}
