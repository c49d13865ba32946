//! Encrypted batches: what opens them, what does not, and that no nonce comes twice.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]
mod support;

use bascule_record::crypt::{
    DataKey, Entropy, KeyLack, KeyRing, MasterKey, MasterKeyError, MasterKeys, SealError, Sealer,
    SystemEntropy, TAG_BYTES,
};
use bascule_record::{Batch, Codec, DamageError, Flags, HEADER_BYTES, Header};
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::Arc;
use support::{OwnedRecord, any_codec, any_records, read_all, seal, stamp};

/// Bytes that must never appear anywhere.
const PLANTED: [u8; 32] = *b"planted-secret-planted-secret-32";

fn ring(id: u32, secret: &[u8; 32]) -> KeyRing {
    KeyRing::new([(id, Ok(DataKey::new(id, secret).unwrap()))])
}

fn sealed(records: &[OwnedRecord], codec: Codec, ring: &KeyRing) -> Bytes {
    let mut sealer = ring.sealer().unwrap().unwrap();
    seal(records, codec)
        .stamp_encrypted(&stamp(), &mut sealer)
        .unwrap()
}

fn repaired(mut bytes: Vec<u8>) -> Bytes {
    let crc = crc32c::crc32c(&bytes[HEADER_BYTES..]);
    bytes[104..108].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..124]);
    bytes[124..128].copy_from_slice(&crc.to_le_bytes());
    Bytes::from(bytes)
}

proptest! {
    #[test]
    fn what_was_encrypted_opens_as_it_was(records in any_records(), codec in any_codec(), id in 1..u32::MAX) {
        let ring = ring(id, &[7; 32]);
        let bytes = sealed(&records, codec, &ring);
        let plain = seal(&records, codec).stamp(&stamp());
        prop_assert_eq!(bytes.len(), plain.len() + TAG_BYTES);
        let (batch, expected) = (Batch::open(&bytes, &ring).unwrap(), Batch::read(&plain).unwrap());
        prop_assert_eq!(read_all(&batch), read_all(&expected));
        prop_assert_eq!(batch.header().codec, expected.header().codec);
        prop_assert_eq!((batch.header().key_id, batch.header().flags.has(Flags::ENCRYPTED)), (id, true));
    }

    /// Checksums put right do not help: everything that the associated data cover, and every byte of the payload.
    #[test]
    fn what_was_changed_does_not_open(records in any_records(), codec in any_codec(), at in any::<prop::sample::Index>(), flip in 1..=u8::MAX) {
        let ring = ring(3, &[7; 32]);
        let mut bytes = sealed(&records, codec, &ring).to_vec();
        let covered = 64 + bytes.len() - HEADER_BYTES;
        let at = at.index(covered);
        bytes[if at < 64 { at } else { HEADER_BYTES - 64 + at }] ^= flip;
        let error = Batch::open(&repaired(bytes), &ring).unwrap_err();
        prop_assert!(at < 64 || error == DamageError::Authentication { key_id: 3 }, "{error} at {at}");
    }

    #[test]
    fn a_rewritten_batch_is_encrypted_again(records in any_records(), codec in any_codec()) {
        let old = ring(1, &[7; 32]);
        let both = KeyRing::new([1, 2].map(|id| (id, Ok(DataKey::new(id, &[6 + id as u8; 32]).unwrap()))));
        let original = Batch::open(&sealed(&records, codec, &old), &both).unwrap();
        let mut sealer = both.sealer().unwrap().unwrap();
        let mut nonces = HashSet::from([original.header().nonce]);
        for _ in 0..3 {
            let bytes = original.rewrite(codec, Some(&mut sealer), |i| i % 2 == 1).unwrap();
            let rewritten = Batch::open(&bytes, &both).unwrap();
            let header = rewritten.header();
            prop_assert_eq!(header.key_id, 2);
            prop_assert_eq!(header.link(), original.header().link());
            prop_assert!(nonces.insert(header.nonce));
            prop_assert!(Batch::open(&bytes, &old).unwrap_err().is_locked());
            let kept: Vec<_> = read_all(&original).into_iter().skip(1).step_by(2).collect();
            prop_assert_eq!(read_all(&rewritten), kept);
        }
        let refused = original.rewrite(codec, None, |_| true).unwrap_err();
        prop_assert_eq!(refused, SealError::Plain);
    }
}

#[test]
fn another_key_of_the_same_number_opens_nothing_and_is_not_damage() {
    let records = [OwnedRecord::default()];
    let bytes = sealed(&records, Codec::None, &ring(1, &[7; 32]));
    let error = Batch::open(&bytes, &ring(1, &[8; 32])).unwrap_err();
    assert_eq!(error, DamageError::Authentication { key_id: 1 });
    assert!(error.is_unsupported());
    let error = Batch::open(&bytes, &ring(2, &[7; 32])).unwrap_err();
    assert!(error.is_locked(), "{error}");
    let header = Header::read(&bytes).unwrap();
    assert_eq!(header.payload_crc, crc32c::crc32c(&bytes[HEADER_BYTES..]));
}

#[test]
fn a_value_does_not_show() {
    let records = [OwnedRecord {
        value: Some(PLANTED.to_vec()),
        ..OwnedRecord::default()
    }];
    let shows = |bytes: &[u8]| bytes.windows(PLANTED.len()).any(|part| part == PLANTED);
    assert!(shows(&seal(&records, Codec::None).stamp(&stamp())));
    assert!(!shows(&sealed(&records, Codec::None, &ring(1, &[7; 32]))));
}

#[test]
fn the_same_batch_at_the_same_place_in_two_lives_has_two_nonces() {
    let ring = ring(1, &[7; 32]);
    let records = [OwnedRecord::default()];
    let nonces: HashSet<_> = (0..1000)
        .map(|_| {
            Header::read(&sealed(&records, Codec::None, &ring))
                .unwrap()
                .nonce
        })
        .collect();
    assert_eq!(nonces.len(), 1000);
}

#[test]
fn many_sealers_of_one_key_never_give_a_nonce_twice() {
    let key = DataKey::new(1, &[7; 32]).unwrap();
    let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
    let mut seen = HashSet::new();
    for _ in 0..200 {
        let mut sealer = Sealer::new(key.clone(), Arc::clone(&entropy)).unwrap();
        for _ in 0..1000 {
            assert!(seen.insert(sealer.next_nonce().unwrap()));
        }
    }
}

#[test]
fn data_keys_unwrap_with_their_master_key_alone() {
    let master = |id: &str, secret: &[u8]| MasterKey::new(id, secret).unwrap();
    for secret in [&[1; 16][..], &[1; 32]] {
        let wrapped = [1, 2].map(|id| {
            master("a", secret)
                .new_data_key(id, &SystemEntropy)
                .unwrap()
        });
        let here = MasterKeys::new([master("a", secret)], Some("a".into())).unwrap(&wrapped);
        let bytes = sealed(&[OwnedRecord::default()], Codec::None, &here);
        assert_eq!(Header::read(&bytes).unwrap().key_id, 2, "the highest seals");
        Batch::open(&bytes, &here).unwrap();

        let absent = MasterKeys::new([master("b", secret)], None).unwrap(&wrapped);
        let lack = KeyLack::NoMaster { master: "a".into() };
        let refused = DamageError::Encrypted { key_id: 2, lack };
        assert_eq!(Batch::open(&bytes, &absent).unwrap_err(), refused);
        assert!(matches!(
            absent.sealer(),
            Err(SealError::Key { key_id: 2, .. })
        ));

        let other = MasterKeys::new([master("a", &[2; 32])], None).unwrap(&wrapped);
        let lack = KeyLack::WrongMaster { master: "a".into() };
        let refused = DamageError::Encrypted { key_id: 2, lack };
        assert_eq!(Batch::open(&bytes, &other).unwrap_err(), refused);

        let mut swapped = wrapped.clone();
        swapped[0].id = 2;
        let ring = MasterKeys::new([master("a", secret)], None).unwrap(&swapped[..1]);
        assert!(
            matches!(ring.get(2), Err(KeyLack::WrongMaster { .. })),
            "a key is bound to its number"
        );
        swapped[0].wrapped.pop();
        assert!(
            MasterKeys::new([master("a", secret)], None)
                .unwrap(&swapped[..1])
                .get(2)
                .is_err()
        );
    }
}

#[test]
fn a_master_key_has_16_or_32_bytes() {
    for bytes in [0, 1, 15, 17, 24, 31, 33] {
        let error = MasterKey::new("a", &vec![0; bytes]).unwrap_err();
        assert_eq!(error, MasterKeyError::Size { bytes });
        assert_eq!(error.to_string(), format!("invalid AES key size {bytes}"));
    }
}

#[test]
fn no_text_shows_a_secret() {
    let master = MasterKey::new("a", &PLANTED).unwrap();
    let masters = MasterKeys::new([MasterKey::new("a", &PLANTED).unwrap()], Some("a".into()));
    let ring = ring(1, &PLANTED);
    let shown = [
        format!("{master:?} {masters:?} {ring:?} {:?}", ring.get(1)),
        format!("{:?}", ring.sealer()),
        format!("{:?}", MasterKey::new("a", &PLANTED[..9])),
    ];
    let decimal = format!("{:?}", &PLANTED[..4]);
    for text in shown {
        assert!(
            !text.contains("planted") && !text.contains(decimal.trim_matches(['[', ']'])),
            "{text}"
        );
    }
}

#[test]
fn no_keys_mean_no_encryption() {
    assert!(KeyRing::default().sealer().unwrap().is_none());
    assert!(DataKey::new(0, &[0; 32]).is_none());
}
