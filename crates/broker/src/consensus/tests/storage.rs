//! The library's own tests of a storage, on our log engine; and what a log store is after a restart.
use crate::consensus::log_store::{LogStore, OfficeReader};
use crate::consensus::machine::Committed;
use crate::consensus::machine::Machine;
use crate::consensus::open_log;
use crate::consensus::types::{
    Entry, LogId, Membership, SnapshotOf, StorageError, Types, Vote, index_of, log_id,
};
use crate::consensus::vote::{HardState, VoteFile};
use bascule_log::GroupCommitter;
use bytes::Bytes;
use openraft::storage::{LogFlushed, RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::testing::{StoreBuilder, Suite, blank_ent, membership_ent};
use openraft::{
    EmptyNode, LogState, OptionalSend, RaftLogReader, RaftSnapshotBuilder, SnapshotMeta,
};
use std::fmt::Debug;
use std::io::Cursor;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// The suite applies entries with gaps between them; what comes out is for the other tests.
#[derive(Debug)]
struct Nobody;

impl Committed for Nobody {
    fn committed(&self, _index: u64, _bytes: Bytes, _proposal: u128) {}

    fn installed(&self, _index: u64, _state: Bytes) {}
}

fn open(directory: &Path) -> (LogStore, Machine) {
    let vote = if VoteFile::find(directory).unwrap().is_some() {
        VoteFile::open(directory)
    } else {
        VoteFile::create(directory, HardState::default())
    };
    let log = open_log(directory, &GroupCommitter::start()).unwrap();
    let store = LogStore::new(log, vote.unwrap()).unwrap();
    let machine = Machine::open(directory.to_path_buf(), Arc::new(Nobody));
    (store, machine.unwrap().0)
}

/// The suite begins some logs behind index 0, leaves out an entry, or appends one again. Ours refuses all of it, as it must, so
/// the log is first made to end where the entries begin; those that are purged are left out.
#[derive(Clone, Debug)]
struct AnyBegin(LogStore);

impl RaftLogReader<Types> for AnyBegin {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, StorageError> {
        self.0.try_get_log_entries(range).await
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, StorageError> {
        self.0.limited_get_log_entries(start, end).await
    }
}

impl RaftLogStorage<Types> for AnyBegin {
    type LogReader = OfficeReader;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        self.0.get_log_state().await
    }

    async fn get_log_reader(&mut self) -> OfficeReader {
        self.0.get_log_reader().await
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        self.0.save_vote(vote).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        self.0.read_vote().await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        self.0.save_committed(committed).await
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        self.0.read_committed().await
    }

    async fn append<I>(&mut self, entries: I, done: LogFlushed<Types>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let purged = self.0.get_log_state().await?.last_purged_log_id;
        let begin = purged.as_ref().map_or(0, index_of);
        let is_there = |entry: &Entry| entry.log_id.index >= begin;
        let entries: Vec<Entry> = entries.into_iter().filter(is_there).collect();
        let Some(first) = entries.first().map(|entry| entry.log_id) else {
            done.log_io_completed(Ok(()));
            return Ok(());
        };
        let end = self.0.last_index();
        if end == 0 && first.index > 0 {
            self.0.purge(log_id(0, first.index - 1)).await?;
            self.0.forget_purged();
        } else if end < first.index {
            let term = first.leader_id.term;
            let between: Vec<(u64, u64)> = (end..first.index).map(|index| (term, index)).collect();
            append(&mut self.0, &between).await?;
        } else {
            self.0.truncate(first).await?;
        }
        self.0.append(entries, done).await
    }

    async fn truncate(&mut self, since: LogId) -> Result<(), StorageError> {
        self.0.truncate(since).await
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), StorageError> {
        self.0.purge(upto).await
    }
}

/// Stores a snapshot of what was applied before the library builds one, as the control plane does.
#[derive(Clone, Debug)]
struct Saving(Machine);

impl RaftStateMachine<Types> for Saving {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), StorageError> {
        self.0.applied_state().await
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<()>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.0.apply(entries).await
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        self.0.begin_receiving_snapshot().await
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, EmptyNode>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        self.0.install_snapshot(meta, snapshot).await
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf>, StorageError> {
        self.0.get_current_snapshot().await
    }
}

impl RaftSnapshotBuilder<Types> for Saving {
    async fn build_snapshot(&mut self) -> Result<SnapshotOf, StorageError> {
        let Some(applied) = self.0.applied_state().await?.0 else {
            // The suite purges what it never applied, which the library never does.
            return Ok(SnapshotOf {
                meta: SnapshotMeta::default(),
                snapshot: Box::default(),
            });
        };
        self.0.save(index_of(&applied), b"state").unwrap();
        self.0.build_snapshot().await
    }
}

struct Builder;

impl StoreBuilder<Types, AnyBegin, Saving, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, AnyBegin, Saving), StorageError> {
        let directory = tempfile::tempdir().unwrap();
        let (store, machine) = open(directory.path());
        Ok((directory, AnyBegin(store), Saving(machine)))
    }
}

#[test]
fn the_suite_of_the_library_passes() {
    Suite::test_all(Builder).unwrap();
}

async fn append(store: &mut LogStore, entries: &[(u64, u64)]) -> Result<(), StorageError> {
    let entries = entries
        .iter()
        .map(|(term, index)| blank_ent::<Types>(*term, 0, *index));
    store.blocking_append(entries.collect::<Vec<_>>()).await
}

#[tokio::test]
async fn a_restart_finds_the_log_the_purge_and_the_vote_again() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, _) = open(directory.path());
    append(&mut store, &[(0, 0), (1, 1), (1, 2), (3, 3), (3, 4)])
        .await
        .unwrap();
    store.save_vote(&Vote::new_committed(3, 2)).await.unwrap();
    store.save_committed(Some(log_id(1, 2))).await.unwrap();
    store.truncate(log_id(3, 4)).await.unwrap();
    store.purge(log_id(1, 1)).await.unwrap();
    store.close().unwrap();
    let (mut store, _) = open(directory.path());
    let state = store.get_log_state().await.unwrap();
    assert_eq!(state.last_log_id, Some(log_id(3, 3)));
    assert_eq!(state.last_purged_log_id, Some(log_id(1, 1)));
    assert_eq!(store.read_committed().await.unwrap(), Some(log_id(1, 2)));
    // Not as committed: a leader that restarts begins a new term.
    assert_eq!(store.read_vote().await.unwrap(), Some(Vote::new(3, 2)));
    append(&mut store, &[(4, 4)]).await.unwrap();
    let entries = store.try_get_log_entries(..).await.unwrap();
    let found: Vec<LogId> = entries.iter().map(|entry| entry.log_id).collect();
    assert_eq!(found, [log_id(1, 2), log_id(3, 3), log_id(4, 4)]);
}

#[tokio::test]
async fn a_log_that_was_reset_by_a_snapshot_knows_what_came_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, _) = open(directory.path());
    append(&mut store, &[(0, 0), (1, 1)]).await.unwrap();
    store.purge(log_id(7, 41)).await.unwrap();
    store.close().unwrap();
    let (mut store, _) = open(directory.path());
    let state = store.get_log_state().await.unwrap();
    assert_eq!(state.last_purged_log_id, Some(log_id(7, 41)));
    assert_eq!(state.last_log_id, Some(log_id(7, 41)));
    append(&mut store, &[(7, 42)]).await.unwrap();
    assert_eq!(store.last(), (7, 43));
}

#[tokio::test]
async fn a_gap_is_refused_and_a_range_is_never_short_or_shifted() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, _) = open(directory.path());
    append(&mut store, &[(0, 0), (1, 1)]).await.unwrap();
    assert!(append(&mut store, &[(1, 3)]).await.is_err());
    append(&mut store, &[(1, 2)]).await.unwrap();
    store.purge(log_id(0, 0)).await.unwrap();
    assert!(store.limited_get_log_entries(0, 2).await.is_err());
    assert!(store.limited_get_log_entries(1, 4).await.is_err());
    assert_eq!(store.limited_get_log_entries(1, 3).await.unwrap().len(), 2);
}

/// A task that replicated for an office that ended is not waited for. Its errors would end Raft, and entries of the next leader
/// behind a `prev` of its own would be stored by a follower that has not heard of the next term.
#[tokio::test]
async fn the_reader_of_an_office_that_ended_reads_nothing_of_what_follows() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, _) = open(directory.path());
    append(&mut store, &[(1, 0), (1, 1), (1, 2)]).await.unwrap();
    let mut reader = store.get_log_reader().await;
    assert_eq!(reader.limited_get_log_entries(1, 3).await.unwrap().len(), 2);
    assert!(reader.limited_get_log_entries(1, 4).await.is_err());
    store.truncate(log_id(1, 1)).await.unwrap();
    assert_eq!(reader.limited_get_log_entries(1, 3).await.unwrap(), []);
    append(&mut store, &[(2, 1), (2, 2)]).await.unwrap();
    assert_eq!(reader.limited_get_log_entries(2, 3).await.unwrap(), []);
    assert_eq!(reader.try_get_log_entries(..).await.unwrap(), []);
    let mut next = store.get_log_reader().await;
    assert_eq!(next.limited_get_log_entries(1, 3).await.unwrap().len(), 2);
}

#[tokio::test]
async fn what_is_committed_is_not_truncated() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, _) = open(directory.path());
    append(&mut store, &[(0, 0), (1, 1), (1, 2)]).await.unwrap();
    store.save_committed(Some(log_id(1, 1))).await.unwrap();
    assert!(store.truncate(log_id(1, 1)).await.is_err());
}

#[tokio::test]
async fn a_snapshot_has_the_term_and_the_voters_of_its_entry() {
    let directory = tempfile::tempdir().unwrap();
    let (_, mut machine) = open(directory.path());
    let voters = |ids: &[u64]| vec![ids.iter().copied().collect()];
    let entries = [
        membership_ent::<Types>(0, 0, 0, voters(&[1])),
        blank_ent::<Types>(1, 0, 1),
        blank_ent::<Types>(2, 0, 2),
        membership_ent::<Types>(2, 0, 3, voters(&[1, 2])),
    ];
    machine.apply(entries).await.unwrap();
    assert!(machine.save(5, b"of the future").is_err());
    assert!(machine.save(0, b"of nothing").is_err());
    machine.save(3, b"three").unwrap();
    assert!(machine.save(2, b"older").is_err());
    let opened = Machine::open(directory.path().to_path_buf(), Arc::new(Nobody));
    let (mut machine, index, state) = opened.unwrap();
    assert_eq!((index, &state[..]), (3, &b"three"[..]));
    let (applied, membership) = machine.applied_state().await.unwrap();
    assert_eq!(applied, Some(log_id(2, 2)));
    assert_eq!(membership.log_id(), &Some(log_id(0, 0)));
    let snapshot = machine.get_current_snapshot().await.unwrap().unwrap();
    assert_eq!(snapshot.snapshot.into_inner(), b"three");
}
