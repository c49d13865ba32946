use super::*;
use crate::liftbridge::acks::{AckFields, AckTemplate};

/// Reads a vector: hex digits, blanks ignored, `#` begins a comment.
fn vector(text: &str) -> Bytes {
    let digits: Vec<u8> = text
        .lines()
        .flat_map(|line| line.split('#').next().unwrap_or_default().chars())
        .filter_map(|digit| digit.to_digit(16).map(|value| value as u8))
        .collect();
    digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn publish() -> Bytes {
    vector(include_str!("../../../specs/vectors/wire/publish.hex"))
}

fn publish_checked() -> Bytes {
    vector(include_str!(
        "../../../specs/vectors/wire/publish_checksum.hex"
    ))
}

/// `bytes` with one byte set.
fn with(bytes: &Bytes, at: usize, value: u8) -> Bytes {
    let mut changed = bytes.to_vec();
    changed[at] = value;
    changed.into()
}

fn expected_fields() -> Recognised {
    Recognised::Publish(EnvelopedPublish {
        key: Bytes::from_static(b"k"),
        value: Some(Bytes::from_static(b"hello")),
        headers: Vec::new(),
        ack_inbox: Bytes::from_static(b"ack"),
        correlation_id: Bytes::from_static(b"c1"),
        ack_policy: 1,
        expected_offset: -1,
    })
}

#[test]
fn the_published_vectors_are_recognised() {
    assert_eq!(publish().len(), 40);
    assert_eq!(recognise(&publish()), expected_fields());
    assert_eq!(recognise(&publish_checked()), expected_fields());
}

#[test]
fn the_checksum_is_castagnoli() {
    assert_eq!(crc32c::crc32c(b"123456789"), 0xE306_9283);
}

#[test]
fn put_writes_the_published_vectors() {
    for (kind, checksum, bytes) in [
        (MessageType::Publish, false, publish()),
        (MessageType::Publish, true, publish_checked()),
        (
            MessageType::Ack,
            false,
            vector(include_str!("../../../specs/vectors/wire/ack.hex")),
        ),
    ] {
        let payload = open(&bytes, kind).unwrap_or_else(|error| panic!("{error}"));
        let mut out = Vec::new();
        put(&mut out, kind, &payload, checksum);
        assert_eq!(out, bytes);
    }
}

#[test]
fn an_ack_template_writes_the_published_vector() {
    let fields = AckFields {
        offset: 7,
        ack_inbox: b"ack",
        correlation_id: b"c1",
        ack_policy: 1,
        ..AckFields::default()
    };
    let mut out = Vec::new();
    AckTemplate::new("foo-stream", "foo", "foo.1").put_envelope(&mut out, &fields);
    assert_eq!(
        out,
        vector(include_str!("../../../specs/vectors/wire/ack.hex"))
    );
}

#[test]
fn every_type_opens_as_itself_and_as_no_other() {
    for (number, kind) in (0u8..).zip(MessageType::ALL) {
        assert_eq!(kind as u8, number);
        assert_eq!(MessageType::from_number(number), Some(kind));
        for checksum in [false, true] {
            let mut out = Vec::new();
            put(&mut out, kind, b"payload", checksum);
            let out = Bytes::from(out);
            for other in MessageType::ALL {
                let opened = open(&out, other);
                if other == kind {
                    assert_eq!(opened.as_deref(), Ok(&b"payload"[..]));
                } else {
                    assert_eq!(
                        opened,
                        Err(EnvelopeError::Type {
                            found: number,
                            expected: other as u8
                        })
                    );
                }
            }
        }
    }
    assert_eq!(MessageType::from_number(15), None);
}

#[test]
fn each_test_fails_in_its_order() {
    let good = publish_checked();
    let open = |bytes: &Bytes| open(bytes, MessageType::Publish);
    for short in 0..8 {
        assert_eq!(open(&good.slice(..short)), Err(EnvelopeError::Short(short)));
    }
    // Everything wrong at once: the first test names the failure, then the next once that is fixed.
    let mut bad = Bytes::from_static(&[0, 0x0E, 0x43, 0xB4, 9, 200, 1, 77, 0, 0, 0, 0]);
    assert_eq!(open(&bad), Err(EnvelopeError::Magic));
    bad = with(&bad, 0, 0xB9);
    assert_eq!(open(&bad), Err(EnvelopeError::Version(9)));
    bad = with(&bad, 4, 0);
    assert_eq!(
        open(&bad),
        Err(EnvelopeError::HeaderLength {
            header: 200,
            bytes: 12
        })
    );
    bad = with(&bad, 5, 8);
    assert_eq!(
        open(&bad),
        Err(EnvelopeError::Type {
            found: 77,
            expected: 0
        })
    );
    bad = with(&bad, 7, 0);
    assert_eq!(
        open(&bad),
        Err(EnvelopeError::HeaderLength {
            header: 8,
            bytes: 12
        })
    );
    bad = with(&bad, 5, 12);
    assert_eq!(open(&bad).as_deref(), Ok(&[][..]));
    bad = with(&bad, 11, 1);
    assert_eq!(
        open(&bad),
        Err(EnvelopeError::Checksum {
            stored: 1,
            computed: 0
        })
    );
}

#[test]
fn a_header_length_out_of_range_is_plain() {
    for length in (0..8).chain(41..=255) {
        assert_eq!(
            recognise(&with(&publish(), 5, length)),
            Recognised::Plain,
            "{length}"
        );
    }
}

#[test]
fn a_header_that_would_read_as_payload_is_plain() {
    // From byte 6 on these flags and this type are a valid message: field 1, value 0.
    let mut overlapping = MAGIC.to_vec();
    overlapping.extend_from_slice(&[0, 6, 0x08, 0]);
    assert_eq!(recognise(&overlapping.clone().into()), Recognised::Plain);
    overlapping[5] = 8;
    assert!(matches!(
        recognise(&overlapping.into()),
        Recognised::Publish(_)
    ));
}

#[test]
fn padding_without_checksum_is_skipped() {
    let mut padded = publish().to_vec();
    padded.splice(8..8, [1, 2, 3, 4]);
    padded[5] = 12;
    assert_eq!(recognise(&padded.into()), expected_fields());
}

#[test]
fn an_empty_payload_is_a_publish() {
    let empty = publish().slice(..8);
    assert_eq!(
        recognise(&empty),
        Recognised::Publish(EnvelopedPublish {
            value: Some(Bytes::new()),
            ..EnvelopedPublish::default()
        })
    );
}

#[test]
fn reserved_flags_are_ignored() {
    assert_eq!(recognise(&with(&publish(), 6, 0xFE)), expected_fields());
}

#[test]
fn a_checksum_flag_needs_a_header_of_twelve() {
    assert_eq!(recognise(&with(&publish(), 6, 1)), Recognised::Plain);
    assert_eq!(
        recognise(&with(&publish_checked(), 5, 13)),
        Recognised::Plain
    );
    assert_eq!(recognise(&publish_checked().slice(..10)), Recognised::Plain);
}

#[test]
fn a_changed_payload_is_plain_where_there_is_a_checksum() {
    let good = publish_checked();
    for at in 8..good.len() {
        assert_eq!(
            recognise(&with(&good, at, good[at] ^ 0x20)),
            Recognised::Plain,
            "byte {at}"
        );
    }
}

#[test]
fn an_ack_on_a_stream_subject_is_plain() {
    assert_eq!(
        recognise(&vector(include_str!("../../../specs/vectors/wire/ack.hex"))),
        Recognised::Plain
    );
}

#[test]
fn text_that_is_not_utf8_and_a_cut_payload_are_plain() {
    let envelope = |payload: &[u8]| {
        let mut out = Vec::new();
        put(&mut out, MessageType::Publish, payload, false);
        recognise(&out.into())
    };
    assert_eq!(envelope(b"\x52\x01\xff"), Recognised::Plain); // ackInbox
    assert_eq!(envelope(b"\x5a\x01\xff"), Recognised::Plain); // correlationId
    assert_eq!(envelope(b"\x4a\x03\x0a\x01\xff"), Recognised::Plain); // header name
    assert!(matches!(
        envelope(b"\x4a\x03\x12\x01\xff"),
        Recognised::Publish(_)
    )); // header value: bytes
    assert!(matches!(envelope(b"\x12\x01\xff"), Recognised::Publish(_))); // key: bytes
    assert_eq!(envelope(b"\x12\x02\xff"), Recognised::Plain);
    assert!(matches!(envelope(b"\xf8\x07\x01"), Recognised::Publish(_))); // unknown field 127
}
