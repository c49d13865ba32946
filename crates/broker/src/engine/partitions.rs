//! The engine's partitions and the view of them.
use super::documents::GroupSpec;
use super::error::open_code;
use super::{Engine, EngineError, ViewChanges, created, directory};
use crate::clock::now_ns;
use crate::events::Level;
use crate::nats::PausedPartition;
use crate::partition::{EndReason, Partition, PartitionSpec, PartitionStatus};
use crate::view::{GroupView, View};
use bascule_log::DeletedLogs;
use bascule_wire::ErrorCode;
use parking_lot::Mutex;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Partitions opened at once: they wait for the disk more than they work, and a filesystem syncs many files at once in
/// hardly more time than one.
const OPENERS: usize = 32;

impl Engine {
    /// Opens or creates partitions, several at once; one that is open gets the new settings. Returns those that failed:
    /// (incarnation, code, sentence). Blocks for recovery.
    ///
    /// # Errors
    /// `closed`.
    pub fn open(
        &self,
        specs: Vec<PartitionSpec>,
    ) -> Result<Vec<(u64, ErrorCode, String)>, EngineError> {
        let _one = self.admin.lock();
        let runtime = self.runtime()?;
        let openers = OPENERS.min(specs.len());
        let work = Mutex::new(specs.into_iter());
        let failures = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..openers {
                scope.spawn(|| {
                    let _inside = runtime.enter();
                    while let Some(spec) = { work.lock().next() } {
                        let incarnation = spec.incarnation;
                        if let Err(error) = self.open_one(spec) {
                            if matches!(error, bascule_log::Error::Full { .. }) {
                                self.parts.partitions.disk_full.refused();
                            }
                            let code = open_code(&error);
                            failures.lock().push((incarnation, code, error.to_string()));
                        }
                    }
                });
            }
        });
        Ok(failures.into_inner())
    }

    fn open_one(&self, spec: PartitionSpec) -> Result<(), bascule_log::Error> {
        let known = self.state.lock().partitions.get(&spec.incarnation).cloned();
        if let Some(partition) = known {
            self.parts.partitions.replicas.configured(&spec);
            partition.configure(spec);
            return Ok(());
        }
        let path = directory::partitions(&self.data).join(spec.incarnation.to_string());
        // Files that were here and are not is a loss, which a log that begins at offset 0 again would hide.
        let failed = |source| bascule_log::Error::Io {
            operation: bascule_log::IoOp::Stat,
            path: path.clone(),
            source,
        };
        let known = created::was_created(&self.data, spec.incarnation).map_err(failed)?;
        let incarnation = spec.incarnation;
        let (partition, recovery) =
            Partition::open(&self.parts.partitions, spec, &path, &self.committer, known)?;
        if !known {
            created::record_created(&self.data, incarnation).map_err(failed)?;
        }
        if let Some(recovery) =
            recovery.filter(|recovery| !recovery.clean || !recovery.damaged.is_empty())
        {
            partition.report_recovery(&recovery);
        }
        partition.report_quarantine();
        let incarnation = partition.identity().incarnation;
        let mut state = self.state.lock();
        if let Some(times) = state.paused_receipts.remove(&incarnation) {
            partition.keep_received(times);
        }
        state.partitions.insert(incarnation, partition);
        Ok(())
    }

    /// (incarnation, epoch): accept appends and listen to NATS. Unknown ones are ignored. Blocks until NATS confirmed.
    ///
    /// # Errors
    /// `closed`.
    pub fn lead(&self, partitions: &[(u64, u64)]) -> Result<(), EngineError> {
        let runtime = self.runtime()?;
        let led: Vec<_> = partitions
            .iter()
            .filter_map(|(id, epoch)| Some((self.partition(*id)?, *epoch)))
            .collect();
        for (partition, epoch) in &led {
            partition.lead(*epoch);
        }
        let partitions: Vec<_> = led.into_iter().map(|(partition, _)| partition).collect();
        runtime.block_on(self.parts.nats.lead_all(&partitions));
        Ok(())
    }

    pub(super) fn partition(&self, incarnation: u64) -> Option<Partition> {
        self.state.lock().partitions.get(&incarnation).cloned()
    }

    /// Stops and closes; unknown ones are ignored. `Deleted` marks the files, also those of partitions that are not open;
    /// they vanish after the grace period.
    ///
    /// # Errors
    /// `closed`; `storage_failed` when files could not be marked.
    pub fn end(&self, incarnations: &[u64], reason: EndReason) -> Result<(), EngineError> {
        let _one = self.admin.lock();
        let runtime = self.runtime()?;
        let ended: Vec<Partition> = {
            let mut state = self.state.lock();
            incarnations
                .iter()
                .filter_map(|id| state.partitions.remove(id))
                .collect()
        };
        runtime.block_on(self.close_all(&ended, reason));
        self.keep_received(incarnations, &ended, reason);
        if reason != EndReason::Deleted {
            return Ok(());
        }
        for incarnation in incarnations {
            self.parts.nats.forget(*incarnation);
        }
        self.parts.partitions.stage.forget(incarnations);
        // Open logs have deleted their files as far as they could: the rest is marked or reported here. After a failed sync the
        // content of the disk is unknown.
        for incarnation in incarnations {
            created::mark_deleted(&self.data, *incarnation, now_ns()).map_err(|error| {
                let text = format!("files of partition {incarnation} are still there: {error}");
                EngineError::new(ErrorCode::StorageFailed, text)
            })?;
        }
        self.deleted.notify_one();
        self.committer.failure().map_or(Ok(()), |text| {
            Err(EngineError::new(ErrorCode::StorageFailed, text))
        })
    }

    /// Stops, closes and renames the files of partitions that the state does not name any more although no applied entry removed them:
    /// a snapshot of another broker lacks them. Nothing is deleted; a line of the log says where they are. Unknown ones are ignored.
    ///
    /// # Errors
    /// `closed`; `storage_failed` when files could not be renamed.
    pub fn keep(&self, incarnations: &[u64]) -> Result<(), EngineError> {
        self.end(incarnations, EndReason::Closed)?;
        for incarnation in incarnations {
            self.parts.nats.forget(*incarnation);
            let kept = created::mark_kept(&self.data, *incarnation, now_ns()).map_err(|error| {
                let text = format!("files of partition {incarnation} keep their name: {error}");
                EngineError::new(ErrorCode::StorageFailed, text)
            })?;
            if kept {
                let text = format!(
                    "partition {incarnation} is not in the snapshot of the metadata that came from another broker: its files are kept \
                     as {incarnation}.kept-… in {}",
                    directory::partitions(&self.data).display()
                );
                let fields = serde_json::json!({"incarnation": incarnation});
                self.parts
                    .events
                    .log(Level::Warning, "cluster", text, fields);
            }
        }
        Ok(())
    }

    /// As [`Engine::end`] for `Deleted`, without the grace period: the space is free when it returns.
    ///
    /// # Errors
    /// As [`Engine::end`]; `storage_failed` when files could not be removed: they vanish after the grace period.
    pub fn delete_now(&self, incarnations: &[u64]) -> Result<(), EngineError> {
        self.end(incarnations, EndReason::Deleted)?;
        let parent = directory::partitions(&self.data);
        for incarnation in incarnations {
            DeletedLogs::remove_now(&parent, &incarnation.to_string()).map_err(|error| {
                let text = format!("files of partition {incarnation} are still there: {error}");
                EngineError::new(ErrorCode::StorageFailed, text)
            })?;
        }
        Ok(())
    }

    /// Whether writes to the data directory are refused for want of space.
    pub fn is_full(&self) -> bool {
        self.parts.partitions.disk_full.is_full(&self.data)
    }

    /// Pausing does not forget when records arrived; deleting does.
    fn keep_received(&self, incarnations: &[u64], ended: &[Partition], reason: EndReason) {
        let mut state = self.state.lock();
        for incarnation in incarnations {
            state.paused_receipts.remove(incarnation);
        }
        for partition in ended.iter().filter(|_| reason == EndReason::Paused) {
            let status = partition.status();
            let times = (status.first_received, status.last_received);
            state
                .paused_receipts
                .insert(partition.identity().incarnation, times);
        }
    }

    pub(super) async fn close_all(&self, partitions: &[Partition], reason: EndReason) {
        for partition in partitions {
            match reason {
                EndReason::Paused => self
                    .parts
                    .nats
                    .pause(PausedPartition::from(partition), true),
                _ => self
                    .parts
                    .nats
                    .stop_feeding(partition.identity().incarnation),
            }
        }
        futures_util::future::join_all(partitions.iter().map(|partition| partition.close(reason)))
            .await;
    }

    /// Applies changes to the view and swaps it whole.
    ///
    /// # Errors
    /// `invalid_argument` when the version does not ascend.
    pub fn publish_view(&self, version: u64, changes: ViewChanges) -> Result<(), EngineError> {
        let state = self.state.lock();
        let old = self.parts.view.load_full();
        if version <= old.version {
            let text = format!("view version {version} does not follow {}", old.version);
            return Err(EngineError::new(ErrorCode::InvalidArgument, text));
        }
        let mut view = View::clone(&old);
        view.version = version;
        for (namespace, name) in changes.removed {
            if let Some(streams) = view.namespaces.get_mut(&namespace) {
                streams.remove(&name);
            }
        }
        for stream in changes.streams {
            for place in stream.paused_partitions(&self.parts.broker_id) {
                self.parts.nats.pause(place, false);
            }
            let stream = stream.view(&state.partitions);
            view.namespaces
                .entry(stream.namespace.clone())
                .or_default()
                .insert(stream.name.clone(), Arc::new(stream));
        }
        if !changes.namespaces.is_empty() || !changes.removed_namespaces.is_empty() {
            let numbers = Arc::make_mut(&mut view.numbers);
            for id in changes.removed_namespaces {
                numbers.remove(id);
            }
            for (id, name) in changes.namespaces {
                numbers.insert(id, name);
            }
        }
        if !changes.users.is_empty() || !changes.removed_users.is_empty() {
            let users = Arc::make_mut(&mut view.users);
            users.retain(|id, _| !changes.removed_users.contains(id));
            users.extend(
                changes
                    .users
                    .into_iter()
                    .map(|user| (user.id, Arc::new(user.into()))),
            );
        }
        if !changes.brokers.is_empty() {
            Arc::make_mut(&mut view.brokers).extend(changes.brokers);
        }
        let ended = change_groups(&mut view, changes.groups, changes.removed_groups);
        self.parts.view.store(Arc::new(view));
        for (group, present) in ended {
            self.parts.members.keep(&group, present.as_ref());
        }
        Ok(())
    }

    /// Status of those that are open, in the order asked.
    pub fn status(&self, incarnations: &[u64]) -> Vec<(u64, PartitionStatus)> {
        let state = self.state.lock();
        incarnations
            .iter()
            .filter_map(|id| Some((*id, state.partitions.get(id)?.status())))
            .collect()
    }
}

/// Puts groups into the view. Returns the generations whose subscriptions continue, by group.
fn change_groups(
    view: &mut View,
    changed: Vec<GroupSpec>,
    removed: Vec<String>,
) -> Vec<(String, Option<RangeInclusive<u64>>)> {
    if changed.is_empty() && removed.is_empty() {
        return Vec::new();
    }
    let groups = Arc::make_mut(&mut view.groups);
    let mut ended = Vec::with_capacity(changed.len() + removed.len());
    for id in removed {
        groups.remove(&id);
        ended.push((id, None));
    }
    for spec in changed {
        let group = GroupView {
            created: spec.created,
            generation: spec.generation,
            members: spec.members,
        };
        groups.insert(spec.id.clone(), Arc::new(group));
        ended.push((spec.id, Some(spec.created..=spec.generation)));
    }
    ended
}
