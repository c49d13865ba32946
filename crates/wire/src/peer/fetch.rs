//! Heads of the frames between a follower and its leader: `ReplicationRequest` and `ReplicationResponse`, with fields of ours.
use super::frame::{FETCH_BYTES, Frame, FrameError, FrameType};
use super::heads::{decode, field};
use prost::Message;

/// Longest time that an answer may be held back, milliseconds.
pub const WAIT_MS: u32 = 500;

/// Type 2, `ReplicationRequest`: what a follower has, and that it wants more.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Fetch {
    /// Its answer has the same; 0 = none is expected.
    #[prost(uint64, tag = "100")]
    pub request: u64,
    /// The registration of the run that asks, > 0.
    #[prost(uint64, tag = "101")]
    pub boot_epoch: u64,
    /// 0 = opens one.
    #[prost(uint64, tag = "104")]
    pub session: u64,
    /// 1 for the frame that opens, then one more each.
    #[prost(uint64, tag = "105")]
    pub sequence: u64,
    /// Most bytes of batches in the answer, 1 to 8 MiB; one batch is sent whatever its size.
    #[prost(uint32, tag = "107")]
    pub max_bytes: u32,
    /// How long the answer may wait for records, at most 500 ms.
    #[prost(uint32, tag = "108")]
    pub wait_ms: u32,
    /// Slots that are new, or whose values differ from the last frame of the session.
    #[prost(message, repeated, tag = "109")]
    pub changed: Vec<Slot>,
    /// Slots that are not fetched any more.
    #[prost(uint32, repeated, tag = "110")]
    pub dropped: Vec<u32>,
}

/// What a follower has of one partition.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Slot {
    /// Names the partition within the session.
    #[prost(uint32, tag = "1")]
    pub slot: u32,
    /// Of the partition, > 0.
    #[prost(uint64, tag = "2")]
    pub incarnation: u64,
    /// Its number.
    #[prost(uint32, tag = "3")]
    pub partition: u32,
    /// The leader epoch that it follows, > 0.
    #[prost(uint64, tag = "4")]
    pub leader_epoch: u64,
    /// Its log end.
    #[prost(uint64, tag = "5")]
    pub end: u64,
    /// Leader epoch of its last batch; 0 = it holds none.
    #[prost(uint64, tag = "6")]
    pub last_epoch: u64,
    /// Link of its last batch.
    #[prost(fixed32, tag = "7")]
    pub link: u32,
    /// Its durable end, at most `end`.
    #[prost(uint64, tag = "8")]
    pub durable: u64,
    /// Link of the batch that ends there.
    #[prost(fixed32, tag = "9")]
    pub durable_link: u32,
    /// Its high watermark.
    #[prost(uint64, tag = "10")]
    pub high_watermark: u64,
    /// Number of its fetch, > 0: a slot that is named again with the same number waits on, and only reports.
    #[prost(uint64, tag = "13")]
    pub attempt: u64,
}

/// Type 3, `ReplicationResponse`. The body has the batches in the order of the answers.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FetchAnswer {
    /// Of the request, > 0.
    #[prost(uint64, tag = "100")]
    pub request: u64,
    /// 0 = the session has ended: nothing of the request was used.
    #[prost(uint64, tag = "104")]
    pub session: u64,
    /// Of the slots that need not wait.
    #[prost(message, repeated, tag = "106")]
    pub answers: Vec<SlotAnswer>,
}

/// The answer about one partition.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SlotAnswer {
    /// The slot.
    #[prost(uint32, tag = "1")]
    pub slot: u32,
    /// Number of the fetch.
    #[prost(uint64, tag = "2")]
    pub attempt: u64,
    /// The leader's epoch.
    #[prost(uint64, tag = "3")]
    pub leader_epoch: u64,
    /// What the leader found.
    #[prost(enumeration = "SlotOutcome", tag = "4")]
    pub outcome: i32,
    /// The leader's high watermark.
    #[prost(uint64, tag = "5")]
    pub high_watermark: u64,
    /// The leader's log start; 0 = not known.
    #[prost(uint64, tag = "6")]
    pub log_start: u64,
    /// Rest of the leader's lease, milliseconds; 0 = suspended.
    #[prost(uint64, tag = "7")]
    pub lease_ms: u64,
    /// Bytes of batches in the body.
    #[prost(uint32, tag = "8")]
    pub bytes: u32,
    /// Of `Diverged` and `WrongEpoch`.
    #[prost(uint64, tag = "9")]
    pub epoch: u64,
    /// Of `Reset` and `Damaged`.
    #[prost(uint64, tag = "10")]
    pub start: u64,
    /// Of `Diverged` and `Damaged`, exclusive.
    #[prost(uint64, tag = "11")]
    pub end: u64,
    /// End (exclusive) of what every replica has durably; 0 = not known.
    #[prost(uint64, tag = "12")]
    pub replicated_to: u64,
}

/// What a leader found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum SlotOutcome {
    /// Not a leader of this partition, or not yet; ask again.
    Busy = 0,
    /// The histories agree.
    Ok = 1,
    /// Another leader epoch, broker or run is the one of the metadata.
    WrongEpoch = 2,
    /// The histories branch.
    Diverged = 3,
    /// The last batches differ.
    StepBack = 4,
    /// The leader has nothing from there on.
    Reset = 5,
    /// The leader cannot read the range.
    Damaged = 6,
    /// The slot contradicts itself.
    Invalid = 7,
}

impl Fetch {
    /// Reads the head of a frame.
    ///
    /// # Errors
    /// [`FrameError::Type`], [`FrameError::Field`].
    pub fn read(frame: &Frame) -> Result<Self, FrameError> {
        let fetch: Self = decode(frame, FrameType::Fetch)?;
        let invalid = |what| Err(field(FrameType::Fetch, what));
        if fetch.boot_epoch == 0 || fetch.sequence == 0 {
            return invalid("a boot epoch and a sequence are greater than 0");
        }
        if !(1..=FETCH_BYTES).contains(&(fetch.max_bytes as usize)) || fetch.wait_ms > WAIT_MS {
            return invalid("between 1 byte and 8 MiB are asked for, within at most 500 ms");
        }
        let is_named = |slot: &Slot| {
            let ids = [slot.incarnation, slot.leader_epoch, slot.attempt];
            ids.iter().all(|id| *id > 0)
        };
        if !fetch.changed.iter().all(is_named) {
            return invalid("incarnation, leader epoch and number of a fetch are greater than 0");
        }
        Ok(fetch)
    }
}

impl FetchAnswer {
    /// Reads the head of a frame, and that its answers have the bytes of its body.
    ///
    /// # Errors
    /// [`FrameError::Type`], [`FrameError::Field`].
    pub fn read(frame: &Frame) -> Result<Self, FrameError> {
        let answer: Self = decode(frame, FrameType::FetchAnswer)?;
        let invalid = |what| Err(field(FrameType::FetchAnswer, what));
        if answer.request == 0 {
            return invalid("a request's number is greater than 0");
        }
        let bytes: u64 = answer.answers.iter().map(|one| u64::from(one.bytes)).sum();
        if bytes != frame.body.len() as u64 {
            return invalid("the answers have other bytes than the body");
        }
        Ok(answer)
    }
}
