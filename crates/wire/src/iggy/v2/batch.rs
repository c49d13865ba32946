//! Batches of messages: a header of 256 bytes, then frames. A frame: 48 bytes of head, payload, headers.
//!
//! The header: partition u64, base offset u64, base timestamp u64, origin timestamp u64, length u64 (with the header),
//! checksum u64, count u32, 204 bytes reserved. A frame's head: checksum u64, id u128, offset u32 and timestamp u32 counted
//! from the header's, bytes of headers u32, bytes of payload u32, 8 bytes reserved.
use crate::iggy::Malformed;
use crate::iggy::reader::Reader;
use crate::iggy::v1::SendError;
use crate::iggy::v1b::{self, Shown};
use bytes::{BufMut, BytesMut};
use std::fmt;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

const HEADER_BYTES: usize = 256;
const FRAME_BYTES: usize = 48;
/// Of the header: everything before the checksum, which includes it with the count.
const PLACED_BYTES: usize = 40;
const RESERVED_BYTES: usize = 204;
const CHECKSUM_BYTES: usize = 8;

/// What is checked of a batch that was sent while its frames are read.
#[derive(Debug)]
pub(in crate::iggy) struct Frames {
    /// Earliest time at which a message was made, µs since 1970.
    pub origin_us: u64,
    checksum: u64,
    count: u32,
    next: u32,
    sum: Sum,
}

struct Sum(Box<Xxh3>);

impl fmt::Debug for Sum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Sum({:#x})", self.0.digest())
    }
}

impl Sum {
    fn new(placed: &[u8], count: u32) -> Self {
        let mut sum = Box::new(Xxh3::new());
        sum.update(placed);
        sum.update(&count.to_le_bytes());
        Self(sum)
    }
}

impl Frames {
    /// Reads the header of the batch that is the rest of a send; `count` as the send states it.
    pub(in crate::iggy) fn read(from: &mut Reader<'_>, count: u32) -> Result<Self, SendError> {
        let bytes = from.rest().len();
        let mut header = Reader::new(
            from.take(HEADER_BYTES, "the batch's header")?,
            from.generation(),
        );
        let placed = header.rest().get(..PLACED_BYTES).unwrap_or_default();
        for field in [
            "the batch's partition",
            "the batch's offset",
            "the batch's timestamp",
        ] {
            zero(header.u64(field)?, field)?;
        }
        let origin_us = header.u64("the batch's origin timestamp")?;
        if header.u64("the batch's length")? != bytes as u64 {
            return Err(unknown("the batch's length", bytes as u64).into());
        }
        let checksum = header.u64("the batch's checksum")?;
        let stated = header.u32("the batch's count")?;
        if stated != count {
            return Err(unknown("the batch's count", stated.into()).into());
        }
        let reserved = header.take(RESERVED_BYTES, "the reserved bytes of a batch")?;
        if reserved.iter().any(|byte| *byte != 0) {
            return Err(SendError::Reserved);
        }
        Ok(Self {
            origin_us,
            checksum,
            count,
            next: 0,
            sum: Sum::new(placed, count),
        })
    }

    /// The next frame is the next of the batch, and whole.
    pub(in crate::iggy) fn check(&mut self, frame: &[u8]) -> Result<(), SendError> {
        const FIELD: &str = "the offset of a message in its batch";
        let (checksum, rest) = frame
            .split_at_checked(CHECKSUM_BYTES)
            .ok_or(Malformed::Ended { field: FIELD })?;
        let delta = rest.get(16..).and_then(|rest| rest.first_chunk());
        if delta.copied().map(u32::from_le_bytes) != Some(self.next) {
            return Err(unknown(FIELD, self.next.into()).into());
        }
        if checksum != xxh3_64(rest).to_le_bytes() {
            return Err(SendError::MessageChecksum { index: self.next });
        }
        self.next += 1;
        self.sum.0.update(checksum);
        Ok(())
    }

    /// The batch has as many frames as it states.
    pub(in crate::iggy) fn finish(self) -> Result<(), SendError> {
        if self.next != self.count {
            return Err(unknown("the batch's count", self.count.into()).into());
        }
        if self.sum.0.digest() != self.checksum {
            return Err(SendError::BatchChecksum);
        }
        Ok(())
    }
}

/// The head of a frame that was sent. `origin_us` is that of its batch.
pub(in crate::iggy) fn read_frame(
    from: &mut Reader<'_>,
    origin_us: u64,
) -> Result<v1b::Head, Malformed> {
    from.u64("a message's checksum")?;
    let id = from.u128("a message's id")?;
    from.u32("the offset of a message in its batch")?;
    let delta = from.u32("the time of a message in its batch")?;
    let header_bytes = from.u32("the length of a message's headers")? as usize;
    let payload_bytes = from.u32("the length of a message's payload")? as usize;
    zero(
        from.u64("the reserved bytes of a message")?,
        "the reserved bytes of a message",
    )?;
    if payload_bytes == 0 {
        return Err(unknown("the length of a message's payload", 0));
    }
    let origin = origin_us.saturating_add(delta.into());
    Ok(v1b::Head {
        id,
        origin_us: (origin > 0).then_some(origin),
        header_bytes,
        payload_bytes,
    })
}

fn zero(value: u64, field: &'static str) -> Result<(), Malformed> {
    if value == 0 {
        return Ok(());
    }
    Err(unknown(field, value))
}

fn unknown(field: &'static str, value: u64) -> Malformed {
    Malformed::Unknown {
        field,
        value: u32::try_from(value).unwrap_or(u32::MAX),
    }
}

/// A batch of polled messages being written.
///
/// All messages of it have one timestamp, and none was made before its first: another one begins where that ends.
#[derive(Debug)]
pub(in crate::iggy) struct OpenBatch {
    begin: usize,
    partition: u32,
    base: Shown,
    checksums: Vec<u8>,
}

impl OpenBatch {
    /// Bytes that a message takes without headers and payload, at most.
    pub(in crate::iggy) const MESSAGE_BYTES: usize = HEADER_BYTES + FRAME_BYTES;

    /// Begins a batch with the place of its first message. `partition` as it is shown.
    pub(in crate::iggy) fn begin(out: &mut BytesMut, partition: u32, first: Shown) -> Self {
        let begin = out.len();
        out.put_bytes(0, HEADER_BYTES);
        Self {
            begin,
            partition,
            base: first,
            checksums: Vec::new(),
        }
    }

    /// Where a message lies in this batch: offset and time counted from its first; `None` = it needs another batch.
    fn place(&self, message: &Shown) -> Option<(u32, u32)> {
        if message.timestamp_us != self.base.timestamp_us {
            return None;
        }
        let offset = message.offset.checked_sub(self.base.offset)?;
        let origin = message.origin_us.checked_sub(self.base.origin_us)?;
        Some((u32::try_from(offset).ok()?, u32::try_from(origin).ok()?))
    }

    /// Whether a message can be added.
    pub(in crate::iggy) fn takes(&self, message: &Shown) -> bool {
        self.place(message).is_some()
    }

    /// Adds a message that it takes; `parts` writes payload and headers.
    pub(in crate::iggy) fn push(
        &mut self,
        out: &mut BytesMut,
        message: Shown,
        parts: impl FnOnce(&mut BytesMut),
    ) {
        let (offset, origin) = self.place(&message).unwrap_or_default();
        let begin = out.len();
        out.put_u64_le(0);
        out.put_u128_le(message.id);
        out.put_u32_le(offset);
        out.put_u32_le(origin);
        out.put_u32_le(message.header_bytes);
        out.put_u32_le(message.payload_bytes);
        out.put_u64_le(0);
        parts(out);
        v1b::end(out, begin);
        let checksum = &out[begin..begin + CHECKSUM_BYTES];
        self.checksums.extend_from_slice(checksum);
    }

    /// Writes the header.
    pub(in crate::iggy) fn finish(self, out: &mut BytesMut) {
        let length = (out.len() - self.begin) as u64;
        let count = (self.checksums.len() / CHECKSUM_BYTES) as u32;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        for field in [
            self.partition.into(),
            self.base.offset,
            self.base.timestamp_us,
            self.base.origin_us,
            length,
        ] {
            header.put_u64_le(field);
        }
        let mut sum = Sum::new(&header, count).0;
        sum.update(&self.checksums);
        header.put_u64_le(sum.digest());
        header.put_u32_le(count);
        out[self.begin..self.begin + header.len()].copy_from_slice(&header);
    }
}
