//! Records that were to be published and were not stored, by error code.
use crate::partition::{AppendError, Committed};
use bascule_wire::ErrorCode;
use std::sync::atomic::{AtomicU64, Ordering};

/// The codes that are exported. A closed set: what a client sends adds no series.
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

    /// Counts what an append of `records` did not store.
    pub(crate) fn count(&self, outcome: &Result<Committed, AppendError>, records: usize) {
        match outcome {
            Err(error) => self.add(error.code(), records as u64),
            Ok(committed) => {
                for rejected in &committed.rejected {
                    if let Some(code) = rejected.reason.code() {
                        self.add(code, 1);
                    }
                }
            }
        }
    }

    /// Labels without braces, and the count of each exported code.
    pub(super) fn series(&self) -> Vec<(String, u64)> {
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
    use crate::partition::{RejectReason, Rejected};

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

    #[test]
    fn refused_appends_count_all_their_records_and_duplicates_are_no_errors() {
        let errors = PublishErrors::default();
        errors.count(&Err(AppendError::Full), 7);
        let rejected = |index, reason| Rejected { index, reason };
        let committed = Committed {
            base_offset: 0,
            timestamp: 0,
            commit_timestamp: 0,
            count: 1,
            rejected: vec![
                rejected(0, RejectReason::TooLarge),
                rejected(2, RejectReason::Duplicate(3)),
            ],
            duplicate: false,
        };
        errors.count(&Ok(committed), 3);
        let counted: Vec<_> = errors
            .series()
            .into_iter()
            .filter(|(_, n)| *n > 0)
            .collect();
        let expected = [("code=\"disk_full\"", 7), ("code=\"too_large\"", 1)];
        assert_eq!(counted, expected.map(|(labels, n)| (labels.to_owned(), n)));
    }
}
