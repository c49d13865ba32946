//! Records that were to be published and were not stored, by error code.
use crate::partition::{AppendError, Committed, RejectReason};
use bascule_log::SequenceError;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a record was not stored. A closed set: what a client sends adds no series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublishError {
    InvalidArgument,
    Unauthenticated,
    PermissionDenied,
    StreamNotFound,
    PartitionNotFound,
    NotLeader,
    Unavailable,
    Busy,
    DiskFull,
    Readonly,
    NotEnoughReplicas,
    EncryptionKeyMissing,
    ProducerFenced,
    TooManyProducers,
    SequenceGap,
    OutcomeUnknown,
    TooLarge,
    IncorrectOffset,
    FailedPrecondition,
}

impl PublishError {
    const ALL: [Self; 19] = [
        Self::InvalidArgument,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::StreamNotFound,
        Self::PartitionNotFound,
        Self::NotLeader,
        Self::Unavailable,
        Self::Busy,
        Self::DiskFull,
        Self::Readonly,
        Self::NotEnoughReplicas,
        Self::EncryptionKeyMissing,
        Self::ProducerFenced,
        Self::TooManyProducers,
        Self::SequenceGap,
        Self::OutcomeUnknown,
        Self::TooLarge,
        Self::IncorrectOffset,
        Self::FailedPrecondition,
    ];

    /// The code in `specs/errors.toml`.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::Unauthenticated => "unauthenticated",
            Self::PermissionDenied => "permission_denied",
            Self::StreamNotFound => "stream_not_found",
            Self::PartitionNotFound => "partition_not_found",
            Self::NotLeader => "not_leader",
            Self::Unavailable => "unavailable",
            Self::Busy => "busy",
            Self::DiskFull => "disk_full",
            Self::Readonly => "readonly",
            Self::NotEnoughReplicas => "not_enough_replicas",
            Self::EncryptionKeyMissing => "encryption_key_missing",
            Self::ProducerFenced => "producer_fenced",
            Self::TooManyProducers => "too_many_producers",
            Self::SequenceGap => "sequence_gap",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::TooLarge => "too_large",
            Self::IncorrectOffset => "incorrect_offset",
            Self::FailedPrecondition => "failed_precondition",
        }
    }

    /// A record that was refused while its neighbours were stored; `None` = it had been stored before.
    pub(crate) fn of_record(reason: &RejectReason) -> Option<Self> {
        match reason {
            RejectReason::TooLarge => Some(Self::TooLarge),
            RejectReason::IncorrectOffset => Some(Self::IncorrectOffset),
            RejectReason::Encryption => Some(Self::EncryptionKeyMissing),
            RejectReason::Batch | RejectReason::Refused(_) => Some(Self::FailedPrecondition),
            RejectReason::Duplicate(_) => None,
        }
    }
}

impl From<&AppendError> for PublishError {
    fn from(error: &AppendError) -> Self {
        match error {
            AppendError::NotLeader => Self::NotLeader,
            AppendError::Closed => Self::Unavailable,
            AppendError::Busy | AppendError::NoDescriptor => Self::Busy,
            AppendError::Full => Self::DiskFull,
            AppendError::Storage(_) => Self::OutcomeUnknown,
            AppendError::Readonly => Self::Readonly,
            AppendError::TooFewReplicas { .. } => Self::NotEnoughReplicas,
            AppendError::Encryption(_) => Self::EncryptionKeyMissing,
            AppendError::Sequence(SequenceError::Fenced { .. }) => Self::ProducerFenced,
            AppendError::Sequence(SequenceError::TooMany { .. }) => Self::TooManyProducers,
            AppendError::Sequence(_) => Self::SequenceGap,
        }
    }
}

/// The counters.
#[derive(Debug, Default)]
pub struct PublishErrors([AtomicU64; PublishError::ALL.len()]);

impl PublishErrors {
    pub(crate) fn add(&self, error: PublishError, records: u64) {
        if let Some(counter) = self.0.get(error as usize) {
            counter.fetch_add(records, Ordering::Relaxed);
        }
    }

    /// Counts what an append of `records` did not store.
    pub(crate) fn count(&self, outcome: &Result<Committed, AppendError>, records: usize) {
        match outcome {
            Err(error) => self.add(error.into(), records as u64),
            Ok(committed) => {
                for rejected in &committed.rejected {
                    if let Some(error) = PublishError::of_record(&rejected.reason) {
                        self.add(error, 1);
                    }
                }
            }
        }
    }

    /// Labels without braces, and the count of each code.
    pub(super) fn series(&self) -> Vec<(String, u64)> {
        let counters = PublishError::ALL.iter().zip(&self.0);
        counters
            .map(|(error, counter)| {
                let labels = format!("code=\"{}\"", error.code());
                (labels, counter.load(Ordering::Relaxed))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::Rejected;

    #[test]
    fn each_error_has_a_counter_of_its_own_and_a_code_of_the_table() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../specs/errors.toml");
        let table = std::fs::read_to_string(root).unwrap();
        let errors = PublishErrors::default();
        for (place, error) in PublishError::ALL.into_iter().enumerate() {
            assert_eq!(place, error as usize);
            assert!(
                table.contains(&format!("\n[{}]\n", error.code())),
                "{error:?}"
            );
            errors.add(error, place as u64 + 1);
        }
        let series = errors.series();
        let values: Vec<u64> = series.iter().map(|(_, value)| *value).collect();
        assert_eq!(values, (1..=19).collect::<Vec<u64>>());
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
