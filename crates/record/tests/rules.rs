//! Each rule of the layout, broken alone under right checksums, is named by the reader.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]
mod support;

use bascule_record::crypt::KeyLack;
use bascule_record::{Batch, Codec, DamageError, Flags, HEADER_BYTES, Header, MAX_RAW_BYTES};
use bytes::Bytes;
use support::{OwnedHeader, OwnedRecord, seal, stamp};

/// What a batch with this change reads as.
fn read_with(mut bytes: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> DamageError {
    change(&mut bytes);
    let crc = crc32c::crc32c(&bytes[HEADER_BYTES..]);
    bytes[104..108].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..124]);
    bytes[124..128].copy_from_slice(&crc.to_le_bytes());
    Batch::read(&Bytes::from(bytes)).unwrap_err()
}

fn record(value: &[u8]) -> OwnedRecord {
    OwnedRecord {
        value: Some(value.to_vec()),
        ..OwnedRecord::default()
    }
}

fn bytes_of(records: &[OwnedRecord]) -> Vec<u8> {
    seal(records, Codec::None).stamp(&stamp()).to_vec()
}

/// Two records: value ends at 0 of the payload, 12 bytes, then `abcd`.
fn plain() -> Vec<u8> {
    bytes_of(&[record(b"ab"), record(b"cd")])
}

fn put(at: usize, value: &[u8]) -> impl FnOnce(&mut Vec<u8>) {
    move |bytes| bytes[at..at + value.len()].copy_from_slice(value)
}

/// The same, counted from the start of the payload.
fn put_payload(at: usize, value: &[u8]) -> impl FnOnce(&mut Vec<u8>) {
    put(HEADER_BYTES + at, value)
}

fn assert_column(error: &DamageError, column: &str, part_of_rule: &str) {
    match error {
        DamageError::Column {
            column: found,
            rule,
            ..
        } => {
            assert_eq!(*found, column);
            assert!(rule.contains(part_of_rule), "{rule}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn what_a_newer_writer_may_have_written_is_unsupported_not_damaged() {
    let cases: [(usize, &[u8], DamageError); 7] = [
        (4, &[2], DamageError::Version { found: 2 }),
        (5, &[3], DamageError::Codec { found: 3 }),
        (6, &[8], DamageError::Flags { unknown: 8 }),
        (7, &[0x81], DamageError::Flags { unknown: 0x8100 }),
        (21, &[4], DamageError::Columns { unknown: 0x400 }),
        (22, &[1], DamageError::Reserved { at: 22 }),
        (123, &[1], DamageError::Reserved { at: 116 }),
    ];
    for (at, value, expected) in cases {
        let error = read_with(plain(), put(at, value));
        assert_eq!(error, expected);
        assert!(error.is_unsupported());
    }
}

#[test]
fn an_encrypted_batch_has_a_key_id_and_room_for_the_tag() {
    let flags = Flags::ENCRYPTED;
    let encrypt = |bytes: &mut Vec<u8>| {
        bytes[6] = flags as u8;
        bytes[88] = 7;
        bytes.extend_from_slice(&[0; 16]);
        let stored = (bytes.len() - HEADER_BYTES) as u32;
        bytes[80..84].copy_from_slice(&stored.to_le_bytes());
    };
    let unknown = DamageError::Encrypted {
        key_id: 7,
        lack: KeyLack::Unknown,
    };
    assert_eq!(read_with(plain(), encrypt), unknown);
    let unnumbered = read_with(plain(), |bytes| {
        encrypt(bytes);
        bytes[88] = 0;
    });
    assert_eq!(unnumbered, DamageError::FlagField { at: 88, flags });
    let untagged = read_with(plain(), |bytes| {
        encrypt(bytes);
        bytes.truncate(bytes.len() - 1);
        bytes[80] -= 1;
    });
    assert!(
        matches!(untagged, DamageError::Lengths { .. }),
        "{untagged}"
    );
}

#[test]
fn a_header_field_without_its_flag_is_refused() {
    for (at, expected) in [
        (64, 64),
        (72, 64),
        (76, 64),
        (88, 88),
        (92, 92),
        (103, 92),
        (112, 112),
    ] {
        assert_eq!(
            read_with(plain(), put(at, &[1])),
            DamageError::FlagField {
                at: expected,
                flags: 0
            }
        );
    }
    let producer = Flags::PRODUCER;
    assert_eq!(
        read_with(plain(), put(6, &[4])),
        DamageError::FlagField {
            at: 64,
            flags: producer
        }
    );
    assert_eq!(
        read_with(plain(), put(6, &[1])),
        DamageError::FlagField {
            at: 20,
            flags: Flags::SPARSE
        }
    );
    assert_eq!(
        read_with(plain(), put(20, &[5])),
        DamageError::FlagField { at: 20, flags: 0 }
    );
}

#[test]
fn impossible_counts_offsets_and_lengths_are_refused() {
    for (span, count) in [(0_u32, 0_u32), (2, 3), (3, 2), (1 << 25, 1 << 25)] {
        let error = read_with(plain(), |bytes| {
            bytes[40..44].copy_from_slice(&span.to_le_bytes());
            bytes[44..48].copy_from_slice(&count.to_le_bytes());
        });
        assert_eq!(
            error,
            DamageError::Count {
                count,
                span,
                flags: 0
            }
        );
    }
    let base_offset = u64::MAX - 1;
    let error = read_with(plain(), put(32, &base_offset.to_le_bytes()));
    assert_eq!(
        error,
        DamageError::Offsets {
            base_offset,
            span: 2
        }
    );
    // Of an uncompressed payload both lengths agree, a compressed one is smaller, and neither is above the bound.
    assert_eq!(
        read_with(plain(), put(84, &[17])),
        DamageError::Lengths {
            stored: 16,
            raw: 17
        }
    );
    assert_eq!(
        read_with(plain(), put(5, &[1])),
        DamageError::Lengths {
            stored: 16,
            raw: 16
        }
    );
    let raw = MAX_RAW_BYTES + 1;
    let error = read_with(plain(), |bytes| {
        bytes[5] = 2;
        bytes[84..88].copy_from_slice(&raw.to_le_bytes());
    });
    assert_eq!(error, DamageError::Lengths { stored: 16, raw });
}

#[test]
fn decompression_stops_at_the_raw_length() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let compressed = seal(&[record(&[7; 5_000]), record(&[7; 5_000])], codec)
            .stamp(&stamp())
            .to_vec();
        let header = Header::read(&compressed).unwrap();
        assert_eq!(header.codec, codec);
        for raw in [
            header.raw_bytes - 1,
            header.raw_bytes + 1,
            header.stored_bytes + 1,
            MAX_RAW_BYTES,
        ] {
            let error = read_with(compressed.clone(), put(84, &raw.to_le_bytes()));
            assert_eq!(
                error,
                DamageError::Decompress {
                    stored: header.stored_bytes,
                    raw
                }
            );
        }
    }
}

#[test]
fn columns_fill_the_payload_exactly() {
    let shorter = |bytes: &mut Vec<u8>| {
        bytes.truncate(HEADER_BYTES + 15);
        bytes[80] = 15;
        bytes[84] = 15;
    };
    assert_eq!(
        read_with(plain(), shorter),
        DamageError::ColumnShort {
            column: "value",
            need: 16,
            have: 15
        }
    );
    let longer = |bytes: &mut Vec<u8>| {
        bytes.push(0);
        bytes[80] = 17;
        bytes[84] = 17;
    };
    assert_eq!(
        read_with(plain(), longer),
        DamageError::Unused { used: 16, raw: 17 }
    );
    // A column bit whose array the payload does not have.
    let error = read_with(bytes_of(&[record(b""), record(b"")]), put(21, &[1]));
    assert_eq!(
        error,
        DamageError::ColumnShort {
            column: "id",
            need: 32,
            have: 0
        }
    );
}

#[test]
fn ends_begin_at_zero_never_decrease_and_stay_inside() {
    assert_column(
        &read_with(plain(), put_payload(0, &[1])),
        "value",
        "first end",
    );
    assert_column(
        &read_with(plain(), put_payload(4, &[5])),
        "value",
        "never decrease",
    );
    let error = read_with(plain(), put_payload(8, &[255, 255, 255, 255]));
    assert_eq!(
        error,
        DamageError::ColumnShort {
            column: "value",
            need: 12 + 0xffff_ffff,
            have: 16
        }
    );
}

#[test]
fn timestamps_never_decrease_and_match_the_maximum() {
    let mut records = [record(b""), record(b""), record(b"")];
    (records[1].timestamp, records[2].timestamp) = (5, 9);
    let bytes = bytes_of(&records);
    assert_column(
        &read_with(bytes.clone(), put_payload(4, &[10])),
        "timestamp",
        "never decrease",
    );
    let error = read_with(bytes.clone(), put_payload(8, &[8]));
    assert_eq!(
        error,
        DamageError::MaxTimestamp {
            stored: 9,
            base: 0,
            last: 8
        }
    );
    let error = read_with(plain(), put(56, &[1]));
    assert_eq!(
        error,
        DamageError::MaxTimestamp {
            stored: 1,
            base: 0,
            last: 0
        }
    );
    let error = read_with(bytes, |bytes| {
        bytes[48..56].copy_from_slice(&(i64::MAX - 1).to_le_bytes());
        bytes[56..64].copy_from_slice(&i64::MAX.to_le_bytes());
    });
    assert_eq!(
        error,
        DamageError::MaxTimestamp {
            stored: i64::MAX,
            base: i64::MAX - 1,
            last: 9
        }
    );
}

#[test]
fn offset_deltas_increase_below_the_span() {
    let records = [record(b""), record(b""), record(b""), record(b"")];
    let original = Batch::read(&Bytes::from(bytes_of(&records))).unwrap();
    let sparse = original
        .rewrite(Codec::None, None, |i| i != 1)
        .unwrap()
        .to_vec();
    assert_column(
        &read_with(sparse.clone(), put_payload(4, &[0])),
        "offset",
        "increase",
    );
    assert_column(
        &read_with(sparse.clone(), put_payload(4, &[3])),
        "offset",
        "increase",
    );
    assert_column(
        &read_with(sparse, put_payload(8, &[4])),
        "offset",
        "below the span",
    );
}

#[test]
fn nulls_have_no_bytes_and_no_bits_beyond_the_records() {
    let null = OwnedRecord::default();
    let bytes = bytes_of(&[record(b"ab"), null]);
    // Value ends 12 bytes, padding to 16, then the bitmap.
    assert_eq!(bytes[HEADER_BYTES + 16], 0b10);
    assert_column(
        &read_with(bytes.clone(), put_payload(16, &[0b11])),
        "null",
        "no bytes",
    );
    assert_column(
        &read_with(bytes.clone(), put_payload(16, &[0b110])),
        "null",
        "unused bits",
    );
    assert_column(&read_with(bytes, put_payload(12, &[1])), "null", "padding");
    let only_nulls = bytes_of(&[OwnedRecord::default()]);
    assert_column(
        &read_with(only_nulls, put_payload(0, &[0b11])),
        "null",
        "unused bits",
    );
}

#[test]
fn header_entries_fill_their_record() {
    let entry = OwnedHeader {
        key: b"k".to_vec(),
        value: b"v".to_vec(),
        ..OwnedHeader::default()
    };
    let bytes = bytes_of(&[OwnedRecord {
        headers: vec![entry],
        ..record(b"")
    }]);
    // Header ends 8 bytes, then the entry: kinds, key length at 10, value length at 12.
    for (at, value) in [(10, 2), (10, 0), (12, 2), (12, 0), (15, 255)] {
        assert_column(
            &read_with(bytes.clone(), put_payload(at, &[value])),
            "header",
            "fill",
        );
    }
}

#[test]
fn subjects_and_replies_are_utf8_each() {
    let with_subject = |subject: &str| OwnedRecord {
        subject: Some(subject.to_owned()),
        ..record(b"")
    };
    let bytes = bytes_of(&[with_subject("aé"), with_subject("b")]);
    // Entries u32, ends u32[3]; index u16[2] at 16; then `aéb`.
    let blob = 20;
    assert_column(
        &read_with(bytes.clone(), put_payload(blob, &[0xff])),
        "subject",
        "UTF-8",
    );
    assert_column(
        &read_with(bytes.clone(), put_payload(8, &[2])),
        "subject",
        "UTF-8",
    );
    assert_column(
        &read_with(bytes.clone(), put_payload(18, &[2])),
        "subject",
        "number of entries",
    );
    assert_column(
        &read_with(bytes.clone(), put_payload(0, &[0])),
        "subject",
        "1 to 65535",
    );
    assert_column(
        &read_with(bytes, put_payload(2, &[1])),
        "subject",
        "1 to 65535",
    );
    let bytes = bytes_of(&[OwnedRecord {
        reply: Some("é".to_owned()),
        ..record(b"")
    }]);
    assert_column(&read_with(bytes, put_payload(9, &[0x41])), "reply", "UTF-8");
}
