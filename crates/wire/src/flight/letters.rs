//! Dead letters: rows that a stream refuses, as rows for another stream, with where they were to go and why not.
//!
//! A letter has the row's key, value, headers and time at the origin. Behind the headers come those that say where it is
//! from; their names begin with [`PREFIX`]. The columns are those of `DoPut`.
//!
//! A letter that is larger than its stream allows is cut: first the value, at its end; then the row's own headers are left
//! out, then the key. A header says what was cut.
use super::headers::{KINDS, RAW, STRING};
use arrow_array::builder::BinaryBuilder;
use arrow_array::{
    Array, ArrayRef, BinaryArray, ListArray, RecordBatch, StructArray, TimestampNanosecondArray,
    UInt8Array,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};
use bascule_record::{BuildError, HeaderEntry, RecordRef};
use std::sync::Arc;

/// Begin of the names of the headers that say where a letter is from.
pub const PREFIX: &str = "bascule.dlq.";
/// Names without the prefix: how long a value was that is cut, how many headers were left out, how long a key was.
const VALUE_BYTES: &str = "value_bytes";
const HEADERS_LEFT_OUT: &str = "headers_left_out";
const KEY_BYTES: &str = "key_bytes";

/// Gathers letters.
#[derive(Debug)]
pub struct Letters {
    record_bytes: usize,
    keys: BinaryBuilder,
    values: BinaryBuilder,
    times: Vec<Option<i64>>,
    header_ends: Vec<i32>,
    header_keys: BinaryBuilder,
    header_values: BinaryBuilder,
    key_kinds: Vec<u8>,
    value_kinds: Vec<u8>,
    bytes: usize,
    cut: u64,
}

impl Letters {
    /// For a stream whose `max_record_bytes` are these.
    pub fn new(record_bytes: usize) -> Self {
        Self {
            record_bytes,
            keys: BinaryBuilder::new(),
            values: BinaryBuilder::new(),
            times: Vec::new(),
            header_ends: vec![0],
            header_keys: BinaryBuilder::new(),
            header_values: BinaryBuilder::new(),
            key_kinds: Vec::new(),
            value_kinds: Vec::new(),
            bytes: 0,
            cut: 0,
        }
    }

    /// Adds the letter of a row; `from` says where it is from, by names without the prefix.
    ///
    /// # Errors
    /// [`BuildError::TooLarge`] when not even what `from` says fits.
    pub fn add(&mut self, row: &RecordRef<'_>, from: &[(&str, &str)]) -> Result<(), BuildError> {
        let names: Vec<String> = from.iter().map(|(name, _)| named(name)).collect();
        let said = names.iter().zip(from);
        let said: Vec<_> = said.map(|(name, (_, text))| entry(name, text)).collect();
        let letter = Letter::of(row, &said);
        let bytes = match letter.bytes(self.record_bytes) {
            Ok(bytes) => {
                self.push(&letter);
                bytes
            }
            Err(_) => self.add_cut(row, &letter, &said)?,
        };
        self.bytes += bytes;
        Ok(())
    }

    /// Bytes of the letters gathered.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many letters were cut, since the beginning.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// The letters gathered since the last call; `None` = none.
    ///
    /// # Errors
    /// Of Arrow, for more than 2 GiB.
    pub fn take(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        if self.times.is_empty() {
            return Ok(None);
        }
        let after = Self {
            cut: self.cut,
            ..Self::new(self.record_bytes)
        };
        std::mem::replace(self, after).batch().map(Some)
    }

    /// Adds the first of the shorter letters that fits; returns its bytes.
    fn add_cut(
        &mut self,
        row: &RecordRef<'_>,
        whole: &Letter<'_>,
        said: &[HeaderEntry<'_>],
    ) -> Result<usize, BuildError> {
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len).to_string();
        let [value, headers, key] = [VALUE_BYTES, HEADERS_LEFT_OUT, KEY_BYTES].map(named);
        let (value_bytes, key_bytes) = (length(row.value), length(row.key));
        let count = row.headers.len().to_string();
        let value = entry(&value, &value_bytes);
        let mut without_headers = whole.clone();
        without_headers.headers = said.to_vec();
        without_headers.headers.push(entry(&headers, &count));
        let mut without_key = without_headers.clone();
        without_key.key = None;
        without_key.headers.push(entry(&key, &key_bytes));
        let mut last = BuildError::Full;
        for mut letter in [whole.clone(), without_headers, without_key] {
            match letter.fit(self.record_bytes, value) {
                Ok(bytes) => {
                    self.cut += 1;
                    self.push(&letter);
                    return Ok(bytes);
                }
                Err(cause) => last = cause,
            }
        }
        Err(last)
    }

    fn push(&mut self, letter: &Letter<'_>) {
        self.keys.append_option(letter.key);
        self.values.append_option(letter.value);
        self.times.push(letter.origin_time);
        for header in &letter.headers {
            self.header_keys.append_value(header.key);
            self.header_values.append_value(header.value);
            self.key_kinds.push(header.key_kind);
            self.value_kinds.push(header.value_kind);
        }
        let end = i32::try_from(self.key_kinds.len()).unwrap_or(i32::MAX);
        self.header_ends.push(end);
    }

    fn batch(mut self) -> Result<RecordBatch, ArrowError> {
        let column = |name, kind| Field::new(name, kind, true);
        let fields = Fields::from(vec![
            column("key", DataType::Binary),
            column("value", DataType::Binary),
            column("key_kind", DataType::UInt8),
            column("value_kind", DataType::UInt8),
        ]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.header_keys.finish()),
            Arc::new(self.header_values.finish()),
            Arc::new(UInt8Array::from(self.key_kinds)),
            Arc::new(UInt8Array::from(self.value_kinds)),
        ];
        let entries = StructArray::try_new(fields, columns, None)?;
        let item = Arc::new(column("item", entries.data_type().clone()));
        let ends = OffsetBuffer::new(ScalarBuffer::from(self.header_ends));
        let headers = ListArray::try_new(item, ends, Arc::new(entries), None)?;
        let (keys, values): (BinaryArray, BinaryArray) = (self.keys.finish(), self.values.finish());
        let times = TimestampNanosecondArray::from(self.times);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("key", Arc::new(keys)),
            ("value", Arc::new(values)),
            ("headers", Arc::new(headers)),
            ("origin_time", Arc::new(times)),
        ];
        let fields: Vec<_> = columns
            .iter()
            .map(|(name, array)| column(name, array.data_type().clone()))
            .collect();
        let columns = columns.into_iter().map(|(_, array)| array).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
    }
}

/// A letter before it is copied.
#[derive(Clone, Debug)]
struct Letter<'a> {
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: Vec<HeaderEntry<'a>>,
    origin_time: Option<i64>,
}

impl<'a> Letter<'a> {
    /// The whole row, with headers behind its own. Kinds that are none become raw bytes.
    fn of(row: &RecordRef<'a>, said: &[HeaderEntry<'a>]) -> Self {
        let kind = |kind| if KINDS.contains(&kind) { kind } else { RAW };
        let own = row.headers.iter().map(|header| HeaderEntry {
            key_kind: kind(header.key_kind),
            value_kind: kind(header.value_kind),
            ..*header
        });
        Self {
            key: row.key,
            value: row.value,
            headers: own.chain(said.iter().copied()).collect(),
            origin_time: row.origin_time.filter(|time| *time != i64::MIN),
        }
    }

    /// Cuts the value as far as it must be, with a header that says so; returns the bytes of the letter.
    fn fit(&mut self, limit: usize, note: HeaderEntry<'a>) -> Result<usize, BuildError> {
        if let Ok(bytes) = self.bytes(limit) {
            return Ok(bytes);
        }
        self.headers.push(note);
        if let Err(BuildError::TooLarge { bytes, .. }) = self.bytes(limit) {
            let value = self.value.unwrap_or_default();
            let kept = value.len().saturating_sub(bytes - limit);
            self.value = self.value.and_then(|value| value.get(..kept));
        }
        self.bytes(limit)
    }

    /// Its bytes as bounds count them.
    fn bytes(&self, limit: usize) -> Result<usize, BuildError> {
        let record = RecordRef {
            key: self.key,
            value: self.value,
            headers: &self.headers,
            ..RecordRef::default()
        };
        record.check(limit)
    }
}

fn named(name: &str) -> String {
    format!("{PREFIX}{name}")
}

fn entry<'a>(name: &'a str, text: &'a str) -> HeaderEntry<'a> {
    HeaderEntry {
        key_kind: STRING,
        key: name.as_bytes(),
        value_kind: STRING,
        value: text.as_bytes(),
    }
}
