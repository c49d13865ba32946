//! The digest of rows: by it Spark's tasks and brokers know that they speak of the same rows.
//!
//! It is the sum, modulo 2^128, of a hash of each row, so it depends neither on the order of the rows nor on how they are cut
//! into batches, and digests of parts are added. The bytes of a row are in `specs/formats/stage.md`.
use bascule_record::RecordRef;
use xxhash_rust::xxh3::xxh3_128;

/// Length that a null value has.
const NULL: u32 = u32::MAX;

/// Adds up rows of one stream.
#[derive(Clone, Debug)]
pub struct RowDigest {
    /// Bytes of a row; those of the stream's name stay.
    row: Vec<u8>,
    name_bytes: usize,
    rows: u64,
    sum: u128,
}

impl RowDigest {
    /// Of no rows.
    pub fn new(stream: &str) -> Self {
        let mut row = Vec::with_capacity(1024);
        put(&mut row, stream.as_bytes());
        Self {
            name_bytes: row.len(),
            row,
            rows: 0,
            sum: 0,
        }
    }

    /// Adds a row. Its receipt time does not count.
    #[inline]
    pub fn add(&mut self, record: &RecordRef<'_>) {
        let row = &mut self.row;
        row.truncate(self.name_bytes);
        put(row, record.key.unwrap_or_default());
        match record.value {
            Some(value) => put(row, value),
            None => row.extend_from_slice(&NULL.to_le_bytes()),
        }
        row.extend_from_slice(&(record.headers.len() as u32).to_le_bytes());
        for header in record.headers {
            row.extend_from_slice(&[header.key_kind, header.value_kind]);
            put(row, header.key);
            put(row, header.value);
        }
        put(row, record.subject.unwrap_or_default().as_bytes());
        row.extend_from_slice(&record.id.to_le_bytes());
        put(row, record.reply.as_bytes());
        row.extend_from_slice(&record.origin_time.unwrap_or(i64::MIN).to_le_bytes());
        self.sum = self.sum.wrapping_add(xxh3_128(row));
        self.rows += 1;
    }

    /// Rows added.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Their digest; 0 of none.
    pub fn value(&self) -> u128 {
        self.sum
    }
}

#[inline]
fn put(row: &mut Vec<u8>, bytes: &[u8]) {
    row.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    row.extend_from_slice(bytes);
}
