//! Records that own their bytes, for tests.
#![allow(dead_code, reason = "each test binary uses a part of it")]
use bascule_record::{
    Batch, BatchBuilder, BatchLimits, Codec, HeaderEntry, RecordRef, SealedBatch, Stamp,
};
use proptest::prelude::*;

/// The partition's own subject in all tests.
pub const OWN: &str = "orders";

/// A header that owns its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedHeader {
    pub key_kind: u8,
    pub key: Vec<u8>,
    pub value_kind: u8,
    pub value: Vec<u8>,
}

/// A record that owns its bytes, in the form in which a reader gives it back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedRecord {
    pub timestamp: i64,
    pub origin_time: Option<i64>,
    pub id: u128,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<OwnedHeader>,
    pub subject: Option<String>,
    pub reply: Option<String>,
}

impl OwnedRecord {
    /// Pushes this record.
    pub fn push_to(&self, builder: &mut BatchBuilder) -> Result<(), bascule_record::BuildError> {
        let headers: Vec<_> = self
            .headers
            .iter()
            .map(|h| HeaderEntry {
                key_kind: h.key_kind,
                key: &h.key,
                value_kind: h.value_kind,
                value: &h.value,
            })
            .collect();
        builder.push(&RecordRef {
            timestamp: self.timestamp,
            origin_time: self.origin_time,
            id: self.id,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &headers,
            subject: self.subject.as_deref(),
            reply: self.reply.as_deref().unwrap_or_default(),
        })
    }

    /// Record i of a batch.
    pub fn read_from(batch: &Batch, i: usize) -> Self {
        Self {
            timestamp: batch.timestamp(i),
            origin_time: batch.origin_time(i),
            id: batch.id(i),
            key: batch.key(i).map(<[u8]>::to_vec),
            value: batch.value(i).map(<[u8]>::to_vec),
            headers: batch
                .headers(i)
                .map(|h| OwnedHeader {
                    key_kind: h.key_kind,
                    key: h.key.to_vec(),
                    value_kind: h.value_kind,
                    value: h.value.to_vec(),
                })
                .collect(),
            subject: batch.subject(i).map(str::to_owned),
            reply: batch.reply(i).map(str::to_owned),
        }
    }

    /// What a reader will give back: empty means none, and the partition's own subject is not stored.
    pub fn as_read(&self) -> Self {
        let mut read = self.clone();
        read.key = read.key.filter(|key| !key.is_empty());
        read.subject = read
            .subject
            .filter(|subject| !subject.is_empty() && subject != OWN);
        read.reply = read.reply.filter(|reply| !reply.is_empty());
        read
    }
}

/// All records of a batch.
pub fn read_all(batch: &Batch) -> Vec<OwnedRecord> {
    (0..batch.len())
        .map(|i| OwnedRecord::read_from(batch, i))
        .collect()
}

/// One batch of all `records`, which must fit.
pub fn seal(records: &[OwnedRecord], codec: Codec) -> SealedBatch {
    let mut builder = BatchBuilder::new(BatchLimits::default());
    for record in records {
        record.push_to(&mut builder).expect("fits");
    }
    builder.seal(codec, None, Some(OWN)).expect("not empty")
}

/// A place for a batch.
pub fn stamp() -> Stamp {
    Stamp {
        incarnation: 7,
        partition: 3,
        leader_epoch: 5,
        base_offset: 1_000,
        chain: 0xdead_beef,
        not_before: i64::MIN,
    }
}

/// Timestamps near now, so that most fit one batch.
const NOW: i64 = 1_800_000_000_000_000_000;

/// Any record; each optional part is there about half of the time.
pub fn any_record() -> impl Strategy<Value = OwnedRecord> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..24);
    let subject = prop_oneof![
        Just(OWN.to_owned()),
        Just(String::new()),
        "[a-c]",
        "[a-zé€]{1,12}"
    ];
    let header = (any::<u8>(), bytes(), any::<u8>(), bytes()).prop_map(
        |(key_kind, key, value_kind, value)| OwnedHeader {
            key_kind,
            key,
            value_kind,
            value,
        },
    );
    (
        (0..2_000_000_000_i64).prop_map(|ns| NOW + ns),
        proptest::option::of(i64::MIN + 1..=i64::MAX),
        prop_oneof![Just(0), any::<u128>()],
        proptest::option::of(bytes()),
        proptest::option::of(bytes()),
        proptest::collection::vec(header, 0..3),
        proptest::option::of(subject),
        proptest::option::of("[_A-Zé.]{0,10}"),
    )
        .prop_map(
            |(timestamp, origin_time, id, key, value, headers, subject, reply)| OwnedRecord {
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

/// One batch's worth of records. Each kind of column is wiped in some, so that every set of columns appears.
pub fn any_records() -> impl Strategy<Value = Vec<OwnedRecord>> {
    (proptest::collection::vec(any_record(), 1..40), any::<u8>()).prop_map(
        |(mut records, wiped)| {
            let first = records[0].timestamp;
            let mut latest = i64::MIN;
            for record in &mut records {
                let none = OwnedRecord::default();
                let wipe = |bit: u8| wiped & (1 << bit) != 0;
                record.timestamp = if wipe(0) { first } else { record.timestamp };
                record.origin_time = if wipe(1) { None } else { record.origin_time };
                record.id = if wipe(2) { 0 } else { record.id };
                record.key = if wipe(3) { None } else { record.key.take() };
                record.value = if wipe(4) {
                    Some(Vec::new())
                } else {
                    record.value.take()
                };
                record.headers = if wipe(5) {
                    none.headers
                } else {
                    std::mem::take(&mut record.headers)
                };
                record.subject = if wipe(6) { None } else { record.subject.take() };
                record.reply = if wipe(7) { None } else { record.reply.take() };
                record.timestamp = record.timestamp.max(latest);
                latest = record.timestamp;
            }
            records
        },
    )
}

/// Any codec.
pub fn any_codec() -> impl Strategy<Value = Codec> {
    prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(Codec::Zstd)]
}
