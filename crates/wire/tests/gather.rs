//! Gathering gives exactly the rows that reading record by record gives.
mod records;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use bascule_wire::flight::gather::{Gather, GatherLimits, GatherSource};
use bascule_wire::flight::schema::{Column, Projection};
use bascule_wire::subject::SubjectFilter;
use proptest::prelude::*;
use records::{BASE_OFFSET, Record, batch};

const OWN_SUBJECT: &str = "own.subject";

fn source() -> GatherSource {
    GatherSource {
        stream: "orders".into(),
        partition: 3,
        subject: OWN_SUBJECT.into(),
    }
}

fn everything() -> Projection {
    Projection::named(&Column::ALL.map(Column::name)).unwrap_or_else(|error| panic!("{error}"))
}

/// Gathers records `[from, to)` into as many record batches as the limits make.
fn gather(
    records: &[Record],
    from: usize,
    to: usize,
    filter: Option<&str>,
    limits: GatherLimits,
) -> Vec<RecordBatch> {
    let filter =
        filter.map(|text| SubjectFilter::parse(text).unwrap_or_else(|error| panic!("{error}")));
    let mut gather = Gather::new(everything(), source(), filter, limits);
    let (batch, mut at, mut done) = (batch(records), from, Vec::new());
    loop {
        let next = gather.push(&batch, at, to);
        assert!(
            next == to || gather.is_full(),
            "stopped at {next} of {to} though not full"
        );
        if gather.is_full() || next == to {
            done.extend(gather.finish().unwrap_or_else(|error| panic!("{error}")));
        }
        if next == to {
            return done;
        }
        at = next;
    }
}

/// A row as this test sees it.
#[derive(Debug, PartialEq)]
struct Row {
    partition: i32,
    offset: i64,
    timestamp: i64,
    subject: String,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    stream: String,
    headers: Vec<(Option<String>, Vec<u8>)>,
    reply: Option<String>,
    id: Option<Vec<u8>>,
    origin_time: Option<i64>,
    timestamp_ns: i64,
}

impl Row {
    fn of(i: usize, record: &Record) -> Self {
        let text = |kind: u8, key: &[u8]| {
            let is_null = kind == 1 && key.is_empty();
            if kind <= 2 && !is_null {
                String::from_utf8(key.to_vec()).ok()
            } else {
                None
            }
        };
        Self {
            partition: 3,
            offset: BASE_OFFSET as i64 + i as i64,
            timestamp: record.timestamp.div_euclid(1000),
            subject: record
                .subject
                .clone()
                .unwrap_or_else(|| OWN_SUBJECT.to_owned()),
            key: record.key.clone().filter(|key| !key.is_empty()),
            value: record.value.clone(),
            stream: "orders".to_owned(),
            headers: record
                .headers
                .iter()
                .map(|(kind, key, value)| (text(*kind, key), value.clone()))
                .collect(),
            reply: Some(record.reply.clone()).filter(|reply| !reply.is_empty()),
            id: Some(record.id.to_be_bytes().to_vec()).filter(|_| record.id != 0),
            origin_time: record.origin_time.map(|time| time.div_euclid(1000)),
            timestamp_ns: record.timestamp,
        }
    }

    fn read(rows: &RecordBatch, row: usize) -> Self {
        let bytes = |column: usize| {
            let column = rows.column(column).as_binary::<i32>();
            column.is_valid(row).then(|| column.value(row).to_vec())
        };
        let text = |column: usize| {
            let column = rows.column(column).as_string::<i32>();
            column.is_valid(row).then(|| column.value(row).to_owned())
        };
        let (ids, origins) = (
            rows.column(9).as_fixed_size_binary(),
            rows.column(10).as_primitive::<TimestampMicrosecondType>(),
        );
        Self {
            partition: rows.column(0).as_primitive::<Int32Type>().value(row),
            offset: rows.column(1).as_primitive::<Int64Type>().value(row),
            timestamp: rows
                .column(2)
                .as_primitive::<TimestampMicrosecondType>()
                .value(row),
            subject: text(3).unwrap_or_default(),
            key: bytes(4),
            value: bytes(5),
            stream: text(6).unwrap_or_default(),
            headers: Self::headers(rows, row),
            reply: text(8),
            id: ids.is_valid(row).then(|| ids.value(row).to_vec()),
            origin_time: origins.is_valid(row).then(|| origins.value(row)),
            timestamp_ns: rows.column(11).as_primitive::<Int64Type>().value(row),
        }
    }

    fn headers(rows: &RecordBatch, row: usize) -> Vec<(Option<String>, Vec<u8>)> {
        let entries = rows.column(7).as_list::<i32>().value(row);
        let (keys, values) = (
            entries.as_struct().column(0).as_string::<i32>(),
            entries.as_struct().column(1).as_binary::<i32>(),
        );
        (0..entries.len())
            .map(|i| {
                (
                    keys.is_valid(i).then(|| keys.value(i).to_owned()),
                    values.value(i).to_vec(),
                )
            })
            .collect()
    }
}

fn rows(batches: &[RecordBatch]) -> Vec<Row> {
    batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(|row| Row::read(batch, row)))
        .collect()
}

fn any_record() -> impl Strategy<Value = Record> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..12);
    let header = (
        1u8..5,
        prop_oneof![bytes(), "[a-z]{0,4}".prop_map(String::into_bytes)],
        bytes(),
    );
    let subject = prop::option::of(prop::sample::select(vec![
        "a.b".to_owned(),
        "a.c".to_owned(),
        "b".to_owned(),
    ]));
    (
        0i64..1_000_000_000,
        prop::option::weighted(0.3, -5_000_000i64..5_000_000),
        prop_oneof![Just(0u128), any::<u128>()],
        prop::option::of(bytes()),
        prop::option::weighted(0.8, bytes()),
        prop::collection::vec(header, 0..3),
        subject,
        "[a-z]{0,3}",
    )
        .prop_map(
            |(timestamp, origin_time, id, key, value, headers, subject, reply)| Record {
                timestamp,
                origin_time,
                id,
                key,
                value,
                headers,
                subject,
                reply,
            },
        )
}

/// Records whose columns are present or absent as a whole, as in real batches.
fn any_records() -> impl Strategy<Value = Vec<Record>> {
    (
        prop::collection::vec(any_record(), 1..60),
        any::<[bool; 8]>(),
    )
        .prop_map(|(mut records, keep)| {
            records.sort_by_key(|record| record.timestamp);
            for record in &mut records {
                let blank = Record {
                    timestamp: record.timestamp,
                    value: Some(Vec::new()),
                    ..Record::default()
                };
                let full = std::mem::replace(record, blank);
                if keep[0] {
                    record.origin_time = full.origin_time;
                }
                if keep[1] {
                    record.id = full.id;
                }
                if keep[2] {
                    record.key = full.key;
                }
                if keep[3] {
                    record.value = full.value;
                }
                if keep[4] {
                    record.headers = full.headers;
                }
                if keep[5] {
                    record.subject = full.subject;
                }
                if keep[6] {
                    record.reply = full.reply;
                }
                if keep[7] {
                    record.timestamp = full.timestamp;
                } else {
                    record.timestamp = 7;
                }
            }
            records
        })
}

proptest! {
    #[test]
    fn the_rows_are_the_records(
        records in any_records(),
        cut in any::<(prop::sample::Index, prop::sample::Index)>(),
        filter in prop::option::of(prop::sample::select(vec![">", "a.*", "b", "own.>", "none"])),
        limits in (1usize..40, 1usize..200),
    ) {
        let (a, b) = (cut.0.index(records.len() + 1), cut.1.index(records.len() + 1));
        let (from, to) = (a.min(b), a.max(b));
        let limits = GatherLimits { rows: limits.0, bytes: limits.1 };
        let wanted = filter.map(|text| SubjectFilter::parse(text).unwrap_or_else(|error| panic!("{error}")));
        let expected: Vec<Row> = (from..to)
            .map(|i| Row::of(i, &records[i]))
            .filter(|row| wanted.as_ref().is_none_or(|filter| filter.matches(&row.subject)))
            .collect();
        let batches = gather(&records, from, to, filter, limits);
        prop_assert!(batches.iter().all(|batch| (1..=limits.rows).contains(&batch.num_rows())));
        prop_assert_eq!(rows(&batches), expected);
    }
}

#[test]
fn a_batch_closes_at_the_record_that_reaches_the_limit() {
    let records: Vec<Record> = (0..10).map(|_| Record::of("0123456789")).collect();
    let projection = Projection::named(&["value"]).unwrap_or_else(|error| panic!("{error}"));
    let batch = batch(&records);
    let mut gather = Gather::new(
        projection,
        source(),
        None,
        GatherLimits {
            rows: 100,
            bytes: 35,
        },
    );
    assert_eq!(gather.push(&batch, 0, 10), 4);
    assert!(gather.is_full());
    assert_eq!((gather.rows(), gather.bytes()), (4, 40));
    assert_eq!(gather.push(&batch, 4, 10), 4, "nothing is taken while full");
    let rows = gather.finish().ok().flatten();
    assert_eq!(rows.map(|rows| rows.num_rows()), Some(4));
    assert_eq!(gather.push(&batch, 4, 6), 6);
    assert!(!gather.is_full());
    assert_eq!(gather.push(&batch, 6, usize::MAX), 8);
}

#[test]
fn a_record_over_the_limit_is_a_batch_of_its_own() {
    let records: Vec<Record> = (0..3).map(|_| Record::of("0123456789")).collect();
    let batches = gather(
        &records,
        0,
        3,
        None,
        GatherLimits {
            rows: 100,
            bytes: 5,
        },
    );
    let rows: Vec<usize> = batches.iter().map(RecordBatch::num_rows).collect();
    assert_eq!(rows, [1, 1, 1]);
}

#[test]
fn the_default_limits_are_16384_rows_or_a_mebibyte() {
    let records: Vec<Record> = (0..20_000).map(|_| Record::of("")).collect();
    let mut gather = Gather::new(
        Projection::default(),
        source(),
        None,
        GatherLimits::default(),
    );
    gather.push(&batch(&records), 0, records.len());
    assert!(gather.rows() <= 16_384 && gather.is_full());
    let records: Vec<Record> = (0..40).map(|_| Record::of(&"x".repeat(100_000))).collect();
    let mut gather = Gather::new(
        Projection::default(),
        source(),
        None,
        GatherLimits::default(),
    );
    assert_eq!(gather.push(&batch(&records), 0, records.len()), 11);
}

#[test]
fn batches_without_columns_count_rows() {
    let records: Vec<Record> = (0..5).map(|_| Record::of("v")).collect();
    let none: [&str; 0] = [];
    let projection = Projection::named(&none).unwrap_or_else(|error| panic!("{error}"));
    let mut gather = Gather::new(projection, source(), None, GatherLimits::default());
    assert_eq!(gather.push(&batch(&records), 1, 5), 5);
    let rows = gather.finish().ok().flatten();
    assert_eq!(
        rows.map(|rows| (rows.num_rows(), rows.num_columns())),
        Some((4, 0))
    );
}

#[test]
fn without_messages_no_batch_is_gathered() {
    let mut gather = Gather::new(
        everything(),
        source(),
        SubjectFilter::parse("none").ok(),
        GatherLimits::default(),
    );
    assert_eq!(gather.push(&batch(&[Record::of("v")]), 0, 1), 1);
    assert_eq!(gather.finish().ok(), Some(None));
}
