//! JSON of the reply to a poll.
use super::payload::layout;
use super::sending::KINDS;
use super::showing::Fields;
use bascule_wire::iggy::{Generation, Status};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Polled {
    partition_id: u32,
    current_offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    messages: Vec<Message>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Message {
    /// Of v1.
    Flat {
        offset: u64,
        state: &'static str,
        timestamp: u64,
        id: u128,
        checksum: u32,
        headers: Option<BTreeMap<String, Typed>>,
        payload: String,
    },
    Headed {
        header: Head,
        payload: String,
        user_headers: Option<Headers>,
    },
}

#[derive(Serialize)]
struct Head {
    checksum: u64,
    id: u128,
    offset: u64,
    timestamp: u64,
    origin_timestamp: u64,
    user_headers_length: u32,
    payload_length: u32,
    reserved: u64,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Headers {
    Map(BTreeMap<String, Typed>),
    List(Vec<Header>),
}

#[derive(Serialize)]
struct Header {
    key: Typed,
    value: Typed,
}

#[derive(Serialize)]
struct Typed {
    kind: &'static str,
    value: String,
}

/// The JSON of a reply without its head.
///
/// # Errors
/// 1: the reply is not one.
pub(super) fn json(reply: &[u8], generation: Generation) -> Result<Vec<u8>, Status> {
    let layout = layout(generation);
    let polled = read(Fields(reply), layout).ok_or(Status::Error)?;
    serde_json::to_vec(&polled).map_err(|_| Status::Error)
}

fn read(mut from: Fields<'_>, layout: Generation) -> Option<Polled> {
    let (partition_id, current_offset, count) = (from.u32()?, from.u64()?, from.u32()?);
    let mut messages = Vec::new();
    while !from.0.is_empty() {
        messages.push(match layout.message_head_bytes() {
            Some(head_bytes) => headed(&mut from, layout, head_bytes)?,
            None => flat(&mut from)?,
        });
    }
    Some(Polled {
        partition_id,
        current_offset,
        count: (layout != Generation::V1).then_some(count),
        messages,
    })
}

fn flat(from: &mut Fields<'_>) -> Option<Message> {
    let (offset, _, timestamp) = (from.u64()?, from.take(1)?, from.u64()?);
    let (id, checksum, bytes) = (from.u128()?, from.u32()?, from.u32()?);
    let headers = map(from.take(bytes as usize)?)?;
    let bytes = from.u32()?;
    Some(Message::Flat {
        offset,
        state: "available",
        timestamp,
        id,
        checksum,
        headers: (!headers.is_empty()).then_some(headers),
        payload: STANDARD.encode(from.take(bytes as usize)?),
    })
}

fn headed(from: &mut Fields<'_>, layout: Generation, head_bytes: usize) -> Option<Message> {
    let before = from.0.len();
    let header = Head {
        checksum: from.u64()?,
        id: from.u128()?,
        offset: from.u64()?,
        timestamp: from.u64()?,
        origin_timestamp: from.u64()?,
        user_headers_length: from.u32()?,
        payload_length: from.u32()?,
        reserved: 0,
    };
    from.take(head_bytes.checked_sub(before - from.0.len())?)?;
    let payload = STANDARD.encode(from.take(header.payload_length as usize)?);
    let block = from.take(header.user_headers_length as usize)?;
    let user_headers = match (block.is_empty(), layout.has_typed_keys()) {
        (true, _) => None,
        (false, true) => Some(Headers::List(list(block)?)),
        (false, false) => Some(Headers::Map(map(block)?)),
    };
    Some(Message::Headed {
        header,
        payload,
        user_headers,
    })
}

fn list(block: &[u8]) -> Option<Vec<Header>> {
    let (mut from, mut found) = (Fields(block), Vec::new());
    while !from.0.is_empty() {
        found.push(Header {
            key: typed(&mut from)?,
            value: typed(&mut from)?,
        });
    }
    Some(found)
}

/// Of a layout whose keys are texts.
fn map(block: &[u8]) -> Option<BTreeMap<String, Typed>> {
    let (mut from, mut found) = (Fields(block), BTreeMap::new());
    while !from.0.is_empty() {
        let bytes = from.u32()?;
        let key = std::str::from_utf8(from.take(bytes as usize)?).ok()?;
        found.insert(key.to_owned(), typed(&mut from)?);
    }
    Some(found)
}

fn typed(from: &mut Fields<'_>) -> Option<Typed> {
    let kind = usize::from(*from.take(1)?.first()?);
    let bytes = from.u32()?;
    Some(Typed {
        kind: KINDS.get(kind.checked_sub(1)?)?,
        value: STANDARD.encode(from.take(bytes as usize)?),
    })
}
