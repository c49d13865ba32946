//! The payload of `SEND_MESSAGES` out of the JSON of a request.
use super::payload::Payload;
use super::problem::Problem;
use bascule_wire::iggy::Generation;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Names of the kinds of keys and values, the first is 1.
pub(super) const KINDS: [&str; 15] = [
    "raw", "string", "bool", "int8", "int16", "int32", "int64", "int128", "uint8", "uint16",
    "uint32", "uint64", "uint128", "float32", "float64",
];
/// The kind of a text, which the keys of older clients are.
const TEXT_KIND: u8 = 2;
/// `InvalidHeaderKey`.
const INVALID_HEADER_KEY: u32 = 4018;

#[derive(Deserialize)]
struct Body {
    partitioning: Partitioning,
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Partitioning {
    kind: PartitioningKind,
    #[serde(default)]
    value: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PartitioningKind {
    Balanced,
    PartitionId,
    MessagesKey,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    id: u128,
    payload: String,
    #[serde(default, alias = "headers")]
    user_headers: Option<Headers>,
}

/// Earlier clients have a map, later ones a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Headers {
    List(Vec<Header>),
    Map(BTreeMap<String, Typed>),
}

#[derive(Deserialize)]
struct Header {
    key: Typed,
    value: Typed,
}

#[derive(Deserialize)]
struct Typed {
    kind: String,
    value: String,
}

/// The payload.
///
/// # Errors
/// 400, 422: the body is not the JSON of a send; 4018 for a key that is not a text, of a client whose keys are.
pub(super) fn payload(
    stream: &str,
    topic: &str,
    generation: Generation,
    body: &[u8],
) -> Result<Bytes, Problem> {
    let body: Body = serde_json::from_slice(body)?;
    let mut place = Payload::new(generation);
    place.identifier(stream)?;
    place.identifier(topic)?;
    partitioning(&mut place.out, &body.partitioning)?;
    let (layout, mut messages, mut ends) = (place.layout, BytesMut::new(), Vec::new());
    for message in &body.messages {
        put(&mut messages, message, layout)?;
        ends.push(messages.len());
    }
    if layout.message_head_bytes().is_none() {
        place.out.unsplit(messages);
        return Ok(place.out.freeze());
    }
    let count = u32::try_from(ends.len()).unwrap_or(u32::MAX);
    place.out.put_u32_le(count);
    let mut out = BytesMut::with_capacity(place.out.len() + messages.len() + 16 * ends.len() + 4);
    out.put_u32_le(u32::try_from(place.out.len()).unwrap_or(u32::MAX));
    out.put_slice(&place.out);
    for end in ends {
        out.put_u32_le(0);
        out.put_u32_le(u32::try_from(end).unwrap_or(u32::MAX));
        out.put_u64_le(0);
    }
    out.unsplit(messages);
    Ok(out.freeze())
}

fn partitioning(out: &mut BytesMut, partitioning: &Partitioning) -> Result<(), Problem> {
    let value = decoded("the value of the partitioning", &partitioning.value)?;
    let (kind, value) = match partitioning.kind {
        PartitioningKind::Balanced => (1, Vec::new()),
        PartitioningKind::PartitionId => (2, value),
        PartitioningKind::MessagesKey => (3, value),
    };
    let length = u8::try_from(value.len());
    let length = length.map_err(|_| Problem::of_iggy(4028, None))?;
    out.put_slice(&[kind, length]);
    out.put_slice(&value);
    Ok(())
}

fn put(out: &mut BytesMut, message: &Message, layout: Generation) -> Result<(), Problem> {
    let payload = decoded("the payload of a message", &message.payload)?;
    let headers = headers(message.user_headers.as_ref(), layout)?;
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let Some(head_bytes) = layout.message_head_bytes() else {
        out.put_u128_le(message.id);
        out.put_u32_le(length(&headers));
        out.put_slice(&headers);
        out.put_u32_le(length(&payload));
        out.put_slice(&payload);
        return Ok(());
    };
    let begin = out.len();
    out.put_u64_le(0);
    out.put_u128_le(message.id);
    // Offset, time of receipt and time at the origin.
    out.put_bytes(0, 24);
    out.put_u32_le(length(&headers));
    out.put_u32_le(length(&payload));
    out.put_bytes(0, head_bytes - (out.len() - begin));
    out.put_slice(&payload);
    out.put_slice(&headers);
    Ok(())
}

fn headers(headers: Option<&Headers>, layout: Generation) -> Result<BytesMut, Problem> {
    let mut out = BytesMut::new();
    match headers {
        None => {}
        Some(Headers::Map(map)) => {
            for (key, value) in map {
                header(&mut out, layout, (TEXT_KIND, key.as_bytes()), value)?;
            }
        }
        Some(Headers::List(list)) => {
            for Header { key, value } in list {
                let bytes = decoded("the key of a header", &key.value)?;
                header(&mut out, layout, (kind(&key.kind)?, &bytes), value)?;
            }
        }
    }
    Ok(out)
}

fn header(
    out: &mut BytesMut,
    layout: Generation,
    (key_kind, key): (u8, &[u8]),
    value: &Typed,
) -> Result<(), Problem> {
    if layout.has_typed_keys() {
        out.put_u8(key_kind);
    } else if key_kind != TEXT_KIND {
        return Err(Problem::of_iggy(INVALID_HEADER_KEY, None));
    }
    let bytes = decoded("the value of a header", &value.value)?;
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.put_u32_le(length(key));
    out.put_slice(key);
    out.put_u8(kind(&value.kind)?);
    out.put_u32_le(length(&bytes));
    out.put_slice(&bytes);
    Ok(())
}

fn kind(name: &str) -> Result<u8, Problem> {
    let at = KINDS.iter().position(|known| *known == name);
    at.and_then(|at| u8::try_from(at + 1).ok()).ok_or_else(|| {
        let shown: String = name.chars().take(40).collect();
        Problem::malformed(format!(
            "{shown:?} is not a kind of a header: give one of {}",
            KINDS.join(", ")
        ))
    })
}

fn decoded(what: &str, text: &str) -> Result<Vec<u8>, Problem> {
    let decoded = STANDARD.decode(text);
    decoded.map_err(|error| Problem::malformed(format!("{what} is not valid base64: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bascule_wire::iggy::v1::{Partitioning, Send};
    use http::StatusCode;

    /// As the published client was recorded to send it.
    const RECORDED: &str = r#"{"partitioning":{"kind":"messages_key","value":"a2V5"},"messages":[{"id":0,"payload":"aGVsbG8=",
        "user_headers":[{"key":{"kind":"string","value":"aw=="},"value":{"kind":"int32","value":"BwAAAA=="}}]}]}"#;

    #[test]
    fn a_send_is_that_of_the_binary_protocol_in_every_generation() {
        for generation in Generation::ALL {
            let payload = payload("s", "7", generation, RECORDED.as_bytes()).unwrap();
            let send = Send::read(&payload, super::super::payload::layout(generation)).unwrap();
            assert_eq!(send.partitioning, Partitioning::Key(b"key"));
            let message = send.messages.iter().next().unwrap();
            assert_eq!((message.id, message.payload), (0, &b"hello"[..]));
            let header = message.headers().next().unwrap();
            let fields = (header.key_kind, header.key, header.value_kind, header.value);
            assert_eq!(fields, (2, &b"k"[..], 6, &[7, 0, 0, 0][..]));
        }
    }

    #[test]
    fn ids_of_128_bits_and_headers_as_a_map_are_taken() {
        let body = br#"{"partitioning":{"kind":"balanced","value":""},"messages":[{"id":340282366920938463463374607431768211455,
            "payload":"aA==","headers":{"k":{"kind":"raw","value":"AA=="}}}]}"#;
        for generation in Generation::ALL {
            let payload = payload("s", "t", generation, body).unwrap();
            let send = Send::read(&payload, super::super::payload::layout(generation)).unwrap();
            let message = send.messages.iter().next().unwrap();
            assert_eq!(message.id, u128::MAX);
            assert_eq!(message.headers().count(), 1);
        }
    }

    #[test]
    fn what_is_not_a_send_is_refused() {
        let typed = RECORDED.replace("\"string\"", "\"int32\"");
        let cases = [
            ("{", StatusCode::BAD_REQUEST),
            ("{}", StatusCode::UNPROCESSABLE_ENTITY),
            (
                r#"{"partitioning":{"kind":"x"},"messages":[]}"#,
                StatusCode::UNPROCESSABLE_ENTITY,
            ),
            (
                r#"{"partitioning":{"kind":"balanced"},"messages":[{"payload":"!"}]}"#,
                StatusCode::BAD_REQUEST,
            ),
            (
                r#"{"partitioning":{"kind":"balanced"},"messages":[{"id":-1,"payload":"aA=="}]}"#,
                StatusCode::BAD_REQUEST,
            ),
            (typed.as_str(), StatusCode::BAD_REQUEST),
        ];
        for (body, status) in cases {
            let problem = payload("s", "t", Generation::V1, body.as_bytes()).unwrap_err();
            assert_eq!(problem.status, status, "{body}");
        }
        assert!(payload("s", "t", Generation::V2, typed.as_bytes()).is_ok());
    }
}
