//! Received messages gathered into columns, which become Arrow arrays without a copy.
//!
//! | Column | Type | Null | Content |
//! |---|---|---|---|
//! | `offset` | int64 | no | offset in the partition |
//! | `timestamp` | timestamp\[ns, UTC\] | no | when the broker received it |
//! | `key` | binary | yes | null = none |
//! | `value` | binary | yes | value; null = a tombstone |
//! | `subject` | utf8 | no | NATS subject it arrived on |
//! | `headers` | list\<element: struct\<key utf8, value binary\>\> | no | the publisher's, in order, with equal names; only a key that is not UTF-8 is null |
//! | `reply` | utf8 | yes | NATS reply subject; null = none |
//! | `origin_time` | timestamp\[ns, UTC\] | yes | time at the origin; null = none |
use crate::Error;
use arrow_array::types::{Int64Type, TimestampNanosecondType};
use arrow_array::{
    Array, ArrayRef, BinaryArray, ListArray, PrimitiveArray, RecordBatch, StringArray, StructArray,
};
use arrow_buffer::{
    BooleanBuffer, BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer,
};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use bascule_wire::ErrorCode;
use bascule_wire::liftbridge::delivery::MessageView;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

static HEADER: LazyLock<Fields> = LazyLock::new(|| {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("value", DataType::Binary, false),
    ])
});
static ELEMENT: LazyLock<Arc<Field>> = LazyLock::new(|| {
    Arc::new(Field::new(
        "element",
        DataType::Struct(HEADER.clone()),
        false,
    ))
});
static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let timestamp = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("offset", DataType::Int64, false),
        Field::new("timestamp", timestamp.clone(), false),
        Field::new("key", DataType::Binary, true),
        Field::new("value", DataType::Binary, true),
        Field::new("subject", DataType::Utf8, false),
        Field::new("headers", DataType::List(ELEMENT.clone()), false),
        Field::new("reply", DataType::Utf8, true),
        Field::new("origin_time", timestamp, true),
    ]))
});

/// Variable-length values: n + 1 ends and the bytes.
#[derive(Debug)]
struct Values {
    ends: Vec<i32>,
    bytes: Vec<u8>,
}
impl Default for Values {
    fn default() -> Self {
        Self {
            ends: vec![0],
            bytes: Vec::new(),
        }
    }
}
impl Values {
    fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        // The subscription's bound keeps a block far below 2 GiB.
        self.ends.push(self.bytes.len() as i32);
    }

    fn len(&self) -> usize {
        self.ends.len() - 1
    }

    fn into_parts(self) -> (OffsetBuffer<i32>, Buffer) {
        (
            OffsetBuffer::new(ScalarBuffer::from(self.ends)),
            Buffer::from_vec(self.bytes),
        )
    }

    fn into_binary(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let (ends, bytes) = self.into_parts();
        Ok(Arc::new(BinaryArray::try_new(ends, bytes, nulls)?))
    }

    fn into_text(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let (ends, bytes) = self.into_parts();
        Ok(Arc::new(StringArray::try_new(ends, bytes, nulls)?))
    }

    /// Null where a value is empty.
    fn nulls_of_empty(&self) -> NullBuffer {
        let is_full = |ends: &[i32]| ends[0] != ends[1];
        let present = if self.bytes.is_empty() {
            BooleanBuffer::new_unset(self.len())
        } else {
            self.ends.windows(2).map(is_full).collect()
        };
        NullBuffer::new(present)
    }
}

/// Columns that are being filled.
#[derive(Debug)]
pub(crate) struct Columns {
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
    keys: Values,
    values: Values,
    subjects: Values,
    header_ends: Vec<i32>,
    header_keys: Values,
    header_values: Values,
    replies: Values,
    /// Index and time of each message that has one.
    origin_times: Vec<(usize, i64)>,
    /// Indexes of null values.
    nulls: Vec<usize>,
    /// Header names that are not text, with their indexes.
    raw_names: HashMap<usize, Box<[u8]>>,
}
impl Default for Columns {
    fn default() -> Self {
        Self {
            offsets: Vec::new(),
            timestamps: Vec::new(),
            keys: Values::default(),
            values: Values::default(),
            subjects: Values::default(),
            header_ends: vec![0],
            header_keys: Values::default(),
            header_values: Values::default(),
            replies: Values::default(),
            origin_times: Vec::new(),
            nulls: Vec::new(),
            raw_names: HashMap::new(),
        }
    }
}
impl Columns {
    /// Adds a message.
    pub(crate) fn push(&mut self, message: &MessageView) {
        if message.is_null() {
            self.nulls.push(self.offsets.len());
        }
        if let Some(time) = message.origin_time() {
            self.origin_times.push((self.offsets.len(), time));
        }
        self.offsets.push(message.offset());
        self.timestamps.push(message.timestamp());
        self.keys.push(message.key());
        self.values.push(message.value());
        self.subjects.push(message.subject().as_bytes());
        self.replies.push(message.reply_subject().as_bytes());
        for (name, value) in message.record_headers() {
            if std::str::from_utf8(name).is_ok() {
                self.header_keys.push(name);
            } else {
                self.raw_names.insert(self.header_keys.len(), name.into());
                self.header_keys.push(b"");
            }
            self.header_values.push(value);
        }
        self.header_ends.push(self.header_keys.len() as i32);
    }

    /// Messages gathered.
    pub(crate) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Approximate memory, bytes.
    pub(crate) fn bytes(&self) -> usize {
        let times = self.origin_times.len() * size_of::<(usize, i64)>();
        let fixed = times + self.len() * (2 * size_of::<i64>() + 5 * size_of::<i32>());
        let headers = self.header_keys.len() * 2 * size_of::<i32>();
        fixed
            + headers
            + self.keys.bytes.len()
            + self.values.bytes.len()
            + self.subjects.bytes.len()
            + self.header_keys.bytes.len()
            + self.header_values.bytes.len()
            + self.replies.bytes.len()
            + self
                .raw_names
                .values()
                .map(|name| name.len())
                .sum::<usize>()
    }

    /// The columns as Arrow arrays; the buffers move.
    ///
    /// # Errors
    /// `internal` when a text is not UTF-8, which the codec has ruled out.
    pub(crate) fn into_records(mut self) -> Result<Records, Error> {
        let raw_names = Arc::new(std::mem::take(&mut self.raw_names));
        let batch = self.into_batch(&raw_names).map_err(|error| {
            Error::new(
                ErrorCode::Internal,
                format!("columns do not fit together: {error}"),
            )
        })?;
        Ok(Records { batch, raw_names })
    }

    fn into_batch(self, raw_names: &RawNames) -> Result<RecordBatch, ArrowError> {
        let key_nulls = Some(self.keys.nulls_of_empty());
        let reply_nulls = Some(self.replies.nulls_of_empty());
        let value_nulls = without(self.offsets.len(), self.nulls.iter().copied());
        let origin_times = origin_times(self.offsets.len(), &self.origin_times);
        let name_nulls = without(self.header_keys.len(), raw_names.keys().copied());
        let headers = StructArray::try_new(
            HEADER.clone(),
            vec![
                self.header_keys.into_text(name_nulls)?,
                self.header_values.into_binary(None)?,
            ],
            None,
        )?;
        let header_ends = OffsetBuffer::new(ScalarBuffer::from(self.header_ends));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(PrimitiveArray::<Int64Type>::new(self.offsets.into(), None)),
            Arc::new(
                PrimitiveArray::<TimestampNanosecondType>::new(self.timestamps.into(), None)
                    .with_timezone("UTC"),
            ),
            self.keys.into_binary(key_nulls)?,
            self.values.into_binary(value_nulls)?,
            self.subjects.into_text(None)?,
            Arc::new(ListArray::try_new(
                ELEMENT.clone(),
                header_ends,
                Arc::new(headers),
                None,
            )?),
            self.replies.into_text(reply_nulls)?,
            Arc::new(origin_times.with_timezone("UTC")),
        ];
        RecordBatch::try_new(SCHEMA.clone(), columns)
    }
}

/// A column of `length` times; `given`: the ones that are not null, ascending by index.
fn origin_times(length: usize, given: &[(usize, i64)]) -> PrimitiveArray<TimestampNanosecondType> {
    if given.is_empty() {
        return PrimitiveArray::new_null(length);
    }
    let mut times = vec![None; length];
    for (index, time) in given {
        if let Some(place) = times.get_mut(*index) {
            *place = Some(*time);
        }
    }
    PrimitiveArray::from(times)
}

/// Header names that are not text, by index into the child of the `headers` column.
type RawNames = HashMap<usize, Box<[u8]>>;

/// A null buffer with `absent` as the nulls; `None` when there are none.
fn without(length: usize, absent: impl ExactSizeIterator<Item = usize>) -> Option<NullBuffer> {
    if absent.len() == 0 {
        return None;
    }
    let mut present = BooleanBufferBuilder::new(length);
    present.append_n(length, true);
    for index in absent {
        present.set_bit(index, false);
    }
    Some(NullBuffer::new(present.finish()))
}

/// Records of a subscription in columns, with the schema above. Cheap to slice.
#[derive(Clone, Debug)]
pub struct Records {
    batch: RecordBatch,
    raw_names: Arc<RawNames>,
}
impl Records {
    /// Number of records.
    pub fn len(&self) -> usize {
        self.batch.num_rows()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `length` records from `start`, without copying. Panics when they are not there.
    #[must_use]
    pub(crate) fn slice(&self, start: usize, length: usize) -> Self {
        Self {
            batch: self.batch.slice(start, length),
            raw_names: self.raw_names.clone(),
        }
    }

    /// The Arrow record batch.
    pub fn arrow(&self) -> &RecordBatch {
        &self.batch
    }

    /// Offsets, ascending.
    pub fn offsets(&self) -> &[i64] {
        self.column::<PrimitiveArray<Int64Type>>(0)
            .map_or(&[], |array| array.values())
    }

    /// Receipt times, ns since 1970.
    pub fn timestamps(&self) -> &[i64] {
        self.column::<PrimitiveArray<TimestampNanosecondType>>(1)
            .map_or(&[], |array| array.values())
    }

    /// Keys; `None` = no key.
    pub fn keys(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.column::<BinaryArray>(2).into_iter().flatten()
    }

    /// Values; `None` = null.
    pub fn values(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.column::<BinaryArray>(3).into_iter().flatten()
    }

    /// Subjects.
    pub fn subjects(&self) -> impl Iterator<Item = &str> {
        self.column::<StringArray>(4)
            .into_iter()
            .flatten()
            .flatten()
    }

    /// Reply subjects, when any record has one; an empty text where there is none.
    pub fn replies(&self) -> Option<impl Iterator<Item = &str>> {
        let replies = self.column::<StringArray>(6)?;
        (replies.null_count() < replies.len())
            .then(|| replies.iter().map(Option::unwrap_or_default))
    }

    /// Times at the origin, ns since 1970, when any record has one.
    pub fn origin_times(&self) -> Option<impl Iterator<Item = Option<i64>>> {
        let times = self.column::<PrimitiveArray<TimestampNanosecondType>>(7)?;
        (times.null_count() < times.len()).then(|| times.iter())
    }

    /// Headers of record `index`, in order. Names are any bytes, and may repeat.
    pub fn headers(&self, index: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
        let range = self.column::<ListArray>(5).and_then(|lists| {
            let (from, to) = (
                lists.value_offsets().get(index)?,
                lists.value_offsets().get(index + 1)?,
            );
            let entries = lists.values().as_any().downcast_ref::<StructArray>()?;
            let names = entries.column(0).as_any().downcast_ref::<StringArray>()?;
            let values = entries.column(1).as_any().downcast_ref::<BinaryArray>()?;
            Some((*from as usize..*to as usize, names, values))
        });
        range.into_iter().flat_map(|(range, names, values)| {
            range.map(|i| {
                let raw = self.raw_names.get(&i).map(|name| &name[..]);
                let name = raw.unwrap_or_else(|| names.value(i).as_bytes());
                (name, values.value(i))
            })
        })
    }

    fn column<A: 'static>(&self, index: usize) -> Option<&A> {
        self.batch.column(index).as_any().downcast_ref::<A>()
    }
}
