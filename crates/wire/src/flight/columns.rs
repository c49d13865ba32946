//! Arrow columns being filled from the columns of batches.
//!
//! All ranges `[from, to)` given here lie within the batch. Sums of bytes stay far below 2^31, which [`super::gather`] sees to.
use super::schema::{Column, UTC, header_element, header_fields};
use arrow_array::{
    ArrayRef, BinaryArray, FixedSizeBinaryArray, Int32Array, Int64Array, ListArray, StringArray,
    StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use bascule_record::{Batch, Ends, HeaderEntry};
use std::sync::Arc;

/// Kinds of header keys that may be text: raw and string.
const TEXT_KEYS: std::ops::RangeInclusive<u8> = 1..=2;

/// One column of the result.
#[derive(Debug)]
pub(crate) enum Gathering {
    Partition(i32),
    Stream(Arc<str>),
    Offset(Vec<i64>),
    Timestamp(Vec<i64>),
    TimestampNs(Vec<i64>),
    Subject {
        own: Arc<str>,
        subjects: Varied,
    },
    Key(Varied),
    Value(Varied),
    Headers(Box<Headers>),
    Reply(Varied),
    Id {
        ids: Vec<u8>,
        nulls: NullBufferBuilder,
    },
    OriginTime {
        times: Vec<i64>,
        nulls: NullBufferBuilder,
    },
}

impl Gathering {
    pub(crate) fn new(
        column: Column,
        stream: &Arc<str>,
        partition: i32,
        subject: &Arc<str>,
    ) -> Self {
        match column {
            Column::Partition => Self::Partition(partition),
            Column::Stream => Self::Stream(stream.clone()),
            Column::Offset => Self::Offset(Vec::new()),
            Column::Timestamp => Self::Timestamp(Vec::new()),
            Column::TimestampNs => Self::TimestampNs(Vec::new()),
            Column::Subject => Self::Subject {
                own: subject.clone(),
                subjects: Varied::default(),
            },
            Column::Key => Self::Key(Varied::default()),
            Column::Value => Self::Value(Varied::default()),
            Column::Headers => Self::Headers(Box::default()),
            Column::Reply => Self::Reply(Varied::default()),
            Column::Id => Self::Id {
                ids: Vec::new(),
                nulls: NullBufferBuilder::new(0),
            },
            Column::OriginTime => Self::OriginTime {
                times: Vec::new(),
                nulls: NullBufferBuilder::new(0),
            },
        }
    }

    /// Appends records `[from, to)`; returns how many bytes of content that added.
    pub(crate) fn append(&mut self, batch: &Batch, from: usize, to: usize) -> usize {
        match self {
            Self::Partition(_) => 0,
            Self::Stream(name) => name.len() * (to - from),
            Self::Offset(offsets) => append_offsets(offsets, batch, from, to),
            Self::Timestamp(times) => append_timestamps(times, batch, from, to, micros),
            Self::TimestampNs(times) => append_timestamps(times, batch, from, to, |nanos| nanos),
            Self::Subject { own, subjects } => subjects.append_subjects(batch, own, from, to),
            Self::Key(keys) => keys.append_filled(batch.keys(), from, to),
            Self::Value(values) => values.append_values(batch, from, to),
            Self::Headers(headers) => headers.append(batch, from, to),
            Self::Reply(replies) => replies.append_filled(batch.replies(), from, to),
            Self::Id { ids, nulls } => append_ids(ids, nulls, batch, from, to),
            Self::OriginTime { times, nulls } => append_origin_times(times, nulls, batch, from, to),
        }
    }

    /// The finished column of `rows` rows; leaves an empty one with as much memory as this one took.
    pub(crate) fn finish(&mut self, rows: usize) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Partition(partition) => Arc::new(Int32Array::from(vec![*partition; rows])),
            Self::Stream(name) => {
                let mut names = Varied::default();
                names.append_text(name, rows);
                names.finish_text()?
            }
            Self::Offset(column) | Self::TimestampNs(column) => {
                Arc::new(Int64Array::from(take(column)))
            }
            Self::Timestamp(times) => {
                Arc::new(TimestampMicrosecondArray::from(take(times)).with_timezone(UTC))
            }
            Self::Subject { subjects, .. } => subjects.finish_text()?,
            Self::Key(column) | Self::Value(column) => column.finish_binary()?,
            Self::Headers(headers) => headers.finish()?,
            Self::Reply(replies) => replies.finish_text()?,
            Self::Id { ids, nulls } => Arc::new(FixedSizeBinaryArray::try_new(
                16,
                Buffer::from_vec(take(ids)),
                nulls.finish(),
            )?),
            Self::OriginTime { times, nulls } => {
                let times = ScalarBuffer::from(take(times));
                Arc::new(
                    TimestampMicrosecondArray::try_new(times, nulls.finish())?.with_timezone(UTC),
                )
            }
        })
    }
}

/// The filled vector; in its place an empty one with room for as much.
fn take<T>(column: &mut Vec<T>) -> Vec<T> {
    let room = Vec::with_capacity(column.len());
    std::mem::replace(column, room)
}

fn append_offsets(offsets: &mut Vec<i64>, batch: &Batch, from: usize, to: usize) -> usize {
    let base = batch.header().base_offset as i64;
    match batch.offset_deltas() {
        Some(deltas) => offsets.extend(u32s(deltas, from, to).map(|delta| base + i64::from(delta))),
        None => offsets.extend(base + from as i64..base + to as i64),
    }
    8 * (to - from)
}

/// `convert`: the unit of the column, from ns.
fn append_timestamps(
    times: &mut Vec<i64>,
    batch: &Batch,
    from: usize,
    to: usize,
    convert: impl Fn(i64) -> i64,
) -> usize {
    let base = batch.header().base_timestamp;
    match batch.timestamp_deltas() {
        Some(deltas) => {
            times.extend(u32s(deltas, from, to).map(|delta| convert(base + i64::from(delta))));
        }
        None => times.resize(times.len() + (to - from), convert(base)),
    }
    8 * (to - from)
}

fn append_ids(
    ids: &mut Vec<u8>,
    nulls: &mut NullBufferBuilder,
    batch: &Batch,
    from: usize,
    to: usize,
) -> usize {
    if batch.ids().is_none() {
        ids.resize(ids.len() + 16 * (to - from), 0);
        nulls.append_n_nulls(to - from);
        return 0;
    }
    for i in from..to {
        let id = batch.id(i);
        ids.extend_from_slice(&id.to_be_bytes());
        nulls.append(id != 0);
    }
    16 * (to - from)
}

fn append_origin_times(
    times: &mut Vec<i64>,
    nulls: &mut NullBufferBuilder,
    batch: &Batch,
    from: usize,
    to: usize,
) -> usize {
    if batch.origin_times().is_none() {
        times.resize(times.len() + (to - from), 0);
        nulls.append_n_nulls(to - from);
        return 0;
    }
    for i in from..to {
        let time = batch.origin_time(i);
        times.push(time.map_or(0, micros));
        nulls.append(time.is_some());
    }
    8 * (to - from)
}

/// Microseconds, rounded down also before 1970.
fn micros(nanos: i64) -> i64 {
    nanos.div_euclid(1000)
}

/// Elements `[from, to)` of little-endian u32.
fn u32s(array: &[u8], from: usize, to: usize) -> impl Iterator<Item = u32> {
    let part = array.get(4 * from..4 * to).unwrap_or_default();
    let (elements, _) = part.as_chunks::<4>();
    elements.iter().map(|element| u32::from_le_bytes(*element))
}

/// A column of bytes or text: ends, content, validity.
#[derive(Debug)]
pub(crate) struct Varied {
    ends: Vec<i32>,
    content: Vec<u8>,
    nulls: NullBufferBuilder,
}

impl Default for Varied {
    fn default() -> Self {
        Self {
            ends: vec![0],
            content: Vec::new(),
            nulls: NullBufferBuilder::new(0),
        }
    }
}

impl Varied {
    /// Content and ends of `[from, to)`: one copy, and a sum for each end. Says nothing of nulls. Returns the bytes added.
    fn append_column(
        &mut self,
        column: Option<(Ends<'_>, &[u8])>,
        from: usize,
        to: usize,
    ) -> usize {
        let Some((ends, content)) = column else {
            let end = self.content.len() as i32;
            self.ends.resize(self.ends.len() + (to - from), end);
            return 0;
        };
        let (first, last) = (ends.get(from), ends.get(to));
        let shift = self.content.len() as i32 - first as i32;
        self.ends
            .extend(u32s(ends.as_bytes(), from + 1, to + 1).map(|end| end as i32 + shift));
        self.content.extend_from_slice(
            content
                .get(first as usize..last as usize)
                .unwrap_or_default(),
        );
        (last - first) as usize
    }

    fn append_values(&mut self, batch: &Batch, from: usize, to: usize) -> usize {
        match batch.value_nulls() {
            None => self.nulls.append_n_non_nulls(to - from),
            Some(nulls) => {
                for i in from..to {
                    let is_null = nulls
                        .get(i / 8)
                        .is_some_and(|byte| byte >> (i % 8) & 1 != 0);
                    self.nulls.append(!is_null);
                }
            }
        }
        self.append_column(batch.values(), from, to)
    }

    /// A column in which empty means none.
    fn append_filled(
        &mut self,
        column: Option<(Ends<'_>, &[u8])>,
        from: usize,
        to: usize,
    ) -> usize {
        match column {
            None => self.nulls.append_n_nulls(to - from),
            Some((ends, _)) => {
                let mut start = ends.get(from);
                for end in u32s(ends.as_bytes(), from + 1, to + 1) {
                    self.nulls.append(end > start);
                    start = end;
                }
            }
        }
        self.append_column(column, from, to)
    }

    fn append_subjects(&mut self, batch: &Batch, own: &str, from: usize, to: usize) -> usize {
        if let Some(subject) = batch.constant_subject() {
            return self.append_text(subject.unwrap_or(own), to - from);
        }
        let before = self.content.len();
        for i in from..to {
            self.content
                .extend_from_slice(batch.subject(i).unwrap_or(own).as_bytes());
            self.ends.push(self.content.len() as i32);
        }
        self.nulls.append_n_non_nulls(to - from);
        self.content.len() - before
    }

    /// The same text in `rows` rows.
    fn append_text(&mut self, text: &str, rows: usize) -> usize {
        let bytes = text.len() * rows;
        self.content.reserve(bytes);
        for _ in 0..rows {
            self.content.extend_from_slice(text.as_bytes());
            self.ends.push(self.content.len() as i32);
        }
        self.nulls.append_n_non_nulls(rows);
        bytes
    }

    fn append_one(&mut self, bytes: Option<&[u8]>) {
        self.content.extend_from_slice(bytes.unwrap_or_default());
        self.ends.push(self.content.len() as i32);
        self.nulls.append(bytes.is_some());
    }

    /// Ends and content; in their place empty ones with room for as much.
    fn finish(&mut self) -> (OffsetBuffer<i32>, Buffer) {
        let ends = take(&mut self.ends);
        self.ends.push(0);
        (
            OffsetBuffer::new(ScalarBuffer::from(ends)),
            Buffer::from_vec(take(&mut self.content)),
        )
    }

    fn finish_binary(&mut self) -> Result<ArrayRef, ArrowError> {
        let (ends, content) = self.finish();
        Ok(Arc::new(BinaryArray::try_new(
            ends,
            content,
            self.nulls.finish(),
        )?))
    }

    fn finish_text(&mut self) -> Result<ArrayRef, ArrowError> {
        let (ends, content) = self.finish();
        Ok(Arc::new(StringArray::try_new(
            ends,
            content,
            self.nulls.finish(),
        )?))
    }
}

/// The list of headers.
#[derive(Debug)]
pub(crate) struct Headers {
    ends: Vec<i32>,
    keys: Varied,
    values: Varied,
    count: i32,
}

impl Default for Headers {
    fn default() -> Self {
        Self {
            ends: vec![0],
            keys: Varied::default(),
            values: Varied::default(),
            count: 0,
        }
    }
}

impl Headers {
    fn append(&mut self, batch: &Batch, from: usize, to: usize) -> usize {
        if !batch.has_headers() {
            self.ends.resize(self.ends.len() + (to - from), self.count);
            return 0;
        }
        let before = self.keys.content.len() + self.values.content.len();
        for i in from..to {
            for header in batch.headers(i) {
                self.keys.append_one(text_key(&header).map(str::as_bytes));
                self.values.append_one(Some(header.value));
                self.count += 1;
            }
            self.ends.push(self.count);
        }
        self.keys.content.len() + self.values.content.len() - before
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let columns = vec![self.keys.finish_text()?, self.values.finish_binary()?];
        let ends = take(&mut self.ends);
        self.ends.push(0);
        self.count = 0;
        let entries = StructArray::try_new(header_fields(), columns, None)?;
        let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
        Ok(Arc::new(ListArray::try_new(
            header_element(),
            ends,
            Arc::new(entries),
            None,
        )?))
    }
}

/// A header key as text; `None` for one that is not, and for an empty one of kind raw: it is how a null key was stored.
fn text_key<'a>(header: &HeaderEntry<'a>) -> Option<&'a str> {
    let is_null = header.key_kind == *TEXT_KEYS.start() && header.key.is_empty();
    if TEXT_KEYS.contains(&header.key_kind) && !is_null {
        std::str::from_utf8(header.key).ok()
    } else {
        None
    }
}
