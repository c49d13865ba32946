//! What arrives from Iggy's clients: heads of frames and the commands that move records.
use bascule_wire::iggy::v1::{
    DeleteOffset, Flush, GetOffset, Group, Login, MAX_HEADER_VALUE_BYTES, Poll, Send, StoreOffset,
    Topic,
};
use bascule_wire::iggy::v2::{
    Credentials, Operation, Register, RequestHeader, SYNC_GROUP, write_reply,
};
use bascule_wire::iggy::{Generation, MAX_REQUEST_BYTES, RequestHead};

/// A frame of v1: its head, and the rest as the payload of the command it names.
pub(crate) fn v1(data: &[u8]) {
    frame(data, Generation::V1);
}

/// The generation as one byte, then a frame of it.
pub(crate) fn v1b(data: &[u8]) {
    let Some((generation, data)) = data.split_first() else {
        return;
    };
    let short = Generation::ALL
        .iter()
        .filter(|generation| **generation != Generation::V2);
    let all: Vec<_> = short.collect();
    if let Some(generation) = all.get(usize::from(*generation) % all.len()) {
        frame(data, **generation);
    }
}

/// A frame of v2: its header, and the rest as the body of the operation it names.
pub(crate) fn v2(data: &[u8]) {
    let Some((header, body)) = data.split_first_chunk() else {
        return;
    };
    let Ok(header) = RequestHeader::read(header, MAX_REQUEST_BYTES) else {
        return;
    };
    assert!(header.body_bytes <= MAX_REQUEST_BYTES && header.client > 0);
    let reply = write_reply(&header, 0, 0);
    assert_eq!(
        reply[200..209],
        [&header.request.to_le_bytes()[..], &[header.operation]].concat()
    );
    match Operation::of(header.operation, header.code) {
        Some(Operation::Register) => register(body),
        Some(Operation::Read(code) | Operation::Change(code)) => {
            command(code, body, Generation::V2);
        }
        Some(Operation::Logout) | None => {}
    }
}

/// What was read is what the body has, but for the context.
fn register(body: &[u8]) {
    let Ok(register) = Register::read(body) else {
        return;
    };
    let (name, version) = register.sdk;
    let credentials = match register.credentials {
        Credentials::Password { name, password } => {
            assert!(!password.is_empty());
            2 + name.len() + password.len()
        }
        Credentials::Token(token) => 1 + token.len(),
    };
    assert!(6 + name.len() + version.len() + credentials <= body.len());
}

fn frame(data: &[u8], generation: Generation) {
    let Some((head, payload)) = data.split_first_chunk() else {
        return;
    };
    let Ok(head) = RequestHead::read(*head, MAX_REQUEST_BYTES) else {
        return;
    };
    assert!(head.payload_bytes <= MAX_REQUEST_BYTES);
    command(head.code, payload, generation);
}

fn command(code: u32, payload: &[u8], generation: Generation) {
    match code {
        Group::GET | Group::JOIN | Group::LEAVE | SYNC_GROUP => {
            let _ = Group::read(payload, generation);
        }
        Topic::LIST => {
            let _ = Topic::read(payload, generation);
        }
        Login::CODE => {
            let _ = Login::read(payload);
        }
        Poll::CODE => {
            let _ = Poll::read(payload, generation);
        }
        Send::CODE => send(payload, generation),
        Flush::CODE => {
            let _ = Flush::read(payload, generation);
        }
        GetOffset::CODE => {
            let _ = GetOffset::read(payload, generation);
        }
        StoreOffset::CODE => {
            let _ = StoreOffset::read(payload, generation);
        }
        DeleteOffset::CODE => {
            let _ = DeleteOffset::read(payload, generation);
        }
        _ => {}
    }
}

/// What was counted when the send was checked is what its messages have, and all of it lies in the payload.
fn send(payload: &[u8], generation: Generation) {
    let Ok(send) = Send::read(payload, generation) else {
        return;
    };
    let (mut messages, mut payloads, mut values) = (0, 0, 0);
    for message in send.messages.iter() {
        assert!(!message.payload.is_empty());
        messages += 1;
        payloads += message.payload.len();
        for header in message.headers() {
            assert!((1..=255).contains(&header.key.len()));
            assert!((1..=255).contains(&header.value.len()));
            values += header.value.len();
        }
    }
    assert!(messages > 0);
    assert_eq!(messages, send.messages.count());
    assert_eq!(payloads, send.messages.payload_bytes());
    assert!(payloads <= generation.max_payload_bytes() && values <= MAX_HEADER_VALUE_BYTES);
    assert!(messages * 24 + payloads + values <= payload.len());
}
