//! Records on their way out: framed once, as they are added.
use bascule_wire::liftbridge::publish::{PublishFields, put_request_frame};
use bytes::Bytes;
use std::collections::VecDeque;

/// A chunk is closed at about this many bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Frames of consecutive records, sent as one piece.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) frames: Bytes,
    /// Records inside.
    pub(crate) records: usize,
}

/// A batch of records for one partition. Correlation ids are the records' indexes, in decimal.
#[derive(Debug)]
pub struct Outgoing {
    stream: String,
    partition: i32,
    ack_policy: i32,
    /// Most records in a chunk.
    chunk_records: usize,
    chunks: VecDeque<Chunk>,
    open: Vec<u8>,
    open_records: usize,
    records: usize,
}
impl Outgoing {
    /// An empty batch. `ack_policy`: 0 LEADER, 1 ALL, 2 NONE. `in_flight`: most records sent and not acknowledged.
    pub fn new(stream: &str, partition: i32, ack_policy: i32, in_flight: usize) -> Self {
        Self {
            stream: stream.into(),
            partition,
            ack_policy,
            chunk_records: (in_flight / 4).max(1),
            chunks: VecDeque::new(),
            open: Vec::new(),
            open_records: 0,
            records: 0,
        }
    }

    /// Adds a record; everything is copied. An empty key is no key.
    pub fn push(&mut self, key: &[u8], value: &[u8], headers: &[(&str, &[u8])]) {
        if self.open.capacity() == 0 {
            self.open.reserve(CHUNK_BYTES + (CHUNK_BYTES >> 3));
        }
        let mut digits = [0; 20];
        put_request_frame(
            &mut self.open,
            &PublishFields {
                key,
                value,
                stream: &self.stream,
                partition: self.partition,
                headers,
                ack_inbox: "",
                correlation_id: decimal(self.records, &mut digits),
                ack_policy: self.ack_policy,
                expected_offset: -1,
            },
        );
        self.records += 1;
        self.open_records += 1;
        if self.open.len() >= CHUNK_BYTES || self.open_records >= self.chunk_records {
            self.close_chunk();
        }
    }

    /// Records added.
    pub fn len(&self) -> usize {
        self.records
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Whether the broker sends no acks.
    pub(crate) fn is_unacknowledged(&self) -> bool {
        self.ack_policy == 2
    }

    /// The chunks, in order.
    pub(crate) fn into_chunks(mut self) -> VecDeque<Chunk> {
        self.close_chunk();
        self.chunks
    }

    fn close_chunk(&mut self) {
        if self.open_records > 0 {
            let frames = std::mem::take(&mut self.open).into();
            self.chunks.push_back(Chunk {
                frames,
                records: std::mem::take(&mut self.open_records),
            });
        }
    }
}

/// A number in decimal, without an allocation.
fn decimal(mut number: usize, digits: &mut [u8; 20]) -> &str {
    let mut from = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        from -= 1;
        if number == 0 {
            break;
        }
    }
    std::str::from_utf8(&digits[from..]).unwrap_or_default()
}
