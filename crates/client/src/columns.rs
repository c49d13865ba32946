//! Received messages as columns, and the columns as Arrow arrays without copying.
//!
//! | Column | Type | Null | Content |
//! |---|---|---|---|
//! | `offset` | int64 | no | offset in the partition |
//! | `timestamp` | timestamp\[ns, UTC\] | no | when the broker received it |
//! | `key` | binary | yes | null = none |
//! | `value` | binary | no | value |
//! | `subject` | utf8 | no | NATS subject it arrived on |
//! | `headers` | list\<element: struct\<key utf8, value binary\>\> | no | the publisher's, in order; `reply` when there is a reply subject |
use crate::Error;
use arrow_array::types::{Int64Type, TimestampNanosecondType};
use arrow_array::{
    Array, ArrayRef, BinaryArray, ListArray, PrimitiveArray, RecordBatch, StringArray, StructArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use bascule_wire::liftbridge::delivery::MessageView;
use std::sync::{Arc, LazyLock};

static HEADER: LazyLock<Fields> = LazyLock::new(|| {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
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
        Field::new("timestamp", timestamp, false),
        Field::new("key", DataType::Binary, true),
        Field::new("value", DataType::Binary, false),
        Field::new("subject", DataType::Utf8, false),
        Field::new("headers", DataType::List(ELEMENT.clone()), false),
    ]))
});

/// Variable-length values being gathered: n + 1 ends and the bytes.
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

    fn into_text(self) -> Result<ArrayRef, ArrowError> {
        let (ends, bytes) = self.into_parts();
        Ok(Arc::new(StringArray::try_new(ends, bytes, None)?))
    }
}

/// Messages being gathered.
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
    any_key: bool,
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
            any_key: false,
        }
    }
}
impl Columns {
    /// Adds a message. The `subject` header, which repeats a column, and an empty `reply` are left out.
    pub(crate) fn push(&mut self, message: &MessageView) {
        self.offsets.push(message.offset());
        self.timestamps.push(message.timestamp());
        self.any_key |= !message.key().is_empty();
        self.keys.push(message.key());
        self.values.push(message.value());
        self.subjects.push(message.subject().as_bytes());
        for (name, value) in message.headers() {
            if name == "subject" || (name == "reply" && value.is_empty()) {
                continue;
            }
            self.header_keys.push(name.as_bytes());
            self.header_values.push(value);
        }
        self.header_ends.push(self.header_keys.len() as i32);
    }

    /// Messages gathered.
    pub(crate) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Memory held, bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        let fixed = self.len() * (2 * size_of::<i64>() + 4 * size_of::<i32>());
        let headers = self.header_keys.len() * 2 * size_of::<i32>();
        fixed
            + headers
            + self.keys.bytes.len()
            + self.values.bytes.len()
            + self.subjects.bytes.len()
            + self.header_keys.bytes.len()
            + self.header_values.bytes.len()
    }

    /// The columns as Arrow arrays; the buffers move.
    ///
    /// # Errors
    /// `internal` when a text is not UTF-8, which the codec has ruled out.
    pub(crate) fn into_records(self) -> Result<Records, Error> {
        let batch = self.into_batch();
        batch.map(Records).map_err(|error| {
            Error::new("internal", format!("columns do not fit together: {error}"))
        })
    }

    fn into_batch(self) -> Result<RecordBatch, ArrowError> {
        let key_nulls = if self.any_key {
            let present = self.keys.ends.windows(2).map(|ends| ends[0] != ends[1]);
            Some(NullBuffer::new(present.collect::<BooleanBuffer>()))
        } else {
            Some(NullBuffer::new_null(self.offsets.len()))
        };
        let headers = StructArray::try_new(
            HEADER.clone(),
            vec![
                self.header_keys.into_text()?,
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
            self.values.into_binary(None)?,
            self.subjects.into_text()?,
            Arc::new(ListArray::try_new(
                ELEMENT.clone(),
                header_ends,
                Arc::new(headers),
                None,
            )?),
        ];
        RecordBatch::try_new(SCHEMA.clone(), columns)
    }
}

/// Records taken out of a subscription, in columns; the table above is their schema. Cheap to slice.
#[derive(Clone, Debug)]
pub struct Records(RecordBatch);
impl Records {
    /// Records inside.
    pub fn len(&self) -> usize {
        self.0.num_rows()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `length` records from `start`, without copying. Panics when they are not there.
    #[must_use]
    pub(crate) fn slice(&self, start: usize, length: usize) -> Self {
        Self(self.0.slice(start, length))
    }

    /// The Arrow record batch.
    pub fn arrow(&self) -> &RecordBatch {
        &self.0
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

    /// Values.
    pub fn values(&self) -> impl Iterator<Item = &[u8]> {
        self.column::<BinaryArray>(3)
            .into_iter()
            .flatten()
            .flatten()
    }

    /// Subjects.
    pub fn subjects(&self) -> impl Iterator<Item = &str> {
        self.column::<StringArray>(4)
            .into_iter()
            .flatten()
            .flatten()
    }

    /// Headers of record `index`, in order. Of equal names the last counts.
    pub fn headers(&self, index: usize) -> impl Iterator<Item = (&str, &[u8])> {
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
        range
            .into_iter()
            .flat_map(|(range, names, values)| range.map(|i| (names.value(i), values.value(i))))
    }

    fn column<A: 'static>(&self, index: usize) -> Option<&A> {
        self.0.column(index).as_any().downcast_ref::<A>()
    }
}
