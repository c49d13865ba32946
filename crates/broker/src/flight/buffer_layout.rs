//! Whether the buffers of a record batch fit the types of its columns: Arrow's decoder panics on one that ends within an
//! element.
use super::refusal::invalid;
use arrow_schema::{DataType, Field, Schema};
use tonic::Status;

/// Of the buffers of a batch, in their order, how long one element is, bytes; 1 where any length will do.
#[derive(Debug)]
pub struct Elements {
    fixed: Vec<Expected>,
}

#[derive(Clone, Copy, Debug)]
enum Expected {
    Element(usize),
    /// The data of a view column: as many buffers as the batch says.
    Data,
}

impl Elements {
    /// Those of a schema's columns.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a column of a type that no column accepted here can have.
    pub fn of(schema: &Schema) -> Result<Self, Status> {
        let mut fixed = Vec::new();
        for field in schema.fields() {
            push(field, &mut fixed)?;
        }
        Ok(Self { fixed })
    }

    /// Element lengths, buffer by buffer. `data_counts`: how many data buffers the view columns have, in their order.
    pub fn lengths(
        &self,
        data_counts: impl IntoIterator<Item = i64>,
    ) -> impl Iterator<Item = usize> {
        let mut counts = data_counts.into_iter();
        self.fixed.iter().flat_map(move |expected| {
            let (element, times) = match expected {
                Expected::Element(bytes) => (*bytes, 1),
                Expected::Data => (1, counts.next().unwrap_or(0)),
            };
            // The decoder rejects a negative count: it finds too few buffers.
            std::iter::repeat_n(element, usize::try_from(times).unwrap_or(0))
        })
    }
}

fn push(field: &Field, into: &mut Vec<Expected>) -> Result<(), Status> {
    let mut buffers = |elements: &[usize]| {
        into.extend(elements.iter().map(|bytes| Expected::Element(*bytes)));
    };
    match field.data_type() {
        DataType::Null => {}
        DataType::Boolean | DataType::FixedSizeBinary(_) => buffers(&[1, 1]),
        DataType::Binary | DataType::Utf8 => buffers(&[1, 4, 1]),
        DataType::LargeBinary | DataType::LargeUtf8 => buffers(&[1, 8, 1]),
        DataType::BinaryView | DataType::Utf8View => {
            buffers(&[1, 16]);
            into.push(Expected::Data);
        }
        DataType::List(child) | DataType::Map(child, _) => {
            buffers(&[1, 4]);
            push(child, into)?;
        }
        DataType::LargeList(child) => {
            buffers(&[1, 8]);
            push(child, into)?;
        }
        DataType::FixedSizeList(child, _) => {
            buffers(&[1]);
            push(child, into)?;
        }
        DataType::Struct(children) => {
            buffers(&[1]);
            for child in children {
                push(child, into)?;
            }
        }
        other => {
            let width = other.primitive_width().ok_or_else(|| {
                let name = field.name();
                invalid(format!(
                    "column {name:?} is of type {other}, which is not taken"
                ))
            })?;
            buffers(&[1, width]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn lengths(kind: DataType, data_counts: &[i64]) -> Vec<usize> {
        let schema = Schema::new(vec![Field::new("c", kind, true)]);
        Elements::of(&schema)
            .unwrap()
            .lengths(data_counts.iter().copied())
            .collect()
    }

    #[test]
    fn buffers_are_those_of_the_layout() {
        assert_eq!(lengths(DataType::Null, &[]), [0; 0]);
        assert_eq!(lengths(DataType::Int64, &[]), [1, 8]);
        assert_eq!(lengths(DataType::LargeUtf8, &[]), [1, 8, 1]);
        assert_eq!(lengths(DataType::BinaryView, &[2]), [1, 16, 1, 1]);
        assert_eq!(lengths(DataType::BinaryView, &[-1]), [1, 16]);
        let entry = DataType::Struct(
            vec![
                Field::new("key", DataType::Utf8, false),
                Field::new("value", DataType::Binary, true),
            ]
            .into(),
        );
        let map = DataType::Map(Arc::new(Field::new("entries", entry, false)), false);
        assert_eq!(lengths(map, &[]), [1, 4, 1, 1, 4, 1, 1, 4, 1]);
    }

    #[test]
    fn a_type_that_no_column_may_have_is_refused_by_name() {
        let ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
        let values = Arc::new(Field::new("values", DataType::Utf8, true));
        let kind = DataType::RunEndEncoded(ends, values);
        let error = Elements::of(&Schema::new(vec![Field::new("value", kind, true)])).unwrap_err();
        assert!(error.message().contains("\"value\""), "{}", error.message());
    }
}
