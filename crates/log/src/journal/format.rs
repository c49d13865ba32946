//! The bytes of a journal file (`specs/formats/journal.md`).
//!
//! | Position | What |
//! |---|---|
//! | 0 | preamble, 64 bytes |
//! | 64 | frames, back to back; behind the last one zeros, or what an earlier use of the file left |
//!
//! Preamble: magic `BSCJ`, version u32 = 1, sequence number u64 (ascending over all uses of all files), zeros, CRC-32C of
//! bytes 0–59. Frame, 16 bytes and its content, whole batches of one log one after the other:
//!
//! | Offset | Type | Field |
//! |---|---|---|
//! | 0 | u32 | length of the content, bytes |
//! | 4 | u32 | kind = 1: batches |
//! | 8 | u32 | link: bytes 12–15 of the frame before; of the first, the preamble's checksum |
//! | 12 | u32 | CRC-32C of bytes 0–11 and of the first batch's header (the first 128 bytes of the content) |
use crate::fields::{seal, u32_at, u64_at, unseal};
use bascule_record::{HEADER_BYTES, Header};

/// Length of a file's preamble, bytes.
pub(crate) const PREAMBLE_BYTES: usize = 64;
/// Length of what stands before the batches, bytes.
pub(crate) const FRAME_BYTES: usize = 16;
/// Format written here, and the newest read.
pub(crate) const VERSION: u32 = 1;
const MAGIC: [u8; 4] = *b"BSCJ";
const BATCHES: u32 = 1;

/// The preamble of one use of a file, and the link of its first frame.
pub(crate) fn preamble(sequence: u64) -> (Vec<u8>, u32) {
    let mut out = Vec::with_capacity(PREAMBLE_BYTES);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    out.resize(PREAMBLE_BYTES - 4, 0);
    seal(&mut out);
    let link = u32_at(&out, PREAMBLE_BYTES - 4).unwrap_or_default();
    (out, link)
}

/// (version, sequence number, link) of a preamble; `None` when it does not check.
pub(crate) fn read_preamble(bytes: &[u8]) -> Option<(u32, u64, u32)> {
    let bytes = bytes.get(..PREAMBLE_BYTES)?;
    let body = unseal(bytes)?;
    (body.get(..4)? == MAGIC).then_some(())?;
    Some((
        u32_at(body, 4)?,
        u64_at(body, 8)?,
        u32_at(bytes, PREAMBLE_BYTES - 4)?,
    ))
}

/// Fills in the 16 bytes before `content`; returns the link of the next frame.
pub(crate) fn frame(out: &mut [u8], content: &[u8], link: u32) -> u32 {
    let mut head = Vec::with_capacity(FRAME_BYTES);
    head.extend_from_slice(&(content.len() as u32).to_le_bytes());
    head.extend_from_slice(&BATCHES.to_le_bytes());
    head.extend_from_slice(&link.to_le_bytes());
    let crc = checksum(&head, content);
    head.extend_from_slice(&crc.to_le_bytes());
    if let Some(out) = out.get_mut(..FRAME_BYTES) {
        out.copy_from_slice(&head);
    }
    crc
}

/// Length of the content that a frame announces, when the frame is the one that follows `link`.
pub(crate) fn announced(head: &[u8], link: u32) -> Option<usize> {
    let follows = u32_at(head, 4)? == BATCHES && u32_at(head, 8)? == link;
    let len = u32_at(head, 0)? as usize;
    (follows && len >= HEADER_BYTES).then_some(len)
}

/// What the frame behind this one names as its link.
pub(crate) fn next_link(head: &[u8]) -> u32 {
    u32_at(head, 12).unwrap_or_default()
}

/// The batches' headers, when frame and content are whole; every payload is checked.
pub(crate) fn check(head: &[u8], content: &[u8]) -> Option<Vec<Header>> {
    (checksum(head.get(..12)?, content) == next_link(head)).then_some(())?;
    let mut headers: Vec<Header> = Vec::new();
    let mut rest = content;
    while !rest.is_empty() {
        let header = Header::read(rest.get(..HEADER_BYTES)?).ok()?;
        let (batch, behind) = rest.split_at_checked(header.batch_bytes())?;
        let payload = batch.get(HEADER_BYTES..)?;
        let follows = headers.last().is_none_or(|last| {
            last.incarnation == header.incarnation
                && last.partition == header.partition
                && last.next_offset() == header.base_offset
                && last.link() == header.chain
        });
        (follows && crc32c::crc32c(payload) == header.payload_crc).then_some(())?;
        headers.push(header);
        rest = behind;
    }
    Some(headers)
}

fn checksum(head: &[u8], content: &[u8]) -> u32 {
    let header = content.get(..HEADER_BYTES).unwrap_or(content);
    crc32c::crc32c_append(crc32c::crc32c(head), header)
}
