//! The pieces of this broker, and the sink table that judges them.
use super::call::StageCall;
use super::destination::{StagePartition, StageStream};
use super::error::StageError;
use super::file::{PieceFault, PieceFile};
use super::index::Index;
use super::numbers::Digest;
use super::piece::PieceId;
use super::rules::{self, Admission};
use super::table::{Link, Sink, SinkChanges, SinkTable, StaleVersion};
use super::writer::{Folder, StageSealer, TEMPORARY};
use crate::disk_full::DiskFullTracker;
use crate::events::{Events, Level};
use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout;

/// Folder of pieces within that of their partition.
const FOLDER: &str = "stage";
/// How long a call waits for a table that knows its generation.
const WAIT: Duration = Duration::from_secs(5);
/// All pieces of a broker take at most this part of its disk.
const DISK_PART: u64 = 10;

/// The pieces of one broker. One lock guards the index and changes of the table; it is never held while anything waits for the
/// disk, and no other lock is taken under it.
#[derive(Debug)]
pub struct Stage {
    events: Arc<Events>,
    /// The folder of the partitions, and how much all pieces may take, bytes.
    home: OnceLock<(PathBuf, u64)>,
    table: ArcSwap<SinkTable>,
    index: Mutex<Index>,
    sealers: Mutex<HashMap<u64, Arc<StageSealer>>>,
    files: AtomicU64,
    version: watch::Sender<u64>,
}

impl Stage {
    /// Without pieces; what goes wrong with files that nobody waits for is reported to `events`.
    pub(crate) fn new(events: Arc<Events>) -> Self {
        Self {
            events,
            home: OnceLock::new(),
            table: ArcSwap::default(),
            index: Mutex::default(),
            sealers: Mutex::default(),
            files: AtomicU64::new(0),
            version: watch::Sender::new(0),
        }
    }

    /// Finds the sealed pieces under `partitions`, the folder of all partitions, and removes what was not sealed. To be called
    /// once, before anything is staged. Waits for the disk. What cannot be read is reported and left alone.
    pub(crate) fn open(&self, partitions: &Path) {
        let disk = rustix::fs::statvfs(partitions).map_or(u64::MAX, |about| {
            about.f_blocks.saturating_mul(about.f_frsize)
        });
        // Set once: an engine has one data directory.
        let _ = self.home.set((partitions.to_owned(), disk / DISK_PART));
        if let Err(error) = self.scan(partitions) {
            self.warn(
                partitions,
                &format!("the folder of partitions cannot be scanned for staged rows: {error}"),
            );
        }
    }

    fn scan(&self, partitions: &Path) -> io::Result<()> {
        for entry in fs::read_dir(partitions)? {
            let name = entry?.file_name();
            let Some(incarnation) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let folder = self.folder(incarnation);
            match self.scan_folder(incarnation, &folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    self.warn(&folder, &format!("staged rows cannot be read: {error}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn scan_folder(&self, incarnation: u64, folder: &Path) -> io::Result<()> {
        let now = Instant::now();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (path, about) = (entry.path(), entry.metadata()?);
            if let Some(id) = PieceId::of_file(&path).filter(|_| about.is_file()) {
                let mut index = self.index.lock();
                index.add_found(incarnation, id, about.len(), now);
            } else if path.extension().is_some_and(|ends| ends == TEMPORARY) && about.is_file() {
                fs::remove_file(&path)?;
            } else {
                self.warn(&path, "it is not a piece of staged rows, and is ignored");
            }
        }
        Ok(())
    }

    /// The sink table as it is now.
    pub fn table(&self) -> Arc<SinkTable> {
        self.table.load_full()
    }

    /// The table's version; changes after the table has.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Applies changes to the table. Pieces that are void by it do not count any more; another thread removes them.
    ///
    /// # Errors
    /// [`StaleVersion`]; nothing changes.
    pub fn set_sinks(&self, version: u64, changes: SinkChanges) -> Result<(), StaleVersion> {
        let mut index = self.index.lock();
        let known = self.table.load();
        let changed: Vec<u64> = changes.sinks.iter().map(|sink| sink.id).collect();
        let changed = [changed, changes.removed.clone()].concat();
        // What the table says of other sinks' pieces has not changed.
        let judged = known.is_complete().then_some(&changed[..]);
        let table = Arc::new(known.changed(version, changes)?);
        let void = index.take_void(&table, judged);
        self.table.store(table);
        drop(index);
        self.version.send_replace(version);
        let paths = void.iter();
        let paths = paths.map(|(incarnation, id)| self.folder(*incarnation).join(id.file_name()));
        self.remove_later(paths.collect());
        Ok(())
    }

    /// Forgets what was staged for partitions that are being deleted; their files go with them.
    pub(crate) fn forget(&self, incarnations: &[u64]) {
        let mut index = self.index.lock();
        for incarnation in incarnations {
            index.forget(*incarnation);
        }
        drop(index);
        self.sealers
            .lock()
            .retain(|incarnation, _| !incarnations.contains(incarnation));
    }

    /// Lets a call in that stages rows under `id` for a stream, on behalf of `client` (empty = it has no certificate). Waits
    /// up to 5 s for a table that knows its generation.
    ///
    /// # Errors
    /// [`StageError`]: unknown, void, not owned, in use.
    pub async fn begin(
        self: &Arc<Self>,
        id: PieceId,
        stream: StageStream,
        client: &str,
    ) -> Result<StageCall, StageError> {
        let mut version = self.version.subscribe();
        let known = timeout(WAIT, async {
            while rules::admission(&self.table.load(), &id) == Admission::Unknown {
                // It ends with the engine only.
                if version.changed().await.is_err() {
                    return;
                }
            }
        });
        // The check below says what is missing.
        let _ = known.await;
        let key = (id, stream.id);
        let mut index = self.index.lock();
        let sink = self.check(&id)?;
        if sink.owner != client {
            return Err(StageError::NotOwned {
                name: sink.name.clone(),
                owner: sink.owner.clone(),
            });
        }
        if !index.begin(key, Instant::now()) {
            return Err(StageError::InUse {
                task: id.task,
                attempt: id.task_attempt,
            });
        }
        drop(index);
        Ok(StageCall::new(self, key, sink, stream))
    }

    /// The sink, if rows may be staged under `id` now. Asked under the index's lock it holds until that is released.
    pub(super) fn check(&self, id: &PieceId) -> Result<Arc<Sink>, StageError> {
        let table = self.table.load();
        let unknown = || StageError::Unknown {
            sink: id.sink,
            generation: id.attempt.generation,
        };
        match rules::admission(&table, id) {
            Admission::Open => table.sink(id.sink).cloned().ok_or_else(unknown),
            Admission::Unknown => Err(unknown()),
            Admission::Void(reason) => Err(StageError::Void {
                name: table
                    .sink(id.sink)
                    .map_or_else(|| id.sink.to_string(), |sink| sink.name.clone()),
                epoch: id.attempt.epoch,
                reason,
            }),
        }
    }

    /// The pieces that a decided epoch takes of a partition, in the order of tasks, whose rows add up to what was decided.
    /// Waits for the disk.
    ///
    /// # Errors
    /// [`PieceFault`]: one cannot be read; [`PieceFault::Incomplete`].
    pub fn decided_pieces(
        &self,
        incarnation: u64,
        sink: u64,
        link: &Link,
    ) -> Result<Vec<PieceFile>, PieceFault> {
        let winners = self.winners(incarnation, sink, link);
        let folder = self.folder(incarnation);
        let pieces = winners
            .iter()
            .map(|id| PieceFile::open(&folder, incarnation, id))
            .collect::<Result<Vec<_>, _>>()?;
        let (rows, digest) = sum(&pieces);
        let decided = link.target(incarnation);
        if decided.is_some_and(|decided| (decided.rows, decided.digest) == (rows, digest)) {
            return Ok(pieces);
        }
        Err(PieceFault::Incomplete {
            incarnation,
            pieces: pieces.len(),
            rows,
            decided: decided.map_or(0, |decided| decided.rows),
        })
    }

    /// Winners that lie here, by task: a task wins with one attempt.
    fn winners(&self, incarnation: u64, sink: u64, link: &Link) -> Vec<PieceId> {
        let attempt = link.attempt();
        let index = self.index.lock();
        let pieces = index.of_attempt(incarnation, sink, attempt);
        pieces
            .map(|(id, _)| *id)
            .filter(|id| rules::is_winner(&attempt, &link.winners, id))
            .collect()
    }

    /// Pieces, open calls and links of a partition: with any of them it does not pause by itself.
    pub fn held(&self, incarnation: u64) -> u64 {
        let links = self.table.load().decided(incarnation).count();
        (self.index.lock().held(incarnation) + links) as u64
    }

    /// What is staged, open calls included, as it counts against quotas, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.index.lock().total()
    }

    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }

    /// Most bytes of all pieces.
    pub(super) fn broker_bytes(&self) -> u64 {
        self.home.get().map_or(u64::MAX, |(_, bytes)| *bytes)
    }

    /// The data directory has so many bytes free, for a link to store rows in; `None` = it does not say.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        let (path, _) = self.home.get()?;
        let about = rustix::fs::statvfs(path).ok()?;
        Some(about.f_bavail.saturating_mul(about.f_frsize))
    }

    /// Whether writes to the data directory are refused for want of space.
    pub(crate) fn is_full(&self, disk_full: &DiskFullTracker) -> bool {
        self.home
            .get()
            .is_some_and(|(path, _)| disk_full.is_full(path))
    }

    /// A number for a temporary file, unique in this run.
    pub(super) fn next_file(&self) -> u64 {
        self.files.fetch_add(1, Ordering::Relaxed)
    }

    /// Where the pieces of a partition go.
    pub(super) fn folder_of(&self, partition: &StagePartition) -> Folder {
        let sealer = self
            .sealers
            .lock()
            .entry(partition.incarnation)
            .or_default()
            .clone();
        Folder {
            path: self.folder(partition.incarnation),
            incarnation: partition.incarnation,
            number: partition.number,
            sealer,
        }
    }

    /// The stage folder of a partition.
    pub(super) fn folder(&self, incarnation: u64) -> PathBuf {
        let home = self.home.get().map_or(Path::new(""), |(path, _)| path);
        home.join(incarnation.to_string()).join(FOLDER)
    }

    /// Removes files on a thread of their own; those that are not there are fine.
    pub(super) fn remove_later(&self, paths: Vec<PathBuf>) {
        if paths.is_empty() {
            return;
        }
        let events = self.events.clone();
        let removing = std::thread::Builder::new().name("stage".to_owned());
        let started = removing.spawn(move || {
            for path in paths {
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        warn(&events, &path, &format!("it could not be removed: {error}"));
                    }
                    _ => {}
                }
            }
        });
        if let Err(error) = started {
            let text = format!("void pieces stay until the next start: {error}");
            self.warn(Path::new(""), &text);
        }
    }

    fn warn(&self, path: &Path, what: &str) {
        warn(&self.events, path, what);
    }
}

/// Rows and digest of pieces.
pub(super) fn sum<'a>(pieces: impl IntoIterator<Item = &'a PieceFile>) -> (u64, Digest) {
    let sums = pieces.into_iter().map(PieceFile::contents);
    let (rows, digest) = sums.fold((0_u64, 0_u128), |(rows, digest), contents| {
        (
            rows.saturating_add(contents.rows),
            digest.wrapping_add(contents.digest.0),
        )
    });
    (rows, Digest(digest))
}

fn warn(events: &Events, path: &Path, what: &str) {
    let text = format!("{}: {what}", path.display());
    events.log(Level::Warning, "stage", text, json!({"path": path}));
}
