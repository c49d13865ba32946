//! Where the columns of a payload lie, and the one check that makes every later access safe.
//!
//! The payload is the arrays of all present columns in the order of their bits, each beginning at a multiple of 8 with
//! zeros before it where needed, then the blobs in the same order, back to back without padding. All integers
//! little-endian; n = count of records. The same table stands in `specs/formats/batch.md`.
//!
//! | Bit | Array | Rule | Blob |
//! |---|---|---|---|
//! | 0 | offset delta u32\[n\] | strictly increasing, below span | |
//! | 1 | timestamp delta u32\[n\], ns | never decreasing, base + last = maximum timestamp | |
//! | 2 | value ends u32\[n+1\] | first 0, never decreasing, last = length of the blob | values |
//! | 3 | null bitmap u8\[⌈n/8⌉\], bit i mod 8 of byte i / 8 | unused bits 0, a null value has no bytes | |
//! | 4 | key ends u32\[n+1\] | as 2 | keys |
//! | 5 | header ends u32\[n+1\] | as 2; entries fill each record's part exactly | headers |
//! | 6 | entries u32, subject ends u32\[entries+1\]; then, aligned to 8, index u16\[n\] unless entries = 1 | 1 ≤ entries ≤ 65,535; ends as 2, UTF-8; index < entries | subjects |
//! | 7 | reply ends u32\[n+1\] | as 2, UTF-8 | replies |
//! | 8 | id u128\[n\] | | |
//! | 9 | origin time i64\[n\], ns; `i64::MIN` = none | | |
//!
//! An entry of the headers blob: key kind u8, value kind u8, key length u16, value length u32, key, value.
use crate::subjects::MAX_SUBJECTS;
use crate::{Columns, DamageError, Header};

/// Most nanoseconds that timestamps of a built batch span, inclusive.
pub(crate) const MAX_DELTA_NS: u64 = 4_000_000_000;
/// Origin time of a record that has none, in a batch where others have one.
pub(crate) const NO_ORIGIN: i64 = i64::MIN;
/// Fixed part of an entry of the headers blob.
pub(crate) const HEADER_ENTRY_BYTES: usize = 8;

/// The next multiple of 8.
pub(crate) fn aligned(at: usize) -> usize {
    at.next_multiple_of(8)
}

/// Bytes `[start, end)` of the payload.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    start: usize,
    end: usize,
}
impl Span {
    /// The bytes. In range by construction: [`Layout::check`] made the span of this payload.
    #[inline]
    pub(crate) fn of(self, payload: &[u8]) -> &[u8] {
        &payload[self.start..self.end]
    }
}

/// A column of byte strings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Varied {
    pub(crate) ends: Span,
    pub(crate) blob: Span,
}
impl Varied {
    /// Element i.
    #[inline]
    pub(crate) fn element(self, payload: &[u8], i: usize) -> &[u8] {
        let ends = self.ends.of(payload);
        &self.blob.of(payload)[u32_at(ends, i) as usize..u32_at(ends, i + 1) as usize]
    }
}

/// Places of all columns; `None` = absent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) offsets: Option<Span>,
    pub(crate) timestamps: Option<Span>,
    pub(crate) values: Option<Varied>,
    pub(crate) nulls: Option<Span>,
    pub(crate) keys: Option<Varied>,
    pub(crate) headers: Option<Varied>,
    pub(crate) subjects: Option<Varied>,
    /// Absent also when the dictionary has one entry.
    pub(crate) subject_index: Option<Span>,
    pub(crate) replies: Option<Varied>,
    pub(crate) ids: Option<Span>,
    pub(crate) origins: Option<Span>,
}

impl Layout {
    /// Finds and checks every column of `payload`, the raw payload of a batch with this (checked) header.
    ///
    /// # Errors
    /// [`DamageError`] of the first column that breaks its rule. No bytes make it panic or allocate.
    pub(crate) fn check(header: &Header, payload: &[u8]) -> Result<Self, DamageError> {
        let mut layout = Self::default();
        let mut reader = PayloadReader { payload, at: 0 };
        layout.place_arrays(header, &mut reader)?;
        layout.place_blobs(&mut reader)?;
        if reader.at != payload.len() {
            return Err(DamageError::Unused {
                used: reader.at,
                raw: payload.len(),
            });
        }
        layout.check_order(header, payload)?;
        layout.check_elements(header, payload)?;
        Ok(layout)
    }

    fn place_arrays(
        &mut self,
        header: &Header,
        reader: &mut PayloadReader<'_>,
    ) -> Result<(), DamageError> {
        let n = header.count as usize;
        let has = |column| header.columns.has(column);
        if has(Columns::OFFSET) {
            self.offsets = Some(reader.array("offset", n * 4)?);
        }
        if has(Columns::TIMESTAMP) {
            self.timestamps = Some(reader.array("timestamp", n * 4)?);
        }
        if has(Columns::VALUE) {
            self.values = Some(reader.ends("value", n)?);
        }
        if has(Columns::NULL) {
            self.nulls = Some(reader.array("null", n.div_ceil(8))?);
        }
        if has(Columns::KEY) {
            self.keys = Some(reader.ends("key", n)?);
        }
        if has(Columns::HEADER) {
            self.headers = Some(reader.ends("header", n)?);
        }
        if has(Columns::SUBJECT) {
            let entries = u32_at(reader.array("subject", 4)?.of(reader.payload), 0) as usize;
            if !(1..=MAX_SUBJECTS).contains(&entries) {
                return broken("subject", "entries are 1 to 65535", 0);
            }
            self.subjects = Some(Varied {
                ends: reader.bytes("subject", (entries + 1) * 4)?,
                blob: Span::default(),
            });
            if entries > 1 {
                self.subject_index = Some(reader.array("subject", n * 2)?);
            }
        }
        if has(Columns::REPLY) {
            self.replies = Some(reader.ends("reply", n)?);
        }
        if has(Columns::ID) {
            self.ids = Some(reader.array("id", n * 16)?);
        }
        if has(Columns::ORIGIN) {
            self.origins = Some(reader.array("origin time", n * 8)?);
        }
        Ok(())
    }

    fn place_blobs(&mut self, reader: &mut PayloadReader<'_>) -> Result<(), DamageError> {
        let columns = [
            ("value", &mut self.values),
            ("key", &mut self.keys),
            ("header", &mut self.headers),
            ("subject", &mut self.subjects),
            ("reply", &mut self.replies),
        ];
        for (name, column) in columns {
            if let Some(column) = column {
                let length = check_ends(name, column.ends.of(reader.payload))?;
                column.blob = reader.bytes(name, length as usize)?;
            }
        }
        Ok(())
    }

    /// Offsets and timestamps against each other and the header.
    fn check_order(&self, header: &Header, payload: &[u8]) -> Result<(), DamageError> {
        if let Some(offsets) = self.offsets {
            let offsets = offsets.of(payload);
            if let Some(at) = first_pair(offsets, |a, b| a >= b) {
                return broken("offset", "deltas increase", at + 1);
            }
            if last_u32(offsets).is_some_and(|last| last >= header.span) {
                return broken(
                    "offset",
                    "deltas are below the span",
                    header.count as usize - 1,
                );
            }
        }
        let mut last = 0;
        if let Some(timestamps) = self.timestamps {
            let timestamps = timestamps.of(payload);
            if let Some(at) = first_pair(timestamps, |a, b| a > b) {
                return broken("timestamp", "deltas never decrease", at + 1);
            }
            last = last_u32(timestamps).unwrap_or(0);
        }
        let (base, stored) = (header.base_timestamp, header.max_timestamp);
        // A batch that compaction emptied keeps the times it had.
        let is_consistent = match base.checked_add(i64::from(last)) {
            Some(computed) if header.count == 0 => computed <= stored,
            Some(computed) => computed == stored,
            None => false,
        };
        if is_consistent {
            Ok(())
        } else {
            Err(DamageError::MaxTimestamp { stored, base, last })
        }
    }

    /// What lies inside the elements.
    fn check_elements(&self, header: &Header, payload: &[u8]) -> Result<(), DamageError> {
        if let Some(nulls) = self.nulls {
            self.check_nulls(header.count as usize, nulls.of(payload), payload)?;
        }
        if let Some(headers) = self.headers {
            check_headers(headers, payload)?;
        }
        if let Some(subjects) = self.subjects {
            check_text("subject", subjects, payload)?;
            let entries = subjects.ends.of(payload).len() / 4 - 1;
            let index = self.subject_index.unwrap_or_default().of(payload);
            let at = index
                .chunks_exact(2)
                .position(|i| usize::from(u16::from_le_bytes([i[0], i[1]])) >= entries);
            if let Some(at) = at {
                return broken("subject", "indexes are below the number of entries", at);
            }
        }
        if let Some(replies) = self.replies {
            check_text("reply", replies, payload)?;
        }
        Ok(())
    }

    fn check_nulls(&self, n: usize, nulls: &[u8], payload: &[u8]) -> Result<(), DamageError> {
        if let Some(last) = nulls.last().filter(|_| !n.is_multiple_of(8))
            && last >> (n % 8) != 0
        {
            return broken("null", "unused bits are 0", n);
        }
        let Some(ends) = self.values.map(|values| values.ends.of(payload)) else {
            return Ok(());
        };
        for (byte, &bits) in nulls.iter().enumerate().filter(|(_, bits)| **bits != 0) {
            for i in (byte * 8..byte * 8 + 8).filter(|i| bits & (1 << (i % 8)) != 0) {
                if u32_at(ends, i) != u32_at(ends, i + 1) {
                    return broken("null", "a null value has no bytes", i);
                }
            }
        }
        Ok(())
    }
}

/// Takes spans from the payload, front to back.
struct PayloadReader<'a> {
    payload: &'a [u8],
    at: usize,
}
impl PayloadReader<'_> {
    /// The next `length` bytes.
    fn bytes(&mut self, column: &'static str, length: usize) -> Result<Span, DamageError> {
        let have = self.payload.len();
        let need = self.at.saturating_add(length);
        if need > have {
            return Err(DamageError::ColumnShort { column, need, have });
        }
        let span = Span {
            start: self.at,
            end: need,
        };
        self.at = need;
        Ok(span)
    }

    /// The next `length` bytes from a multiple of 8 on; none and no padding when `length` is 0.
    fn array(&mut self, column: &'static str, length: usize) -> Result<Span, DamageError> {
        if length > 0 {
            let padding = self.bytes(column, aligned(self.at) - self.at)?;
            if padding.of(self.payload).iter().any(|byte| *byte != 0) {
                return broken(column, "padding is zero", 0);
            }
        }
        self.bytes(column, length)
    }

    /// Ends of n elements; the blob comes later.
    fn ends(&mut self, column: &'static str, n: usize) -> Result<Varied, DamageError> {
        Ok(Varied {
            ends: self.array(column, (n + 1) * 4)?,
            blob: Span::default(),
        })
    }
}

fn broken<T>(column: &'static str, rule: &'static str, at: usize) -> Result<T, DamageError> {
    Err(DamageError::Column { column, rule, at })
}

/// u32 number i of an array; panics beyond its end.
#[inline]
pub(crate) fn u32_at(array: &[u8], i: usize) -> u32 {
    let at = &array[i * 4..i * 4 + 4];
    u32::from_le_bytes([at[0], at[1], at[2], at[3]])
}

fn last_u32(array: &[u8]) -> Option<u32> {
    array.last_chunk().map(|last| u32::from_le_bytes(*last))
}

/// Index of the first element that is `wrong` beside its successor.
fn first_pair(array: &[u8], wrong: impl Fn(u32, u32) -> bool + Copy) -> Option<usize> {
    let pairs = || {
        array
            .chunks_exact(4)
            .zip(array.get(4..).unwrap_or_default().chunks_exact(4))
    };
    let is_wrong = |a: &[u8], b: &[u8]| {
        wrong(
            u32::from_le_bytes([a[0], a[1], a[2], a[3]]),
            u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        )
    };
    // Without an early exit the loop becomes vector instructions; the place matters only when there is one.
    let is_any_wrong = pairs().fold(false, |any, (a, b)| any | is_wrong(a, b));
    if is_any_wrong {
        pairs().position(|(a, b)| is_wrong(a, b))
    } else {
        None
    }
}

/// Checks n + 1 ends; the last one.
fn check_ends(column: &'static str, ends: &[u8]) -> Result<u32, DamageError> {
    if u32_at(ends, 0) != 0 {
        return broken(column, "the first end is 0", 0);
    }
    match first_pair(ends, |a, b| a > b) {
        Some(at) => broken(column, "ends never decrease", at + 1),
        None => Ok(last_u32(ends).unwrap_or(0)),
    }
}

/// Checks that each element is UTF-8 by itself.
fn check_text(column: &'static str, texts: Varied, payload: &[u8]) -> Result<(), DamageError> {
    let Ok(all) = std::str::from_utf8(texts.blob.of(payload)) else {
        return broken(column, "text is UTF-8", 0);
    };
    let ends = texts.ends.of(payload);
    if all.is_ascii() {
        return Ok(());
    }
    match ends
        .chunks_exact(4)
        .position(|end| !all.is_char_boundary(u32_at(end, 0) as usize))
    {
        Some(at) => broken(column, "text is UTF-8", at),
        None => Ok(()),
    }
}

/// Checks that the entries of each record fill its part exactly.
fn check_headers(headers: Varied, payload: &[u8]) -> Result<(), DamageError> {
    let n = headers.ends.of(payload).len() / 4 - 1;
    for i in 0..n {
        let mut rest = headers.element(payload, i);
        while !rest.is_empty() {
            match split_header(rest) {
                Some((_, after)) => rest = after,
                None => return broken("header", "entries fill the record's part", i),
            }
        }
    }
    Ok(())
}

/// The parts of a header entry: key kind, value kind, key, value.
pub(crate) type HeaderParts<'a> = (u8, u8, &'a [u8], &'a [u8]);

/// The first entry of `bytes` and what follows it; `None` when it does not fit.
pub(crate) fn split_header(bytes: &[u8]) -> Option<(HeaderParts<'_>, &[u8])> {
    let (&[key_kind, value_kind, k0, k1, v0, v1, v2, v3], rest) =
        bytes.split_first_chunk::<HEADER_ENTRY_BYTES>()?;
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([k0, k1])))?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes([v0, v1, v2, v3]) as usize)?;
    Some(((key_kind, value_kind, key, value), rest))
}
