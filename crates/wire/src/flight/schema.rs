//! The columns of a stream seen as a table.
//!
//! | Column | Type | Null | Content |
//! |---|---|---|---|
//! | `partition` | int32 | no | partition number |
//! | `offset` | int64 | no | offset in the partition |
//! | `timestamp` | timestamp\[us, UTC\] | no | leader's clock at receipt, rounded down |
//! | `subject` | utf8 | no | NATS subject; the partition's own for records that have none |
//! | `key` | binary | yes | null = none |
//! | `value` | binary | yes | null = a tombstone |
//! | `stream` | utf8 | no | stream name |
//! | `headers` | list\<element: struct\<key utf8, value binary\>\> | no | in order; empty when there are none |
//! | `reply` | utf8 | yes | NATS reply subject |
//! | `id` | fixed\_size\_binary\[16\] | yes | message id, most significant byte first |
//! | `origin_time` | timestamp\[us, UTC\] | yes | time at the origin, rounded down |
//! | `timestamp_ns` | int64 | no | `timestamp` in ns since 1970, not rounded |
//!
//! The first six are the default, in this order. The types are Spark's own, so that its reader takes the batches as they are.
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use std::sync::Arc;

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Column {
    /// Partition number.
    Partition,
    /// Offset in the partition.
    Offset,
    /// Receipt time.
    Timestamp,
    /// NATS subject.
    Subject,
    /// Key.
    Key,
    /// Value.
    Value,
    /// Stream name.
    Stream,
    /// Headers.
    Headers,
    /// NATS reply subject.
    Reply,
    /// Message id.
    Id,
    /// Time at the origin.
    OriginTime,
    /// Receipt time in ns.
    TimestampNs,
}

impl Column {
    /// What a reader gets who asks for nothing else.
    pub const DEFAULT: [Self; 6] = [
        Self::Partition,
        Self::Offset,
        Self::Timestamp,
        Self::Subject,
        Self::Key,
        Self::Value,
    ];

    /// All columns, the default ones first.
    pub const ALL: [Self; 12] = [
        Self::Partition,
        Self::Offset,
        Self::Timestamp,
        Self::Subject,
        Self::Key,
        Self::Value,
        Self::Stream,
        Self::Headers,
        Self::Reply,
        Self::Id,
        Self::OriginTime,
        Self::TimestampNs,
    ];

    /// Its name in the schema.
    pub fn name(self) -> &'static str {
        match self {
            Self::Partition => "partition",
            Self::Offset => "offset",
            Self::Timestamp => "timestamp",
            Self::Subject => "subject",
            Self::Key => "key",
            Self::Value => "value",
            Self::Stream => "stream",
            Self::Headers => "headers",
            Self::Reply => "reply",
            Self::Id => "id",
            Self::OriginTime => "origin_time",
            Self::TimestampNs => "timestamp_ns",
        }
    }

    /// The column of this name, exactly as written.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.name() == name)
    }

    /// Its Arrow field.
    pub fn field(self) -> Field {
        let (kind, nullable) = match self {
            Self::Partition => (DataType::Int32, false),
            Self::Offset | Self::TimestampNs => (DataType::Int64, false),
            Self::Timestamp => (timestamp_type(), false),
            Self::Subject | Self::Stream => (DataType::Utf8, false),
            Self::Key | Self::Value => (DataType::Binary, true),
            Self::Headers => (DataType::List(header_element()), false),
            Self::Reply => (DataType::Utf8, true),
            Self::Id => (DataType::FixedSizeBinary(16), true),
            Self::OriginTime => (timestamp_type(), true),
        };
        Field::new(self.name(), kind, nullable)
    }
}

/// Fields of one header.
pub(crate) fn header_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("value", DataType::Binary, true),
    ])
}

/// Element of the list of headers.
pub(crate) fn header_element() -> Arc<Field> {
    Arc::new(Field::new(
        "element",
        DataType::Struct(header_fields()),
        true,
    ))
}

/// Time zone of all times.
pub(crate) const UTC: &str = "UTC";

fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
}

/// The columns that a reader asked for, in its order, and their schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    columns: Vec<Column>,
    schema: SchemaRef,
}

impl Projection {
    /// Columns by name, exactly as written. None at all is allowed: such batches only count rows.
    ///
    /// # Errors
    /// [`ProjectionError`] for a name that is not a column, or is there twice.
    pub fn named<S: AsRef<str>>(names: &[S]) -> Result<Self, ProjectionError> {
        let mut columns = Vec::with_capacity(names.len());
        for name in names {
            let name = name.as_ref();
            let column =
                Column::named(name).ok_or_else(|| ProjectionError::Unknown(name.to_owned()))?;
            if columns.contains(&column) {
                return Err(ProjectionError::Repeated(column.name()));
            }
            columns.push(column);
        }
        Ok(Self::of(columns))
    }

    /// The columns, in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Their schema.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether `column` is among them.
    pub fn has(&self, column: Column) -> bool {
        self.columns.contains(&column)
    }

    fn of(columns: Vec<Column>) -> Self {
        let fields: Vec<Field> = columns.iter().map(|column| column.field()).collect();
        Self {
            columns,
            schema: Arc::new(Schema::new(fields)),
        }
    }
}

impl Default for Projection {
    /// [`Column::DEFAULT`].
    fn default() -> Self {
        Self::of(Column::DEFAULT.to_vec())
    }
}

/// A list of columns that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectionError {
    /// No such column.
    #[error("no column is named {0:?}; there are {known}", known = known_columns())]
    Unknown(String),
    /// A column is asked for twice.
    #[error("column {0} is asked for twice")]
    Repeated(&'static str),
}

fn known_columns() -> String {
    Column::ALL.map(Column::name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_has_six_columns_in_order() {
        let projection = Projection::default();
        let names: Vec<_> = projection
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        assert_eq!(
            names,
            [
                "partition",
                "offset",
                "timestamp",
                "subject",
                "key",
                "value"
            ]
        );
        let nullable: Vec<_> = projection
            .schema()
            .fields()
            .iter()
            .map(|field| field.is_nullable())
            .collect();
        assert_eq!(nullable, [false, false, false, false, true, true]);
    }

    #[test]
    fn columns_come_in_the_order_asked_for() {
        let projection = Projection::named(&["value", "headers", "id"])
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            projection.columns(),
            [Column::Value, Column::Headers, Column::Id]
        );
        let headers = projection.schema().field(1);
        assert!(!headers.is_nullable());
        let DataType::List(element) = headers.data_type() else {
            panic!("{headers}")
        };
        assert_eq!(element.name(), "element");
        assert_eq!(
            projection.schema().field(2).data_type(),
            &DataType::FixedSizeBinary(16)
        );
    }

    #[test]
    fn every_column_is_found_by_its_name() {
        for column in Column::ALL {
            assert_eq!(Column::named(column.name()), Some(column));
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = Projection::named(&["value", "vaule"])
            .map(drop)
            .map_err(|error| error.to_string());
        let expected = "no column is named \"vaule\"; there are partition, offset, timestamp, subject, key, value, stream, headers, \
                        reply, id, origin_time, timestamp_ns";
        assert_eq!(error, Err(expected.to_owned()));
        assert_eq!(
            Projection::named(&["key", "key"]),
            Err(ProjectionError::Repeated("key"))
        );
    }
}
