//! The engine: its start, its parts, its end.
use super::cluster::ClusterStart;
use super::error::open_code;
use super::parts::Parts;
use super::replicas::LogChanger;
use super::serve::{self, BoundPort, Listening, Serving};
use super::{DataDirectory, EngineError, EngineSettings, directory};
use crate::admission::for_segments;
use crate::clock::cautious_now_ns;
use crate::cluster::Member;
use crate::consensus::{self, Door, Opened, Proposal};
use crate::encryption::MasterKeyStore;
use crate::events::{Events, Level};
use crate::groups::GroupVersions;
use crate::limits::Limits;
use crate::metrics::MetricsContext;
use crate::nats::{NatsLink, NatsSettings};
use crate::partition::{EndReason, Partition, link};
use crate::tools;
use crate::watchdog::{Descriptors, EventLoop, Stop, WatchSettings, Watchdog};
use bascule_log::{DeletedLogs, GroupCommitter, OsStorage, WalOptions};
use bascule_wire::ErrorCode;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak, atomic::AtomicBool};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

const NANOS_PER_MILLI: u64 = 1_000_000;
/// How long calls may end by themselves before partitions are closed.
const CALL_GRACE: Duration = Duration::from_secs(1);
/// Between two looks for segments that nobody uses.
const IDLE_FILES_INTERVAL: Duration = Duration::from_secs(30);
/// Between two looks at the clock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(5);
/// Bounds of the pause between two looks for files to remove.
const MIN_SWEEP_PAUSE: Duration = Duration::from_millis(100);
const MAX_SWEEP_PAUSE: Duration = Duration::from_mins(1);

/// The data plane of one broker.
#[derive(Debug)]
pub struct Engine {
    pub(crate) parts: Arc<Parts>,
    pub(super) metrics: Arc<MetricsContext>,
    pub(super) data: PathBuf,
    pub(super) committer: Arc<GroupCommitter>,
    pub(super) admin: Arc<Mutex<()>>,
    pub(super) state: Arc<Mutex<State>>,
    /// Whether scrubs wait.
    pub(super) scrub_paused: AtomicBool,
    /// Wakes the task that removes files of deleted partitions.
    pub(super) deleted: Arc<Notify>,
    pub(super) cluster: Option<ClusterStart>,
    /// Whose threads these are.
    process: u32,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Locked until the engine is closed.
    pub(super) directory: Option<DataDirectory>,
    runtime: Option<Arc<Runtime>>,
    pub(super) partitions: HashMap<u64, Partition>,
    /// First and last receipt of partitions that are paused, so that a resume does not forget them.
    pub(super) paused_receipts: HashMap<u64, (i64, i64)>,
    metadata: Option<Arc<dyn Door>>,
    pub(super) member: Option<Arc<Member>>,
    watchdog: Option<Watchdog>,
    bound: Option<BoundPort>,
    serving: Option<Serving>,
    pub(super) http: Option<Listening>,
    pub(super) iggy: super::iggy::Listeners,
}

impl Engine {
    /// Locks and checks the data directory, removes what deleted streams left, starts the runtime.
    ///
    /// # Errors
    /// `data_directory_…`; `configuration_invalid` for a master key that cannot be used; `internal` when the system gives no threads or descriptors.
    pub fn new(settings: &EngineSettings) -> Result<Self, EngineError> {
        let internal = |error: std::io::Error| {
            EngineError::new(
                ErrorCode::Internal,
                format!("cannot start the runtime: {error}"),
            )
        };
        #[cfg(feature = "failpoints")]
        bascule_log::failpoint::set_from_environment()
            .map_err(|text| EngineError::new(ErrorCode::InvalidArgument, text))?;
        let master_keys = MasterKeyStore::load(&settings.encryption)?;
        let descriptors = raise_descriptors();
        let open = match &settings.cluster {
            None => DataDirectory::open,
            Some(_) => DataDirectory::open_of_cluster,
        };
        let directory = open(
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
        let parts = Arc::new(Parts::new(settings, master_keys).map_err(internal)?);
        let events = &parts.events;
        for text in directory.restrict() {
            let fields = serde_json::json!({"path": directory.path()});
            events.log(Level::Warning, "storage", text, fields);
        }
        if let Err(error) = descriptors {
            let text = format!("the limit of open files could not be raised: {error}");
            events.log(Level::Warning, "storage", text, serde_json::json!({}));
        }
        let partitions = directory::partitions(directory.path());
        parts.partitions.stage.open(&partitions);
        let committer = start_log(directory.path(), &settings.limits)?;
        report_wal_damage(&committer, events);
        let weak = Arc::downgrade(&committer);
        let metrics = parts.metrics(weak.clone(), directory.path().to_owned());
        runtime.spawn(close_idle_files(weak));
        runtime.spawn(watch_clock());
        runtime.spawn(link::drive(parts.partitions.clone()));
        let deleted = Arc::<Notify>::default();
        runtime.spawn(sweep(
            events.clone(),
            deleted.clone(),
            settings.limits.grace_ms,
            partitions,
        ));
        let data = directory.path().to_owned();
        let (admin, directory) = (Arc::default(), Some(directory));
        let state = Arc::new(Mutex::new(State {
            directory,
            ..State::default()
        }));
        runtime.spawn(LogChanger::new(&data, &parts, &committer, &admin, &state).run());
        state.lock().runtime = Some(Arc::new(runtime));
        Ok(Self {
            parts,
            metrics: Arc::new(metrics),
            data,
            committer,
            admin,
            state,
            scrub_paused: AtomicBool::new(false),
            deleted,
            cluster: ClusterStart::of(settings),
            process: std::process::id(),
        })
    }

    /// A new data key of this number for a stream, wrapped by the current master key: (id of the master key, base64).
    ///
    /// # Errors
    /// `encryption_unavailable`: there is no usable master key; the sentence begins with the reason.
    pub fn new_data_key(&self, number: u32) -> Result<(String, String), EngineError> {
        let made = self.parts.partitions.master_keys.new_data_key(number);
        made.map_err(|reason| EngineError::new(ErrorCode::EncryptionUnavailable, reason))
    }

    /// Events and requests for the control plane.
    pub fn events(&self) -> &Events {
        &self.parts.events
    }

    /// Whether the control plane runs.
    pub fn event_loop(&self) -> &EventLoop {
        &self.parts.event_loop
    }

    /// For members of consumer groups that wait for a change.
    pub fn groups(&self) -> &GroupVersions {
        &self.parts.groups
    }

    /// The connections to NATS.
    pub fn nats(&self) -> &NatsLink {
        &self.parts.nats
    }

    pub(super) fn runtime(&self) -> Result<Arc<Runtime>, EngineError> {
        self.state
            .lock()
            .runtime
            .clone()
            .ok_or_else(|| EngineError::new(ErrorCode::Closed, "the engine is closed"))
    }

    /// Reserves the port of the gRPC server; 0 = any free one. Returns it. The kernel refuses connections until
    /// [`Engine::listen`].
    ///
    /// # Errors
    /// `address_in_use`, `address_unusable`, `closed`.
    pub fn bind(&self, host: &str, port: u16) -> Result<u16, EngineError> {
        self.runtime()?;
        let bound = BoundPort::bind(host, port)?;
        let port = bound.port();
        self.state.lock().bound = Some(bound);
        Ok(port)
    }

    /// Serves gRPC on the port that [`Engine::bind`] reserved.
    ///
    /// # Errors
    /// `address_in_use`: somebody else began to listen there first; `invalid_argument`: no port is bound; `closed`.
    pub fn listen(&self) -> Result<(), EngineError> {
        let runtime = self.runtime()?;
        let _inside = runtime.enter();
        let bound = self.state.lock().bound.take();
        let bound = bound.ok_or_else(|| {
            EngineError::new(ErrorCode::InvalidArgument, "no port is bound: bind first")
        })?;
        let serving = serve::serve(self.parts.services(), bound)?;
        self.state.lock().serving = Some(serving);
        Ok(())
    }

    /// The answer of health checks; false also refuses new calls.
    pub fn set_serving(&self, serving: bool) {
        self.parts.run_state.set_serving(serving);
        if !serving {
            self.parts.groups.close();
        }
    }

    /// Starts the watch over the control plane's event loop; where the process writes what it needs.
    ///
    /// # Errors
    /// `internal` when the system gives no thread or sockets; `closed`.
    pub fn watch(self: &Arc<Self>, settings: WatchSettings) -> Result<Descriptors, EngineError> {
        self.runtime()?;
        let started = Watchdog::start(
            self.parts.events.clone(),
            self.parts.event_loop.clone(),
            settings,
            Arc::downgrade(self),
        );
        let watchdog = started.map_err(|error| {
            EngineError::new(
                ErrorCode::Internal,
                format!("cannot start the watchdog: {error}"),
            )
        })?;
        let descriptors = watchdog.descriptors();
        self.state.lock().watchdog = Some(watchdog);
        Ok(descriptors)
    }

    /// Starts connecting to NATS.
    ///
    /// # Errors
    /// `closed`.
    pub fn connect_nats(&self, settings: NatsSettings) -> Result<(), EngineError> {
        let runtime = self.runtime()?;
        let _inside = runtime.enter();
        self.parts.nats.connect(settings);
        Ok(())
    }

    /// Opens the metadata log: index and state of the newest snapshot, and the index of the last entry; entries after the
    /// snapshot come as events. Blocks.
    ///
    /// # Errors
    /// `metadata_damaged`, `data_directory_foreign` (it is a voter's, of a cluster), `disk_full`, `storage_failed`, `closed`; in a cluster
    /// also those of its port and its certificates.
    pub fn metadata_open(&self) -> Result<(u64, Vec<u8>, u64), EngineError> {
        let _one = self.admin.lock();
        self.runtime()?;
        if self.state.lock().metadata.is_some() {
            let text = "the metadata log is open already";
            return Err(EngineError::new(ErrorCode::InvalidArgument, text));
        }
        let Opened {
            door,
            snapshot_index,
            snapshot,
        } = match &self.cluster {
            None => consensus::open(&self.parts.events, &self.data, &self.committer)?,
            Some(cluster) => self.join(cluster)?,
        };
        let last = door.last_index();
        self.state.lock().metadata = Some(door);
        self.parts.run_state.set_metadata_open();
        Ok((snapshot_index, snapshot, last))
    }

    fn metadata(&self) -> Result<Arc<dyn Door>, EngineError> {
        let metadata = self.state.lock().metadata.clone();
        metadata.ok_or_else(|| {
            EngineError::new(ErrorCode::MetadataStopped, "the metadata log is not open")
        })
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

    /// Stops accepting, lets calls end by themselves, closes every partition and the metadata log cleanly, ends the calls
    /// that are left after `drain`, stops the runtime and unlocks the directory. Idempotent.
    pub fn close(&self, drain: Duration) {
        let _one = self.admin.lock();
        let State {
            directory,
            runtime,
            partitions,
            paused_receipts: _,
            metadata,
            member,
            watchdog: _watching,
            bound: _,
            serving,
            http,
            iggy,
        } = std::mem::take(&mut *self.state.lock());
        let Some(runtime) = runtime else { return };
        self.set_serving(false);
        let partitions: Vec<_> = partitions.into_values().collect();
        runtime.block_on(self.drain(&partitions, serving, Instant::now() + drain));
        if let Some(Err(error)) = metadata.map(|metadata| metadata.close()) {
            let text = error.to_string();
            let fields = serde_json::json!({});
            self.parts
                .events
                .log(Level::Error, "metadata", text, fields);
        }
        drop(member);
        self.committer.flush_wal();
        runtime.block_on(iggy.close());
        drop(http);
        self.parts.events.close();
        // The servers hold the view, and it the partitions.
        self.parts.view.store(Arc::default());
        if let Some(runtime) = Arc::into_inner(runtime) {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
        drop(directory);
    }

    async fn drain(&self, partitions: &[Partition], mut serving: Option<Serving>, end: Instant) {
        for partition in partitions {
            self.parts
                .nats
                .stop_feeding(partition.identity().incarnation);
        }
        // Unary calls and publishers see that the broker stops and end. Tailing readers end with their partition.
        if let Some(serving) = &mut serving {
            serving.stop_accepting();
            serving.wait(end.min(Instant::now() + CALL_GRACE)).await;
        }
        self.close_all(partitions, EndReason::Closed).await;
        // After the partitions: their acks and copies go out first.
        self.parts.nats.close().await;
        if let Some(mut serving) = serving {
            serving.wait(end).await;
            serving.abort();
        }
    }
}

impl Stop for Engine {
    fn stop(&self, drain: Duration) {
        self.close(drain);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if std::process::id() == self.process {
            return self.close(Duration::ZERO);
        }
        // A forked child: the threads to wait for are the parent's, so whatever waits for them on drop is leaked.
        std::mem::forget(self.state.clone());
        std::mem::forget(self.committer.clone());
        std::mem::forget(self.parts.clone());
    }
}

/// The committer of the directory, with a journal for its partitions. What a journal holds is also taken over when it is
/// not to be used any more.
fn start_log(data: &Path, limits: &Limits) -> Result<Arc<GroupCommitter>, EngineError> {
    let mut options = WalOptions::new(data.join("journal"), directory::partitions(data));
    options.from_dirty_files = match limits.journal_from_dirty_files {
        0 => usize::MAX,
        files => files,
    };
    let committer = GroupCommitter::start_with_wal(Arc::new(OsStorage), options)
        .map_err(|error| EngineError::new(open_code(&error), error.to_string()))?;
    committer.set_open_segments(for_segments(limits.open_segments));
    Ok(committer)
}

/// Says what of the journal did not check; what that costs a partition is said when it is opened.
fn report_wal_damage(committer: &GroupCommitter, events: &Events) {
    for damage in committer.wal_damages() {
        let (incarnation, start, end) = match damage.of {
            Some((log, start, end)) => (Some(log.incarnation), Some(start), Some(end)),
            None => (None, None, None),
        };
        let fields = serde_json::json!({
            "path": damage.path,
            "position": damage.position,
            "incarnation": incarnation,
            "start": start,
            "end": end,
            "acknowledged": damage.was_acked,
        });
        let (level, text) = (
            if damage.is_loss() {
                Level::Error
            } else {
                Level::Warning
            },
            tools::journal_damage(&damage),
        );
        events.log(level, "storage", text, fields);
    }
}

/// Raises the limit of open files to the hard one: a broker needs one for each partition and each connection.
fn raise_descriptors() -> std::io::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Closes the files of segments that were not used for a while, until the engine is gone.
async fn close_idle_files(committer: Weak<GroupCommitter>) {
    loop {
        tokio::time::sleep(IDLE_FILES_INTERVAL).await;
        let Some(committer) = committer.upgrade() else {
            return;
        };
        // The last handle must not be dropped on a thread of the runtime: that waits for the log's threads.
        let closed = tokio::task::spawn_blocking(move || committer.close_idle_files());
        if closed.await.is_err() {
            return;
        }
    }
}

/// Looks at the clock, so that one which jumps is known by the time that something is removed, until the runtime ends.
async fn watch_clock() {
    loop {
        cautious_now_ns();
        tokio::time::sleep(CLOCK_INTERVAL).await;
    }
}

/// Removes what deleted partitions left, once their grace period is over, until the runtime ends.
async fn sweep(events: Arc<Events>, deleted: Arc<Notify>, grace_ms: u64, partitions: PathBuf) {
    let grace = i64::try_from(grace_ms.saturating_mul(NANOS_PER_MILLI)).unwrap_or(i64::MAX);
    let pause = Duration::from_millis(grace_ms).clamp(MIN_SWEEP_PAUSE, MAX_SWEEP_PAUSE);
    let logs = Arc::new(Mutex::new(DeletedLogs::default()));
    loop {
        let (partitions, logs) = (partitions.clone(), Arc::clone(&logs));
        let swept = tokio::task::spawn_blocking(move || {
            let swept = logs.lock().sweep(&partitions, grace);
            swept.map_err(|error| error.to_string())
        });
        if let Ok(Err(error)) = swept.await {
            let text = format!("files of deleted partitions could not be removed: {error}");
            events.log(Level::Warning, "storage", text, serde_json::json!({}));
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // Its grace begins now.
            () = deleted.notified() => {}
        }
    }
}
