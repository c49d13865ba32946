//! The reply to a poll, from the columns of batches into one buffer.
use super::send::{LAST_KIND, TEXT_KIND};
use crate::iggy::Generation;
use crate::iggy::frame::{REPLY_HEAD_BYTES, framed};
use crate::iggy::v1b::{self, Shown};
use crate::iggy::v2::OpenBatch;
use bascule_record::{Batch, HeaderEntry};
use bytes::{BufMut, Bytes, BytesMut};
use xxhash_rust::xxh3::xxh3_64;

/// The only state that a message has here: available.
const AVAILABLE: u8 = 1;
/// Bytes of the reply before its first message: head, partition, current offset, count.
const FIXED_BYTES: usize = REPLY_HEAD_BYTES + 16;
/// Where the count of messages lies.
const COUNT_AT: usize = REPLY_HEAD_BYTES + 12;
/// Bytes of a message without headers and payload.
const MESSAGE_BYTES: usize = 45;
/// Bytes of a header without key and value.
const HEADER_BYTES: usize = 9;

/// A reply to a poll being written, the head of its frame included.
#[derive(Debug)]
pub struct PolledReply {
    out: BytesMut,
    count: u32,
    most_bytes: usize,
    generation: Generation,
    /// As it is shown.
    partition: u32,
    /// The last batch of v2.
    batch: Option<OpenBatch>,
}
impl PolledReply {
    /// A reply without messages. `partition` from 1, or 0 for a member without any; `current_offset`: the newest
    /// committed, 0 when the partition is empty. `most_bytes`: of the whole frame, at most `u32::MAX`; passed only by the
    /// first message.
    pub fn new(
        partition: u32,
        current_offset: u64,
        most_bytes: usize,
        generation: Generation,
    ) -> Self {
        let mut out = BytesMut::with_capacity(FIXED_BYTES);
        out.put_bytes(0, REPLY_HEAD_BYTES);
        let partition = generation.show(partition);
        out.put_u32_le(partition);
        out.put_u64_le(current_offset);
        out.put_u32_le(0);
        Self {
            out,
            count: 0,
            most_bytes,
            generation,
            partition,
            batch: None,
        }
    }

    /// Adds record `i` of the batch, 0 ≤ i < n. `false`: the reply is full and nothing was added.
    ///
    /// Headers that the client cannot show are left out: keys that are not text where keys have no kind, kinds above 15, keys
    /// and values outside of 1 to 255 bytes. A null value shows as empty. A record without an id shows [`derived_id`], one
    /// without an origin time its own.
    ///
    /// # Panics
    /// When i ≥ n.
    pub fn push(&mut self, batch: &Batch, i: usize) -> bool {
        let generation = self.generation;
        let key_kind_bytes = usize::from(generation.has_typed_keys());
        let shown = || {
            batch
                .headers(i)
                .filter(|header| is_shown(header, generation))
        };
        let header_bytes: usize = shown()
            .map(|header| HEADER_BYTES + key_kind_bytes + header.key.len() + header.value.len())
            .sum();
        let payload = batch.value(i).unwrap_or_default();
        let head_bytes = generation.message_head_bytes();
        let fixed_bytes = match generation {
            Generation::V2 => OpenBatch::MESSAGE_BYTES,
            _ => head_bytes.unwrap_or(MESSAGE_BYTES),
        };
        let bytes = fixed_bytes + header_bytes + payload.len();
        if self.count > 0 && self.out.len() + bytes > self.most_bytes {
            return false;
        }
        let timestamp = batch.timestamp(i);
        let out = &mut self.out;
        out.reserve(bytes);
        let put_headers =
            |out: &mut BytesMut| shown().for_each(|header| put(out, &header, generation));
        // Both fit: a record is smaller than 191 MiB, and so are its parts.
        let (header_length, payload_length) = (header_bytes as u32, payload.len() as u32);
        let id = shown_id(batch, i);
        let shown_place = || Shown {
            id,
            offset: batch.offset(i),
            timestamp_us: micros(timestamp),
            origin_us: micros(batch.origin_time(i).unwrap_or(timestamp)),
            header_bytes: header_length,
            payload_bytes: payload_length,
        };
        if generation == Generation::V2 {
            let shown = shown_place();
            let open = open_batch(&mut self.batch, out, self.partition, shown);
            open.push(out, shown, |out| {
                out.put_slice(payload);
                put_headers(out);
            });
        } else if let Some(head_bytes) = head_bytes {
            let shown = shown_place();
            let begin = v1b::begin(out, head_bytes, shown);
            out.put_slice(payload);
            put_headers(out);
            v1b::end(out, begin);
        } else {
            out.put_u64_le(batch.offset(i));
            out.put_u8(AVAILABLE);
            out.put_u64_le(micros(timestamp));
            out.put_u128_le(id);
            out.put_u32_le(crc32fast::hash(payload));
            out.put_u32_le(header_length);
            put_headers(out);
            out.put_u32_le(payload_length);
            out.put_slice(payload);
        }
        self.count += 1;
        true
    }

    /// Messages so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of the frame so far.
    pub fn bytes(&self) -> usize {
        self.out.len()
    }

    /// The whole frame.
    pub fn finish(mut self) -> Bytes {
        if let Some(batch) = self.batch.take() {
            batch.finish(&mut self.out);
        }
        self.out[COUNT_AT..FIXED_BYTES].copy_from_slice(&self.count.to_le_bytes());
        framed(self.out)
    }
}

/// The batch of v2 that takes a message: the one that is open, or the next.
fn open_batch<'a>(
    open: &'a mut Option<OpenBatch>,
    out: &mut BytesMut,
    partition: u32,
    message: Shown,
) -> &'a mut OpenBatch {
    if let Some(full) = open.take_if(|batch| !batch.takes(&message)) {
        full.finish(out);
    }
    open.get_or_insert_with(|| OpenBatch::begin(out, partition, message))
}

/// µs since 1970, rounded down, from ns; 0 for what is before.
fn micros(nanos: i64) -> u64 {
    nanos.max(0) as u64 / 1000
}

fn shown_id(batch: &Batch, i: usize) -> u128 {
    match batch.id(i) {
        0 => {
            let header = batch.header();
            let (incarnation, partition) = (header.incarnation, header.partition);
            derived_id(batch.timestamp(i), incarnation, partition, batch.offset(i))
        }
        id => id,
    }
}

fn put(out: &mut BytesMut, header: &HeaderEntry<'_>, generation: Generation) {
    if generation.has_typed_keys() {
        out.put_u8(header.key_kind);
    }
    out.put_u32_le(header.key.len() as u32);
    out.put_slice(header.key);
    out.put_u8(header.value_kind);
    out.put_u32_le(header.value.len() as u32);
    out.put_slice(header.value);
}

fn is_shown(header: &HeaderEntry<'_>, generation: Generation) -> bool {
    let is_text = header.key_kind == TEXT_KIND && std::str::from_utf8(header.key).is_ok();
    let has_kind = header.key_kind != TEXT_KIND && (1..=LAST_KIND).contains(&header.key_kind);
    (is_text || (generation.has_typed_keys() && has_kind))
        && (1..=LAST_KIND).contains(&header.value_kind)
        && (1..=255).contains(&header.key.len())
        && (1..=255).contains(&header.value.len())
}

/// The id of a record that was stored without one: a time-ordered UUID (version 7) as a number, the same at each read.
///
/// `timestamp`: ns since 1970; one before 1970 counts as 0. Records of one millisecond are ordered by offset; two
/// records of one partition never have the same id, while fewer than 2^34 of them share a millisecond.
pub fn derived_id(timestamp: i64, incarnation: u64, partition: u32, offset: u64) -> u128 {
    let millisecond = timestamp.max(0) as u64 / 1_000_000;
    let mut place = [0; 12];
    place[..8].copy_from_slice(&incarnation.to_le_bytes());
    place[8..].copy_from_slice(&partition.to_le_bytes());
    let order = u128::from(offset & ((1 << 34) - 1));
    // 74 bits: 34 of the offset, then 40 that tell partitions apart.
    let rest = order << 40 | u128::from(xxh3_64(&place) >> 24);
    u128::from(millisecond & ((1 << 48) - 1)) << 80
        | 7 << 76
        | (rest >> 62) << 64
        | 2 << 62
        | rest & ((1 << 62) - 1)
}
