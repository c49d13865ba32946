//! What the binding crate drives: the data directory, the runtime, partitions, the view, the servers.
//!
//! All methods are synchronous and may be called from any thread that is not the runtime's own. Order of locks: `state`
//! is never held while a partition is opened or closed.
mod directory;
mod documents;
mod serve;

pub use directory::{DataDirectory, DirectoryError};
pub use documents::{EngineSettings, PlaceSpec, StreamSpec, ViewChanges};

use crate::metadata::{MetadataError, MetadataLog, Proposal};
use crate::nats::NatsSettings;
use crate::partition::{EndReason, Partition, PartitionSpec, PartitionStatus, now_ns};
use crate::shared::{Shared, SharedRef};
use crate::view::View;
use bascule_log::{Coordinator, Log};
use parking_lot::Mutex;
use serve::Serving;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Partitions opened at once.
const OPENERS: usize = 4;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// A failure with a code of specs/errors.toml and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct EngineError {
    /// Code.
    pub code: &'static str,
    /// Sentence.
    pub text: String,
}

impl EngineError {
    fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }
}
impl From<DirectoryError> for EngineError {
    fn from(error: DirectoryError) -> Self {
        Self {
            code: error.code,
            text: error.text,
        }
    }
}
impl From<MetadataError> for EngineError {
    fn from(error: MetadataError) -> Self {
        let code = match &error {
            MetadataError::Damaged(_) => "metadata_damaged",
            MetadataError::Log(bascule_log::Error::Full { .. }) => "disk_full",
            _ => "storage_failed",
        };
        Self {
            code,
            text: error.to_string(),
        }
    }
}

/// The data plane of one broker.
#[derive(Debug)]
pub struct Engine {
    shared: SharedRef,
    directory: DataDirectory,
    coordinator: Arc<Coordinator>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    runtime: Option<Arc<Runtime>>,
    partitions: HashMap<u64, Partition>,
    metadata: Option<Arc<MetadataLog>>,
    serving: Option<Serving>,
}

impl Engine {
    /// Locks and checks the data directory, removes what deleted streams left, starts the runtime.
    ///
    /// # Errors
    /// `data_directory_…`; `internal` when the system gives no threads or descriptors.
    pub fn new(settings: &EngineSettings) -> Result<Self, EngineError> {
        let internal = |error: std::io::Error| {
            EngineError::new("internal", format!("cannot start the runtime: {error}"))
        };
        let directory = DataDirectory::open(
            &settings.data_dir,
            &settings.cluster_id,
            &settings.broker_id,
        )?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(settings.runtime_threads.max(1))
            .thread_name("bascule-io")
            .enable_all()
            .build()
            .map_err(internal)?;
        let shared = Shared::new(
            &settings.cluster_id,
            &settings.broker_id,
            &settings.namespace,
            settings.limits,
        );
        let shared = Arc::new(shared.map_err(internal)?);
        let engine = Self {
            shared,
            directory,
            coordinator: Coordinator::start(),
            state: Mutex::new(State {
                runtime: Some(Arc::new(runtime)),
                ..State::default()
            }),
        };
        engine.sweep(0);
        Ok(engine)
    }

    /// What the servers see.
    pub fn shared(&self) -> &SharedRef {
        &self.shared
    }

    fn runtime(&self) -> Result<Arc<Runtime>, EngineError> {
        self.state
            .lock()
            .runtime
            .clone()
            .ok_or_else(|| EngineError::new("closed", "the engine is closed"))
    }

    fn sweep(&self, grace_ms: u64) {
        let grace = i64::try_from(grace_ms.saturating_mul(NANOS_PER_MILLI)).unwrap_or(i64::MAX);
        if let Err(error) = Log::sweep_deleted(&self.directory.partitions(), grace, now_ns()) {
            let text = format!("files of deleted partitions could not be removed: {error}");
            self.shared
                .events
                .log(30, "storage", text, serde_json::json!({}));
        }
    }

    /// Binds and serves gRPC; port 0 = any free one. Returns the bound port.
    ///
    /// # Errors
    /// `address_in_use`, `address_unusable`, `closed`.
    pub fn serve(&self, host: &str, port: u16) -> Result<u16, EngineError> {
        let runtime = self.runtime()?;
        let _inside = runtime.enter();
        let (serving, bound) = serve::serve(&self.shared, host, port)?;
        self.state.lock().serving = Some(serving);
        Ok(bound)
    }

    /// What health answers; false also refuses new calls.
    pub fn set_serving(&self, serving: bool) {
        self.shared.serving.store(serving, Ordering::Release);
    }

    /// Starts connecting to NATS.
    ///
    /// # Errors
    /// `closed`.
    pub fn connect_nats(&self, settings: NatsSettings) -> Result<(), EngineError> {
        let runtime = self.runtime()?;
        let _inside = runtime.enter();
        self.shared.nats.connect(&self.shared, settings);
        Ok(())
    }

    /// Opens the metadata log: index and state of the newest snapshot; later entries come as events. Blocks.
    ///
    /// # Errors
    /// `metadata_damaged`, `disk_full`, `storage_failed`, `closed`.
    pub fn metadata_open(&self) -> Result<(u64, Vec<u8>), EngineError> {
        self.runtime()?;
        let (log, index, state) =
            MetadataLog::open(&self.shared, self.directory.path(), &self.coordinator)?;
        self.state.lock().metadata = Some(Arc::new(log));
        Ok((index, state))
    }

    fn metadata(&self) -> Result<Arc<MetadataLog>, EngineError> {
        let metadata = self.state.lock().metadata.clone();
        metadata.ok_or_else(|| EngineError::new("metadata_stopped", "the metadata log is not open"))
    }

    /// Appends entries to the metadata log; outcomes come as events.
    ///
    /// # Errors
    /// `metadata_stopped`, `closed`.
    pub fn propose(&self, proposals: Vec<Proposal>, timeout: Duration) -> Result<(), EngineError> {
        let (metadata, runtime) = (self.metadata()?, self.runtime()?);
        let _inside = runtime.enter();
        metadata.propose(proposals, timeout);
        Ok(())
    }

    /// Queues a `barrier` event behind everything committed.
    ///
    /// # Errors
    /// `metadata_stopped`.
    pub fn read_barrier(&self, id: u64) -> Result<(), EngineError> {
        self.metadata()?.read_barrier(id);
        Ok(())
    }

    /// Stores a snapshot. Blocks.
    ///
    /// # Errors
    /// `metadata_damaged`, `disk_full`, `storage_failed`, `metadata_stopped`.
    pub fn save_snapshot(&self, index: u64, state: &[u8]) -> Result<(), EngineError> {
        Ok(self.metadata()?.save_snapshot(index, state)?)
    }

    /// Opens or creates partitions, several at once; one that is open gets the new settings. Returns those that failed:
    /// (incarnation, code, sentence). Blocks for recovery.
    ///
    /// # Errors
    /// `closed`.
    pub fn open(
        &self,
        specs: Vec<PartitionSpec>,
    ) -> Result<Vec<(u64, &'static str, String)>, EngineError> {
        let runtime = self.runtime()?;
        let work = Mutex::new(specs.into_iter());
        let failures = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..OPENERS {
                scope.spawn(|| {
                    let _inside = runtime.enter();
                    while let Some(spec) = { work.lock().next() } {
                        let incarnation = spec.incarnation;
                        if let Err(error) = self.open_one(spec) {
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
            partition.configure(spec);
            return Ok(());
        }
        let path = self
            .directory
            .partitions()
            .join(spec.incarnation.to_string());
        let (partition, recovery) = Partition::open(&self.shared, spec, &path, &self.coordinator)?;
        if let Some(recovery) =
            recovery.filter(|recovery| !recovery.clean || !recovery.damaged.is_empty())
        {
            partition.report_recovery(&recovery);
        }
        self.state
            .lock()
            .partitions
            .insert(partition.identity().incarnation, partition);
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
        runtime.block_on(async {
            for (partition, epoch) in led {
                partition.lead(epoch);
                self.shared.nats.lead(&partition).await;
            }
        });
        Ok(())
    }

    fn partition(&self, incarnation: u64) -> Option<Partition> {
        self.state.lock().partitions.get(&incarnation).cloned()
    }

    /// Stops and closes; unknown ones are ignored. `Deleted` marks the files, which vanish after the grace period.
    ///
    /// # Errors
    /// `closed`.
    pub fn end(&self, incarnations: &[u64], reason: EndReason) -> Result<(), EngineError> {
        let runtime = self.runtime()?;
        let ended: Vec<_> = {
            let mut state = self.state.lock();
            incarnations
                .iter()
                .filter_map(|id| state.partitions.remove(id))
                .collect()
        };
        runtime.block_on(self.close_all(&ended, reason));
        if reason == EndReason::Deleted {
            self.sweep(self.shared.limits.grace_ms);
        }
        Ok(())
    }

    async fn close_all(&self, partitions: &[Partition], reason: EndReason) {
        for partition in partitions {
            self.shared.nats.unlead(partition.identity().incarnation);
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
        let old = self.shared.view.load_full();
        if version <= old.version {
            let text = format!("view version {version} does not follow {}", old.version);
            return Err(EngineError::new("invalid_argument", text));
        }
        let mut view = View::clone(&old);
        view.version = version;
        for (namespace, name) in changes.removed {
            if let Some(streams) = view.namespaces.get_mut(&namespace) {
                streams.remove(&name);
            }
        }
        for stream in changes.streams {
            let stream = stream.view(&state.partitions);
            view.namespaces
                .entry(stream.namespace.clone())
                .or_default()
                .insert(stream.name.clone(), Arc::new(stream));
        }
        self.shared.view.store(Arc::new(view));
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

    /// Counters and gauges as JSON.
    pub fn statistics(&self) -> serde_json::Value {
        let mut values = self.shared.statistics.to_json();
        let sync = self.coordinator.statistics();
        let free = self.shared.inflight.available_permits();
        if let Some(values) = values.as_object_mut() {
            values.insert("events_dropped".into(), self.shared.events.dropped().into());
            values.insert(
                "inflight_bytes".into(),
                (self.shared.limits.inflight_bytes.saturating_sub(free)).into(),
            );
            values.insert("sync_rounds".into(), sync.rounds.into());
            values.insert("sync_files".into(), sync.files.into());
            values.insert("sync_nanos".into(), sync.nanos.into());
            values.insert("sync_longest_nanos".into(), sync.longest_nanos.into());
        }
        values
    }

    /// Stops accepting, ends calls (waiting at most `drain` for those that end by themselves), closes every partition and
    /// the metadata log cleanly, stops the runtime. Idempotent.
    pub fn close(&self, drain: Duration) {
        let (runtime, partitions, metadata, serving) = {
            let mut state = self.state.lock();
            let State {
                runtime,
                partitions,
                metadata,
                serving,
            } = std::mem::take(&mut *state);
            (runtime, partitions, metadata, serving)
        };
        let Some(runtime) = runtime else { return };
        let end = Instant::now() + drain;
        self.set_serving(false);
        self.shared.events.close();
        let partitions: Vec<_> = partitions.into_values().collect();
        runtime.block_on(async {
            let mut serving = serving;
            if let Some(serving) = &mut serving {
                serving.stop_accepting();
            }
            // closing a partition answers what it took and ends its subscriptions; then the calls can end
            self.close_all(&partitions, EndReason::Closed).await;
            self.shared.nats.close().await;
            if let Some(serving) = serving {
                serving
                    .finish(end.saturating_duration_since(Instant::now()))
                    .await;
            }
        });
        if let Some(Err(error)) = metadata.map(|metadata| metadata.close()) {
            self.shared
                .events
                .log(40, "metadata", error.to_string(), serde_json::json!({}));
        }
        if let Some(runtime) = Arc::into_inner(runtime) {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close(Duration::ZERO);
    }
}

fn open_code(error: &bascule_log::Error) -> &'static str {
    match error {
        bascule_log::Error::Full { .. } => "disk_full",
        bascule_log::Error::Io { .. } | bascule_log::Error::Failed { .. } => "storage_failed",
        _ => "damaged",
    }
}
