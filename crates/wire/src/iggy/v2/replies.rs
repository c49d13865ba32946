//! Replies that only v2 has. As all replies they begin with [`REPLY_HEAD_BYTES`] bytes of a head.
use super::header::PROTOCOL;
use crate::iggy::Generation;
use crate::iggy::frame::{REPLY_HEAD_BYTES, framed};
use bytes::{BufMut, Bytes, BytesMut};

const GENERATION: Generation = Generation::V2;

/// The reply to a login. `user` from 1; `session` not 0; `version` of the server, at most 255 bytes.
pub fn register_reply(user: u32, session: u64, version: &str) -> Bytes {
    let version = &version.as_bytes()[..version.floor_char_boundary(usize::from(u8::MAX))];
    let mut out = begun();
    out.put_u32_le(GENERATION.show(user));
    out.put_u64_le(session);
    out.put_u32_le(PROTOCOL);
    out.put_u8(version.len() as u8);
    out.put_slice(version);
    framed(out)
}

/// The reply to a send: where its messages lie. Numbers from 1.
pub fn confirmation_reply(stream: u32, topic: u32, partition: u32, base_offset: u64) -> Bytes {
    let mut out = begun();
    out.put_u32_le(1);
    for number in [stream, topic, partition] {
        out.put_u32_le(GENERATION.show(number));
    }
    out.put_u64_le(base_offset);
    framed(out)
}

/// The reply to a member that asks for its partitions, from 1. `round` grows with every change of the group.
pub fn assignment_reply(round: u64, partitions: &[u32]) -> Bytes {
    let mut out = begun();
    out.put_u64_le(round);
    out.put_u32_le(u32::try_from(partitions.len()).unwrap_or(u32::MAX));
    for partition in partitions {
        out.put_u32_le(GENERATION.show(*partition));
    }
    framed(out)
}

fn begun() -> BytesMut {
    let mut out = BytesMut::with_capacity(64);
    out.put_bytes(0, REPLY_HEAD_BYTES);
    out
}
