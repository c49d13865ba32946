//! Records as tests write them, and batches made of them.
#![allow(dead_code, reason = "each test program uses a part")]
use bascule_record::{Batch, BatchBuilder, BatchLimits, Codec, HeaderEntry, RecordRef, Stamp};

/// First offset of every batch here.
pub const BASE_OFFSET: u64 = 1000;

/// A record that owns its parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Ns since 1970; ascending within a batch, at most 4 s apart.
    pub timestamp: i64,
    pub origin_time: Option<i64>,
    pub id: u128,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// Kind of the key, key, value.
    pub headers: Vec<(u8, Vec<u8>, Vec<u8>)>,
    pub subject: Option<String>,
    pub reply: String,
}

impl Record {
    /// A plain one.
    pub fn of(value: &str) -> Self {
        Self {
            timestamp: 1_700_000_000_123_456_789,
            value: Some(value.as_bytes().to_vec()),
            ..Self::default()
        }
    }
}

/// One batch that holds all of `records`.
pub fn batch(records: &[Record]) -> Batch {
    let limits = BatchLimits {
        records: 1 << 20,
        bytes: 100 << 20,
        ..BatchLimits::default()
    };
    let mut builder = BatchBuilder::new(limits);
    for record in records {
        let headers: Vec<HeaderEntry<'_>> = record
            .headers
            .iter()
            .map(|(key_kind, key, value)| HeaderEntry {
                key_kind: *key_kind,
                key,
                value_kind: 1,
                value,
            })
            .collect();
        let record = RecordRef {
            timestamp: record.timestamp,
            origin_time: record.origin_time,
            id: record.id,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &headers,
            subject: record.subject.as_deref(),
            reply: &record.reply,
        };
        builder
            .push(&record)
            .unwrap_or_else(|error| panic!("{error}"));
    }
    let sealed = builder
        .seal(Codec::None, None, None)
        .unwrap_or_else(|| panic!("no records"));
    let stamp = Stamp {
        incarnation: 1,
        partition: 0,
        leader_epoch: 1,
        base_offset: BASE_OFFSET,
        chain: 0,
        not_before: 0,
    };
    Batch::read(&sealed.stamp(&stamp)).unwrap_or_else(|error| panic!("{error}"))
}
