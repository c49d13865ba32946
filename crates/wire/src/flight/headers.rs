//! Columns of headers sent by clients: lists or maps of keys and values.
//!
//! | Field | Type | Null |
//! |---|---|---|
//! | `key` | text or binary | an empty key of kind 1, which readers get back as null |
//! | `value` | binary or text | empty |
//! | `key_kind`, `value_kind`, in lists only | integer, 1 to 15 | as if absent: 2 (string) for a key of a text column, else 1 (raw) |
use super::ingest::IngestError;
use super::values::{Bytes, Integers, integers, wrong_type};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, LargeListArray, ListArray, MapArray, StructArray};
use arrow_schema::DataType;
use bascule_record::HeaderEntry;
use std::convert::Infallible;
use std::ops::Range;

/// Kind of keys and values that are bytes.
pub(super) const RAW: u8 = 1;
/// Kind of keys that are text.
pub(super) const STRING: u8 = 2;
/// Kinds there are.
pub(super) const KINDS: Range<u8> = 1..16;

/// A column of headers.
pub(crate) struct Headers<'a> {
    lists: Lists<'a>,
    entries: &'a StructArray,
    keys: Bytes<'a>,
    values: Bytes<'a>,
    key_kinds: Option<Integers<'a>>,
    value_kinds: Option<Integers<'a>>,
}

enum Lists<'a> {
    List(&'a ListArray),
    LargeList(&'a LargeListArray),
    Map(&'a MapArray),
}

impl std::fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Headers")
            .field("entries", &self.entries)
            .finish_non_exhaustive()
    }
}

impl<'a> Headers<'a> {
    pub(crate) fn bind(column: &'a ArrayRef) -> Result<Self, IngestError> {
        let accepted = "list or map of key and value, each utf8 or binary";
        let wrong = || wrong_type("headers", column.data_type(), accepted);
        let (lists, entries) = match column.data_type() {
            DataType::List(_) => {
                let lists: &ListArray = column.as_list();
                let entries = lists.values().as_struct_opt();
                (Lists::List(lists), entries.ok_or_else(wrong)?)
            }
            DataType::LargeList(_) => {
                let lists: &LargeListArray = column.as_list();
                let entries = lists.values().as_struct_opt();
                (Lists::LargeList(lists), entries.ok_or_else(wrong)?)
            }
            DataType::Map(..) => (Lists::Map(column.as_map()), column.as_map().entries()),
            _ => return Err(wrong()),
        };
        let fields = Fields::find(entries).ok_or_else(wrong)?;
        let bytes = |column| Bytes::any(column, "headers").map_err(|_| wrong());
        let kinds = |column| integers(column, "headers").map_err(|_| wrong());
        Ok(Self {
            lists,
            entries,
            keys: bytes(fields.key)?,
            values: bytes(fields.value)?,
            key_kinds: fields.key_kind.map(kinds).transpose()?,
            value_kinds: fields.value_kind.map(kinds).transpose()?,
        })
    }

    /// Each header of a row, in order.
    pub(crate) fn each(
        &self,
        row: usize,
        take: impl FnMut(HeaderEntry<'a>),
    ) -> Result<(), IngestError> {
        let kind = |found| match u8::try_from(found) {
            Ok(kind) if KINDS.contains(&kind) => Ok(kind),
            _ => Err(IngestError::HeaderKind { row, found }),
        };
        self.walk(row, kind, take)
    }

    /// As [`Headers::each`]; kinds that are none are cut to 8 bits.
    pub(crate) fn each_unchecked(&self, row: usize, take: impl FnMut(HeaderEntry<'a>)) {
        let Ok(()) = self.walk(row, |found| Ok::<_, Infallible>(found as u8), take);
    }

    fn walk<E>(
        &self,
        row: usize,
        kind: impl Fn(i128) -> Result<u8, E>,
        mut take: impl FnMut(HeaderEntry<'a>),
    ) -> Result<(), E> {
        let kind_of = |kinds: Option<&Integers<'_>>, entry| {
            kinds.and_then(|kinds| kinds(entry)).map(&kind).transpose()
        };
        for entry in self.entries_of(row) {
            let is_there = self.entries.is_valid(entry);
            let key = self.keys.at(entry).filter(|_| is_there);
            let value = self.values.at(entry).filter(|_| is_there);
            let text = match (&self.keys, key) {
                (Bytes::Text(_), Some(_)) => STRING,
                _ => RAW,
            };
            let key_kind = kind_of(self.key_kinds.as_ref(), entry)?;
            let value_kind = kind_of(self.value_kinds.as_ref(), entry)?;
            take(HeaderEntry {
                key_kind: key_kind.filter(|_| key.is_some()).unwrap_or(text),
                key: key.unwrap_or_default(),
                value_kind: value_kind.unwrap_or(RAW),
                value: value.unwrap_or_default(),
            });
        }
        Ok(())
    }

    fn entries_of(&self, row: usize) -> Range<usize> {
        match self.lists {
            Lists::List(lists) if lists.is_valid(row) => range(lists.value_offsets(), row),
            Lists::LargeList(lists) if lists.is_valid(row) => range(lists.value_offsets(), row),
            Lists::Map(maps) if maps.is_valid(row) => range(maps.value_offsets(), row),
            _ => 0..0,
        }
    }
}

/// The columns of the entries.
struct Fields<'a> {
    key: &'a ArrayRef,
    value: &'a ArrayRef,
    key_kind: Option<&'a ArrayRef>,
    value_kind: Option<&'a ArrayRef>,
}

impl<'a> Fields<'a> {
    /// By name, each once; two columns of other names are key and value, for a map names them as it likes. `None` when a
    /// column would be left over.
    fn find(entries: &'a StructArray) -> Option<Self> {
        let named = |wanted: &str| {
            let place = entries
                .fields()
                .iter()
                .position(|field| field.name().eq_ignore_ascii_case(wanted))?;
            entries.columns().get(place)
        };
        let (key_kind, value_kind) = (named("key_kind"), named("value_kind"));
        let kinds = usize::from(key_kind.is_some()) + usize::from(value_kind.is_some());
        let (key, value) = match (named("key"), named("value")) {
            (Some(key), Some(value)) => (key, value),
            _ if kinds == 0 => (entries.columns().first()?, entries.columns().get(1)?),
            _ => return None,
        };
        (entries.num_columns() == 2 + kinds).then_some(Self {
            key,
            value,
            key_kind,
            value_kind,
        })
    }
}

fn range<T: arrow_array::OffsetSizeTrait>(offsets: &[T], row: usize) -> Range<usize> {
    match offsets.get(row..row + 2) {
        Some([start, end]) => start.as_usize()..end.as_usize(),
        _ => 0..0,
    }
}
