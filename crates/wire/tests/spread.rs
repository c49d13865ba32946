//! Rows without a partition in the request go to the one they name, else to that of their key, else to the sticky one.
use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use bascule_record::{Batch, BatchBuilder, BatchLimits, Codec, Stamp};
use bascule_wire::flight::ingest::{Ingest, IngestError, IngestTarget};
use bascule_wire::flight::spread::Rows;
use bascule_wire::partitioning::partition_of_key;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

const STICKY: u32 = 2;

fn rows(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    )
    .unwrap_or_else(|error| panic!("{error}"))
}

fn count(partitions: u32) -> NonZeroU32 {
    NonZeroU32::new(partitions).unwrap_or_else(|| panic!("0 partitions"))
}

fn values(count: u32) -> ArrayRef {
    Arc::new(BinaryArray::from_iter_values(
        (0..count).map(|row| row.to_string()),
    ))
}

fn spread(rows: &RecordBatch, partitions: u32) -> Result<BTreeMap<u32, Rows>, IngestError> {
    Ingest::bind(rows, "orders")?.spread(count(partitions), STICKY)
}

fn listed(parts: impl IntoIterator<Item = (u32, Vec<u32>)>) -> BTreeMap<u32, Rows> {
    let parts = parts.into_iter();
    parts
        .map(|(number, rows)| (number, Rows::Listed(rows)))
        .collect()
}

#[test]
fn rows_go_by_key_and_rows_without_one_to_the_sticky_partition() {
    let keys = [Some("a"), None, Some("b"), Some(""), Some("a"), Some("c")];
    let batch = rows(vec![
        ("value", values(6)),
        ("key", Arc::new(StringArray::from(keys.to_vec()))),
    ]);
    let mut expected: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (row, key) in (0..).zip(keys) {
        let key = key.filter(|key| !key.is_empty());
        let number = key.map_or(STICKY, |key| partition_of_key(key.as_bytes(), count(7)));
        expected.entry(number).or_default().push(row);
    }
    assert!(expected.len() > 2, "the keys are too much alike");
    assert_eq!(spread(&batch, 7), Ok(listed(expected)));
    let keyless = rows(vec![("value", values(3))]);
    assert_eq!(spread(&keyless, 7), Ok(listed([(STICKY, vec![0, 1, 2])])));
}

#[test]
fn the_column_partition_comes_before_the_key() {
    let batch = rows(vec![
        ("value", values(4)),
        (
            "key",
            Arc::new(StringArray::from(vec![Some("a"), Some("a"), None, None])),
        ),
        (
            "partition",
            Arc::new(Int64Array::from(vec![Some(1), None, Some(0), None])),
        ),
    ]);
    let mut expected = BTreeMap::from([(1, vec![0]), (0, vec![2])]);
    let keyed = partition_of_key(b"a", count(3));
    expected.entry(keyed).or_default().push(1);
    expected.entry(STICKY).or_default().push(3);
    for rows in expected.values_mut() {
        rows.sort_unstable();
    }
    assert_eq!(spread(&batch, 3), Ok(listed(expected)));
}

#[test]
fn a_number_that_the_stream_does_not_have_is_refused_with_its_row() {
    for number in [3, -1, i64::MAX] {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![0, number]));
        let batch = rows(vec![("value", values(2)), ("partition", numbers)]);
        let error = spread(&batch, 3).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "column partition says {number} in row 1, but the stream has the partitions 0 to 2; null = by key"
            )
        );
    }
}

const TARGET: IngestTarget<'static> = IngestTarget {
    stream: "orders",
    partition: 1,
    subject: None,
    now: 1,
    codec: Codec::None,
    producer: None,
};

#[test]
fn a_stream_with_one_partition_gets_all() {
    let keys: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let batch = rows(vec![("value", values(2)), ("key", keys)]);
    assert_eq!(spread(&batch, 1), Ok(BTreeMap::from([(0, Rows::All(2))])));
}

#[test]
fn the_rows_of_a_part_are_sealed_in_order_over_several_batches() {
    let batch = rows(vec![("value", values(10))]);
    let bound = Ingest::bind(&batch, "orders").unwrap();
    let mut builder = BatchBuilder::new(BatchLimits {
        records: 2,
        ..BatchLimits::default()
    });
    let part = Rows::Listed(vec![1, 4, 5, 7, 9]);
    let sealed = bound.seal(&part, &TARGET, &mut builder).unwrap();
    assert_eq!(sealed.len(), 3);
    let mut stored = Vec::new();
    for batch in sealed {
        let stamp = Stamp {
            incarnation: 1,
            partition: 1,
            leader_epoch: 1,
            base_offset: 0,
            chain: 0,
            not_before: 0,
        };
        let batch = Batch::read(&batch.stamp(&stamp)).unwrap();
        for at in 0..batch.len() {
            let value = batch.value(at).map(<[u8]>::to_vec);
            stored.push(String::from_utf8(value.unwrap()).unwrap());
        }
    }
    assert_eq!(stored, ["1", "4", "5", "7", "9"]);
}

#[test]
fn an_error_names_the_row_as_sent() {
    let subjects: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "not.*"]));
    let batch = rows(vec![("value", values(4)), ("subject", subjects)]);
    let bound = Ingest::bind(&batch, "orders").unwrap();
    let mut builder = BatchBuilder::new(BatchLimits::default());
    let refused = bound.seal(&Rows::Listed(vec![1, 3]), &TARGET, &mut builder);
    assert!(
        matches!(refused, Err(IngestError::Subject { row: 3, .. })),
        "{refused:?}"
    );
}
