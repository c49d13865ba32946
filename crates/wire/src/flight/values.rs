//! Columns sent by clients, whatever their layout: large or small, plain or view.
use super::ingest::IngestError;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BinaryViewArray, FixedSizeBinaryArray,
    LargeBinaryArray, LargeStringArray, PrimitiveArray, StringArray, StringViewArray,
};
use arrow_schema::{DataType, TimeUnit};
use xxhash_rust::xxh3::xxh3_128;

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
    pub(crate) fn bind(column: &'a ArrayRef) -> Option<Self> {
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

/// A column of message ids.
#[derive(Debug)]
pub(crate) struct Ids<'a>(Bytes<'a>);

impl<'a> Ids<'a> {
    pub(crate) fn bind(column: &'a ArrayRef) -> Result<Self, IngestError> {
        let ids = Bytes::any(column, "id")?;
        match ids {
            Bytes::Text(_) => Err(wrong_type("id", column.data_type(), "binary of 16 bytes")),
            ids => Ok(Self(ids)),
        }
    }

    /// The id of a row, most significant byte first; 0 = none.
    #[inline]
    pub(crate) fn at(&self, row: usize) -> Result<u128, IngestError> {
        let Some(id) = self.0.at(row) else {
            return Ok(0);
        };
        let bytes = id.len();
        let id = id.try_into().map_err(|_| IngestError::Id { row, bytes })?;
        Ok(u128::from_be_bytes(id))
    }

    /// As [`Ids::at`]; an id of another length is hashed.
    pub(crate) fn unchecked(&self, row: usize) -> u128 {
        self.at(row)
            .unwrap_or_else(|_| xxh3_128(self.0.at(row).unwrap_or_default()))
    }

    /// The bytes of a row as they are.
    pub(crate) fn bytes(&self, row: usize) -> Option<&'a [u8]> {
        self.0.at(row)
    }
}

/// A column of times.
#[derive(Debug)]
pub(crate) struct Times<'a> {
    name: &'static str,
    unit: Units<'a>,
}

#[derive(Debug)]
enum Units<'a> {
    Second(&'a PrimitiveArray<TimestampSecondType>),
    Millisecond(&'a PrimitiveArray<TimestampMillisecondType>),
    Microsecond(&'a PrimitiveArray<TimestampMicrosecondType>),
    Nanosecond(&'a PrimitiveArray<TimestampNanosecondType>),
}

impl<'a> Times<'a> {
    pub(crate) fn named(column: &'a ArrayRef, name: &'static str) -> Result<Self, IngestError> {
        let unit = match column.data_type() {
            DataType::Timestamp(TimeUnit::Second, _) => Units::Second(column.as_primitive()),
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                Units::Millisecond(column.as_primitive())
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                Units::Microsecond(column.as_primitive())
            }
            DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                Units::Nanosecond(column.as_primitive())
            }
            other => return Err(wrong_type(name, other, "timestamp")),
        };
        Ok(Self { name, unit })
    }

    /// Ns since 1970.
    #[inline]
    pub(crate) fn at(&self, row: usize) -> Result<Option<i64>, IngestError> {
        let column = self.name;
        let Some((value, unit)) = self.value(row) else {
            return Ok(None);
        };
        // The smallest number is how a batch says "none".
        let nanos = value.checked_mul(unit).filter(|nanos| *nanos != i64::MIN);
        nanos.map(Some).ok_or(IngestError::Time { column, row })
    }

    /// As [`Times::at`]; a time out of range is cut to 64 bits.
    pub(crate) fn unchecked(&self, row: usize) -> Option<i64> {
        self.value(row)
            .map(|(value, unit)| value.wrapping_mul(unit))
    }

    /// The number in a row, and how many ns are one of its units.
    #[inline]
    fn value(&self, row: usize) -> Option<(i64, i64)> {
        fn value<T: ArrowPrimitiveType<Native = i64>>(
            column: &PrimitiveArray<T>,
            row: usize,
        ) -> Option<i64> {
            column.is_valid(row).then(|| column.value(row))
        }
        let (value, unit) = match self.unit {
            Units::Second(times) => (value(times, row), 1_000_000_000),
            Units::Millisecond(times) => (value(times, row), 1_000_000),
            Units::Microsecond(times) => (value(times, row), 1_000),
            Units::Nanosecond(times) => (value(times, row), 1),
        };
        value.map(|value| (value, unit))
    }
}

/// An integer of any width in each row; `None` = null.
pub(crate) type Integers<'a> = Box<dyn Fn(usize) -> Option<i128> + 'a>;

/// Binds a column of them.
pub(crate) fn integers<'a>(
    column: &'a ArrayRef,
    name: &'static str,
) -> Result<Integers<'a>, IngestError> {
    fn of<T>(column: &ArrayRef) -> Integers<'_>
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

pub(crate) fn wrong_type(
    column: &'static str,
    found: &DataType,
    accepted: &'static str,
) -> IngestError {
    IngestError::Type {
        column,
        found: found.to_string(),
        accepted,
    }
}
