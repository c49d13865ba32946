//! A payload never becomes more than its header says, and is not believed to become more than it could.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]
mod support;

use bascule_record::crypt::{DataKey, KeyRing};
use bascule_record::{Batch, Codec, DamageError, HEADER_BYTES};
use bytes::Bytes;
use proptest::prelude::*;
use support::{OwnedRecord, seal, stamp};

const MIB: usize = 1 << 20;

/// A batch with this payload, said to become `raw` bytes, under right checksums.
fn batch(codec: Codec, stored: &[u8], raw: usize) -> Bytes {
    let zeros = OwnedRecord {
        value: Some(vec![0; 4096]),
        ..OwnedRecord::default()
    };
    let mut bytes = seal(&[zeros], codec).stamp(&stamp()).to_vec();
    assert_eq!(bytes[5], codec.to_byte());
    bytes.truncate(HEADER_BYTES);
    bytes.extend_from_slice(stored);
    bytes[80..84].copy_from_slice(&(stored.len() as u32).to_le_bytes());
    bytes[84..88].copy_from_slice(&(raw as u32).to_le_bytes());
    repaired(bytes)
}

fn repaired(mut bytes: Vec<u8>) -> Bytes {
    let crc = crc32c::crc32c(&bytes[HEADER_BYTES..]);
    bytes[104..108].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..124]);
    bytes[124..128].copy_from_slice(&crc.to_le_bytes());
    Bytes::from(bytes)
}

fn is_refused(bytes: &Bytes) -> bool {
    matches!(Batch::read(bytes), Err(DamageError::Decompress { .. }))
}

/// A frame of `length` zeros; `declares`: whether it says so.
fn zeros(length: usize, declares: bool) -> Vec<u8> {
    let mut compressor = zstd::bulk::Compressor::new(1).unwrap();
    compressor.include_contentsize(declares).unwrap();
    compressor.compress(&vec![0; length]).unwrap()
}

#[test]
fn a_promise_that_the_stored_bytes_cannot_keep_is_refused() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        for stored in [&[][..], &[0], &[0; 100]] {
            assert!(
                is_refused(&batch(codec, stored, 256 * MIB)),
                "{codec:?} {}",
                stored.len()
            );
        }
    }
    // The frame itself is honest: less than it becomes is refused, and so is more.
    let frame = zeros(64 * MIB, true);
    assert!(frame.len() < 8192, "a bomb of {}", frame.len());
    for raw in [MIB, 64 * MIB - 1, 64 * MIB + 1, 255 * MIB] {
        assert!(is_refused(&batch(Codec::Zstd, &frame, raw)), "{raw}");
    }
}

#[test]
fn a_frame_that_does_not_say_its_length_stops_at_the_bound() {
    let frame = zeros(64 * MIB, false);
    for raw in [frame.len() + 1, MIB, 32 * MIB] {
        assert!(is_refused(&batch(Codec::Zstd, &frame, raw)), "{raw}");
    }
}

#[test]
fn frames_behind_each_other_share_one_bound() {
    let frame = zeros(MIB, true);
    let frames = frame.repeat(40);
    for raw in [MIB, 2 * MIB, 39 * MIB] {
        assert!(is_refused(&batch(Codec::Zstd, &frames, raw)), "{raw}");
    }
}

/// A compressed payload that is itself compressed: the outer one is all that is taken apart.
#[test]
fn what_is_inside_a_payload_is_not_taken_apart() {
    let inner = zeros(64 * MIB, true);
    let record = OwnedRecord {
        value: Some(inner.repeat(20)),
        ..OwnedRecord::default()
    };
    for codec in [Codec::Lz4, Codec::Zstd] {
        let bytes = seal(std::slice::from_ref(&record), codec).stamp(&stamp());
        let read = Batch::read(&bytes).unwrap();
        assert_eq!(read.header().codec, codec);
        assert_eq!(read.value(0), record.value.as_deref());
        assert!(read.payload().len() < MIB);
    }
}

/// The tag does not cover the raw length: the bound holds behind decryption too.
#[test]
fn an_encrypted_bomb_is_refused_like_a_plain_one() {
    let keys = KeyRing::new([(1, Ok(DataKey::new(1, &[7; 32]).unwrap()))]);
    let record = OwnedRecord {
        value: Some(vec![0; 8 * MIB]),
        ..OwnedRecord::default()
    };
    for codec in [Codec::Lz4, Codec::Zstd] {
        let mut sealer = keys.sealer().unwrap().unwrap();
        let sealed = seal(std::slice::from_ref(&record), codec);
        let whole = sealed.stamp_encrypted(&stamp(), &mut sealer).unwrap();
        let raw = Batch::open(&whole, &keys).unwrap().header().raw_bytes;
        for false_raw in [raw - 1, raw + 1, 256 << 20] {
            let mut bytes = whole.to_vec();
            bytes[84..88].copy_from_slice(&false_raw.to_le_bytes());
            let error = Batch::open(&repaired(bytes), &keys).unwrap_err();
            assert!(matches!(error, DamageError::Decompress { .. }), "{error}");
        }
    }
}

proptest! {
    /// Whatever the stored bytes are, the outcome is the promised length or a refusal.
    #[test]
    fn any_bytes_become_the_promised_length_or_nothing(
        stored in proptest::collection::vec(any::<u8>(), 0..300),
        raw in 0..100_000_usize,
        is_zstd: bool,
        begins_well: bool,
    ) {
        let codec = if is_zstd { Codec::Zstd } else { Codec::Lz4 };
        let mut stored = stored;
        if begins_well && is_zstd {
            stored.splice(..0, [0x28, 0xb5, 0x2f, 0xfd]);
        }
        if let Ok(read) = Batch::read(&batch(codec, &stored, raw)) {
            prop_assert_eq!(read.payload().len(), raw);
        }
    }
}
