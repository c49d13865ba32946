//! What v1b (servers 0.5 to 0.8) has instead of v1's messages: a head before each, and where each ends before all of them.
//!
//! A send: `metadata_len u32` (up to and including the count), place, `count u32`; then `count` × index (offset u32, end u32,
//! timestamp u64: 16 bytes); then messages. A message: head, payload, headers. Its head: checksum u64, id u128, offset u64,
//! timestamp u64, origin time u64, bytes of headers u32, bytes of payload u32, and in the longer one 8 reserved bytes.
use super::Malformed;
use super::reader::Reader;
use bytes::{BufMut, BytesMut};
use xxhash_rust::xxh3::xxh3_64;

#[cfg(test)]
mod tests;

const INDEX_BYTES: usize = 16;
/// Of a head, without the reserved ones.
const HEAD_BYTES: usize = 56;
const CHECKSUM_BYTES: usize = 8;

/// The part of a send before its indexes.
pub(super) fn metadata<'a>(from: &mut Reader<'a>) -> Result<Reader<'a>, Malformed> {
    let bytes = from.u32("the length of the metadata")?;
    let metadata = from.take(bytes as usize, "the metadata")?;
    Ok(Reader::new(metadata, from.generation()))
}

/// Where each message ends, counted from the first.
#[derive(Debug)]
pub(super) struct Ends<'a> {
    indexes: Reader<'a>,
    reached: usize,
}
impl<'a> Ends<'a> {
    /// The count that ends `place`, then as many indexes of `from`.
    pub(super) fn read(place: &mut Reader<'a>, from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let count = place.u32("the number of messages")?;
        place.finish()?;
        let bytes = (count as usize).saturating_mul(INDEX_BYTES);
        let indexes = Reader::new(from.take(bytes, "the indexes")?, from.generation());
        Ok(Self {
            indexes,
            reached: 0,
        })
    }

    /// The next message has so many bytes.
    pub(super) fn check(&mut self, bytes: usize) -> Result<(), Malformed> {
        const FIELD: &str = "the end of a message";
        self.indexes.u32("the index of a message")?;
        let end = self.indexes.u32(FIELD)?;
        self.indexes.u64("the index of a message")?;
        self.reached += bytes;
        if end as usize == self.reached {
            return Ok(());
        }
        Err(Malformed::Unknown {
            field: FIELD,
            value: end,
        })
    }

    /// There are as many messages as indexes.
    pub(super) fn finish(self) -> Result<(), Malformed> {
        self.indexes.finish()
    }
}

/// The head of a message that was sent; what the server fills is passed over.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) id: u128,
    pub(super) origin_us: Option<u64>,
    pub(super) header_bytes: usize,
    /// At least 1.
    pub(super) payload_bytes: usize,
}
impl Head {
    /// `head_bytes`: 56 or 64.
    pub(super) fn read(from: &mut Reader<'_>, head_bytes: usize) -> Result<Self, Malformed> {
        from.u64("a message's checksum")?;
        let id = from.u128("a message's id")?;
        from.u64("a message's offset")?;
        from.u64("a message's timestamp")?;
        let origin = from.u64("a message's origin timestamp")?;
        let header_bytes = from.u32("the length of a message's headers")? as usize;
        let payload_bytes = from.u32("the length of a message's payload")? as usize;
        from.take(head_bytes - HEAD_BYTES, "the reserved bytes of a message")?;
        if payload_bytes == 0 {
            return Err(Malformed::Unknown {
                field: "the length of a message's payload",
                value: 0,
            });
        }
        Ok(Self {
            id,
            origin_us: (origin > 0).then_some(origin),
            header_bytes,
            payload_bytes,
        })
    }
}

/// What the head of a polled message shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) id: u128,
    pub(super) offset: u64,
    pub(super) timestamp_us: u64,
    pub(super) origin_us: u64,
    pub(super) header_bytes: u32,
    pub(super) payload_bytes: u32,
}

/// Begins a polled message with a head of 56 or 64 bytes; returns where it begins.
pub(super) fn begin(out: &mut BytesMut, head_bytes: usize, shown: Shown) -> usize {
    let begin = out.len();
    out.put_u64_le(0);
    out.put_u128_le(shown.id);
    out.put_u64_le(shown.offset);
    out.put_u64_le(shown.timestamp_us);
    out.put_u64_le(shown.origin_us);
    out.put_u32_le(shown.header_bytes);
    out.put_u32_le(shown.payload_bytes);
    out.put_bytes(0, head_bytes - HEAD_BYTES);
    begin
}

/// Ends the message that began at `begin` with its checksum: XXH3-64 of all that follows the checksum.
pub(super) fn end(out: &mut BytesMut, begin: usize) {
    let (checksum, rest) = out[begin..].split_at_mut(CHECKSUM_BYTES);
    checksum.copy_from_slice(&xxh3_64(rest).to_le_bytes());
}
