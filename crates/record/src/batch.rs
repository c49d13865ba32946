//! A checked batch and views of its columns.
use crate::crypt::KeyRing;
use crate::header::associated_data;
use crate::layout::{Layout, NO_ORIGIN, Span, Varied, split_header, u32_at};
use crate::{Codec, DamageError, Flags, HEADER_BYTES, Header};
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
///
/// Cheap to clone: the payload is shared.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(crate) header: Header,
    pub(crate) payload: Bytes,
    pub(crate) layout: Layout,
}
impl Batch {
    /// Checks header, payload checksum, decompression bound and every column, once.
    /// `bytes` holds exactly one batch (see [`crate::Batches`]); the uncompressed payload is borrowed, not copied.
    ///
    /// # Errors
    /// [`DamageError`] naming the first test that failed; for an encrypted batch see [`Batch::open`].
    pub fn read(bytes: &Bytes) -> Result<Self, DamageError> {
        Self::open(bytes, &KeyRing::default())
    }

    /// The same, with the keys of the stream for batches that are encrypted.
    ///
    /// # Errors
    /// [`DamageError`] naming the first test that failed. [`DamageError::Encrypted`] and
    /// [`DamageError::Authentication`] mean that the stored bytes are intact, but sealed with other keys.
    pub fn open(bytes: &Bytes, keys: &KeyRing) -> Result<Self, DamageError> {
        let header = Header::read(bytes)?;
        let (need, have) = (header.batch_bytes(), bytes.len());
        if have < need {
            return Err(DamageError::Short { need, have });
        }
        if have > need {
            return Err(DamageError::Long { need, have });
        }
        let stored = bytes.slice(HEADER_BYTES..);
        header.check_payload(bytes)?;
        let stored = if header.flags.has(Flags::ENCRYPTED) {
            Bytes::from(decrypt(&header, bytes, keys)?)
        } else {
            stored
        };
        let payload = if header.codec == Codec::None {
            stored
        } else {
            let raw = header.codec.decompress(&stored, header.raw_bytes as usize);
            let failed = DamageError::Decompress {
                stored: header.stored_bytes,
                raw: header.raw_bytes,
            };
            Bytes::from(raw.ok_or(failed)?)
        };
        let layout = Layout::check(&header, &payload)?;
        Ok(Self {
            header,
            payload,
            layout,
        })
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
    pub fn seek(&self, offset: u64) -> usize {
        let delta = offset.saturating_sub(self.header.base_offset);
        match self.column(self.layout.offsets) {
            Some(deltas) => first_at_least(deltas, delta),
            None => usize::try_from(delta).map_or(self.len(), |delta| delta.min(self.len())),
        }
    }

    /// Index of the first record with timestamp ≥ `timestamp`, ns since 1970; n when there is none.
    pub fn seek_time(&self, timestamp: i64) -> usize {
        if timestamp <= self.header.base_timestamp {
            return 0;
        }
        let delta = timestamp.wrapping_sub(self.header.base_timestamp) as u64;
        self.column(self.layout.timestamps)
            .map_or(self.len(), |deltas| first_at_least(deltas, delta))
    }

    /// Offset of record i, 0 ≤ i < n. All accessors below panic only when i ≥ n.
    #[inline]
    pub fn offset(&self, i: usize) -> u64 {
        let delta = self
            .column(self.layout.offsets)
            .map_or(i as u64, |deltas| u64::from(u32_at(deltas, i)));
        self.header.base_offset + delta
    }

    /// Timestamp, ns since 1970.
    #[inline]
    pub fn timestamp(&self, i: usize) -> i64 {
        let delta = self
            .column(self.layout.timestamps)
            .map_or(0, |deltas| i64::from(u32_at(deltas, i)));
        self.header.base_timestamp + delta
    }

    /// Key; `None` when empty.
    #[inline]
    pub fn key(&self, i: usize) -> Option<&[u8]> {
        Some(self.element(self.layout.keys, i)).filter(|key| !key.is_empty())
    }

    /// Value; `None` when null.
    #[inline]
    pub fn value(&self, i: usize) -> Option<&[u8]> {
        if let Some(nulls) = self.value_nulls()
            && nulls[i / 8] & (1 << (i % 8)) != 0
        {
            return None;
        }
        Some(self.element(self.layout.values, i))
    }

    /// Headers in order.
    #[inline]
    pub fn headers(&self, i: usize) -> HeaderEntries<'_> {
        HeaderEntries {
            rest: self.element(self.layout.headers, i),
        }
    }

    /// Subject; `None` = the partition's own.
    #[inline]
    pub fn subject(&self, i: usize) -> Option<&str> {
        let entry = self
            .column(self.layout.subject_index)
            .map_or(0, |index| usize::from(u16_at(index, i)));
        self.layout
            .subjects
            .and_then(|subjects| text(subjects.element(&self.payload, entry)))
    }

    /// The one subject of all records (`Some(None)` = the partition's own), or `None` when there are several.
    pub fn constant_subject(&self) -> Option<Option<&str>> {
        match (self.layout.subjects, self.layout.subject_index) {
            (None, _) => Some(None),
            (Some(subjects), None) => Some(text(subjects.element(&self.payload, 0))),
            (Some(_), Some(_)) => None,
        }
    }

    /// Distinct subjects of the batch, at least one, in order of their numbers ([`Batch::subject_number`]); `None` in it =
    /// the partition's own. A batch of another writer may list one that no record has.
    pub fn distinct_subjects(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        let entries = self
            .column(self.layout.subjects.map(|subjects| subjects.ends))
            .map_or(1, |ends| ends.len() / 4 - 1);
        (0..entries).map(|entry| {
            self.layout
                .subjects
                .and_then(|subjects| text(subjects.element(&self.payload, entry)))
        })
    }

    /// Number of record i's subject among [`Batch::distinct_subjects`].
    #[inline]
    pub fn subject_number(&self, i: usize) -> usize {
        self.column(self.layout.subject_index)
            .map_or(0, |index| usize::from(u16_at(index, i)))
    }

    /// Reply subject; `None` when empty.
    #[inline]
    pub fn reply(&self, i: usize) -> Option<&str> {
        text(self.element(self.layout.replies, i))
    }

    /// Message id, 0 = none.
    #[inline]
    pub fn id(&self, i: usize) -> u128 {
        self.column(self.layout.ids)
            .map_or(0, |ids| u128::from_le_bytes(fixed(ids, i)))
    }

    /// Origin time, ns since 1970.
    #[inline]
    pub fn origin_time(&self, i: usize) -> Option<i64> {
        let origins = self.column(self.layout.origins)?;
        Some(i64::from_le_bytes(fixed(origins, i))).filter(|time| *time != NO_ORIGIN)
    }

    #[inline]
    pub(crate) fn column(&self, span: Option<Span>) -> Option<&[u8]> {
        span.map(|span| span.of(&self.payload))
    }

    #[inline]
    fn element(&self, column: Option<Varied>, i: usize) -> &[u8] {
        column.map_or(&[], |column| column.element(&self.payload, i))
    }
}

/// The payload of an encrypted batch, still compressed.
pub(crate) fn decrypt(
    header: &Header,
    bytes: &[u8],
    keys: &KeyRing,
) -> Result<Vec<u8>, DamageError> {
    let key_id = header.key_id;
    let key = keys
        .get(key_id)
        .map_err(|lack| DamageError::Encrypted { key_id, lack })?;
    let (head, stored) = bytes
        .split_first_chunk::<HEADER_BYTES>()
        .ok_or(DamageError::Short {
            need: HEADER_BYTES,
            have: bytes.len(),
        })?;
    key.open(header.nonce, &associated_data(head, key_id), stored)
        .ok_or(DamageError::Authentication { key_id })
}

/// Iterates the headers of one record.
#[derive(Clone, Debug)]
pub struct HeaderEntries<'a> {
    rest: &'a [u8],
}
impl<'a> Iterator for HeaderEntries<'a> {
    type Item = HeaderEntry<'a>;
    fn next(&mut self) -> Option<HeaderEntry<'a>> {
        // The check of the batch made sure that entries fill the record's part: the end is the only reason for `None`.
        let ((key_kind, value_kind, key, value), rest) = split_header(self.rest)?;
        self.rest = rest;
        Some(HeaderEntry {
            key_kind,
            key,
            value_kind,
            value,
        })
    }
}

/// Text that was checked; `None` when empty.
#[inline]
fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes)
        .ok()
        .filter(|text| !text.is_empty())
}

#[inline]
fn u16_at(array: &[u8], i: usize) -> u16 {
    u16::from_le_bytes(fixed(array, i))
}

/// Element i of N bytes; panics beyond the end of the array.
#[inline]
fn fixed<const N: usize>(array: &[u8], i: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&array[i * N..i * N + N]);
    out
}

/// Index of the first of ascending u32 that is ≥ `wanted`; their number when there is none.
fn first_at_least(array: &[u8], wanted: u64) -> usize {
    let (mut low, mut high) = (0, array.len() / 4);
    while low < high {
        let middle = usize::midpoint(low, high);
        if u64::from(u32_at(array, middle)) < wanted {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
