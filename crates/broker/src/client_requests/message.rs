//! Bodies of the frames, `MessagePack`.
use crate::peer::STALL;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Most batches that are asked for at once, bytes.
pub(super) const MOST_BYTES: u32 = 8 << 20;
/// Answers with batches that a broker waits for at once, and that it gives at once.
pub(super) const READS: usize = 8;
/// Longest time that a leader takes over one attempt. Within [`STALL`] something has to be answered, or the whole connection ends.
pub(super) const ATTEMPT: Duration = Duration::from_secs(3);
const _: () = assert!(ATTEMPT.as_millis() < STALL.as_millis());

/// What a client asks of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// Id of the client's user, whose rights the leader checks.
    pub user: u64,
    /// Address of the client, `host:port`; empty = unknown.
    pub address: String,
    /// Namespace of the stream.
    pub namespace: String,
    pub stream: String,
    /// Numbers of namespace and stream.
    pub ids: (u64, u64),
    pub partition: u32,
    /// Of the partition, > 0.
    pub incarnation: u64,
    /// Of the one that answers: the partition, or the one of `__cursors` that has the position.
    pub leader_epoch: u64,
    /// How long the leader may take, ms; it never takes longer than 3,000.
    pub deadline_ms: u32,
    pub question: Question,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Question {
    /// Committed batches from there on, until they have `count` records or `bytes` bytes; one batch is answered whatever its size.
    Read {
        start: Start,
        count: u32,
        bytes: u32,
    },
    /// Whether everything that anybody appended before is committed.
    Flush,
    /// Where a consumer of this id stands.
    FindPosition(String),
    /// It stands at this offset; answered at the commit, or at once.
    StorePosition {
        id: String,
        offset: u64,
        waits: bool,
    },
    /// It stands nowhere.
    DeletePosition(String),
}

impl Question {
    /// Whether it is answered with batches.
    pub(super) fn has_batches(&self) -> bool {
        matches!(self, Self::Read { count: 1.., .. })
    }

    /// Whether a record is appended for it, so that its outcome may be unknown.
    pub(super) fn appends(&self) -> bool {
        matches!(self, Self::StorePosition { .. } | Self::DeletePosition(_))
    }
}

/// Where a read begins; never below the log start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Start {
    /// At this offset.
    Offset(u64),
    /// At the log start.
    First,
    /// So that as many records as are asked for are left.
    Last,
    /// At the first record of this time or later, ns since 1970.
    Time(i64),
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answered {
    /// Committed records.
    Read {
        /// Where the read began.
        start: u64,
        /// The high watermark.
        end: u64,
        /// Whole batches; the first may begin before the start, the last may end behind the count.
        batches: Bytes,
    },
    Flushed,
    /// The stored offset; `None` = none is stored for this incarnation.
    Position(Option<u64>),
    Stored,
    /// Whether there was one.
    Deleted(bool),
    /// Nothing was stored or deleted: this broker does not lead it under that epoch, has no lease, knows other rights, or had no time.
    /// It may be asked again.
    Later,
    /// It cannot be carried out: the log cannot be read, or `limits.cursors` positions are stored.
    Failed,
    /// The outcome of a position that was to be stored or deleted is not known. It may be asked again.
    Unknown,
}
