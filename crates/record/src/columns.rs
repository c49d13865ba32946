//! Whole columns of a checked batch, for bulk readers: each is one slice of the payload.
use crate::Batch;
use crate::layout::{Varied, u32_at};
use bytes::Bytes;

/// Whole columns, for bulk readers. Their bytes are slices of [`Batch::payload`]; integers are little-endian and not
/// necessarily aligned in memory.
impl Batch {
    /// The raw payload; `payload().slice_ref(column)` shares a column's bytes.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Offset of each record minus the base offset, u32\[n\]; `None` = 0, 1, 2, …
    pub fn offset_deltas(&self) -> Option<&[u8]> {
        self.column(self.layout.offsets)
    }

    /// Timestamp of each record minus the base timestamp, ns, u32\[n\]; `None` = all 0.
    pub fn timestamp_deltas(&self) -> Option<&[u8]> {
        self.column(self.layout.timestamps)
    }

    /// Value column: n + 1 ends and the bytes; `None` when the column is absent (all values empty).
    pub fn values(&self) -> Option<(Ends<'_>, &[u8])> {
        self.varied(self.layout.values)
    }

    /// Validity bitmap of values: bit set = null, bit i of byte i / 8; `None` = no nulls.
    pub fn value_nulls(&self) -> Option<&[u8]> {
        self.column(self.layout.nulls)
    }

    /// Key column: n + 1 ends and the bytes; `None` when no record has a key.
    pub fn keys(&self) -> Option<(Ends<'_>, &[u8])> {
        self.varied(self.layout.keys)
    }

    /// Whether any record has headers.
    pub fn has_headers(&self) -> bool {
        self.layout.headers.is_some()
    }

    /// Reply column: n + 1 ends and the bytes, UTF-8; `None` when no record has a reply subject.
    pub fn replies(&self) -> Option<(Ends<'_>, &[u8])> {
        self.varied(self.layout.replies)
    }

    /// Message ids, u128\[n\], 0 = none; `None` when no record has one.
    pub fn ids(&self) -> Option<&[u8]> {
        self.column(self.layout.ids)
    }

    /// Origin times, i64\[n\], ns since 1970, `i64::MIN` = none; `None` when no record has one.
    pub fn origin_times(&self) -> Option<&[u8]> {
        self.column(self.layout.origins)
    }

    fn varied(&self, column: Option<Varied>) -> Option<(Ends<'_>, &[u8])> {
        column.map(|column| {
            (
                Ends(column.ends.of(&self.payload)),
                column.blob.of(&self.payload),
            )
        })
    }
}

/// n + 1 ascending ends, little-endian u32, not aligned; the first is 0.
#[derive(Clone, Copy, Debug)]
pub struct Ends<'a>(&'a [u8]);
impl<'a> Ends<'a> {
    /// End i, 0 ≤ i ≤ n.
    ///
    /// # Panics
    /// When i > n.
    #[inline]
    pub fn get(&self, i: usize) -> u32 {
        u32_at(self.0, i)
    }

    /// All n + 1, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0
            .chunks_exact(4)
            .map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]))
    }

    /// All n + 1 as they are stored.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}
