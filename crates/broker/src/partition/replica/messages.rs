//! What comes to a replica from other brokers.
use bascule_log::LogReader;
use bascule_replica::leader::{Fetch, Outcome};
use bascule_replica::types::{BrokerId, Position};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

/// A message for a replica.
#[derive(Debug)]
pub(crate) enum ReplicaMessage {
    /// To a leader.
    Fetch(FetchMessage),
    /// To a follower.
    Answer(AnswerMessage),
    /// To a follower: the connection to the broker with this number ended.
    Disconnected(u64),
    /// To any replica: a broker that begins to lead asks what it has.
    Asked(AskedMessage),
    /// To a leader that has not begun.
    TakeOver(TakeOverMessage),
}

/// Which replica a broker that begins to lead asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub incarnation: u64,
    pub partition: u32,
    /// Under which it begins.
    pub leader_epoch: u64,
}

/// A question of a broker that begins to lead. Dropped, it is answered by the end of its channel.
#[derive(Debug)]
pub(crate) struct AskedMessage {
    pub reply: oneshot::Sender<Found>,
}

/// What a replica has.
#[derive(Debug)]
pub(crate) struct Found {
    /// The leader epoch that it follows, or leads; 0 = none.
    pub leader_epoch: u64,
    pub position: Position,
    pub reader: LogReader,
}

/// What comes back to a broker that begins to lead.
#[derive(Debug)]
pub(crate) enum TakeOverMessage {
    /// The end of a member's log, under this leader epoch.
    Position {
        from: BrokerId,
        leader_epoch: u64,
        position: Position,
    },
    /// Batches of a member.
    Range {
        from: BrokerId,
        leader_epoch: u64,
        attempt: u64,
        batches: Bytes,
    },
    /// A time has run out.
    Tick,
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
    pub body: ReplyBody,
}

/// What follows an answer.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    Nothing,
    /// Batches from this offset on, as many as there is room for.
    Batches(LogReader, u64),
    /// Of a reset: where the follower's log is to begin.
    Start(Bytes),
}

impl FetchMessage {
    /// Answers, if an answer is expected. Only the first answer counts.
    pub fn answer(&mut self, leader_epoch: u64, outcome: Outcome, body: ReplyBody) {
        if let Some(reply) = self.reply.take() {
            // The connection may have ended.
            let _ = reply.send(FetchReply {
                slot: self.slot,
                attempt: self.attempt,
                leader_epoch,
                outcome,
                body,
            });
        }
    }
}

/// Dropped, it is answered that this broker does not lead the partition, or not yet.
impl Drop for FetchMessage {
    fn drop(&mut self) {
        let epoch = self.fetch.leader_epoch;
        let outcome = Outcome::Busy { repair_below: None };
        self.answer(epoch, outcome, ReplyBody::Nothing);
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
    /// Batches behind the answer; of a reset, where the log is to begin.
    pub body: Bytes,
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
