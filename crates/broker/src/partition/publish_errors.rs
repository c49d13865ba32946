//! Counts the records of an append that were not stored, by error code.
use super::{AppendError, Committed};
use crate::statistics::PublishErrors;

/// Adds the records that an append of `records` did not store.
pub(crate) fn count_publish_errors(
    errors: &PublishErrors,
    outcome: &Result<Committed, AppendError>,
    records: usize,
) {
    match outcome {
        Err(error) => errors.add(error.code(), records as u64),
        Ok(committed) => {
            for rejected in &committed.rejected {
                if let Some(code) = rejected.reason.code() {
                    errors.add(code, 1);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::{RejectReason, Rejected};

    #[test]
    fn a_refused_append_counts_all_its_records_and_a_duplicate_none() {
        let errors = PublishErrors::default();
        count_publish_errors(&errors, &Err(AppendError::Full), 7);
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
        count_publish_errors(&errors, &Ok(committed), 3);
        let counted: Vec<_> = errors
            .series()
            .into_iter()
            .filter(|(_, n)| *n > 0)
            .collect();
        let expected = [("code=\"disk_full\"", 7), ("code=\"too_large\"", 1)];
        assert_eq!(counted, expected.map(|(labels, n)| (labels.to_owned(), n)));
    }
}
