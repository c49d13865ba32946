//! The columns of a batch while records are added, and their concatenation into a payload.
//!
//! Optional columns cost nothing until a record needs them; then they are filled in for the records before. The layout
//! that [`RecordColumns::write`] produces is the table of [`crate::layout`].
use crate::layout::{NO_ORIGIN, aligned};
use crate::subjects::{Found, Subjects};
use crate::{Columns, RecordRef};

/// A column of byte strings: `ends` is empty (column absent) or has one more element than there are records.
#[derive(Debug, Default)]
pub(crate) struct Varied {
    ends: Vec<u32>,
    blob: Vec<u8>,
}

impl Varied {
    fn is_present(&self) -> bool {
        !self.ends.is_empty()
    }

    /// Adds the element of the next record, which `count` records precede.
    #[inline]
    fn push(&mut self, count: usize, element: &[u8]) {
        if element.is_empty() && !self.is_present() {
            return;
        }
        self.begin(count);
        self.blob.extend_from_slice(element);
        self.end();
    }

    #[inline]
    fn begin(&mut self, count: usize) {
        if self.ends.is_empty() {
            self.ends.resize(count + 1, 0);
        }
    }

    #[inline]
    fn end(&mut self) {
        self.ends.push(self.blob.len() as u32);
    }

    fn clear(&mut self) {
        self.ends.clear();
        self.blob.clear();
    }
}

/// Adds `element` to a fixed column; an absent one stays absent while elements equal `absent`.
#[inline]
fn push_fixed<T: Copy + PartialEq>(column: &mut Vec<T>, count: usize, element: T, absent: T) {
    if column.is_empty() {
        if element == absent {
            return;
        }
        column.resize(count, absent);
    }
    column.push(element);
}

/// Columns being gathered, without any limit of their own.
#[derive(Debug, Default)]
pub(crate) struct RecordColumns {
    count: usize,
    timestamps: Vec<u32>,
    values: Varied,
    nulls: Vec<u8>,
    keys: Varied,
    headers: Varied,
    pub(crate) subjects: Subjects,
    replies: Varied,
    ids: Vec<u128>,
    origins: Vec<i64>,
}

impl RecordColumns {
    /// Records inside.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Adds one record. `delta`: ns after the base timestamp. `subject`: what [`Subjects::find`] said about its subject.
    pub(crate) fn push(&mut self, record: &RecordRef<'_>, delta: u32, subject: Found) {
        let n = self.count;
        push_fixed(&mut self.timestamps, n, delta, 0);
        self.values.push(n, record.value.unwrap_or_default());
        self.push_null(record.value.is_none());
        self.keys.push(n, record.key.unwrap_or_default());
        self.push_headers(record);
        let entry = match subject {
            Found::Known(entry) => entry,
            Found::New(hash) => self
                .subjects
                .insert(record.subject.unwrap_or_default(), hash),
        };
        self.subjects.assign(n, entry);
        self.replies.push(n, record.reply.as_bytes());
        push_fixed(&mut self.ids, n, record.id, 0);
        push_fixed(
            &mut self.origins,
            n,
            record.origin_time.unwrap_or(NO_ORIGIN),
            NO_ORIGIN,
        );
        self.count = n + 1;
    }

    #[inline]
    fn push_null(&mut self, is_null: bool) {
        if is_null {
            self.nulls.resize(self.count / 8 + 1, 0);
            self.nulls[self.count / 8] |= 1 << (self.count % 8);
        }
    }

    #[inline]
    fn push_headers(&mut self, record: &RecordRef<'_>) {
        if record.headers.is_empty() && !self.headers.is_present() {
            return;
        }
        self.headers.begin(self.count);
        let blob = &mut self.headers.blob;
        for header in record.headers {
            blob.extend_from_slice(&[header.key_kind, header.value_kind]);
            blob.extend_from_slice(&(header.key.len() as u16).to_le_bytes());
            blob.extend_from_slice(&(header.value.len() as u32).to_le_bytes());
            blob.extend_from_slice(header.key);
            blob.extend_from_slice(header.value);
        }
        self.headers.end();
    }

    /// Which columns are present, without [`Columns::OFFSET`].
    pub(crate) fn columns(&self) -> u16 {
        let has_subjects =
            self.subjects.len() > 1 || (self.subjects.len() == 1 && !self.subjects.blob.is_empty());
        [
            (Columns::TIMESTAMP, !self.timestamps.is_empty()),
            (Columns::VALUE, self.values.is_present()),
            (Columns::NULL, !self.nulls.is_empty()),
            (Columns::KEY, self.keys.is_present()),
            (Columns::HEADER, self.headers.is_present()),
            (Columns::SUBJECT, has_subjects),
            (Columns::REPLY, self.replies.is_present()),
            (Columns::ID, !self.ids.is_empty()),
            (Columns::ORIGIN, !self.origins.is_empty()),
        ]
        .iter()
        .fold(
            0,
            |bits, &(bit, is_present)| if is_present { bits | bit } else { bits },
        )
    }

    /// Appends the payload to `out`, whose length is a multiple of 8, and says which columns it holds.
    /// `offsets`: offset deltas, one per record, for a SPARSE batch. `own`: the partition's own subject.
    pub(crate) fn write(
        &mut self,
        offsets: Option<&[u32]>,
        own: Option<&str>,
        out: &mut Vec<u8>,
    ) -> Columns {
        if let Some(own) = own {
            self.subjects.fold_own(own);
        }
        let columns = Columns(self.columns() | offsets.map_or(0, |_| Columns::OFFSET));
        put_array(out, offsets.unwrap_or_default());
        put_array(out, &self.timestamps);
        put_array(out, &self.values.ends);
        if columns.has(Columns::NULL) {
            self.nulls.resize(self.count.div_ceil(8), 0);
            put_array(out, &self.nulls);
        }
        put_array(out, &self.keys.ends);
        put_array(out, &self.headers.ends);
        if columns.has(Columns::SUBJECT) {
            put_array(out, &[self.subjects.len() as u32]);
            put_elements(out, &self.subjects.ends);
            put_array(out, &self.subjects.index);
        }
        put_array(out, &self.replies.ends);
        put_array(out, &self.ids);
        put_array(out, &self.origins);
        out.extend_from_slice(&self.values.blob);
        out.extend_from_slice(&self.keys.blob);
        out.extend_from_slice(&self.headers.blob);
        if columns.has(Columns::SUBJECT) {
            out.extend_from_slice(&self.subjects.blob);
        }
        out.extend_from_slice(&self.replies.blob);
        columns
    }

    /// Forgets all records, keeps memory.
    pub(crate) fn clear(&mut self) {
        self.count = 0;
        self.timestamps.clear();
        self.values.clear();
        self.nulls.clear();
        self.keys.clear();
        self.headers.clear();
        self.subjects.clear();
        self.replies.clear();
        self.ids.clear();
        self.origins.clear();
    }
}

/// An element of a fixed array, written little-endian.
trait Element: Copy {
    type Bytes: AsRef<[u8]>;
    fn to_le(self) -> Self::Bytes;
}
macro_rules! element {
    ($($t:ty),*) => {$(impl Element for $t {
        type Bytes = [u8; size_of::<$t>()];
        fn to_le(self) -> Self::Bytes {
            self.to_le_bytes()
        }
    })*};
}
element!(u8, u16, u32, u128, i64);

/// Appends a whole array at the next multiple of 8; an empty one leaves no trace, not even padding.
fn put_array<T: Element>(out: &mut Vec<u8>, elements: &[T]) {
    if !elements.is_empty() {
        out.resize(aligned(out.len()), 0);
        put_elements(out, elements);
    }
}

fn put_elements<T: Element>(out: &mut Vec<u8>, elements: &[T]) {
    let start = out.len();
    out.resize(start + size_of_val(elements), 0);
    for (to, element) in out[start..].chunks_exact_mut(size_of::<T>()).zip(elements) {
        to.copy_from_slice(element.to_le().as_ref());
    }
}
