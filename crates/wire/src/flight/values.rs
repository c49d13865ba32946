//! Columns sent by clients, whatever their layout: large or small, plain or view.
use super::ingest::IngestError;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BinaryViewArray, FixedSizeBinaryArray,
    LargeBinaryArray, LargeListArray, LargeStringArray, ListArray, MapArray, PrimitiveArray,
    StringArray, StringViewArray, StructArray,
};
use arrow_schema::{DataType, TimeUnit};

/// A column of bytes.
#[derive(Debug)]
pub(crate) enum Bytes<'a> {
    Binary(&'a BinaryArray),
    LargeBinary(&'a LargeBinaryArray),
    BinaryView(&'a BinaryViewArray),
    FixedSizeBinary(&'a FixedSizeBinaryArray),
    Text(Text<'a>),
}

/// A column of text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Text<'a> {
    Plain(&'a StringArray),
    Large(&'a LargeStringArray),
    View(&'a StringViewArray),
}

impl<'a> Bytes<'a> {
    /// Bytes or text.
    pub(crate) fn any(column: &'a ArrayRef, name: &'static str) -> Result<Self, IngestError> {
        Ok(match column.data_type() {
            DataType::Binary => Self::Binary(column.as_binary()),
            DataType::LargeBinary => Self::LargeBinary(column.as_binary()),
            DataType::BinaryView => Self::BinaryView(column.as_binary_view()),
            DataType::FixedSizeBinary(_) => Self::FixedSizeBinary(column.as_fixed_size_binary()),
            other => Self::Text(
                Text::bind(column).ok_or_else(|| wrong_type(name, other, "binary and utf8"))?,
            ),
        })
    }

    #[inline]
    pub(crate) fn at(&self, row: usize) -> Option<&'a [u8]> {
        match self {
            Self::Binary(column) => column.is_valid(row).then(|| column.value(row)),
            Self::LargeBinary(column) => column.is_valid(row).then(|| column.value(row)),
            Self::BinaryView(column) => column.is_valid(row).then(|| column.value(row)),
            Self::FixedSizeBinary(column) => column.is_valid(row).then(|| column.value(row)),
            Self::Text(column) => column.at(row).map(str::as_bytes),
        }
    }
}

impl<'a> Text<'a> {
    fn bind(column: &'a ArrayRef) -> Option<Self> {
        Some(match column.data_type() {
            DataType::Utf8 => Self::Plain(column.as_string()),
            DataType::LargeUtf8 => Self::Large(column.as_string()),
            DataType::Utf8View => Self::View(column.as_string_view()),
            _ => return None,
        })
    }

    /// Text only.
    pub(crate) fn named(column: &'a ArrayRef, name: &'static str) -> Result<Self, IngestError> {
        Self::bind(column).ok_or_else(|| wrong_type(name, column.data_type(), "utf8"))
    }

    #[inline]
    pub(crate) fn at(&self, row: usize) -> Option<&'a str> {
        match self {
            Self::Plain(column) => column.is_valid(row).then(|| column.value(row)),
            Self::Large(column) => column.is_valid(row).then(|| column.value(row)),
            Self::View(column) => column.is_valid(row).then(|| column.value(row)),
        }
    }
}

/// A column of headers: a list or map of pairs.
#[derive(Debug)]
pub(crate) struct Headers<'a> {
    lists: Lists<'a>,
    entries: &'a StructArray,
    keys: Text<'a>,
    values: Bytes<'a>,
}

#[derive(Debug)]
enum Lists<'a> {
    List(&'a ListArray),
    LargeList(&'a LargeListArray),
    Map(&'a MapArray),
}

impl<'a> Headers<'a> {
    pub(crate) fn bind(column: &'a ArrayRef) -> Result<Self, IngestError> {
        let wrong = || {
            wrong_type(
                "headers",
                column.data_type(),
                "list or map of key utf8, value binary or utf8",
            )
        };
        let (lists, entries) = match column.data_type() {
            DataType::List(_) => {
                let lists: &ListArray = column.as_list();
                (
                    Lists::List(lists),
                    lists.values().as_struct_opt().ok_or_else(wrong)?,
                )
            }
            DataType::LargeList(_) => {
                let lists: &LargeListArray = column.as_list();
                (
                    Lists::LargeList(lists),
                    lists.values().as_struct_opt().ok_or_else(wrong)?,
                )
            }
            DataType::Map(..) => (Lists::Map(column.as_map()), column.as_map().entries()),
            _ => return Err(wrong()),
        };
        let [Some(keys), Some(values)] = pair(entries) else {
            return Err(wrong());
        };
        let keys = Text::bind(keys).ok_or_else(wrong)?;
        let values = Bytes::any(values, "headers").map_err(|_| wrong())?;
        Ok(Self {
            lists,
            entries,
            keys,
            values,
        })
    }

    /// Key and value of each header of a row, in order; a null value is an empty one.
    pub(crate) fn each(
        &self,
        row: usize,
        mut take: impl FnMut(&'a [u8], &'a [u8]),
    ) -> Result<(), IngestError> {
        let range = match self.lists {
            Lists::List(lists) if lists.is_valid(row) => range(lists.value_offsets(), row),
            Lists::LargeList(lists) if lists.is_valid(row) => range(lists.value_offsets(), row),
            Lists::Map(maps) if maps.is_valid(row) => range(maps.value_offsets(), row),
            _ => 0..0,
        };
        for entry in range {
            let key = self
                .keys
                .at(entry)
                .filter(|_| self.entries.is_valid(entry))
                .ok_or(IngestError::HeaderKey { row })?;
            take(key.as_bytes(), self.values.at(entry).unwrap_or_default());
        }
        Ok(())
    }
}

/// Columns `key` and `value` of an entry; a map names them as it likes.
fn pair(entries: &StructArray) -> [Option<&ArrayRef>; 2] {
    let named = |wanted: &str| {
        let place = entries
            .fields()
            .iter()
            .position(|field| field.name().eq_ignore_ascii_case(wanted))?;
        entries.columns().get(place)
    };
    match [named("key"), named("value")] {
        found if entries.num_columns() != 2 || found.iter().all(Option::is_some) => found,
        _ => [entries.columns().first(), entries.columns().get(1)],
    }
}

fn range<T: arrow_array::OffsetSizeTrait>(offsets: &[T], row: usize) -> std::ops::Range<usize> {
    match offsets.get(row..row + 2) {
        Some([start, end]) => start.as_usize()..end.as_usize(),
        _ => 0..0,
    }
}

/// A column of times.
#[derive(Debug)]
pub(crate) enum Times<'a> {
    Second(&'a PrimitiveArray<TimestampSecondType>),
    Millisecond(&'a PrimitiveArray<TimestampMillisecondType>),
    Microsecond(&'a PrimitiveArray<TimestampMicrosecondType>),
    Nanosecond(&'a PrimitiveArray<TimestampNanosecondType>),
}

impl<'a> Times<'a> {
    pub(crate) fn bind(column: &'a ArrayRef) -> Result<Self, IngestError> {
        Ok(match column.data_type() {
            DataType::Timestamp(TimeUnit::Second, _) => Self::Second(column.as_primitive()),
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                Self::Millisecond(column.as_primitive())
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                Self::Microsecond(column.as_primitive())
            }
            DataType::Timestamp(TimeUnit::Nanosecond, _) => Self::Nanosecond(column.as_primitive()),
            other => return Err(wrong_type("timestamp", other, "timestamp")),
        })
    }

    /// Ns since 1970.
    #[inline]
    pub(crate) fn at(&self, row: usize) -> Result<Option<i64>, IngestError> {
        match self {
            Self::Second(column) => nanos(column, row, 1_000_000_000),
            Self::Millisecond(column) => nanos(column, row, 1_000_000),
            Self::Microsecond(column) => nanos(column, row, 1_000),
            Self::Nanosecond(column) => nanos(column, row, 1),
        }
    }
}

#[inline]
fn nanos<T: ArrowPrimitiveType<Native = i64>>(
    column: &PrimitiveArray<T>,
    row: usize,
    unit: i64,
) -> Result<Option<i64>, IngestError> {
    if column.is_null(row) {
        return Ok(None);
    }
    // The smallest number is how a batch says "none".
    let nanos = column
        .value(row)
        .checked_mul(unit)
        .filter(|nanos| *nanos != i64::MIN);
    nanos.map(Some).ok_or(IngestError::Time { row })
}

/// An integer of any width in each row; `None` = null.
pub(crate) fn integers<'a>(
    column: &'a ArrayRef,
    name: &'static str,
) -> Result<Box<dyn Fn(usize) -> Option<i128> + 'a>, IngestError> {
    fn of<T>(column: &ArrayRef) -> Box<dyn Fn(usize) -> Option<i128> + '_>
    where
        T: ArrowPrimitiveType,
        T::Native: Into<i128>,
    {
        let column = column.as_primitive::<T>();
        Box::new(move |row| column.is_valid(row).then(|| column.value(row).into()))
    }
    Ok(match column.data_type() {
        DataType::Int8 => of::<Int8Type>(column),
        DataType::Int16 => of::<Int16Type>(column),
        DataType::Int32 => of::<Int32Type>(column),
        DataType::Int64 => of::<Int64Type>(column),
        DataType::UInt8 => of::<UInt8Type>(column),
        DataType::UInt16 => of::<UInt16Type>(column),
        DataType::UInt32 => of::<UInt32Type>(column),
        DataType::UInt64 => of::<UInt64Type>(column),
        other => return Err(wrong_type(name, other, "integers")),
    })
}

fn wrong_type(column: &'static str, found: &DataType, accepted: &'static str) -> IngestError {
    IngestError::Type {
        column,
        found: found.to_string(),
        accepted,
    }
}
