//! Rows that a stream would refuse, found before they are sent: the rules of [`super::ingest`], row by row to the end.
use super::digest::RowDigest;
use super::ingest::{Ingest, IngestError, Scratch};
use super::spread::numbered;
use super::values::{self, Integers};
use arrow_array::RecordBatch;
use bascule_record::RecordRef;
use std::num::NonZeroU32;

/// What a stream accepts.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// How many partitions it has.
    pub partitions: NonZeroU32,
    /// Its `max_record_bytes`.
    pub record_bytes: usize,
}

/// What rows are compared with.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// Nothing: no row is refused.
    None,
    /// The limits of their stream.
    Limits(StreamLimits),
    /// Their stream takes no rows: all are refused.
    Closed,
}

/// A row that would be refused.
#[derive(Debug)]
pub struct RefusedRow<'a> {
    /// Row of the batch, from 0.
    pub row: usize,
    /// Why; `None` = the rule is [`Rule::Closed`].
    pub cause: Option<IngestError>,
    /// What it holds. Subject, reply and header kinds may be invalid; an id of another length is hashed.
    pub record: RecordRef<'a>,
    /// The message id as it is.
    pub id: Option<&'a [u8]>,
    /// The partition that the row names.
    pub partition: Option<i128>,
}

/// Adds the rows of `batch` to `digest`, which is of `stream`, and calls `refused` with each that `rule` refuses, in order.
///
/// # Errors
/// [`IngestError`] that names a column: not accepted, sent twice, of another type, or missing.
pub fn check(
    batch: &RecordBatch,
    stream: &str,
    rule: Rule,
    digest: &mut RowDigest,
    mut refused: impl FnMut(RefusedRow<'_>),
) -> Result<(), IngestError> {
    let bound = Ingest::bind_any(batch)?;
    let named = bound
        .partition
        .map(|column| values::integers(column, "partition"));
    let named = named.transpose()?;
    let mut scratch = Scratch::default();
    for row in 0..bound.rows {
        let cause = match bound.record(row, 0, &mut scratch) {
            Ok(record) => {
                digest.add(&record);
                match rule {
                    Rule::Limits(limits) => bound
                        .fits(row, &record, stream, limits, named.as_ref())
                        .err(),
                    Rule::None | Rule::Closed => None,
                }
            }
            Err(cause) => {
                digest.add(&bound.unchecked(row, &mut scratch));
                Some(cause)
            }
        };
        let is_refused = match rule {
            Rule::None => false,
            Rule::Closed => true,
            Rule::Limits(_) => cause.is_some(),
        };
        if !is_refused {
            continue;
        }
        refused(RefusedRow {
            row,
            cause: cause.filter(|_| !matches!(rule, Rule::Closed)),
            record: bound.unchecked(row, &mut scratch),
            id: bound.id.as_ref().and_then(|ids| ids.bytes(row)),
            partition: named.as_ref().and_then(|numbers| numbers(row)),
        });
    }
    Ok(())
}

impl<'a> Ingest<'a> {
    /// Compares a row that is a valid record with the limits of its stream.
    #[inline]
    fn fits(
        &self,
        row: usize,
        record: &RecordRef<'_>,
        stream: &str,
        limits: StreamLimits,
        named: Option<&Integers<'_>>,
    ) -> Result<(), IngestError> {
        self.check_stream(row, stream)?;
        if let Some(number) = named.and_then(|numbers| numbers(row)) {
            numbered(number, row, limits.partitions)?;
        }
        let size = record.check(limits.record_bytes);
        size.map(drop)
            .map_err(|cause| IngestError::Record { row, cause })
    }

    /// A row as a record, whether or not it is a valid one.
    fn unchecked<'r>(&self, row: usize, scratch: &'r mut Scratch<'a>) -> RecordRef<'r> {
        scratch.headers.clear();
        if let Some(column) = &self.headers {
            column.each_unchecked(row, |header| scratch.headers.push(header));
        }
        let text = |column: &Option<values::Text<'a>>| column.as_ref().and_then(|it| it.at(row));
        let time = |column: &Option<values::Times<'a>>| {
            column.as_ref().and_then(|times| times.unchecked(row))
        };
        RecordRef {
            timestamp: 0,
            origin_time: time(&self.origin_time).or_else(|| time(&self.timestamp)),
            id: self.id.as_ref().map_or(0, |ids| ids.unchecked(row)),
            key: self.key.as_ref().and_then(|keys| keys.at(row)),
            value: self.value.at(row),
            headers: &scratch.headers,
            subject: text(&self.subject),
            reply: text(&self.reply).unwrap_or_default(),
        }
    }
}
