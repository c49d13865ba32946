//! No bytes make the reader panic, and no damage is served.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]
mod support;

use bascule_record::{Batch, Batches, Codec, DamageError, HEADER_BYTES, Header};
use bytes::Bytes;
use proptest::prelude::*;
use support::{any_codec, any_records, read_all, seal, stamp};

/// Puts right checksums over whatever `bytes` (at least a header) hold, and lengths that fit.
fn repair(bytes: &mut [u8], fits_lengths: bool) {
    let payload = (bytes.len() - HEADER_BYTES) as u32;
    if fits_lengths {
        bytes[80..84].copy_from_slice(&payload.to_le_bytes());
    }
    let crc = crc32c::crc32c(&bytes[HEADER_BYTES..]);
    bytes[104..108].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..124]);
    bytes[124..128].copy_from_slice(&crc.to_le_bytes());
}

/// Calls every accessor of a batch that passed.
fn use_everything(batch: &Batch) {
    read_all(batch);
    for i in 0..batch.len() {
        assert!(batch.offset(i) < batch.header().next_offset());
        assert_eq!(batch.seek(batch.offset(i)), i);
        assert_eq!(
            batch.distinct_subjects().nth(batch.subject_number(i)),
            Some(batch.subject(i))
        );
    }
    batch.seek_time(i64::MAX);
    batch.constant_subject();
    let rewritten = batch
        .rewrite(Codec::None, None, |i| i % 2 == 0)
        .expect("it is not encrypted");
    Batch::read(&rewritten).expect("a batch that reads can be rewritten");
}

proptest! {
    #[test]
    fn an_overwritten_byte_is_detected(records in any_records(), codec in any_codec(), at in any::<prop::sample::Index>(), flip in 1..=u8::MAX) {
        let mut bytes = seal(&records, codec).stamp(&stamp()).to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let error = Batch::read(&Bytes::from(bytes)).unwrap_err();
        prop_assert!(!error.is_unsupported(), "{} at {}", error, at);
    }

    #[test]
    fn a_cut_or_longer_batch_is_detected(records in any_records(), codec in any_codec(), length in any::<prop::sample::Index>()) {
        let whole = seal(&records, codec).stamp(&stamp());
        let (have, need) = (length.index(whole.len()), whole.len());
        let cut = Batch::read(&whole.slice(..have)).unwrap_err();
        let need = if have < HEADER_BYTES { HEADER_BYTES } else { need };
        prop_assert_eq!(cut, DamageError::Short { need, have });
        let mut longer = whole.to_vec();
        longer.push(0);
        let (need, have) = (whole.len(), longer.len());
        prop_assert_eq!(Batch::read(&Bytes::from(longer)).unwrap_err(), DamageError::Long { need, have });
    }

    #[test]
    fn garbage_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), begins_well: bool) {
        if begins_well && bytes.len() >= HEADER_BYTES {
            bytes[..4].copy_from_slice(b"BSC1");
        }
        let bytes = Bytes::from(bytes);
        prop_assert!(Header::read(&bytes).is_err());
        prop_assert!(Batch::read(&bytes).is_err());
        prop_assert_eq!(Batches::new(bytes.clone()).count(), usize::from(!bytes.is_empty()));
    }

    /// The checksums do not help here: every check behind them is on its own.
    #[test]
    fn a_payload_with_right_checksums_is_refused_or_wholly_usable(
        records in any_records(),
        codec in any_codec(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = seal(&records, codec).stamp(&stamp()).to_vec();
        for (at, value) in edits {
            let room = bytes.len() - HEADER_BYTES;
            if room > 0 {
                bytes[HEADER_BYTES + at.index(room)] = value;
            }
        }
        repair(&mut bytes, false);
        if let Ok(batch) = Batch::read(&Bytes::from(bytes)) {
            use_everything(&batch);
        }
    }

    #[test]
    fn a_header_with_right_checksum_is_refused_or_wholly_usable(
        records in any_records(),
        codec in any_codec(),
        edits in proptest::collection::vec((4..124_usize, prop_oneof![0..4_u8, any::<u8>()]), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = seal(&records, codec).stamp(&stamp()).to_vec();
        if cut.index(4) == 0 {
            bytes.truncate(HEADER_BYTES + cut.index(bytes.len() - HEADER_BYTES + 1));
        }
        for (at, value) in edits {
            bytes[at] = value;
        }
        repair(&mut bytes, cut.index(2) == 0);
        if let Ok(batch) = Batch::read(&Bytes::from(bytes)) {
            use_everything(&batch);
        }
    }
}

#[test]
fn batches_are_split_and_an_error_comes_once() {
    let records = [support::OwnedRecord {
        value: Some(b"v".to_vec()),
        ..Default::default()
    }];
    let one = seal(&records, Codec::None).stamp(&stamp());
    let mut bytes = [&one[..], &one[..], &one[..]].concat();
    let split: Vec<_> = Batches::new(Bytes::from(bytes.clone())).collect();
    assert_eq!(split, vec![Ok(one.clone()); 3]);

    bytes.truncate(one.len() * 2 + HEADER_BYTES + 1);
    let (need, have) = (one.len(), HEADER_BYTES + 1);
    let split: Vec<_> = Batches::new(Bytes::from(bytes.clone())).collect();
    assert_eq!(
        split,
        vec![
            Ok(one.clone()),
            Ok(one.clone()),
            Err(DamageError::Short { need, have })
        ]
    );

    bytes[one.len() + 60] ^= 1;
    let split: Vec<_> = Batches::new(Bytes::from(bytes)).collect();
    assert_eq!(split.len(), 2);
    assert!(matches!(split[1], Err(DamageError::HeaderChecksum { .. })));
    assert_eq!(Batches::new(Bytes::new()).count(), 0);
}

#[test]
fn an_uncompressed_payload_is_borrowed() {
    let records = [support::OwnedRecord {
        value: Some(b"value".to_vec()),
        ..Default::default()
    }];
    let bytes = seal(&records, Codec::None).stamp(&stamp());
    let batch = Batch::read(&bytes).unwrap();
    assert_eq!(batch.payload().as_ptr(), bytes[HEADER_BYTES..].as_ptr());
    let (_, values) = batch.values().unwrap();
    assert_eq!(values, b"value");
    assert_eq!(
        batch.payload().slice_ref(values).as_ptr(),
        bytes[bytes.len() - 5..].as_ptr()
    );
}
