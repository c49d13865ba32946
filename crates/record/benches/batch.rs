//! Records per second and core: gathering and sealing, checking and reading. `cargo bench -p bascule-record`.
//!
//! Each line is one shape of record, in batches of 1,024 records (or 1 MiB). About half a second per figure.
#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]
use bascule_record::crypt::{DataKey, KeyRing, Sealer};
use bascule_record::{Batch, BatchBuilder, BatchLimits, Codec, HeaderEntry, RecordRef, Stamp};
use std::hint::black_box;
use std::time::{Duration, Instant};

const RUN: Duration = Duration::from_millis(500);
const RECORDS: usize = 1024;

/// What the records of one line look like.
struct Shape {
    name: &'static str,
    value_bytes: usize,
    is_full: bool,
    subjects: &'static [&'static str],
    codec: Codec,
    encrypts: bool,
}

const OWN: &[&str] = &["orders"];
const FEW: &[&str] = &["orders.eu", "orders.us", "orders.ap"];
const SHAPES: [Shape; 10] = [
    Shape {
        name: "100 B",
        value_bytes: 100,
        is_full: false,
        subjects: OWN,
        codec: Codec::None,
        encrypts: false,
    },
    Shape {
        name: "256 B",
        value_bytes: 256,
        is_full: false,
        subjects: OWN,
        codec: Codec::None,
        encrypts: false,
    },
    Shape {
        name: "256 B, encrypted",
        value_bytes: 256,
        is_full: false,
        subjects: OWN,
        codec: Codec::None,
        encrypts: true,
    },
    Shape {
        name: "1 KiB",
        value_bytes: 1024,
        is_full: false,
        subjects: OWN,
        codec: Codec::None,
        encrypts: false,
    },
    Shape {
        name: "100 B, 3 subjects",
        value_bytes: 100,
        is_full: false,
        subjects: FEW,
        codec: Codec::None,
        encrypts: false,
    },
    Shape {
        name: "100 B, all columns",
        value_bytes: 100,
        is_full: true,
        subjects: FEW,
        codec: Codec::None,
        encrypts: false,
    },
    Shape {
        name: "1 KiB, all columns",
        value_bytes: 1024,
        is_full: true,
        subjects: FEW,
        codec: Codec::None,
        encrypts: false,
    },
    Shape {
        name: "100 B, lz4",
        value_bytes: 100,
        is_full: false,
        subjects: OWN,
        codec: Codec::Lz4,
        encrypts: false,
    },
    Shape {
        name: "1 KiB, lz4",
        value_bytes: 1024,
        is_full: false,
        subjects: OWN,
        codec: Codec::Lz4,
        encrypts: false,
    },
    Shape {
        name: "1 KiB, zstd",
        value_bytes: 1024,
        is_full: false,
        subjects: OWN,
        codec: Codec::Zstd,
        encrypts: false,
    },
];

fn main() {
    println!(
        "{:<20} {:>14} {:>14} {:>14}",
        "records/s", "build", "check", "check + read"
    );
    for shape in &SHAPES {
        let value = value(shape.value_bytes);
        let mut builder = BatchBuilder::new(BatchLimits {
            bytes: 2 << 20,
            ..BatchLimits::default()
        });
        let keys = if shape.encrypts {
            KeyRing::new([(1, Ok(DataKey::new(1, &[7; 32]).unwrap()))])
        } else {
            KeyRing::default()
        };
        let mut sealer = keys.sealer().unwrap();
        let batch = build(&mut builder, shape, &value, sealer.as_mut());
        let built = rate(|| {
            drop(black_box(build(
                &mut builder,
                shape,
                &value,
                sealer.as_mut(),
            )));
        });
        let checked = rate(|| drop(black_box(Batch::open(&batch, &keys).unwrap())));
        let read = rate(|| {
            black_box(read_all(&Batch::open(&batch, &keys).unwrap()));
        });
        println!(
            "{:<20} {built:>14.0} {checked:>14.0} {read:>14.0}",
            shape.name
        );
    }
}

fn build(
    builder: &mut BatchBuilder,
    shape: &Shape,
    value: &[u8],
    sealer: Option<&mut Sealer>,
) -> bytes::Bytes {
    let headers = [HeaderEntry {
        key_kind: 2,
        key: b"trace",
        value_kind: 1,
        value: b"0123456789abcdef",
    }];
    for i in 0..RECORDS {
        let record = RecordRef {
            timestamp: 1_800_000_000_000_000_000 + i as i64 * 1_000,
            subject: Some(shape.subjects[i % shape.subjects.len()]),
            value: Some(value),
            ..RecordRef::default()
        };
        let full = RecordRef {
            id: i as u128 + 1,
            origin_time: Some(1),
            key: Some(&value[..8]),
            headers: &headers,
            reply: "_INBOX.1",
            ..record
        };
        builder
            .push(if shape.is_full { &full } else { &record })
            .unwrap();
    }
    let sealed = builder.seal(shape.codec, None, Some("orders")).unwrap();
    let place = Stamp {
        incarnation: 1,
        partition: 0,
        leader_epoch: 1,
        base_offset: 0,
        chain: 0,
        not_before: i64::MIN,
    };
    match sealer {
        Some(sealer) => sealed.stamp_encrypted(&place, sealer).unwrap(),
        None => sealed.stamp(&place),
    }
}

/// Touches every field of every record, as a row protocol does.
fn read_all(batch: &Batch) -> u64 {
    let mut sum = 0;
    for i in 0..batch.len() {
        sum += batch.offset(i) ^ batch.timestamp(i) as u64 ^ batch.id(i) as u64;
        sum += batch.origin_time(i).unwrap_or(0) as u64;
        sum += (batch.key(i).map_or(0, <[u8]>::len) + batch.value(i).map_or(0, <[u8]>::len)) as u64;
        sum += (batch.subject(i).map_or(0, str::len) + batch.reply(i).map_or(0, str::len)) as u64;
        sum += batch
            .headers(i)
            .map(|header| header.value.len() as u64)
            .sum::<u64>();
    }
    sum
}

/// Records per second of a step over one batch.
fn rate(mut step: impl FnMut()) -> f64 {
    for _ in 0..20 {
        step();
    }
    let (start, mut batches) = (Instant::now(), 0_u32);
    while start.elapsed() < RUN {
        step();
        batches += 1;
    }
    f64::from(batches) * RECORDS as f64 / start.elapsed().as_secs_f64()
}

/// Text-like bytes that compress somewhat.
fn value(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b'a' + (state >> 28) as u8
        })
        .collect()
}
