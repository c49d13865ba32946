//! Record batches sent by clients, taken apart into records.
//!
//! | Column | Type | Becomes |
//! |---|---|---|
//! | `value` (required) | binary or text, any layout | value; null = a tombstone |
//! | `key` | binary or text, any layout | key; null or empty = none |
//! | `headers` | list or map of (`key`, `value`: binary or text), in lists also `key_kind`, `value_kind`: integers | headers; null = none |
//! | `subject` | text | subject; null = the partition's own; wildcards are refused |
//! | `reply` | text | reply subject; null or empty = none; wildcards are refused |
//! | `id` | binary of 16 bytes | message id; null or zeros = none |
//! | `origin_time`, `timestamp` | timestamp, any unit and zone | origin time; null = none |
//! | `stream` | text | must say in every row what the request says |
//! | `partition` | integer | the partition of the request in every row; where it names none, the partition of the row ([`super::spread`]) |
//!
//! Names are compared without regard to case. Any other column is refused by name, so that nothing is lost silently.
use super::digest::RowDigest;
use super::headers::Headers;
use super::spread::Rows;
use super::values::{self, Bytes, Ids, Text, Times};
use crate::subject::is_publish_subject;
use arrow_array::RecordBatch;
use bascule_record::{
    BatchBuilder, BuildError, Codec, HeaderEntry, Producer, RecordRef, SealedBatch,
};

/// Columns a client may send.
const ACCEPTED: [&str; 10] = [
    "value",
    "key",
    "headers",
    "subject",
    "reply",
    "id",
    "origin_time",
    "timestamp",
    "stream",
    "partition",
];

/// Where the rows go, and when.
#[derive(Clone, Copy, Debug)]
pub struct IngestTarget<'a> {
    /// Stream that the request names.
    pub stream: &'a str,
    /// Partition that the rows go to.
    pub partition: u32,
    /// The partition's own subject, if it has one.
    pub subject: Option<&'a str>,
    /// Receipt time of all rows, ns since 1970.
    pub now: i64,
    /// How batches are compressed.
    pub codec: Codec,
    /// Idempotent producer; its sequence is that of the first row and grows by one with every row.
    pub producer: Option<Producer>,
}

/// The columns of a record batch, bound by name and type.
#[derive(Debug)]
pub struct Ingest<'a> {
    pub(super) rows: usize,
    stream: Option<Text<'a>>,
    pub(super) partition: Option<&'a arrow_array::ArrayRef>,
    pub(super) value: Bytes<'a>,
    pub(super) key: Option<Bytes<'a>>,
    pub(super) headers: Option<Headers<'a>>,
    pub(super) subject: Option<Text<'a>>,
    pub(super) reply: Option<Text<'a>>,
    pub(super) id: Option<Ids<'a>>,
    pub(super) origin_time: Option<Times<'a>>,
    pub(super) timestamp: Option<Times<'a>>,
}

/// What lasts from row to row while rows are pushed.
#[derive(Default)]
pub(super) struct Scratch<'a> {
    pub(super) headers: Vec<HeaderEntry<'a>>,
    /// Subjects and replies come in runs: each is checked once per run.
    subject: Option<&'a str>,
    reply: &'a str,
}

impl<'a> Ingest<'a> {
    /// Binds the columns of `rows`.
    ///
    /// # Errors
    /// [`IngestError`] that names the column: not accepted, sent twice, of another type, missing, or (for `stream`) with
    /// a row that says something else than `stream` here.
    pub fn bind(rows: &'a RecordBatch, stream: &str) -> Result<Self, IngestError> {
        let bound = Self::bind_any(rows)?;
        for row in 0..bound.rows {
            bound.check_stream(row, stream)?;
        }
        Ok(bound)
    }

    /// Binds the columns of `rows`, whatever the column `stream` says.
    ///
    /// # Errors
    /// [`IngestError`] that names the column: not accepted, sent twice, of another type, or missing.
    pub(super) fn bind_any(rows: &'a RecordBatch) -> Result<Self, IngestError> {
        let columns = Columns::find(rows)?;
        let value = columns.get("value").ok_or(IngestError::NoValue)?;
        let text = |name| columns.bound(name, Text::named);
        let times = |name| columns.bound(name, Times::named);
        Ok(Self {
            rows: rows.num_rows(),
            stream: text("stream")?,
            partition: columns.get("partition"),
            value: Bytes::any(value, "value")?,
            key: columns.bound("key", Bytes::any)?,
            headers: columns.get("headers").map(Headers::bind).transpose()?,
            subject: text("subject")?,
            reply: text("reply")?,
            id: columns.get("id").map(Ids::bind).transpose()?,
            origin_time: times("origin_time")?,
            timestamp: times("timestamp")?,
        })
    }

    /// All rows, which are for `partition`.
    ///
    /// # Errors
    /// [`IngestError`] when the column `partition` says something else.
    pub fn all(&self, partition: u32) -> Result<Rows, IngestError> {
        if let Some(column) = self.partition {
            let numbers = values::integers(column, "partition")?;
            for row in 0..self.rows {
                let found = numbers(row);
                if found != Some(partition.into()) {
                    let found = found.map(|number| number.to_string());
                    return Err(elsewhere("partition", row, found, &partition.to_string()));
                }
            }
        }
        Ok(Rows::All(self.rows))
    }

    /// Checks the column `stream` of a row, if there is one.
    pub(super) fn check_stream(&self, row: usize, stream: &str) -> Result<(), IngestError> {
        let Some(names) = &self.stream else {
            return Ok(());
        };
        match names.at(row) {
            Some(name) if name == stream => Ok(()),
            found => Err(elsewhere("stream", row, found.map(str::to_owned), stream)),
        }
    }

    /// Seals `rows` into as few batches as the limits of `builder` allow. With a producer each batch carries the sequence
    /// of its first row; the same rows and limits always give the same batches. `builder` must be empty before and is
    /// empty after, also after an error.
    ///
    /// # Errors
    /// [`IngestError`]; then nothing was sealed.
    pub fn seal(
        &self,
        rows: &Rows,
        target: &IngestTarget<'_>,
        builder: &mut BatchBuilder,
    ) -> Result<Vec<SealedBatch>, IngestError> {
        let mut sealed = Vec::new();
        let mut at = 0;
        while at < rows.len() {
            let pushed = self.push(rows, at, target.now, builder, None);
            let producer = target.producer.map(|producer| Producer {
                base_sequence: producer.base_sequence.wrapping_add(at as u32),
                ..producer
            });
            // Sealed in any case: that is what empties the builder.
            let batch = builder.seal(target.codec, producer, target.subject);
            at = pushed?;
            sealed.extend(batch);
        }
        Ok(sealed)
    }

    /// Pushes `rows` from place `from` on until `builder` is full; returns the first place not pushed. All get the receipt
    /// time `now`; those pushed are added to `digest`. After an error the rows before stay in `builder`.
    ///
    /// # Errors
    /// [`IngestError`] for a row that cannot be stored.
    pub fn push(
        &self,
        rows: &Rows,
        from: usize,
        now: i64,
        builder: &mut BatchBuilder,
        mut digest: Option<&mut RowDigest>,
    ) -> Result<usize, IngestError> {
        let mut scratch = Scratch::default();
        for place in from..rows.len() {
            let row = rows.at(place);
            let record = self.record(row, now, &mut scratch)?;
            match builder.push(&record) {
                Ok(()) => {}
                Err(BuildError::Full) if !builder.is_empty() => return Ok(place),
                Err(cause) => return Err(IngestError::Record { row, cause }),
            }
            if let Some(digest) = &mut digest {
                digest.add(&record);
            }
        }
        Ok(rows.len())
    }

    /// A row as a record.
    #[inline]
    pub(super) fn record<'r>(
        &self,
        row: usize,
        now: i64,
        scratch: &'r mut Scratch<'a>,
    ) -> Result<RecordRef<'r>, IngestError> {
        scratch.headers.clear();
        if let Some(column) = &self.headers {
            column.each(row, |header| scratch.headers.push(header))?;
        }
        let subject = self.subject.as_ref().and_then(|subjects| subjects.at(row));
        if subject != scratch.subject {
            check_subject("subject", subject, row)?;
            scratch.subject = subject;
        }
        let reply = self.reply.as_ref().and_then(|replies| replies.at(row));
        let reply = reply.unwrap_or_default();
        // Comparing two empty texts is slow: the processor loads from where nothing is.
        if !reply.is_empty() && reply != scratch.reply {
            check_subject("reply", Some(reply), row)?;
            scratch.reply = reply;
        }
        Ok(RecordRef {
            timestamp: now,
            origin_time: self.origin_time(row)?,
            id: self.id.as_ref().map_or(Ok(0), |ids| ids.at(row))?,
            key: self.key.as_ref().and_then(|keys| keys.at(row)),
            value: self.value.at(row),
            headers: &scratch.headers,
            subject,
            reply,
        })
    }

    /// What `origin_time` says, or else `timestamp`.
    #[inline]
    fn origin_time(&self, row: usize) -> Result<Option<i64>, IngestError> {
        let at = |times: &Option<Times<'_>>| times.as_ref().map_or(Ok(None), |times| times.at(row));
        match (at(&self.origin_time)?, at(&self.timestamp)?) {
            (Some(origin), Some(other)) if origin != other => Err(IngestError::Times { row }),
            (origin, other) => Ok(origin.or(other)),
        }
    }
}

/// Takes `rows`, all of which are for the partition of `target`, apart and seals them ([`Ingest::seal`]).
///
/// # Errors
/// [`IngestError`]; then nothing was sealed.
pub fn ingest(
    rows: &RecordBatch,
    target: &IngestTarget<'_>,
    builder: &mut BatchBuilder,
) -> Result<Vec<SealedBatch>, IngestError> {
    let bound = Ingest::bind(rows, target.stream)?;
    let all = bound.all(target.partition)?;
    bound.seal(&all, target, builder)
}

fn check_subject(
    column: &'static str,
    subject: Option<&str>,
    row: usize,
) -> Result<(), IngestError> {
    match subject {
        Some(subject) if !is_publish_subject(subject) => Err(IngestError::Subject {
            column,
            row,
            subject: subject.to_owned(),
        }),
        _ => Ok(()),
    }
}

fn elsewhere(
    column: &'static str,
    row: usize,
    found: Option<String>,
    expected: &str,
) -> IngestError {
    IngestError::Elsewhere {
        column,
        row,
        found: found.unwrap_or_else(|| "null".to_owned()),
        expected: expected.to_owned(),
    }
}

/// What to do about rows that are not for the stream or partition of the request.
fn remedy(column: &str) -> &'static str {
    if column == "partition" {
        "a request without a partition takes rows of several"
    } else {
        "send each stream in a call of its own"
    }
}

impl IngestError {
    /// Whether the row is larger than its stream allows.
    pub fn is_too_large(&self) -> bool {
        matches!(
            self,
            Self::Record {
                cause: BuildError::TooLarge { .. },
                ..
            }
        )
    }

    /// The same of a row that has another number where people count.
    #[must_use]
    pub fn in_row(mut self, number: usize) -> Self {
        match &mut self {
            Self::Elsewhere { row, .. }
            | Self::NoPartition { row, .. }
            | Self::Subject { row, .. }
            | Self::HeaderKind { row, .. }
            | Self::Id { row, .. }
            | Self::Time { row, .. }
            | Self::Times { row }
            | Self::Record { row, .. } => *row = number,
            Self::Unknown(_) | Self::Repeated(_) | Self::NoValue | Self::Type { .. } => {}
        }
        self
    }
}

/// The accepted columns that a batch has.
struct Columns<'a>([Option<&'a arrow_array::ArrayRef>; ACCEPTED.len()]);

impl<'a> Columns<'a> {
    fn find(rows: &'a RecordBatch) -> Result<Self, IngestError> {
        let mut found = [None; ACCEPTED.len()];
        for (field, column) in rows.schema_ref().fields().iter().zip(rows.columns()) {
            let place = ACCEPTED
                .iter()
                .position(|name| name.eq_ignore_ascii_case(field.name()));
            let slot = place.and_then(|place| found.get_mut(place));
            match slot {
                None => return Err(IngestError::Unknown(field.name().clone())),
                Some(Some(_)) => return Err(IngestError::Repeated(field.name().clone())),
                Some(slot) => *slot = Some(column),
            }
        }
        Ok(Self(found))
    }

    /// A column as `bind` takes it, if it is there.
    fn bound<T>(
        &self,
        name: &'static str,
        bind: impl Fn(&'a arrow_array::ArrayRef, &'static str) -> Result<T, IngestError>,
    ) -> Result<Option<T>, IngestError> {
        self.get(name).map(|column| bind(column, name)).transpose()
    }

    fn get(&self, name: &str) -> Option<&'a arrow_array::ArrayRef> {
        let place = ACCEPTED.iter().position(|accepted| *accepted == name)?;
        self.0.get(place).copied().flatten()
    }
}

/// Rows that cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IngestError {
    /// A column that is not among those accepted.
    #[error("column {0:?} cannot be stored; accepted are {accepted}", accepted = ACCEPTED.join(", "))]
    Unknown(String),
    /// Two columns differ in case only.
    #[error("column {0:?} is there twice")]
    Repeated(String),
    /// The one column that must be there is not.
    #[error("column value is missing")]
    NoValue,
    /// A column of a type that is not accepted.
    #[error("column {column} has type {found}, accepted are {accepted}")]
    Type {
        /// Name.
        column: &'static str,
        /// Arrow type as sent.
        found: String,
        /// What would do.
        accepted: &'static str,
    },
    /// `stream` or `partition` says something else than the request.
    #[error(
        "column {column} says {found:?} in row {row}, but the request is for {expected:?}; {remedy}",
        remedy = remedy(column)
    )]
    Elsewhere {
        /// Name.
        column: &'static str,
        /// Row, from 0.
        row: usize,
        /// What the row says.
        found: String,
        /// What the request says.
        expected: String,
    },
    /// `partition` says a number that the stream does not have.
    #[error(
        "column partition says {found} in row {row}, but the stream has the partitions 0 to {last}; null = by key"
    )]
    NoPartition {
        /// Row, from 0.
        row: usize,
        /// What the row says.
        found: i128,
        /// Highest number.
        last: u32,
    },
    /// A subject that nothing can be published on.
    #[error(
        "column {column} has {subject:?} in row {row}, which is not a valid NATS subject to publish on"
    )]
    Subject {
        /// `subject` or `reply`.
        column: &'static str,
        /// Row, from 0.
        row: usize,
        /// As sent.
        subject: String,
    },
    /// A kind of a header's key or value that is none.
    #[error("column headers has kind {found} in row {row}; kinds are 1 (raw), 2 (string), to 15")]
    HeaderKind {
        /// Row, from 0.
        row: usize,
        /// What the row says.
        found: i128,
    },
    /// A message id of another length.
    #[error("column id has {bytes} bytes in row {row}; an id has 16, and null is none")]
    Id {
        /// Row, from 0.
        row: usize,
        /// How many.
        bytes: usize,
    },
    /// A time that does not fit in 64 bits of nanoseconds.
    #[error("column {column} is out of range in row {row}: years 1677 to 2262 can be stored")]
    Time {
        /// `timestamp` or `origin_time`.
        column: &'static str,
        /// Row, from 0.
        row: usize,
    },
    /// Two times at the origin.
    #[error(
        "columns origin_time and timestamp say different times in row {row}, and both are the time at the origin: send one of them"
    )]
    Times {
        /// Row, from 0.
        row: usize,
    },
    /// A record that does not fit in a batch.
    #[error("row {row}: {cause}")]
    Record {
        /// Row, from 0.
        row: usize,
        /// Why.
        #[source]
        cause: BuildError,
    },
}
