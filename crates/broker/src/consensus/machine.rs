//! What the Raft library takes for the state machine: it queues committed entries for the control plane and answers at once.
use super::door::MetadataError;
use super::types::{
    Entry, LogId, Membership, SnapshotOf, StorageError, StorageIoError, Types, index_of,
};
use crate::metadata::snapshot;
use bytes::Bytes;
use openraft::storage::RaftStateMachine;
use openraft::{
    AnyError, EntryPayload, ErrorSubject, ErrorVerb, RaftSnapshotBuilder, SnapshotMeta,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt::{Debug, Display};
use std::io::{self, Cursor};
use std::path::PathBuf;
use std::sync::Arc;

/// Who takes what is committed, in order of index, once.
pub trait Committed: Debug + Send + Sync + 'static {
    /// An entry. `proposal`: 0 = of the library; `bytes` are empty then.
    fn committed(&self, index: u64, bytes: Bytes, proposal: u128);

    /// A snapshot of another broker replaces everything up to and including `index`.
    fn installed(&self, index: u64, state: Bytes);
}

/// Copies are the same machine.
#[derive(Clone, Debug)]
pub struct Machine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    out: Arc<dyn Committed>,
    directory: PathBuf,
    progress: Mutex<Progress>,
    /// Held while a snapshot is written.
    storing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Progress {
    applied: Option<LogId>,
    membership: Membership,
    /// The terms in which entries were applied since the newest snapshot, and the library's index of the first of each.
    terms: VecDeque<(u64, u64)>,
    /// The memberships applied since the newest snapshot, and the one at it.
    memberships: VecDeque<Membership>,
    saved: Option<Saved>,
}

/// What the library has to know of a snapshot, kept in its file before the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    last: LogId,
    membership: Membership,
}

impl Machine {
    /// The machine of `<data>/metadata`, at its newest readable snapshot; and the index and bytes of that: (0, empty) when there is
    /// none.
    ///
    /// # Errors
    /// [`MetadataError::Damaged`], [`MetadataError::Snapshot`].
    pub fn open(
        directory: PathBuf,
        out: Arc<dyn Committed>,
    ) -> Result<(Self, u64, Vec<u8>), MetadataError> {
        let newest = snapshot::newest(&directory)?;
        let mut progress = Progress::default();
        if newest.index > 0 {
            let saved: Saved = rmp_serde::from_slice(&newest.raft).map_err(|error| {
                let text = format!("snapshot {} is not of a cluster: {error}", newest.index);
                MetadataError::Damaged(text)
            })?;
            progress.begin_at(saved);
        }
        let shared = Shared {
            out,
            directory,
            progress: Mutex::new(progress),
            storing: Mutex::default(),
        };
        let machine = Self {
            shared: Arc::new(shared),
        };
        Ok((machine, newest.index, newest.state))
    }

    /// Stores a snapshot of the control plane that covers entries 1…`index`; returns the index of the older one that is kept beside it,
    /// 0 = none: no entry behind that may leave the log. Blocks.
    ///
    /// # Errors
    /// [`MetadataError::Damaged`]: `index` was not applied, or is older than the newest snapshot. [`MetadataError::Snapshot`].
    pub fn save(&self, index: u64, state: &[u8]) -> Result<u64, MetadataError> {
        // One at a time, also with one that another broker sends: they have one temporary file.
        let _one = self.shared.storing.lock();
        let saved = self.shared.progress.lock().at(index)?;
        self.store(saved, state)
    }

    fn store(&self, saved: Saved, state: &[u8]) -> Result<u64, MetadataError> {
        let raft =
            rmp_serde::to_vec(&saved).map_err(|error| MetadataError::Damaged(error.to_string()))?;
        let (directory, index) = (&self.shared.directory, index_of(&saved.last));
        let older = snapshot::save_of_cluster(directory, index, &raft, state)?;
        self.shared.progress.lock().saved_at(saved);
        Ok(older)
    }

    /// The newest snapshot, whole. Blocks.
    fn newest(&self) -> io::Result<Option<(Saved, Vec<u8>)>> {
        // While it is held none is replaced by newer ones.
        let _one = self.shared.storing.lock();
        let Some(saved) = self.shared.progress.lock().saved.clone() else {
            return Ok(None);
        };
        let state = snapshot::read_at(&self.shared.directory, index_of(&saved.last))?;
        Ok(Some((saved, state)))
    }

    /// Stores a snapshot of another broker. Blocks.
    fn store_received(&self, saved: Saved, state: &[u8]) -> Result<(), MetadataError> {
        let _one = self.shared.storing.lock();
        self.store(saved, state).map(|_| ())
    }
}

impl Progress {
    fn begin_at(&mut self, saved: Saved) {
        self.applied = Some(saved.last);
        self.membership = saved.membership.clone();
        self.terms = VecDeque::from([(saved.last.leader_id.term, saved.last.index)]);
        self.memberships = VecDeque::from([saved.membership.clone()]);
        self.saved = Some(saved);
    }

    fn apply(&mut self, entry: &Entry) {
        let (term, index) = (entry.log_id.leader_id.term, entry.log_id.index);
        self.applied = Some(entry.log_id);
        if self.terms.back().is_none_or(|(last, _)| *last != term) {
            self.terms.push_back((term, index));
        }
        if let EntryPayload::Membership(membership) = &entry.payload {
            self.membership = Membership::new(Some(entry.log_id), membership.clone());
            self.memberships.push_back(self.membership.clone());
        }
    }

    /// Log id and membership at an applied entry.
    fn at(&self, index: u64) -> Result<Saved, MetadataError> {
        let wrong = |text: String| Err(MetadataError::Damaged(text));
        let last = self.applied.as_ref().map_or(0, index_of);
        if index > last {
            return wrong(format!(
                "a snapshot at {index} is beyond the last entry {last}"
            ));
        }
        let library_index = index.saturating_sub(1);
        let term = self
            .terms
            .iter()
            .rev()
            .find(|(_, first)| *first <= library_index);
        let Some((term, _)) = term.filter(|_| index > 0) else {
            return wrong(format!(
                "a snapshot at {index} is older than the newest one"
            ));
        };
        let known = |membership: &&Membership| {
            membership
                .log_id()
                .is_none_or(|log_id| log_id.index <= library_index)
        };
        Ok(Saved {
            last: super::types::log_id(*term, library_index),
            membership: self
                .memberships
                .iter()
                .rev()
                .find(known)
                .cloned()
                .unwrap_or_default(),
        })
    }

    fn saved_at(&mut self, saved: Saved) {
        let index = saved.last.index;
        while self.terms.get(1).is_some_and(|(_, first)| *first <= index) {
            self.terms.pop_front();
        }
        let is_old = |membership: &Membership| {
            membership
                .log_id()
                .is_none_or(|log_id| log_id.index <= index)
        };
        while self.memberships.get(1).is_some_and(is_old) {
            self.memberships.pop_front();
        }
        self.saved = Some(saved);
    }
}

impl Saved {
    fn meta(&self) -> SnapshotMeta<u64, openraft::EmptyNode> {
        SnapshotMeta {
            last_log_id: Some(self.last),
            last_membership: self.membership.clone(),
            snapshot_id: index_of(&self.last).to_string(),
        }
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), StorageError> {
        let progress = self.shared.progress.lock();
        Ok((progress.applied, progress.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<()>, StorageError>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let mut progress = self.shared.progress.lock();
        let mut count = 0;
        for entry in entries {
            progress.apply(&entry);
            let index = index_of(&entry.log_id);
            let (bytes, proposal) = match entry.payload {
                EntryPayload::Normal(command) => (command.bytes, command.proposal),
                EntryPayload::Blank | EntryPayload::Membership(_) => (Bytes::new(), 0),
            };
            self.shared.out.committed(index, bytes, proposal);
            count += 1;
        }
        Ok(vec![(); count])
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, openraft::EmptyNode>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let Some(last) = meta.last_log_id else {
            return Err(failed(ErrorVerb::Write, "it covers no entry"));
        };
        let saved = Saved {
            last,
            membership: meta.last_membership.clone(),
        };
        let (machine, state) = (self.clone(), Bytes::from(snapshot.into_inner()));
        let stored = {
            let state = state.clone();
            tokio::task::spawn_blocking(move || {
                machine
                    .store_received(saved.clone(), &state)
                    .map(|()| saved)
            })
        };
        let saved = stored
            .await
            .map_err(|error| failed(ErrorVerb::Write, error))?
            .map_err(|error| failed(ErrorVerb::Write, error))?;
        let mut progress = self.shared.progress.lock();
        progress.begin_at(saved);
        self.shared.out.installed(index_of(&last), state);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf>, StorageError> {
        let machine = self.clone();
        let read = tokio::task::spawn_blocking(move || machine.newest());
        let newest = read
            .await
            .map_err(|error| failed(ErrorVerb::Read, error))?
            .map_err(|error| failed(ErrorVerb::Read, error))?;
        let Some((saved, state)) = newest else {
            return Ok(None);
        };
        Ok(Some(SnapshotOf {
            meta: saved.meta(),
            snapshot: Box::new(Cursor::new(state)),
        }))
    }
}

impl RaftSnapshotBuilder<Types> for Machine {
    /// The newest one that the control plane stored: the library never makes one of its own.
    async fn build_snapshot(&mut self) -> Result<SnapshotOf, StorageError> {
        let newest = self.get_current_snapshot().await?;
        newest.ok_or_else(|| failed(ErrorVerb::Read, "the control plane stored none yet"))
    }
}

fn failed(verb: ErrorVerb, error: impl Display) -> StorageError {
    StorageIoError::new(ErrorSubject::Snapshot(None), verb, AnyError::error(error)).into()
}
