//! Millions of records a second on one core, each hot codec alone: `cargo bench -p bascule-wire --profile fast`.
//! A word after `--` picks the lines that contain it.
use bascule_record::{Batch, BatchBuilder, BatchLimits, Codec, HeaderEntry, RecordRef, Stamp};
use bascule_wire::envelope;
use bascule_wire::flight::check::{Rule, StreamLimits, check};
use bascule_wire::flight::digest::RowDigest;
use bascule_wire::flight::gather::{Gather, GatherLimits, GatherSource};
use bascule_wire::flight::ingest::{IngestTarget, ingest};
use bascule_wire::flight::schema::Projection;
use bascule_wire::liftbridge::acks::{AckFields, AckTemplate, ResponseView};
use bascule_wire::liftbridge::delivery::{DeliveryEncoder, MessageView};
use bascule_wire::liftbridge::publish::{
    PublishFields, PublishView, put_envelope_publish, put_record_copy, put_request_frame,
};
use bascule_wire::subject::SubjectFilter;
use bytes::Bytes;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Records of one batch, as NATS ingest makes them.
const RECORDS: usize = 1024;
const ROUND: Duration = Duration::from_millis(100);
const ROUNDS: usize = 5;

/// Repeats `work`, which handles `items` each time, and prints the median rate of five rounds.
fn measure(name: &str, items: usize, mut work: impl FnMut()) {
    // Done once in any case: later lines read what this one wrote.
    work();
    if std::env::args()
        .skip(1)
        .any(|arg| !arg.starts_with('-') && !name.contains(&arg))
    {
        return;
    }
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let (start, mut done) = (Instant::now(), 0);
            while start.elapsed() < ROUND {
                work();
                done += items;
            }
            done as f64 / start.elapsed().as_secs_f64() / 1e6
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    println!("{name:44} {:9.2} M/s", rates[ROUNDS / 2]);
}

/// A whole batch of records of `size` bytes. `subjects`: how many distinct ones, 0 = the partition's own.
fn batch(size: usize, subjects: usize, has_headers: bool) -> Batch {
    let mut builder = BatchBuilder::new(BatchLimits {
        bytes: 16 << 20,
        ..BatchLimits::default()
    });
    let value = vec![b'v'; size];
    let names: Vec<String> = (0..subjects)
        .map(|i| format!("flights.carrier{i}.JFK"))
        .collect();
    let headers = [HeaderEntry {
        key_kind: 2,
        key: b"trace",
        value_kind: 1,
        value: b"0123456789abcdef",
    }];
    for i in 0..RECORDS {
        let key = (i as u64).to_le_bytes();
        let record = RecordRef {
            timestamp: 1_700_000_000_000_000_000 + i as i64 * 1_000,
            key: Some(&key),
            value: Some(&value),
            headers: if has_headers { &headers } else { &[] },
            subject: names.get(i % subjects.max(1)).map(String::as_str),
            ..RecordRef::default()
        };
        builder
            .push(&record)
            .unwrap_or_else(|error| panic!("{error}"));
    }
    let sealed = builder
        .seal(Codec::None, None, None)
        .unwrap_or_else(|| panic!("nothing to seal"));
    let stamp = Stamp {
        incarnation: 1,
        partition: 0,
        leader_epoch: 1,
        base_offset: 1_000_000,
        chain: 0,
        not_before: 0,
    };
    Batch::read(&sealed.stamp(&stamp)).unwrap_or_else(|error| panic!("{error}"))
}

fn frames(mut buffer: Bytes) -> Vec<Bytes> {
    let mut frames = Vec::new();
    while buffer.len() > 5 {
        let length = u32::from_be_bytes([buffer[1], buffer[2], buffer[3], buffer[4]]) as usize;
        frames.push(buffer.slice(5..5 + length));
        buffer = buffer.slice(5 + length..);
    }
    frames
}

fn deliveries(size: usize) {
    let mut out = Vec::new();
    for (what, subjects, has_headers) in [
        ("one subject", 0, false),
        ("16 subjects", 16, false),
        ("one header", 0, true),
    ] {
        let batch = batch(size, subjects, has_headers);
        let mut encoder = DeliveryEncoder::new("orders", 0, "orders.new");
        measure(
            &format!("delivery, write, {what}, {size} B"),
            RECORDS,
            || {
                out.clear();
                encoder.put_frames(&mut out, black_box(&batch), 0, RECORDS, usize::MAX);
            },
        );
    }
    let frames = frames(out.into());
    measure(
        &format!("delivery, read, one header, {size} B"),
        RECORDS,
        || {
            for frame in &frames {
                black_box(MessageView::read(frame.clone()));
            }
        },
    );
    let (batch, mut out) = (batch(size, 0, false), Vec::new());
    measure(&format!("copy for NATS, write, {size} B"), RECORDS, || {
        out.clear();
        for i in 0..RECORDS {
            put_record_copy(&mut out, black_box(&batch), i, "orders", "orders.new");
        }
    });
}

fn publishes(size: usize) {
    let value = vec![b'v'; size];
    let fields = PublishFields {
        key: b"customer",
        value: &value,
        stream: "orders",
        correlation_id: "1f2e3d4c5b6a",
        ack_policy: 1,
        ..PublishFields::default()
    };
    let mut out = Vec::new();
    measure(
        &format!("publish request, write, {size} B"),
        RECORDS,
        || {
            out.clear();
            for _ in 0..RECORDS {
                put_request_frame(&mut out, black_box(&fields));
            }
        },
    );
    let requests = frames(out.into());
    measure(&format!("publish request, read, {size} B"), RECORDS, || {
        for request in &requests {
            black_box(PublishView::read(request.clone()));
        }
    });
    let mut out = Vec::new();
    put_envelope_publish(&mut out, "orders.new", &fields);
    let payload = Bytes::from(out);
    measure(&format!("envelope, recognise, {size} B"), 1, || {
        black_box(envelope::recognise(black_box(&payload)));
    });
}

fn acks() {
    let template = AckTemplate::new("orders", "orders.new", "orders.new");
    let fields = AckFields {
        offset: 1_000_000,
        correlation_id: b"1f2e3d4c5b6a",
        ack_policy: 1,
        reception_timestamp: 1_700_000_000_000_000_000,
        commit_timestamp: 1_700_000_000_000_100_000,
        ..AckFields::default()
    };
    let mut out = Vec::new();
    measure("ack, write", RECORDS, || {
        out.clear();
        for _ in 0..RECORDS {
            template.put_response_frame(&mut out, black_box(&fields), true);
        }
    });
    let responses = frames(out.into());
    measure("ack, read", RECORDS, || {
        for response in &responses {
            black_box(ResponseView::read(response.clone()));
        }
    });
}

fn gathering(size: usize) {
    let source = GatherSource {
        stream: "orders".into(),
        partition: 0,
        subject: "orders.new".into(),
    };
    let limits = GatherLimits::default();
    let named = |names: &[&str]| Projection::named(names).unwrap_or_else(|error| panic!("{error}"));
    for (what, projection, subjects, filter) in [
        ("value only", named(&["value"]), 0, None),
        ("default columns", Projection::default(), 0, None),
        (
            "default columns, 16 subjects",
            Projection::default(),
            16,
            None,
        ),
        (
            "value, 1 of 16 subjects",
            named(&["value"]),
            16,
            Some("*.carrier7.*"),
        ),
        (
            "eight columns",
            named(&[
                "stream",
                "partition",
                "offset",
                "timestamp",
                "key",
                "value",
                "subject",
                "headers",
            ]),
            0,
            None,
        ),
    ] {
        let batch = batch(size, subjects, false);
        let filter = filter.and_then(|filter| SubjectFilter::parse(filter).ok());
        let mut gather = Gather::new(projection, source.clone(), filter, limits);
        measure(&format!("gather, {what}, {size} B"), RECORDS, || {
            let mut at = 0;
            while at < RECORDS {
                at = gather.push(black_box(&batch), at, RECORDS);
                if gather.is_full() {
                    black_box(gather.finish().unwrap_or_else(|error| panic!("{error}")));
                }
            }
        });
    }
    let mut gather = Gather::new(named(&["key", "value"]), source, None, limits);
    gather.push(&batch(size, 0, false), 0, RECORDS);
    let rows = gather
        .finish()
        .ok()
        .flatten()
        .unwrap_or_else(|| panic!("nothing gathered"));
    let target = IngestTarget {
        stream: "orders",
        partition: 0,
        subject: None,
        now: 0,
        codec: Codec::None,
        producer: None,
    };
    let mut builder = BatchBuilder::new(BatchLimits {
        bytes: 16 << 20,
        ..BatchLimits::default()
    });
    measure(
        &format!("ingest, key and value, {size} B"),
        rows.num_rows(),
        || {
            black_box(
                ingest(black_box(&rows), &target, &mut builder)
                    .unwrap_or_else(|error| panic!("{error}")),
            );
        },
    );
    measure(
        &format!("check and digest, key and value, {size} B"),
        rows.num_rows(),
        || {
            let mut digest = RowDigest::new(target.stream);
            let limits = StreamLimits {
                partitions: NonZeroU32::MIN,
                record_bytes: 1 << 20,
            };
            let (rows, rule) = (black_box(&rows), Rule::Limits(limits));
            check(rows, target.stream, rule, &mut digest, |row| {
                panic!("row {} is refused", row.row);
            })
            .unwrap_or_else(|error| panic!("{error}"));
            black_box(digest.value());
        },
    );
}

fn main() {
    for size in [100, 256, 1024] {
        deliveries(size);
        publishes(size);
        gathering(size);
    }
    acks();
}
