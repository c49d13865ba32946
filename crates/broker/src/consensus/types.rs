//! The types of the metadata group, for the Raft library. Nothing outside `consensus` knows it.
use bytes::Bytes;
use openraft::storage::Snapshot;
use openraft::{CommittedLeaderId, EmptyNode, TokioRuntime};
use serde::{Deserialize, Serialize};
use std::io::Cursor;

/// What a proposal puts into the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Who proposed it: the nonce of the broker's run in the upper half, its own number in the lower one.
    pub proposal: u128,
    /// The entry.
    pub bytes: Bytes,
}

openraft::declare_raft_types!(
    /// The types of the metadata group. A term has one leader; entries are answered by events, so an answer is empty.
    pub Types:
        D = Command,
        R = (),
        NodeId = u64,
        Node = EmptyNode,
        Entry = openraft::Entry<Types>,
        SnapshotData = Cursor<Vec<u8>>,
        AsyncRuntime = TokioRuntime,
);

pub(super) type Entry = openraft::Entry<Types>;
pub(super) type LogId = openraft::LogId<u64>;
pub(super) type Vote = openraft::Vote<u64>;
pub(super) type StorageError = openraft::StorageError<u64>;
pub(super) type StorageIoError = openraft::StorageIOError<u64>;
pub(super) type Membership = openraft::StoredMembership<u64, EmptyNode>;
pub(super) type SnapshotOf = Snapshot<Types>;

/// The library counts entries from 0, everybody else from 1.
pub(super) fn index_of(log_id: &LogId) -> u64 {
    log_id.index.saturating_add(1)
}

pub(super) fn log_id(term: u64, library_index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term, 0), library_index)
}
