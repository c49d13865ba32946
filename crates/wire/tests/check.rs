//! Rows that a stream would refuse are the ones that the broker refuses; dead letters hold them whole, or say what was cut.
use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, FixedSizeBinaryArray, Int64Array, ListArray, RecordBatch,
    StringArray, TimestampMicrosecondArray, UInt8Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use bascule_record::{BatchBuilder, BatchLimits, BuildError, Codec, HeaderEntry, RecordRef};
use bascule_wire::flight::check::{Rule, StreamLimits, check};
use bascule_wire::flight::digest::RowDigest;
use bascule_wire::flight::ingest::{IngestError, IngestTarget, ingest};
use bascule_wire::flight::letters::{Letters, PREFIX};
use std::num::NonZeroU32;
use std::sync::Arc;

const LIMITS: StreamLimits = StreamLimits {
    partitions: NonZeroU32::new(3).unwrap(),
    record_bytes: 100,
};

fn rows(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    )
    .unwrap_or_else(|error| panic!("{error}"))
}

fn values(all: &[&[u8]]) -> ArrayRef {
    Arc::new(BinaryArray::from_iter_values(all))
}

fn text(all: Vec<Option<&str>>) -> ArrayRef {
    Arc::new(StringArray::from(all))
}

fn refused(batch: &RecordBatch, rule: Rule) -> (u64, Vec<(usize, Option<String>)>) {
    let mut digest = RowDigest::new("s");
    let mut found = Vec::new();
    check(batch, "s", rule, &mut digest, |row| {
        found.push((row.row, row.cause.map(|cause| cause.to_string())));
    })
    .unwrap_or_else(|error| panic!("{error}"));
    (digest.rows(), found)
}

/// A column of eight rows, with values in some.
fn sparse(values: &[(usize, &'static str)]) -> ArrayRef {
    let at = |row| {
        values
            .iter()
            .find(|found| found.0 == row)
            .map(|found| found.1)
    };
    text((0..8).map(at).collect())
}

/// Eight rows: the first two are valid, each of the others has another fault.
fn faults() -> RecordBatch {
    let kinds = Arc::new(UInt8Array::from(vec![1, 16]));
    let entries = arrow_array::StructArray::from(vec![
        (field("key", DataType::Utf8), text(vec![Some("h"); 2])),
        (field("value", DataType::Utf8), text(vec![Some("1"); 2])),
        (field("key_kind", DataType::UInt8), kinds as ArrayRef),
    ]);
    let item = field("item", entries.data_type().clone());
    let ends = OffsetBuffer::from_lengths([1, 0, 0, 0, 0, 0, 0, 1]);
    let headers = ListArray::new(item, ends, Arc::new(entries), None);
    let ids = (0..8).map(|row| (row % 6 == 1).then_some([7; 16]));
    let ids = FixedSizeBinaryArray::try_from_sparse_iter_with_size(ids, 16)
        .unwrap_or_else(|error| panic!("{error}"));
    let mut times = vec![None; 8];
    (times[1], times[5]) = (Some(5), Some(i64::MAX));
    let names = (0..8).map(|row| Some(if row == 6 { "t" } else { "s" }));
    rows(vec![
        ("value", values(&[&b"x"[..]; 8])),
        ("subject", sparse(&[(1, "a.b"), (2, "a.*"), (3, "")])),
        ("reply", sparse(&[(1, "r"), (4, "r r"), (5, "")])),
        ("headers", Arc::new(headers)),
        ("id", Arc::new(ids)),
        (
            "timestamp",
            Arc::new(TimestampMicrosecondArray::from(times)),
        ),
        ("stream", text(names.collect())),
    ])
}

#[test]
fn every_row_that_ingest_refuses_is_found_and_no_other() {
    let batch = faults();
    let (count, found) = refused(&batch, Rule::Limits(LIMITS));
    let target = IngestTarget {
        stream: "s",
        partition: 0,
        subject: None,
        now: 0,
        codec: Codec::None,
        producer: None,
    };
    let alone = |row| {
        let mut builder = BatchBuilder::new(BatchLimits::default());
        let failure = ingest(&batch.slice(row, 1), &target, &mut builder).err()?;
        Some((row, Some(failure.in_row(row).to_string())))
    };
    let by_ingest: Vec<_> = (0..batch.num_rows()).filter_map(alone).collect();
    assert_eq!(count, 8);
    assert_eq!(found, by_ingest);
    let numbers: Vec<_> = found.iter().map(|row| row.0).collect();
    assert_eq!(numbers, [2, 3, 4, 5, 6, 7]);
}

fn field(name: &str, kind: DataType) -> Arc<Field> {
    Arc::new(Field::new(name, kind, true))
}

#[test]
fn a_row_of_exactly_the_limit_is_kept_and_one_byte_more_is_too_large() {
    let (fits, more) = ([b'v'; 97], [b'v'; 98]);
    let batch = rows(vec![
        ("value", values(&[&fits, &more])),
        ("key", values(&[b"key", b"key"])),
    ]);
    let mut found = Vec::new();
    let mut digest = RowDigest::new("s");
    check(&batch, "s", Rule::Limits(LIMITS), &mut digest, |row| {
        found.push((
            row.row,
            row.cause.map(|cause| (cause.is_too_large(), cause)),
        ));
    })
    .unwrap();
    let cause = BuildError::TooLarge {
        bytes: 101,
        limit: 100,
    };
    assert_eq!(
        found,
        [(1, Some((true, IngestError::Record { row: 1, cause })))]
    );
}

#[test]
fn partitions_are_those_of_the_stream_and_null_is_by_key() {
    let batch = rows(vec![
        ("value", values(&[&b"x"[..]; 4])),
        (
            "partition",
            Arc::new(Int64Array::from(vec![Some(2), Some(3), Some(-1), None])),
        ),
    ]);
    let (_, found) = refused(&batch, Rule::Limits(LIMITS));
    assert_eq!(found.iter().map(|row| row.0).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(
        refused(&batch, Rule::None),
        (4, vec![]),
        "a replay counts and refuses nothing"
    );
    let closed: Vec<_> = (0..4).map(|row| (row, None)).collect();
    assert_eq!(refused(&batch, Rule::Closed), (4, closed));
}

#[test]
fn the_digest_is_the_same_whatever_the_stream_accepts() {
    let batch = rows(vec![
        ("value", values(&[&b"x"[..], b"y", &[b'z'; 200]])),
        ("subject", text(vec![Some("a b"), None, None])),
    ]);
    let digest = |batch: &RecordBatch, rule| {
        let mut digest = RowDigest::new("s");
        check(batch, "s", rule, &mut digest, |_| {}).unwrap();
        digest.value()
    };
    let whole = digest(&batch, Rule::None);
    assert_eq!(whole, digest(&batch, Rule::Limits(LIMITS)));
    assert_eq!(whole, digest(&batch, Rule::Closed));
    let parts =
        digest(&batch.slice(0, 1), Rule::None).wrapping_add(digest(&batch.slice(1, 2), Rule::None));
    assert_eq!(whole, parts);
    let other = rows(vec![
        ("value", values(&[&b"x"[..], b"y", &[b'z'; 200]])),
        ("subject", text(vec![Some("a c"), None, None])),
    ]);
    assert_ne!(
        whole,
        digest(&other, Rule::None),
        "an invalid subject counts"
    );
}

/// Headers of the only letter, as text.
fn headers(batch: &RecordBatch) -> Vec<(String, String, u8, u8)> {
    let entries = batch.column(2).as_list::<i32>().value(0);
    let entries = entries.as_struct();
    let bytes = |column: usize, at| {
        String::from_utf8_lossy(entries.column(column).as_binary::<i32>().value(at)).into_owned()
    };
    let kind = |column: usize, at| entries.column(column).as_primitive::<UInt8Type>().value(at);
    (0..entries.len())
        .map(|at| (bytes(0, at), bytes(1, at), kind(2, at), kind(3, at)))
        .collect()
}

const OWN: [HeaderEntry<'static>; 1] = [HeaderEntry {
    key_kind: 3,
    key: b"h",
    value_kind: 99,
    value: b"1",
}];

fn record(value: &[u8]) -> RecordRef<'_> {
    RecordRef {
        key: Some(b"key"),
        value: Some(value),
        headers: &OWN,
        origin_time: Some(17),
        ..RecordRef::default()
    }
}

fn letter(limit: usize, record: &RecordRef<'_>) -> Result<(RecordBatch, u64), BuildError> {
    let mut letters = Letters::new(limit);
    letters.add(record, &[("row", "4")])?;
    let batch = taken(&mut letters).unwrap_or_else(|| panic!("there is no letter"));
    assert!(taken(&mut letters).is_none());
    Ok((batch, letters.cut()))
}

fn taken(letters: &mut Letters) -> Option<RecordBatch> {
    letters.take().unwrap_or_else(|error| panic!("{error}"))
}

fn said(name: &str, value: &str) -> (String, String, u8, u8) {
    (format!("{PREFIX}{name}"), value.to_owned(), 2, 2)
}

#[test]
fn a_dead_letter_has_the_whole_row() {
    let (batch, cut) = letter(1000, &record(b"value")).unwrap();
    let own = ("h".to_owned(), "1".to_owned(), 3, 1);
    assert_eq!(headers(&batch), [own, said("row", "4")]);
    let column = |at: usize| batch.column(at).as_binary::<i32>().value(0);
    assert_eq!((column(0), column(1), cut), (&b"key"[..], &b"value"[..], 0));
    let times = batch.column(3).as_any();
    let times = times.downcast_ref::<arrow_array::TimestampNanosecondArray>();
    assert_eq!(times.unwrap().value(0), 17);
    let tombstone = RecordRef {
        value: None,
        ..record(b"")
    };
    let (batch, _) = letter(1000, &tombstone).unwrap();
    assert!(batch.column(1).is_null(0));
}

#[test]
fn a_dead_letter_is_cut_to_what_its_stream_takes_and_says_so() {
    let value = [b'v'; 500];
    let own = ("h".to_owned(), "1".to_owned(), 3, 1);
    // Headers: own 8 + 2, row 8 + 15 + 1, value_bytes 8 + 23 + 3; key 3.
    let fixed = 10 + 24 + 34 + 3;
    let (batch, cut) = letter(fixed + 50, &record(&value)).unwrap();
    assert_eq!(batch.column(1).as_binary::<i32>().value(0), &value[..50]);
    let expected = [own.clone(), said("row", "4"), said("value_bytes", "500")];
    assert_eq!((headers(&batch), cut), (expected.to_vec(), 1));

    let (batch, _) = letter(fixed, &record(&value)).unwrap();
    assert_eq!(batch.column(1).as_binary::<i32>().value(0), b"");
    let long = vec![b'h'; 65_536];
    let entry = [HeaderEntry {
        key: &long,
        ..OWN[0]
    }];
    let bad = RecordRef {
        headers: &entry,
        ..record(b"value")
    };
    let (batch, _) = letter(1 << 20, &bad).unwrap();
    let expected = [said("row", "4"), said("headers_left_out", "1")];
    assert_eq!(headers(&batch), expected);
    assert_eq!(batch.column(1).as_binary::<i32>().value(0), b"value");

    let key = [b'k'; 400];
    let long_key = RecordRef {
        key: Some(&key),
        ..record(&value)
    };
    let (batch, _) = letter(200, &long_key).unwrap();
    assert!(batch.column(0).is_null(0));
    let names: Vec<_> = headers(&batch).into_iter().map(|header| header.0).collect();
    let expected = ["row", "headers_left_out", "key_bytes", "value_bytes"];
    assert_eq!(names, expected.map(|name| format!("{PREFIX}{name}")));

    let failure = letter(60, &record(&value)).unwrap_err();
    assert!(matches!(failure, BuildError::TooLarge { .. }), "{failure}");
}
