//! A checked batch and views of its columns.
use crate::{DamageError, Header};
use bytes::Bytes;

/// One header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderEntry<'a> {
    /// Kind of the key (1 raw, 2 string; the others are Iggy's).
    pub key_kind: u8,
    /// Key bytes, at most 65,535.
    pub key: &'a [u8],
    /// Kind of the value.
    pub value_kind: u8,
    /// Value bytes.
    pub value: &'a [u8],
}

/// A whole batch whose checksums and columns were checked: every access below is in range.
#[derive(Clone, Debug)]
pub struct Batch {
    header: Header,
    _payload: Bytes,
}
impl Batch {
    /// Checks header, payload checksum, decompression bound and every column, once.
    /// `bytes` holds exactly one batch (see [`Batches`]); the uncompressed payload is borrowed, not copied.
    ///
    /// # Errors
    /// [`DamageError`] naming the first test that failed.
    pub fn read(_bytes: &Bytes) -> Result<Self, DamageError> {
        todo!()
    }
    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }
    /// Records inside, n.
    pub fn len(&self) -> usize {
        self.header.count as usize
    }
    /// Whether compaction left no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Index of the first record with offset ≥ `offset`; n when there is none.
    pub fn seek(&self, _offset: u64) -> usize {
        todo!()
    }
    /// Offset of record i, 0 ≤ i < n. All accessors below panic only when i ≥ n.
    pub fn offset(&self, _i: usize) -> u64 {
        todo!()
    }
    /// Timestamp, ns since 1970.
    pub fn timestamp(&self, _i: usize) -> i64 {
        todo!()
    }
    /// Key; `None` when empty.
    pub fn key(&self, _i: usize) -> Option<&[u8]> {
        todo!()
    }
    /// Value; `None` when null.
    pub fn value(&self, _i: usize) -> Option<&[u8]> {
        todo!()
    }
    /// Headers in order.
    pub fn headers(&self, _i: usize) -> HeaderEntries<'_> {
        todo!()
    }
    /// Subject; `None` = the partition's own.
    pub fn subject(&self, _i: usize) -> Option<&str> {
        todo!()
    }
    /// The one subject of all records (`Some(None)` = the partition's own), or `None` when they differ.
    pub fn constant_subject(&self) -> Option<Option<&str>> {
        todo!()
    }
    /// Reply subject; `None` when empty.
    pub fn reply(&self, _i: usize) -> Option<&str> {
        todo!()
    }
    /// Message id, 0 = none.
    pub fn id(&self, _i: usize) -> u128 {
        todo!()
    }
    /// Origin time, ns since 1970.
    pub fn origin_time(&self, _i: usize) -> Option<i64> {
        todo!()
    }
    /// Value column: n + 1 ends and the bytes; `None` when the column is absent (all values empty).
    pub fn values(&self) -> Option<(Ends<'_>, &[u8])> {
        todo!()
    }
    /// Validity bitmap of values: bit set = null, bit i of byte i / 8; `None` = no nulls.
    pub fn value_nulls(&self) -> Option<&[u8]> {
        todo!()
    }
    /// Key column: n + 1 ends and the bytes; `None` when no record has a key.
    pub fn keys(&self) -> Option<(Ends<'_>, &[u8])> {
        todo!()
    }
    /// Whether any record has headers.
    pub fn has_headers(&self) -> bool {
        todo!()
    }
}

/// n + 1 ascending ends, little-endian u32, not aligned; the first is 0.
#[derive(Clone, Copy, Debug)]
pub struct Ends<'a>(pub(crate) &'a [u8]);
impl Ends<'_> {
    /// End i, 0 ≤ i ≤ n.
    pub fn get(&self, _i: usize) -> u32 {
        todo!()
    }
    /// All n + 1, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]))
    }
}

/// Iterates the headers of one record.
#[derive(Clone, Debug)]
pub struct HeaderEntries<'a> {
    _rest: &'a [u8],
}
impl<'a> Iterator for HeaderEntries<'a> {
    type Item = HeaderEntry<'a>;
    fn next(&mut self) -> Option<HeaderEntry<'a>> {
        todo!()
    }
}

/// Splits consecutive batches, as a log reader returns them, without checking payloads.
/// Yields the exact bytes of each; an error once at the first header that does not check or does not fit, then ends.
#[derive(Clone, Debug)]
pub struct Batches {
    _bytes: Bytes,
}
impl Batches {
    /// `bytes`: zero or more whole batches, back to back.
    pub fn new(bytes: Bytes) -> Self {
        Self { _bytes: bytes }
    }
}
impl Iterator for Batches {
    type Item = Result<Bytes, DamageError>;
    fn next(&mut self) -> Option<Self::Item> {
        todo!()
    }
}
