//! Gathers records of one partition into Arrow record batches of a good size for readers.
//!
//! A range of records goes into each column as a whole: one copy of its bytes, and a sum for each end. With a filter the
//! subjects of a batch are judged once each, and ranges of wanted records go the same way.
use super::columns::Gathering;
use super::schema::{Column, Projection};
use crate::subject::SubjectFilter;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::ArrowError;
use bascule_record::Batch;
use std::sync::Arc;

/// Most rows of a record batch, whatever is asked for.
const MAX_ROWS: usize = 1 << 20;
/// Most bytes at which a record batch is closed, whatever is asked for.
const MAX_BYTES: usize = 256 << 20;
/// Bound on the text that one range may repeat in `subject` or `stream`.
const MAX_REPEATED_TEXT: usize = 64 << 20;

/// Where a record batch is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherLimits {
    /// Most rows, 1 to 2^20.
    pub rows: usize,
    /// Content at which it is closed, 1 byte to 256 MiB; the record that reaches it is the last.
    pub bytes: usize,
}

impl Default for GatherLimits {
    /// 16,384 rows or 1 MiB, whichever is first.
    fn default() -> Self {
        Self {
            rows: 16 << 10,
            bytes: 1 << 20,
        }
    }
}

/// The partition that is read, as its rows name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatherSource {
    /// Stream name.
    pub stream: Arc<str>,
    /// Partition number.
    pub partition: i32,
    /// What records without a subject of their own are shown with; empty when the stream has none.
    pub subject: Arc<str>,
}

/// Fills one record batch after the other.
///
/// ```text
/// for each batch of the log:
///     at = first wanted record
///     loop:
///         at = gather.push(&batch, at, end)
///         if gather.is_full(): send gather.finish()
///         if at == end: break
/// send gather.finish()
/// ```
#[derive(Debug)]
pub struct Gather {
    projection: Projection,
    source: GatherSource,
    filter: Option<SubjectFilter>,
    limits: GatherLimits,
    columns: Vec<Gathering>,
    rows: usize,
    bytes: usize,
    /// Whether each distinct subject of the batch at hand is wanted.
    verdicts: Vec<bool>,
    /// Longest text that one row of the batch at hand repeats.
    longest_text: usize,
}

impl Gather {
    /// An empty one. `filter`: which subjects are wanted; `None` = all.
    pub fn new(
        projection: Projection,
        source: GatherSource,
        filter: Option<SubjectFilter>,
        limits: GatherLimits,
    ) -> Self {
        let columns = projection.columns().iter();
        let columns = columns
            .map(|column| {
                Gathering::new(*column, &source.stream, source.partition, &source.subject)
            })
            .collect();
        let limits = GatherLimits {
            rows: limits.rows.clamp(1, MAX_ROWS),
            bytes: limits.bytes.clamp(1, MAX_BYTES),
        };
        Self {
            projection,
            source,
            filter,
            limits,
            columns,
            rows: 0,
            bytes: 0,
            verdicts: Vec::new(),
            longest_text: 0,
        }
    }

    /// Takes records `[from, to)` of `batch`, those that are wanted, until this is full. Returns the first record not
    /// examined: `to`, or less when full. `to` beyond the end of the batch means the end.
    pub fn push(&mut self, batch: &Batch, from: usize, to: usize) -> usize {
        let to = to.min(batch.len());
        let mut at = from;
        self.longest_text = self.longest_text(batch);
        match self.judge(batch) {
            Verdict::Nothing => return to.max(from),
            Verdict::All => {
                while at < to && !self.is_full() {
                    at = self.take(batch, at, to);
                }
            }
            Verdict::Some => {
                while at < to && !self.is_full() {
                    let start = (at..to).find(|&i| self.is_wanted(batch, i)).unwrap_or(to);
                    let end = (start..to)
                        .find(|&i| !self.is_wanted(batch, i))
                        .unwrap_or(to);
                    at = if start < end {
                        self.take(batch, start, end)
                    } else {
                        to
                    };
                }
            }
        }
        at
    }

    /// Rows gathered.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of content gathered, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is time to finish.
    pub fn is_full(&self) -> bool {
        self.rows >= self.limits.rows || self.bytes >= self.limits.bytes
    }

    /// The columns asked for.
    pub fn projection(&self) -> &Projection {
        &self.projection
    }

    /// What was gathered, leaving this empty; `None` when that is nothing.
    ///
    /// # Errors
    /// When Arrow refuses the columns, which would be a defect of this crate.
    pub fn finish(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        if rows == 0 {
            return Ok(None);
        }
        let columns = self
            .columns
            .iter_mut()
            .map(|column| column.finish(rows))
            .collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.projection.schema().clone(), columns, &options)
            .map(Some)
    }

    /// Appends as much of `[from, to)`, which is not empty and wanted as a whole, as fits; returns where it stopped.
    fn take(&mut self, batch: &Batch, from: usize, to: usize) -> usize {
        let to = self.fit(batch, from, to);
        for column in &mut self.columns {
            self.bytes += column.append(batch, from, to);
        }
        self.rows += to - from;
        to
    }

    /// The end, after `from`, of what fits.
    fn fit(&self, batch: &Batch, from: usize, to: usize) -> usize {
        let most_rows = (self.limits.rows - self.rows)
            .min(MAX_REPEATED_TEXT / self.longest_text.max(1))
            .max(1);
        let to = to.min(from + most_rows);
        let (values, keys) = (
            self.column(Column::Value, batch.values()),
            self.column(Column::Key, batch.keys()),
        );
        let start = values(from) + keys(from);
        let room = self.limits.bytes.saturating_sub(self.bytes);
        let is_enough = |end: usize| values(end) + keys(end) - start >= room;
        if !is_enough(to) {
            return to;
        }
        // The smallest end that reaches the limit: content grows with the end.
        let (mut low, mut high) = (from + 1, to);
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_enough(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        high
    }

    /// Bytes of a column before record i; 0 when it is not asked for.
    fn column<'a>(
        &self,
        column: Column,
        content: Option<(bascule_record::Ends<'a>, &'a [u8])>,
    ) -> impl Fn(usize) -> usize + use<'a> {
        let ends = content
            .map(|(ends, _)| ends)
            .filter(|_| self.projection.has(column));
        move |i| ends.map_or(0, |ends| ends.get(i) as usize)
    }

    fn longest_text(&self, batch: &Batch) -> usize {
        let stream = if self.projection.has(Column::Stream) {
            self.source.stream.len()
        } else {
            0
        };
        if !self.projection.has(Column::Subject) {
            return stream;
        }
        let own = self.source.subject.len();
        batch
            .distinct_subjects()
            .map(|subject| subject.map_or(own, str::len))
            .fold(stream, usize::max)
    }

    fn judge(&mut self, batch: &Batch) -> Verdict {
        let Some(filter) = &self.filter else {
            return Verdict::All;
        };
        self.verdicts.clear();
        let own = &self.source.subject;
        self.verdicts.extend(
            batch
                .distinct_subjects()
                .map(|subject| filter.matches(subject.unwrap_or(own))),
        );
        match (
            self.verdicts.contains(&true),
            self.verdicts.contains(&false),
        ) {
            (true, false) => Verdict::All,
            (false, _) => Verdict::Nothing,
            (true, true) => Verdict::Some,
        }
    }

    fn is_wanted(&self, batch: &Batch, i: usize) -> bool {
        self.verdicts
            .get(batch.subject_number(i))
            .copied()
            .unwrap_or(false)
    }
}

/// What a filter makes of a batch.
#[derive(Clone, Copy)]
enum Verdict {
    All,
    Some,
    Nothing,
}
