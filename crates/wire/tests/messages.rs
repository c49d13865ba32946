//! The messages that Rust reads or writes agree with `specs/proto/liftbridge.proto`, field by field. All messages of the
//! definition are compared with the same vectors in `tests/unit/protocols/test_messages.py`.
use bascule_wire::liftbridge::messages;
use prost::Message;
use std::collections::BTreeMap;
use std::fmt::Debug;

const VECTORS: &str = include_str!("../../../specs/vectors/wire/messages.hex");
const DEFINITION: &str = include_str!("../../../specs/proto/liftbridge.proto");

/// Bytes by name; `Message.field` names a vector with one `bool` set.
fn vectors() -> BTreeMap<&'static str, Vec<u8>> {
    let lines = VECTORS.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, hex) = line.split_once(' ').unwrap_or((line, ""));
            let digits: Vec<u8> = hex
                .chars()
                .filter_map(|digit| digit.to_digit(16))
                .map(|digit| digit as u8)
                .collect();
            (
                name,
                digits
                    .chunks_exact(2)
                    .map(|pair| pair[0] << 4 | pair[1])
                    .collect(),
            )
        })
        .collect()
}

/// Decodes, encodes again, and checks that each field holds what its name says.
fn check<M: Message + Default + Debug>(name: &str, bytes: &[u8]) -> M {
    let message = M::decode(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(
        message.encode_to_vec(),
        bytes,
        "{name} lost something: {message:?}"
    );
    if !name.contains('.') {
        check_names(name, &format!("{message:?}"));
    }
    message
}

/// Reads `name: value` pairs out of a debug text.
fn check_names(message: &str, debug: &str) {
    let mut field = String::new();
    for part in debug.split([',', '{', '}', '(', ')', '[', ']']) {
        let value = match part.rsplit_once(':') {
            Some((name, value)) => {
                field = name.trim().replace('_', "");
                value.trim()
            }
            None => part.trim(),
        };
        let text = value.trim_start_matches('b');
        if text.len() > 2 && text.starts_with('"') {
            assert_eq!(
                text.trim_matches('"').to_lowercase(),
                field,
                "{message}: {debug}"
            );
        } else if let (Ok(number), false) = (value.parse::<u64>(), field.starts_with('"')) {
            assert_eq!(
                number,
                field.bytes().map(u64::from).sum::<u64>(),
                "{message}.{field}: {debug}"
            );
        }
    }
}

macro_rules! check_all {
    ($vectors:expr, $($message:ident)*) => {{
        let mut checked = Vec::new();
        $(
            for (name, bytes) in &$vectors {
                let mut parts = name.split('.');
                if parts.next() == Some(stringify!($message)) {
                    let message = check::<messages::$message>(name, bytes);
                    if let Some(field) = parts.next() {
                        let debug = format!("{message:?}").replace('_', "").to_lowercase();
                        assert!(debug.contains(&format!("{}: true", field.to_lowercase())), "{name}: {debug}");
                        assert_eq!(debug.matches("true").count(), 1);
                    }
                    checked.push(*name);
                }
            }
        )*
        checked
    }};
}

#[test]
fn every_field_has_the_number_and_type_of_the_definition() {
    let vectors = vectors();
    let checked = check_all!(
        vectors,
        Ack Consumer FetchCursorRequest FetchCursorResponse Header Message PublishAsyncError PublishRequest PublishResponse
        PublishToSubjectRequest PublishToSubjectResponse SetCursorRequest SetCursorResponse SubscribeRequest
    );
    assert_eq!(
        checked.iter().filter(|name| !name.contains('.')).count(),
        14
    );
}

#[test]
fn messages_have_the_bytes_counted_by_hand() {
    let request = messages::SetCursorRequest {
        consumer: None,
        stream: "s".into(),
        partition: 3,
        cursor_id: "c".into(),
        offset: -1,
        incarnation: 0,
    };
    assert_eq!(
        request.encode_to_vec(),
        b"\x0a\x01s\x10\x03\x1a\x01c\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    );
    let request = messages::SubscribeRequest {
        start_position: messages::StartPosition::Earliest.into(),
        ..Default::default()
    };
    assert_eq!(request.encode_to_vec(), b"\x18\x02");
    assert_eq!(messages::Message::default().encode_to_vec(), b"");
}

/// Names and numbers of the values of an enum, as the definition has them.
fn defined_values(name: &str) -> Vec<(String, i32)> {
    let mut lines = DEFINITION
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != format!("enum {name} {{"));
    lines.next();
    let body = lines
        .take_while(|line| *line != "}")
        .filter(|line| !line.starts_with("//"));
    body.filter_map(|line| line.trim_end_matches(';').split_once(" = "))
        .map(|(value, number)| (value.to_owned(), number.parse().unwrap_or(-1)))
        .collect()
}

#[test]
fn enums_have_the_numbers_of_the_definition() {
    macro_rules! values {
        ($kind:ident) => {
            (0..=20)
                .filter_map(|number| messages::$kind::try_from(number).ok())
                .map(|value| (format!("{value:?}"), value as i32))
                .collect::<Vec<_>>()
        };
    }
    let screaming = |values: Vec<(String, i32)>| -> Vec<(String, i32)> {
        values
            .into_iter()
            .map(|(name, number)| (name.replace('_', "").to_uppercase(), number))
            .collect()
    };
    for (name, values) in [
        ("StartPosition", values!(StartPosition)),
        ("StopPosition", values!(StopPosition)),
        ("AckPolicy", values!(AckPolicy)),
        ("Code", values!(PublishAsyncErrorCode)),
    ] {
        assert!(!values.is_empty());
        assert_eq!(screaming(values), screaming(defined_values(name)), "{name}");
    }
    assert_eq!(messages::AckError::TooLarge as i32, 3);
    assert_eq!(messages::AckError::Encryption as i32, 4);
}
