//! Which records of a batch a subscription wants, by their subjects.
use bascule_record::Batch;
use bascule_wire::subject::SubjectFilter;
use tonic::Status;

/// A filter and what it makes of the subjects of one batch. Each subject of a batch is judged once.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    filter: Option<SubjectFilter>,
    /// Subject of records that have none of their own.
    own: String,
    /// By subject number of the batch judged last.
    verdicts: Vec<bool>,
}

impl Wanted {
    /// `filter` is the request's; empty = everything.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` when nothing can be filtered by it.
    pub(super) fn parse(filter: &str) -> Result<Self, Status> {
        if filter.is_empty() {
            return Ok(Self::default());
        }
        let filter = SubjectFilter::parse(filter).map_err(|error| {
            Status::invalid_argument(format!(
                "subject: {error}: tokens joined by dots, * for one token, > at the end for one or more"
            ))
        })?;
        Ok(Self {
            filter: Some(filter),
            ..Self::default()
        })
    }

    /// The same for records whose subject is `own` unless they have another.
    pub(super) fn of_partition(mut self, own: &str) -> Self {
        own.clone_into(&mut self.own);
        self
    }

    /// Whether every record is wanted, whatever its subject.
    pub(super) fn is_everything(&self) -> bool {
        self.filter.is_none()
    }

    /// Judges the subjects of a batch; true when any of its records is wanted.
    pub(super) fn judge(&mut self, batch: &Batch) -> bool {
        let Some(filter) = &self.filter else {
            return true;
        };
        self.verdicts.clear();
        let subjects = batch.distinct_subjects();
        self.verdicts
            .extend(subjects.map(|subject| filter.matches(subject.unwrap_or(&self.own))));
        self.verdicts.contains(&true)
    }

    /// Whether record `i` of the batch judged last is wanted.
    pub(super) fn has(&self, batch: &Batch, i: usize) -> bool {
        self.is_everything()
            || self
                .verdicts
                .get(batch.subject_number(i))
                .copied()
                .unwrap_or(false)
    }
}
