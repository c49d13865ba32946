//! What comes to a replica from other brokers.
use bascule_log::LogReader;
use bascule_replica::leader::{Fetch, Outcome};
use bytes::Bytes;
use tokio::sync::mpsc;

/// A message for a replica.
#[derive(Debug)]
pub(crate) enum ReplicaMessage {
    /// To a leader.
    Fetch(FetchMessage),
    /// To a follower.
    Answer(AnswerMessage),
    /// To a follower: the connection to the broker with this number ended.
    Disconnected(u64),
}

/// What a follower reports, and where the answer goes.
#[derive(Debug)]
pub(crate) struct FetchMessage {
    pub fetch: Fetch,
    /// The high watermark that the follower knows.
    pub high_watermark: u64,
    /// Of the session.
    pub slot: u32,
    /// Number of the fetch.
    pub attempt: u64,
    /// `None`: it only reports.
    pub reply: Option<mpsc::UnboundedSender<FetchReply>>,
}

/// What a leader found.
#[derive(Debug)]
pub(crate) struct FetchReply {
    pub slot: u32,
    pub attempt: u64,
    /// Of the leader; that of the follower, if this broker does not lead.
    pub leader_epoch: u64,
    pub outcome: Outcome,
    /// Batches from this offset on may be sent.
    pub batches: Option<(LogReader, u64)>,
}

impl FetchMessage {
    /// Answers, if an answer is expected. Only the first answer counts.
    pub fn answer(
        &mut self,
        leader_epoch: u64,
        outcome: Outcome,
        batches: Option<(LogReader, u64)>,
    ) {
        if let Some(reply) = self.reply.take() {
            // The connection may have ended.
            let _ = reply.send(FetchReply {
                slot: self.slot,
                attempt: self.attempt,
                leader_epoch,
                outcome,
                batches,
            });
        }
    }
}

/// Dropped, it is answered that this broker does not lead the partition, or not yet.
impl Drop for FetchMessage {
    fn drop(&mut self) {
        let epoch = self.fetch.leader_epoch;
        self.answer(epoch, Outcome::Busy { repair_below: None }, None);
    }
}

/// An answer of a leader.
#[derive(Debug)]
pub(crate) struct AnswerMessage {
    /// Number of the broker that answered.
    pub from: u64,
    /// Number of the fetch.
    pub attempt: u64,
    pub leader_epoch: u64,
    pub outcome: Outcome,
    /// Batches behind the answer.
    pub batches: Bytes,
}

/// What a follower reports of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotState {
    pub incarnation: u64,
    pub partition: u32,
    pub leader_epoch: u64,
    pub end: u64,
    pub last_epoch: u64,
    pub link: u32,
    pub durable: u64,
    pub durable_link: u32,
    pub high_watermark: u64,
    /// Number of its fetch; > 0.
    pub attempt: u64,
}
