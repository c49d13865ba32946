//! A stored batch is stored again elsewhere: other place, time and producer, the same records in the same bytes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]
mod support;

use bascule_record::crypt::{DataKey, KeyRing};
use bascule_record::{
    Batch, Codec, DamageError, Flags, HEADER_BYTES, Header, Producer, RestoreError, SealedBatch,
    Stamp,
};
use bytes::Bytes;
use proptest::prelude::*;
use support::{OwnedRecord, any_codec, any_records, read_all, seal, stamp};

const LATER: i64 = 1_900_000_000_000_000_000;
const PRODUCER: Producer = Producer {
    id: Producer::FIRST_SINK_ID + 4,
    epoch: 9,
    base_sequence: 100,
};

fn place() -> Stamp {
    Stamp {
        incarnation: 8,
        partition: 4,
        leader_epoch: 6,
        base_offset: 77,
        chain: 1,
        not_before: 0,
    }
}

/// The records, all at the time of the first.
fn at_one_time(mut records: Vec<OwnedRecord>) -> Vec<OwnedRecord> {
    let first = records[0].timestamp;
    for record in &mut records {
        record.timestamp = first;
    }
    records
}

fn ring(ids: &[u32]) -> KeyRing {
    let key = |id: &u32| (*id, Ok(DataKey::new(*id, &[*id as u8; 32]).unwrap()));
    KeyRing::new(ids.iter().map(key))
}

fn restore(stored: &[u8], keys: &KeyRing) -> Result<SealedBatch, RestoreError> {
    SealedBatch::restore(stored, keys, LATER, PRODUCER)
}

fn moved(records: &[OwnedRecord]) -> Vec<OwnedRecord> {
    let moved = |record: &OwnedRecord| OwnedRecord {
        timestamp: LATER,
        ..record.as_read()
    };
    records.iter().map(moved).collect()
}

proptest! {
    #[test]
    fn all_but_place_time_and_producer_stays(records in any_records(), codec in any_codec()) {
        let records = at_one_time(records);
        let stored = seal(&records, codec).stamp(&stamp());
        let again = restore(&stored, &KeyRing::default()).unwrap();
        prop_assert_eq!(again.batch_bytes(), stored.len());
        prop_assert_eq!(again.producer(), Some(PRODUCER));
        let again = again.stamp(&place());
        prop_assert_eq!(&again[HEADER_BYTES..], &stored[HEADER_BYTES..]);
        let batch = Batch::read(&again).unwrap();
        prop_assert_eq!(read_all(&batch), moved(&records));
        let header = batch.header();
        prop_assert_eq!((header.incarnation, header.partition, header.leader_epoch), (8, 4, 6));
        prop_assert_eq!((header.base_offset, header.chain), (77, 1));
        prop_assert_eq!(header.producer, Some(PRODUCER));
    }

    #[test]
    fn an_encrypted_batch_is_encrypted_again_with_the_current_key(records in any_records(), codec in any_codec()) {
        let records = at_one_time(records);
        let stored = seal(&records, codec)
            .stamp_encrypted(&stamp(), &mut ring(&[1]).sealer().unwrap().unwrap())
            .unwrap();
        let keys = ring(&[1, 2]);
        let again = restore(&stored, &keys).unwrap();
        let again = again.stamp_encrypted(&place(), &mut keys.sealer().unwrap().unwrap()).unwrap();
        prop_assert_eq!(again.len(), stored.len());
        let batch = Batch::open(&again, &keys).unwrap();
        prop_assert_eq!(read_all(&batch), moved(&records));
        let (new, old) = (batch.header(), Header::read(&stored).unwrap());
        prop_assert_eq!((new.key_id, new.codec, new.raw_bytes), (2, old.codec, old.raw_bytes));
        prop_assert_ne!(new.nonce, old.nonce);
        prop_assert!(new.flags.has(Flags::ENCRYPTED));
    }

    #[test]
    fn a_changed_byte_is_noticed(
        records in any_records(), encrypted in any::<bool>(), at in any::<prop::sample::Index>(), flip in 1..=u8::MAX
    ) {
        let (sealed, keys) = (seal(&at_one_time(records), Codec::Lz4), ring(&[1]));
        let stored = if encrypted {
            sealed.stamp_encrypted(&stamp(), &mut keys.sealer().unwrap().unwrap()).unwrap()
        } else {
            sealed.stamp(&stamp())
        };
        let mut changed = stored.to_vec();
        changed[at.index(stored.len())] ^= flip;
        let refused = restore(&changed, &keys).unwrap_err();
        prop_assert!(matches!(refused, RestoreError::Damage(_)), "{refused}");
    }
}

fn record(timestamp: i64) -> OwnedRecord {
    OwnedRecord {
        timestamp,
        value: Some(b"v".to_vec()),
        ..OwnedRecord::default()
    }
}

#[test]
fn a_missing_key_is_not_damage() {
    let sealed = seal(&[record(1)], Codec::None);
    let stored = sealed.stamp_encrypted(&stamp(), &mut ring(&[1]).sealer().unwrap().unwrap());
    let refused = restore(&stored.unwrap(), &ring(&[2])).unwrap_err();
    let RestoreError::Damage(error) = refused else {
        panic!("{refused}")
    };
    assert!(error.is_locked(), "{error}");
}

#[test]
fn a_part_of_a_batch_and_more_than_one_are_refused() {
    let stored = seal(&[record(1)], Codec::None).stamp(&stamp());
    let short = restore(&stored[..stored.len() - 1], &KeyRing::default()).unwrap_err();
    assert!(
        matches!(short, RestoreError::Damage(DamageError::Short { .. })),
        "{short}"
    );
    let two = [stored.clone(), stored].concat();
    let long = restore(&two, &KeyRing::default()).unwrap_err();
    assert!(
        matches!(long, RestoreError::Damage(DamageError::Long { .. })),
        "{long}"
    );
}

#[test]
fn batches_that_would_lose_something_are_refused() {
    let several_times = seal(&[record(1), record(2)], Codec::None).stamp(&stamp());
    let produced = restore(
        &seal(&[record(1)], Codec::None).stamp(&stamp()),
        &KeyRing::default(),
    );
    let compacted = Batch::read(&seal(&[record(1), record(1)], Codec::None).stamp(&stamp()));
    let compacted = compacted
        .unwrap()
        .rewrite(Codec::None, None, |i| i == 0)
        .unwrap();
    let cases: [Bytes; 3] = [several_times, produced.unwrap().stamp(&place()), compacted];
    for stored in cases {
        let refused = restore(&stored, &KeyRing::default()).unwrap_err();
        assert!(matches!(refused, RestoreError::Kind { .. }), "{refused}");
    }
}
