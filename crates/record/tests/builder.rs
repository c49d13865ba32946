//! Where a batch closes, what the builder does to records, and what a stamp does to a batch.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]
mod support;

use bascule_record::{
    Batch, BatchBuilder, BatchLimits, BuildError, Codec, Header, HeaderEntry, Producer, RecordRef,
    Stamp,
};
use support::{OWN, stamp};

fn builder(limits: BatchLimits) -> BatchBuilder {
    BatchBuilder::new(limits)
}

fn read(builder: &mut BatchBuilder) -> Batch {
    Batch::read(
        &builder
            .seal(Codec::None, None, Some(OWN))
            .unwrap()
            .stamp(&stamp()),
    )
    .unwrap()
}

fn value(value: &[u8]) -> RecordRef<'_> {
    RecordRef {
        value: Some(value),
        ..RecordRef::default()
    }
}

#[test]
fn a_batch_closes_at_its_record_limit() {
    let mut builder = builder(BatchLimits {
        records: 2,
        ..BatchLimits::default()
    });
    builder.push(&value(b"1")).unwrap();
    builder.push(&value(b"2")).unwrap();
    assert_eq!(builder.push(&value(b"3")), Err(BuildError::Full));
    assert_eq!(read(&mut builder).len(), 2);
    builder.push(&value(b"3")).unwrap();
    assert_eq!(read(&mut builder).value(0), Some(&b"3"[..]));
}

#[test]
fn a_batch_closes_at_its_byte_limit_which_counts_all_columns() {
    let mut builder = builder(BatchLimits {
        bytes: 28,
        ..BatchLimits::default()
    });
    builder.push(&value(b"0123456789")).unwrap();
    builder.push(&value(b"0123456789")).unwrap();
    assert_eq!(builder.bytes(), 2 * (10 + 4));
    assert_eq!(builder.push(&value(b"")), Err(BuildError::Full));
    assert_eq!(builder.bytes(), 28, "nothing was added");

    // A column that a later record brings is counted for the earlier ones too.
    let mut builder = self::builder(BatchLimits {
        bytes: 60,
        ..BatchLimits::default()
    });
    builder.push(&value(b"0123456789")).unwrap();
    builder.push(&value(b"0123456789")).unwrap();
    assert_eq!(
        builder.push(&RecordRef {
            id: 1,
            ..value(b"")
        }),
        Err(BuildError::Full)
    );
    builder.push(&value(b"")).unwrap();
}

#[test]
fn bytes_are_about_the_raw_length() {
    let mut builder = builder(BatchLimits::default());
    let headers = [HeaderEntry {
        key_kind: 2,
        key: b"key",
        value_kind: 1,
        value: b"value",
    }];
    for i in 0..100 {
        let subject = ["orders.a", "orders.b"][i % 2];
        let record = RecordRef {
            timestamp: i as i64,
            id: 1,
            headers: &headers,
            reply: "r",
            ..value(b"v")
        };
        builder
            .push(&RecordRef {
                subject: Some(subject),
                key: Some(b"k"),
                origin_time: Some(1),
                ..record
            })
            .unwrap();
    }
    let (about, exact) = (
        builder.bytes(),
        read(&mut builder).header().raw_bytes as usize,
    );
    assert!(about <= exact && exact - about < 100, "{about} of {exact}");
}

#[test]
fn one_record_may_exceed_the_byte_limit_up_to_its_own() {
    let mut builder = builder(BatchLimits {
        bytes: 4,
        record_bytes: 10,
        ..BatchLimits::default()
    });
    builder.push(&value(b"0123456789")).unwrap();
    assert_eq!(builder.push(&value(b"1")), Err(BuildError::Full));
    let too_large = Err(BuildError::TooLarge {
        bytes: 11,
        limit: 10,
    });
    assert_eq!(builder.push(&value(b"0123456789a")), too_large);
    assert_eq!(
        builder.push(&RecordRef {
            key: Some(b"a"),
            reply: "b",
            subject: Some("c"),
            ..value(b"01234567")
        }),
        too_large
    );
    let headers = [HeaderEntry {
        key_kind: 0,
        key: b"k",
        value_kind: 0,
        value: b"vv",
    }];
    assert_eq!(
        builder.push(&RecordRef {
            headers: &headers,
            ..RecordRef::default()
        }),
        too_large
    );
    assert_eq!(read(&mut builder).len(), 1);
}

#[test]
fn a_header_key_has_at_most_65535_bytes() {
    let mut builder = builder(BatchLimits::default());
    let key = vec![b'k'; 65_536];
    let headers = |length| {
        [HeaderEntry {
            key_kind: 2,
            key: &key[..length],
            value_kind: 1,
            value: b"",
        }]
    };
    let error = builder.push(&RecordRef {
        headers: &headers(65_536),
        ..RecordRef::default()
    });
    assert_eq!(error, Err(BuildError::HeaderKeyTooLarge { bytes: 65_536 }));
    builder
        .push(&RecordRef {
            headers: &headers(65_535),
            ..RecordRef::default()
        })
        .unwrap();
    let batch = read(&mut builder);
    assert_eq!(batch.headers(0).next().unwrap().key.len(), 65_535);
}

#[test]
fn a_batch_spans_at_most_four_seconds() {
    let mut builder = builder(BatchLimits::default());
    let at = |timestamp| RecordRef {
        timestamp,
        ..value(b"v")
    };
    builder.push(&at(-1)).unwrap();
    builder.push(&at(3_999_999_999)).unwrap();
    assert_eq!(builder.push(&at(4_000_000_000)), Err(BuildError::Full));
    assert_eq!(builder.push(&at(i64::MAX)), Err(BuildError::Full));
    let batch = read(&mut builder);
    assert_eq!(
        (batch.timestamp(0), batch.timestamp(1)),
        (-1, 3_999_999_999)
    );
    builder.push(&at(i64::MIN)).unwrap();
    assert_eq!(builder.push(&at(i64::MAX)), Err(BuildError::Full));
}

#[test]
fn a_smaller_timestamp_is_raised_to_the_latest() {
    let mut builder = builder(BatchLimits::default());
    for timestamp in [10, 5, 12, 11] {
        builder
            .push(&RecordRef {
                timestamp,
                ..value(b"v")
            })
            .unwrap();
    }
    let batch = read(&mut builder);
    assert_eq!(
        (0..4).map(|i| batch.timestamp(i)).collect::<Vec<_>>(),
        [10, 10, 12, 12]
    );
    assert_eq!(
        (batch.header().base_timestamp, batch.header().max_timestamp),
        (10, 12)
    );
}

#[test]
fn a_batch_holds_at_most_65535_subjects() {
    let mut builder = builder(BatchLimits {
        records: 100_000,
        bytes: 64 << 20,
        ..BatchLimits::default()
    });
    let subjects: Vec<_> = (0..65_536).map(|i| format!("orders.{i}")).collect();
    let with = |i: usize| RecordRef {
        subject: Some(&subjects[i]),
        ..value(b"v")
    };
    for i in 0..65_535 {
        builder.push(&with(i)).unwrap();
    }
    assert_eq!(builder.push(&with(65_535)), Err(BuildError::Full));
    builder.push(&with(17)).unwrap();
    let batch = read(&mut builder);
    assert_eq!(batch.distinct_subjects().len(), 65_535);
    assert!((0..65_535).all(|i| batch.subject(i) == Some(&subjects[i])));
    assert_eq!(
        (batch.subject(65_535), batch.subject_number(65_535)),
        (Some(&*subjects[17]), 17)
    );
}

#[test]
fn the_partitions_own_subject_is_not_stored() {
    let subjects_of = |subjects: &[Option<&str>]| {
        let mut builder = builder(BatchLimits::default());
        for subject in subjects {
            builder
                .push(&RecordRef {
                    subject: *subject,
                    ..value(b"v")
                })
                .unwrap();
        }
        let batch = read(&mut builder);
        let distinct: Vec<_> = batch
            .distinct_subjects()
            .map(|s| s.map(str::to_owned))
            .collect();
        (
            distinct,
            (0..batch.len())
                .map(|i| batch.subject_number(i))
                .collect::<Vec<_>>(),
        )
    };
    let (a, b) = (Some("a"), Some("b"));
    let name = |subject: &str| Some(subject.to_owned());
    assert_eq!(
        subjects_of(&[Some(OWN), None, Some(""), Some(OWN)]),
        (vec![None], vec![0, 0, 0, 0])
    );
    assert_eq!(
        subjects_of(&[a, Some(OWN), b, None]),
        (vec![name("a"), None, name("b")], vec![0, 1, 2, 1])
    );
    assert_eq!(
        subjects_of(&[None, a, Some(OWN), b]),
        (vec![None, name("a"), name("b")], vec![0, 1, 0, 2])
    );
    assert_eq!(subjects_of(&[a, a]), (vec![name("a")], vec![0, 0]));
}

#[test]
fn a_builder_is_empty_after_seal_and_forgets_every_column() {
    let mut builder = builder(BatchLimits::default());
    assert!(builder.seal(Codec::None, None, None).is_none());
    let headers = [HeaderEntry {
        key_kind: 2,
        key: b"k",
        value_kind: 1,
        value: b"v",
    }];
    let full = RecordRef {
        timestamp: 1,
        origin_time: Some(2),
        id: 3,
        key: Some(b"k"),
        value: None,
        headers: &headers,
        subject: Some("s"),
        reply: "r",
    };
    builder.push(&full).unwrap();
    builder
        .push(&RecordRef {
            subject: Some("t"),
            timestamp: 2,
            ..full
        })
        .unwrap();
    read(&mut builder);
    assert!(builder.is_empty() && builder.bytes() == 0);
    builder.push(&value(b"")).unwrap();
    assert_eq!(read(&mut builder).header().columns.0, 0);
}

#[test]
fn a_stamp_shifts_times_up_together_and_never_down() {
    let sealed = |times: [i64; 2]| {
        let mut builder = builder(BatchLimits::default());
        for timestamp in times {
            builder
                .push(&RecordRef {
                    timestamp,
                    ..value(b"v")
                })
                .unwrap();
        }
        builder.seal(Codec::None, None, None).unwrap()
    };
    let times_after = |times, not_before| {
        let batch = Batch::read(&sealed(times).stamp(&Stamp {
            not_before,
            ..stamp()
        }))
        .unwrap();
        [batch.timestamp(0), batch.timestamp(1)]
    };
    assert_eq!(sealed([10, 15]).timestamps(), (10, 15));
    assert_eq!(times_after([10, 15], 10), [10, 15]);
    assert_eq!(times_after([10, 15], 12), [12, 17]);
    assert_eq!(times_after([10, 15], -5), [10, 15]);
    assert_eq!(times_after([10, 15], i64::MAX), [i64::MAX - 5, i64::MAX]);
}

#[test]
fn a_stamp_gives_place_and_chain_without_touching_the_payload() {
    let mut builder = builder(BatchLimits::default());
    builder.push(&value(b"v")).unwrap();
    let producer = Producer {
        id: 9,
        epoch: 1,
        base_sequence: 4,
    };
    let sealed = builder.seal(Codec::None, Some(producer), None).unwrap();
    assert_eq!((sealed.count(), sealed.producer()), (1, Some(producer)));
    let (one, other) = (
        sealed.clone().stamp(&stamp()),
        sealed.stamp(&Stamp {
            base_offset: 5,
            chain: 6,
            ..stamp()
        }),
    );
    assert_eq!(one[128..], other[128..]);
    let (one, other) = (Header::read(&one).unwrap(), Header::read(&other).unwrap());
    assert_eq!(
        (other.base_offset, other.next_offset(), other.chain),
        (5, 6, 6)
    );
    assert_eq!(one.payload_crc, other.payload_crc);
    assert_ne!(one.link(), other.link());
    assert_eq!(one.producer, Some(producer));
}

#[test]
fn a_payload_that_compression_does_not_shrink_is_stored_as_it_is() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let mut builder = builder(BatchLimits::default());
        builder.push(&value(b"v")).unwrap();
        let sealed = builder.seal(codec, None, None).unwrap().stamp(&stamp());
        assert_eq!(Header::read(&sealed).unwrap().codec, Codec::None);
        builder.push(&value(&[0; 1000])).unwrap();
        let sealed = builder.seal(codec, None, None).unwrap().stamp(&stamp());
        assert_eq!(Header::read(&sealed).unwrap().codec, codec);
        assert!(sealed.len() < 300);
    }
}
