//! Rows of clients become records, or an error that names the column.
use arrow_array::builder::{BinaryBuilder, MapBuilder, StringBuilder};
use arrow_array::types::{Int32Type, TimestampSecondType};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, Int32Array, Int64Array,
    LargeBinaryArray, LargeStringArray, ListArray, PrimitiveArray, RecordBatch, StringArray,
    StringViewArray, StructArray, TimestampMicrosecondArray, TimestampNanosecondArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields, Schema};
use bascule_record::{Batch, BatchBuilder, BatchLimits, Codec, Producer, SealedBatch, Stamp};
use bascule_wire::flight::gather::{Gather, GatherLimits, GatherSource};
use bascule_wire::flight::ingest::{IngestError, IngestTarget, ingest};
use bascule_wire::flight::schema::{Column, Projection};
use headers::{header_list, headers_of};
use std::sync::Arc;

mod headers;
mod round_trip;

const NOW: i64 = 1_700_000_000_000_000_000;

fn target() -> IngestTarget<'static> {
    IngestTarget {
        stream: "orders",
        partition: 3,
        subject: Some("own"),
        now: NOW,
        codec: Codec::None,
        producer: None,
    }
}

fn rows(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), true))
        .collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn values(rows: usize) -> ArrayRef {
    Arc::new(BinaryArray::from_iter_values(
        (0..rows).map(|row| row.to_string()),
    ))
}

fn take_apart(rows: &RecordBatch) -> Result<Vec<SealedBatch>, IngestError> {
    ingest(
        rows,
        &target(),
        &mut BatchBuilder::new(BatchLimits::default()),
    )
}

/// The one batch that the rows become.
fn stored(rows: &RecordBatch) -> Batch {
    let mut sealed = take_apart(rows).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(sealed.len(), 1);
    placed(sealed.remove(0))
}

fn placed(sealed: SealedBatch) -> Batch {
    let stamp = Stamp {
        incarnation: 1,
        partition: 3,
        leader_epoch: 1,
        base_offset: 0,
        chain: 0,
        not_before: 0,
    };
    Batch::read(&sealed.stamp(&stamp)).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(columns: Vec<(&str, ArrayRef)>) -> String {
    take_apart(&rows(columns)).map_or_else(|error| error.to_string(), |_| panic!("was accepted"))
}

#[test]
fn every_column_finds_its_place() {
    let headers = header_list(
        StringArray::from(vec!["a", "b", "c"]),
        Arc::new(StringArray::from(vec![Some("1"), None, Some("3")])),
        [2, 0, 1],
        Some(NullBuffer::from(vec![true, false, true])),
    );
    let batch = stored(&rows(vec![
        (
            "Timestamp",
            Arc::new(TimestampMicrosecondArray::from(vec![
                Some(-1),
                None,
                Some(5),
            ])),
        ),
        (
            "VALUE",
            Arc::new(BinaryArray::from(vec![Some(&b"x"[..]), None, Some(b"")])),
        ),
        (
            "key",
            Arc::new(StringArray::from(vec![Some("k"), Some(""), None])),
        ),
        ("headers", headers),
        (
            "subject",
            Arc::new(StringArray::from(vec![Some("a.b"), None, Some("a.b")])),
        ),
        ("stream", Arc::new(StringArray::from(vec!["orders"; 3]))),
        ("partition", Arc::new(Int64Array::from(vec![3; 3]))),
    ]));
    assert_eq!(batch.len(), 3);
    assert_eq!(
        (0..3).map(|i| batch.value(i)).collect::<Vec<_>>(),
        [Some(&b"x"[..]), None, Some(b"")]
    );
    assert_eq!(
        (0..3).map(|i| batch.key(i)).collect::<Vec<_>>(),
        [Some(&b"k"[..]), None, None]
    );
    assert_eq!(
        (0..3).map(|i| batch.subject(i)).collect::<Vec<_>>(),
        [Some("a.b"), None, Some("a.b")]
    );
    assert_eq!(
        (0..3).map(|i| batch.origin_time(i)).collect::<Vec<_>>(),
        [Some(-1000), None, Some(5000)]
    );
    assert_eq!(
        (0..3).map(|i| batch.timestamp(i)).collect::<Vec<_>>(),
        [NOW; 3]
    );
    assert_eq!(
        headers_of(&batch, 0),
        [(2, &b"a"[..], 1, &b"1"[..]), (2, b"b", 1, b"")]
    );
    assert_eq!(headers_of(&batch, 1), []);
    assert_eq!(headers_of(&batch, 2), [(2, &b"c"[..], 1, &b"3"[..])]);
}

#[test]
fn values_of_every_layout_are_taken() {
    let columns: [ArrayRef; 7] = [
        Arc::new(BinaryArray::from(vec![&b"one"[..], b"two"])),
        Arc::new(LargeBinaryArray::from(vec![&b"one"[..], b"two"])),
        Arc::new(BinaryViewArray::from(vec![&b"one"[..], b"two"])),
        Arc::new(StringArray::from(vec!["one", "two"])),
        Arc::new(LargeStringArray::from(vec!["one", "two"])),
        Arc::new(StringViewArray::from(vec!["one", "two"])),
        Arc::new(StringArray::from(vec!["zero", "one", "two"]).slice(1, 2)),
    ];
    for column in columns {
        let batch = stored(&rows(vec![("value", column.clone())]));
        assert_eq!(
            (batch.value(0), batch.value(1)),
            (Some(&b"one"[..]), Some(&b"two"[..])),
            "{column:?}"
        );
    }
}

#[test]
fn other_columns_are_refused_by_name() {
    let accepted =
        "value, key, headers, subject, reply, id, origin_time, timestamp, stream, partition";
    let other: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    assert_eq!(
        refused(vec![("value", values(1)), ("Offset", other)]),
        format!("column \"Offset\" cannot be stored; accepted are {accepted}")
    );
    assert_eq!(
        refused(vec![("value", values(1)), ("VALUE", values(1))]),
        "column \"VALUE\" is there twice"
    );
    assert_eq!(refused(vec![("key", values(1))]), "column value is missing");
}

#[test]
fn columns_of_other_types_are_refused_by_name() {
    let number: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    for (name, start) in [
        ("value", "column value has type Int32, accepted are binary"),
        ("key", "column key has type Int32, accepted are binary"),
        (
            "headers",
            "column headers has type Int32, accepted are list",
        ),
        (
            "subject",
            "column subject has type Int32, accepted are utf8",
        ),
        (
            "timestamp",
            "column timestamp has type Int32, accepted are timestamp",
        ),
        ("stream", "column stream has type Int32, accepted are utf8"),
        ("reply", "column reply has type Int32, accepted are utf8"),
        ("id", "column id has type Int32, accepted are binary"),
        (
            "origin_time",
            "column origin_time has type Int32, accepted are timestamp",
        ),
    ] {
        let mut columns = vec![(name, number.clone())];
        if name != "value" {
            columns.push(("value", values(1)));
        }
        let error = refused(columns);
        assert!(error.starts_with(start), "{error}");
    }
    let error = refused(vec![("value", values(1)), ("partition", values(1))]);
    assert_eq!(
        error,
        "column partition has type Binary, accepted are integers"
    );
    let numbers: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some([
        Some(1),
    ])]));
    let error = refused(vec![("value", values(1)), ("headers", numbers)]);
    assert!(error.starts_with("column headers has type List"), "{error}");
}

#[test]
fn rows_for_elsewhere_are_refused() {
    let error = refused(vec![
        ("value", values(2)),
        ("partition", Arc::new(Int32Array::from(vec![3, 4]))),
    ]);
    assert_eq!(
        error,
        "column partition says \"4\" in row 1, but the request is for \"3\"; a request without a partition takes rows of several"
    );
    let error = refused(vec![
        ("value", values(2)),
        (
            "stream",
            Arc::new(StringArray::from(vec![Some("orders"), None])),
        ),
    ]);
    assert!(
        error
            .starts_with("column stream says \"null\" in row 1, but the request is for \"orders\""),
        "{error}"
    );
}

#[test]
fn bad_rows_are_named() {
    let error = refused(vec![
        ("value", values(2)),
        ("subject", Arc::new(StringArray::from(vec!["a", "a.*"]))),
    ]);
    assert_eq!(
        error,
        "column subject has \"a.*\" in row 1, which is not a valid NATS subject to publish on"
    );
    assert_eq!(
        refused(vec![
            ("value", values(2)),
            ("reply", Arc::new(StringArray::from(vec!["", "a b"]))),
        ]),
        "column reply has \"a b\" in row 1, which is not a valid NATS subject to publish on"
    );
    let ids = BinaryArray::from(vec![Some(&[7; 16][..]), None, Some(b"short")]);
    assert_eq!(
        refused(vec![("value", values(3)), ("id", Arc::new(ids))]),
        "column id has 5 bytes in row 2; an id has 16, and null is none"
    );
    let times: ArrayRef = Arc::new(PrimitiveArray::<TimestampSecondType>::from(vec![
        0,
        i64::MAX / 1000,
    ]));
    let error = refused(vec![("value", values(2)), ("timestamp", times)]);
    assert!(
        error.starts_with("column timestamp is out of range in row 1"),
        "{error}"
    );
    let times: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![i64::MIN]));
    assert!(
        refused(vec![("value", values(1)), ("timestamp", times)])
            .starts_with("column timestamp is out of range in row 0")
    );
    let long: ArrayRef = Arc::new(StringArray::from(vec![
        "short".to_owned(),
        "x".repeat(70_000),
    ]));
    let headers = header_list(
        StringArray::from(vec!["x".repeat(70_000)]),
        values(1),
        [0, 0, 1],
        None,
    );
    let error = refused(vec![("value", values(3)), ("headers", headers)]);
    assert!(error.starts_with("row 2: "), "{error}");
    let mut small = BatchBuilder::new(BatchLimits {
        record_bytes: 1000,
        ..BatchLimits::default()
    });
    let error = ingest(&rows(vec![("value", long)]), &target(), &mut small).map(drop);
    assert!(
        matches!(error, Err(IngestError::Record { row: 1, .. })),
        "{error:?}"
    );
    assert!(small.is_empty(), "an error leaves the builder empty");
}

#[test]
fn ids_replies_and_origin_times_find_their_place() {
    let id = [[0_u8; 16], [1; 16]].concat();
    let ids = FixedSizeBinaryArray::new(16, id.into(), Some(NullBuffer::from(vec![true, true])));
    let micros =
        |times: Vec<Option<i64>>| -> ArrayRef { Arc::new(TimestampMicrosecondArray::from(times)) };
    let columns = |timestamp| {
        vec![
            ("value", values(2)),
            ("id", Arc::new(ids.clone()) as ArrayRef),
            (
                "reply",
                Arc::new(StringArray::from(vec![None, Some("r.1")])) as ArrayRef,
            ),
            ("origin_time", micros(vec![Some(7), None])),
            ("timestamp", micros(timestamp)),
        ]
    };
    let batch = stored(&rows(columns(vec![Some(7), Some(8)])));
    assert_eq!(
        (batch.id(0), batch.id(1)),
        (0, u128::from_be_bytes([1; 16]))
    );
    assert_eq!((batch.reply(0), batch.reply(1)), (None, Some("r.1")));
    assert_eq!(
        (batch.origin_time(0), batch.origin_time(1)),
        (Some(7000), Some(8000))
    );
    assert_eq!(
        refused(columns(vec![Some(8), None])),
        "columns origin_time and timestamp say different times in row 0, and both are the time at the origin: send one of them"
    );
}

#[test]
fn a_producer_counts_rows_across_batches() {
    let mut builder = BatchBuilder::new(BatchLimits {
        records: 4,
        ..BatchLimits::default()
    });
    let producer = Producer {
        id: 7,
        epoch: 1,
        base_sequence: u32::MAX - 1,
    };
    let target = IngestTarget {
        producer: Some(producer),
        ..target()
    };
    let sealed =
        ingest(&rows(vec![("value", values(10))]), &target, &mut builder).unwrap_or_default();
    let sequences: Vec<_> = sealed
        .iter()
        .map(|batch| batch.producer().map(|producer| producer.base_sequence))
        .collect();
    assert_eq!(sequences, [Some(u32::MAX - 1), Some(2), Some(6)]);
    assert_eq!(
        sealed.iter().map(SealedBatch::count).collect::<Vec<_>>(),
        [4, 4, 2]
    );
    let shown: Vec<Vec<u8>> = sealed
        .into_iter()
        .map(placed)
        .flat_map(|batch| {
            (0..batch.len())
                .map(|i| batch.value(i).unwrap_or_default().to_vec())
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(
        shown,
        (0..10)
            .map(|row| row.to_string().into_bytes())
            .collect::<Vec<_>>()
    );
}

#[test]
fn without_rows_there_are_no_batches() {
    assert_eq!(
        take_apart(&rows(vec![("value", values(0))])).map(|sealed| sealed.len()),
        Ok(0)
    );
}
