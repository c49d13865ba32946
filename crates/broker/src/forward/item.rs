//! An append as it travels: encoded once, sent as often as it has to be.
use crate::partition::{AckLevel, Append, AppendError, Committed, Done, IncomingRecord, Payload};
use crate::tls::Peer;
use bascule_record::{Producer, RestoreError, SealedBatch};
use bascule_wire::peer::forward::{
    DEADLINE_MS, FORWARD_RECORDS, ForwardProducer, ForwardedHeader, ForwardedRecord,
};
use bascule_wire::peer::frame::{FORWARD_BYTES, FrameError};
use bascule_wire::peer::{Forward, Frame, FrameType};
use bytes::Bytes;
use prost::Message;
use tokio::time::Instant;

/// Least cost of an append, bytes.
const COST: usize = 1 << 10;
/// What a record occupies beside its bytes, about.
const RECORD_OVERHEAD: usize = 256;
/// Left for the head of a frame, bytes.
const HEAD_BYTES: usize = 64 << 10;

/// A partition that publishes go to, wherever it is led.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub namespace: String,
    pub stream: String,
    pub number: u32,
    pub incarnation: u64,
}

/// Who publishes.
#[derive(Clone, Debug, Default)]
pub(super) struct Publisher {
    pub peer: Peer,
    /// Id of the user whose rights allow it; `None` = the policy allows it by the peer's name.
    pub user: Option<u64>,
}

/// What is appended. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Content {
    /// Records, each behind its length, or a sealed batch.
    pub body: Bytes,
    /// Number of records; 0 = a sealed batch.
    pub records: u32,
    pub producer: Option<Producer>,
    pub republish: bool,
    pub ack: AckLevel,
}

/// An append that is not answered.
pub(super) struct Item {
    pub content: Content,
    /// It is not sent after this.
    pub until: Instant,
    /// Why it was not stored so far.
    pub refused: Option<AppendError>,
    /// An attempt may have stored it: what is said unless a later one surely did.
    pub unsure: Option<AppendError>,
    done: Done,
}

impl Item {
    /// Encodes an append. One that cannot travel is answered.
    pub fn new(append: Append, until: Instant) -> Option<Self> {
        let Append {
            payload,
            producer,
            republish,
            ack,
            done,
        } = append;
        let (body, records, count) = match payload {
            Payload::Records(records) => {
                let count = records.len();
                (encode(records), count as u32, count)
            }
            Payload::Sealed(batch) => (batch.to_unplaced(), 0, 0),
        };
        if body.len() > FORWARD_BYTES - HEAD_BYTES || count > FORWARD_RECORDS {
            let text = format!(
                "the partition is led by another broker, and {} bytes with {count} records are more than the {} bytes with \
                 {FORWARD_RECORDS} records that are handed on at once: send less at a time, or to the leader",
                body.len(),
                FORWARD_BYTES - HEAD_BYTES,
            );
            done(Err(AppendError::Invalid(text)));
            return None;
        }
        Some(Self {
            content: Content {
                body,
                records,
                producer,
                republish,
                ack,
            },
            until,
            refused: None,
            unsure: None,
            done,
        })
    }

    /// What it occupies, bytes.
    pub fn cost(&self) -> usize {
        let records = self.content.records as usize;
        (self.content.body.len() + records * RECORD_OVERHEAD).max(COST)
    }

    /// Whether it may be sent although an earlier attempt may have stored it.
    pub fn is_idempotent(&self) -> bool {
        self.content.producer.is_some()
    }

    /// Answers it. What may be stored is never said not to be.
    pub fn answer(self, outcome: Result<Committed, AppendError>) {
        let outcome = match (outcome, self.unsure) {
            (Err(_), Some(unsure)) => Err(unsure),
            (outcome, _) => outcome,
        };
        (self.done)(outcome);
    }
}

impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Item").finish_non_exhaustive()
    }
}

impl Content {
    /// As a frame to the leader.
    pub fn to_frame(
        &self,
        request: u64,
        target: &Target,
        epoch: u64,
        publisher: &Publisher,
        until: Instant,
    ) -> Vec<u8> {
        let left = until.saturating_duration_since(Instant::now());
        let Publisher { peer, user } = publisher;
        let address = peer.address.map(|address| address.to_string());
        let head = Forward {
            request,
            deadline_ms: (left.as_millis() as u32).min(DEADLINE_MS),
            incarnation: target.incarnation,
            partition: target.number,
            leader_epoch: epoch,
            namespace: target.namespace.clone(),
            stream: target.stream.clone(),
            principal: peer.identity.as_deref().map(str::to_owned),
            address: address.unwrap_or_default(),
            to_all: self.ack == AckLevel::All,
            republish: self.republish,
            producer: self.producer.map(|producer| ForwardProducer {
                id: producer.id,
                epoch: producer.epoch,
                base_sequence: producer.base_sequence,
            }),
            records: self.records,
            user: *user,
        };
        Frame::write(FrameType::Forward, &head, &self.body)
    }

    /// As this broker itself appends it.
    ///
    /// # Errors
    /// It is not what was encoded.
    pub fn to_payload(&self) -> Result<Payload, AppendError> {
        let head = Forward {
            records: self.records,
            ..Forward::default()
        };
        let payload = payload(&head, &self.body, usize::MAX);
        payload.map_err(|error| AppendError::Invalid(error.to_string()))
    }
}

/// Why a body cannot be appended.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    /// It breaks the protocol.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The batch cannot be stored.
    #[error(transparent)]
    Batch(#[from] RestoreError),
    /// Its producer is a sink.
    #[error("producer id {0} is not below 2^63: higher ones are those of sinks")]
    Producer(u64),
    /// The broker stops.
    #[error(transparent)]
    Stopped(#[from] tokio::task::JoinError),
}

/// What a body has: records as slices of it, or a batch whose records have at most `record_bytes` bytes.
///
/// # Errors
/// [`BodyError`].
pub(super) fn payload(
    head: &Forward,
    body: &Bytes,
    record_bytes: usize,
) -> Result<Payload, BodyError> {
    if head.records == 0 {
        let batch = SealedBatch::read_unplaced(body, record_bytes)?;
        return Ok(Payload::Sealed(batch));
    }
    let records = head.read_records(body.clone())?;
    Ok(Payload::Records(
        records.into_iter().map(incoming).collect(),
    ))
}

fn encode(records: Vec<IncomingRecord>) -> Bytes {
    let records: Vec<ForwardedRecord> = records.into_iter().map(forwarded).collect();
    let length = |record: &ForwardedRecord| {
        let bytes = record.encoded_len();
        bytes + prost::length_delimiter_len(bytes)
    };
    let mut out = Vec::with_capacity(records.iter().map(length).sum());
    for record in records {
        // It fails where there is no room, and a vector makes room.
        let _ = record.encode_length_delimited(&mut out);
    }
    out.into()
}

fn forwarded(record: IncomingRecord) -> ForwardedRecord {
    let header = |(name, value)| ForwardedHeader { name, value };
    ForwardedRecord {
        key: record.key,
        value: record.value,
        headers: record.headers.into_iter().map(header).collect(),
        subject: record.subject,
        reply: record.reply,
        id_low: record.id as u64,
        id_high: (record.id >> 64) as u64,
        origin_time: record.origin_time,
        expected_offset: record.expected_offset,
        received_bytes: record.received_bytes,
    }
}

fn incoming(record: ForwardedRecord) -> IncomingRecord {
    let header = |header: ForwardedHeader| (header.name, header.value);
    let content = record.key.len() + record.value.as_ref().map_or(0, Bytes::len);
    IncomingRecord {
        key: record.key,
        value: record.value,
        headers: record.headers.into_iter().map(header).collect(),
        subject: record.subject,
        reply: record.reply,
        id: u128::from(record.id_high) << 64 | u128::from(record.id_low),
        is_plain_nats: false,
        origin_time: record.origin_time,
        expected_offset: record.expected_offset,
        // It is what a queue counts, so it is not taken on trust.
        received_bytes: record
            .received_bytes
            .max(u32::try_from(content).unwrap_or(u32::MAX)),
    }
}
