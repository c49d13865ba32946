//! Creating a log and opening one that is there.
//!
//! Opening looks before it touches: identities and format versions of all segments are checked first, and a refusal
//! leaves every byte as it was. Then leftovers are resolved, by what is there:
//!
//! | Present | Meaning | Action |
//! |---|---|---|
//! | `*.tmp` | a replacement that was not finished | remove |
//! | `*.deleted-<ns>` | removed by retention or by a cut | leave it for its grace period |
//! | `.idx` without its `.seg` | a removal half done | remove |
//! | segments that end at or before the checkpoint's log start | a removal half done | finish it |
//! | no segment, but a checkpoint above 0 | all segments were lost | go on at the durable point, the rest is damage |
//! | last segment without a readable preamble and without a batch | a roll half done | remove; a sole one is made anew |
use crate::ahead::SegmentFile;
use crate::checkpoint::{CHECKPOINT, Checkpoint, CheckpointFile};
use crate::disk;
use crate::epochs::EpochTable;
use crate::maintain::{create_segment, current, first_preamble};
use crate::preamble::{FORMAT_VERSION, PREAMBLE_BYTES, Preamble};
use crate::producers::Producers;
use crate::recover::{Recovered, Recovery};
use crate::retention::mark_removed;
use crate::scan::{Found, Place, Scanner};
use crate::segment::{Segment, base_offset_of};
use crate::shared::Shared;
use crate::storage::{OpenMode, Storage, StorageFile};
use crate::{Coordinator, Error, Identity, Log, LogOptions};
use bascule_record::planted;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A segment's file as found on disk.
pub(crate) struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// From its name.
    pub base_offset: u64,
    /// Open for reading and writing.
    pub file: Arc<dyn StorageFile>,
    /// Its length, bytes.
    pub len: u64,
    /// `None` when it does not check, or is another log's.
    pub preamble: Option<Preamble>,
    /// Whose segment lies here instead of ours.
    pub foreign: Option<Identity>,
}

impl Log {
    /// Creates the directory and the first segment, both synced. Fails when the directory exists with segments.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Failed`], [`Error::Io`].
    pub fn create(
        directory: &Path,
        identity: Identity,
        options: LogOptions,
        coordinator: &Arc<Coordinator>,
    ) -> Result<Self, Error> {
        coordinator.check_usable()?;
        Self::make(directory, identity, options.bounded(), coordinator)
            .inspect_err(|error| coordinator.rounds().fail_if_lost(error))
    }

    fn make(
        directory: &Path,
        identity: Identity,
        options: LogOptions,
        coordinator: &Arc<Coordinator>,
    ) -> Result<Self, Error> {
        let storage = coordinator.files().storage();
        disk::create_directories(storage, directory)?;
        if disk::list(storage, directory)?
            .iter()
            .any(|path| base_offset_of(path).is_some())
        {
            return Err(Error::Exists {
                path: directory.to_path_buf(),
            });
        }
        let mut checkpoint = CheckpointFile::open(storage, directory, identity)?;
        checkpoint.write(Checkpoint::default())?;
        checkpoint.target().sync()?;
        let (segment, file) = create_segment(
            coordinator.files(),
            directory,
            first_preamble(storage, identity, 0),
            &options,
        )?;
        file.target().sync()?;
        let epochs = EpochTable::open(storage, directory, identity, Vec::new())?;
        disk::sync_directory_and_name(storage, directory)?;
        let shared = Shared::new(
            directory.to_path_buf(),
            identity,
            vec![Arc::clone(&segment)],
            0,
        );
        shared.quarantine.attach(
            directory,
            identity,
            coordinator.rounds(),
            coordinator.preparer(),
            &[],
        );
        let parts = Parts {
            shared,
            segment,
            file,
            chain: 0,
            epochs,
            producers: Producers::default(),
            checkpoint,
        };
        Ok(parts.into_log(options, coordinator))
    }

    /// Opens and recovers (§3.1): cut at the first failure at or above the durable point, sync the cut, then go on;
    /// below it: damage, nothing is cut, the range is quarantined. Blocks.
    ///
    /// Everything recovered is durable when this returns. The high watermark is the checkpoint's, at most the log end.
    ///
    /// # Errors
    /// [`Error::Absent`], [`Error::NewerFormat`], [`Error::Foreign`]: nothing was touched. [`Error::Failed`], [`Error::Io`].
    pub fn open(
        directory: &Path,
        identity: Identity,
        options: LogOptions,
        coordinator: &Arc<Coordinator>,
    ) -> Result<(Self, Recovery), Error> {
        coordinator.check_usable()?;
        Self::recover(directory, identity, options.bounded(), coordinator)
            .inspect_err(|error| coordinator.rounds().fail_if_lost(error))
    }

    fn recover(
        directory: &Path,
        identity: Identity,
        options: LogOptions,
        coordinator: &Arc<Coordinator>,
    ) -> Result<(Self, Recovery), Error> {
        let storage = coordinator.files().storage();
        let mut sources = find_sources(storage, directory)?;
        sources.iter().try_for_each(check_version)?;
        let known = holds(storage, directory, CHECKPOINT)?;
        set_foreign_aside(&mut sources, identity, known)?;
        let absent = || Error::Absent {
            path: directory.to_path_buf(),
        };
        if sources.is_empty() && !known {
            return Err(absent());
        }
        let mut checkpoint = CheckpointFile::open(storage, directory, identity)?;
        if let Some(first) = sources.first() {
            checkpoint.settle_log_start(first.base_offset);
        }
        let last = checkpoint.last();
        // A log that has begun is never begun anew, whatever became of its segments: its offsets are used.
        let has_begun = last.is_some_and(|last| last.durable > 0 || last.log_start > 0);
        if sources.is_empty() && !has_begun {
            return Err(absent());
        }
        let durable = last.map_or(0, |last| last.durable);
        // Behind the durable point it would be cut, but it is not a torn tail.
        if let Some(last) = sources.last().filter(|last| last.base_offset >= durable)
            && let Some(found) = last.foreign
        {
            return Err(foreign(last, identity, found));
        }
        tidy(storage, directory, &sources)?;
        drop_half_rolled(
            storage,
            directory,
            identity,
            &mut sources,
            last.map_or(0, |last| last.durable),
        )?;
        drop_removed(
            storage,
            directory,
            &mut sources,
            last.map_or(0, |last| last.log_start),
        )?;
        if !last.is_some_and(|last| last.clean) {
            trust_the_disk_alone(&mut sources, last.map_or(0, |last| last.durable))?;
        }
        if sources.is_empty() {
            let base = last.map_or(0, |last| last.log_start);
            let (_, file) = create_segment(
                coordinator.files(),
                directory,
                first_preamble(storage, identity, base),
                &options,
            )?;
            file.target().sync()?;
            disk::sync_directory(storage, directory)?;
            sources = find_sources(storage, directory)?;
        }
        let recovered = Recovered::scan(
            coordinator.files(),
            directory,
            identity,
            sources,
            last,
            &options,
        )?;
        let known = checkpoint.last().map_or(0, |last| last.high_watermark);
        let (mut log, mut report) =
            Self::from_recovered(recovered, checkpoint, identity, options, coordinator)?;
        if let Some(journal) = coordinator.rounds().journal().filter(|_| log.journaled)
            && let Some(replay) = journal.replay(identity)
        {
            report.replayed = log.take_over(&replay)?;
            log.set_high_watermark(known);
            journal.replayed(identity);
        }
        Ok((log, report))
    }

    fn from_recovered(
        recovered: Recovered,
        mut checkpoint: CheckpointFile,
        identity: Identity,
        options: LogOptions,
        coordinator: &Arc<Coordinator>,
    ) -> Result<(Self, Recovery), Error> {
        let last = checkpoint.last();
        let directory = recovered.directory;
        // Offsets between the log start and the first segment are lost, not removed.
        let log_start = last.map_or(recovered.first_offset, |last| last.log_start);
        let shared = Shared::new(directory.clone(), identity, recovered.segments, log_start);
        shared.set_log_end(recovered.next_offset, recovered.last_timestamp);
        shared.raise_settled_end(recovered.next_offset);
        shared.raise_high_watermark(last.map_or(log_start, |last| last.high_watermark));
        checkpoint.write(current(&shared, false))?;
        if last.is_none() {
            // From now on there is one: without it a torn tail in a sealed segment could not be told from damage.
            checkpoint.target().sync()?;
        }
        shared.quarantine.attach(
            &directory,
            identity,
            coordinator.rounds(),
            coordinator.preparer(),
            &recovered.quarantine,
        );
        let parts = Parts {
            epochs: EpochTable::open(
                coordinator.files().storage(),
                &directory,
                identity,
                recovered.epochs,
            )?,
            shared,
            segment: recovered.active,
            file: recovered.file,
            chain: recovered.chain,
            producers: recovered.producers,
            checkpoint,
        };
        Ok((parts.into_log(options, coordinator), recovered.report))
    }
}

/// What a log is made of, however it came about.
struct Parts {
    shared: Shared,
    segment: Arc<Segment>,
    file: Arc<SegmentFile>,
    chain: u32,
    epochs: EpochTable,
    producers: Producers,
    checkpoint: CheckpointFile,
}

impl Parts {
    fn into_log(self, options: LogOptions, coordinator: &Arc<Coordinator>) -> Log {
        let journal = coordinator.rounds().journal();
        let journaled = journal.is_some_and(|journal| journal.serves(&self.shared.directory));
        Log {
            directory: Arc::from(self.shared.directory.as_path()),
            shared: {
                self.shared.set_keys(&options.keys);
                self.shared.names.lock().opened = coordinator.files().storage().monotonic_ns();
                Arc::new(self.shared)
            },
            coordinator: Arc::clone(coordinator),
            preparer: coordinator.preparer(),
            journaled,
            committed_to: self.segment.end(),
            options,
            sealer: None,
            active: self.segment,
            file: self.file,
            chain: self.chain,
            epochs: self.epochs,
            epochs_dirty: false,
            producers: self.producers,
            checkpoint: Arc::new(Mutex::new(self.checkpoint)),
            compacting: Arc::default(),
        }
    }
}

/// Opens a segment's file and reads its preamble.
pub(crate) fn open_source(
    storage: &dyn Storage,
    path: PathBuf,
    base_offset: u64,
    mode: OpenMode,
) -> Result<Source, Error> {
    let file = disk::open(storage, &path, mode)?;
    let len = file
        .len()
        .map_err(|source| Error::io("look at", &path, source))?;
    let mut source = Source {
        preamble: None,
        path,
        base_offset,
        file,
        len,
        foreign: None,
    };
    read_preamble(&mut source)?;
    Ok(source)
}

fn read_preamble(source: &mut Source) -> Result<(), Error> {
    let mut bytes = [0; PREAMBLE_BYTES as usize];
    let read = disk::read_up_to(&*source.file, &mut bytes, 0)
        .map_err(|error| Error::io("read", &source.path, error))?;
    let preamble = Preamble::read(bytes.get(..read).unwrap_or_default());
    source.preamble = preamble.filter(|preamble| {
        preamble.base_offset == source.base_offset || preamble.version != FORMAT_VERSION
    });
    Ok(())
}

/// Syncs the segments that begin beyond the durable point and forgets what is cached of them. An earlier life may have
/// ended after a failed sync: then the page cache shows batches that the disk does not have. The segment in which the
/// durable point lies is treated so by the walk, from that point on: what lies before it was synced with success.
fn trust_the_disk_alone(sources: &mut [Source], durable: u64) -> Result<(), Error> {
    let bases: Vec<u64> = sources.iter().map(|source| source.base_offset).collect();
    for (i, source) in sources.iter_mut().enumerate() {
        let beyond = bases.get(i + 1).is_none_or(|next| *next > durable);
        if beyond && source.base_offset >= durable {
            source
                .file
                .forget_cached(0)
                .map_err(|error| Error::io("sync", &source.path, error))?;
            if source.foreign.is_none() {
                read_preamble(source)?;
            }
        }
    }
    Ok(())
}

/// The segments in order of their base offsets, to be written to.
fn find_sources(storage: &dyn Storage, directory: &Path) -> Result<Vec<Source>, Error> {
    list_sources(storage, directory, OpenMode::ReadWrite)
}

/// The same, only to be read.
pub(crate) fn find_sources_to_read(
    storage: &dyn Storage,
    directory: &Path,
) -> Result<Vec<Source>, Error> {
    list_sources(storage, directory, OpenMode::Read)
}

fn list_sources(
    storage: &dyn Storage,
    directory: &Path,
    mode: OpenMode,
) -> Result<Vec<Source>, Error> {
    let paths = match disk::list(storage, directory) {
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Vec::new()
        }
        other => other?,
    };
    let segments = paths
        .into_iter()
        .filter_map(|path| base_offset_of(&path).map(|base| (path, base)));
    segments
        .map(|(path, base)| open_source(storage, path, base, mode))
        .collect()
}

/// Whether the directory is there and holds the name.
fn holds(storage: &dyn Storage, directory: &Path, name: &str) -> Result<bool, Error> {
    match disk::list(storage, directory) {
        Ok(paths) => Ok(paths.contains(&directory.join(name))),
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Refuses what a newer version wrote.
fn check_version(source: &Source) -> Result<(), Error> {
    match &source.preamble {
        Some(preamble) if preamble.version > FORMAT_VERSION => Err(Error::NewerFormat {
            path: source.path.clone(),
            found: preamble.version,
            supported: FORMAT_VERSION,
        }),
        _ => Ok(()),
    }
}

/// A segment of another log among ours is damage, as if its preamble did not check. When none is ours the directory is
/// another log's; and where another log's segment may hold the end of ours, which would be cut, nothing is touched.
fn set_foreign_aside(
    sources: &mut [Source],
    identity: Identity,
    has_checkpoint: bool,
) -> Result<(), Error> {
    let is_foreign = |source: &Source| {
        let found = source.preamble.map(|preamble| preamble.identity);
        found.filter(|found| *found != identity && !planted::is(26))
    };
    let ours = sources
        .iter()
        .any(|source| source.preamble.is_some() && is_foreign(source).is_none());
    let last_is_foreign = sources
        .last()
        .is_some_and(|last| is_foreign(last).is_some());
    for source in sources {
        let Some(found) = is_foreign(source) else {
            continue;
        };
        if !ours || (last_is_foreign && !has_checkpoint) {
            return Err(foreign(source, identity, found));
        }
        source.preamble = None;
        source.foreign = Some(found);
    }
    Ok(())
}

fn foreign(source: &Source, identity: Identity, found: Identity) -> Error {
    Error::Foreign {
        path: source.path.clone(),
        incarnation: identity.incarnation,
        partition: identity.partition,
        found_incarnation: found.incarnation,
        found_partition: found.partition,
    }
}

/// Removes names that mean nothing any more.
fn tidy(storage: &dyn Storage, directory: &Path, sources: &[Source]) -> Result<(), Error> {
    for path in disk::list(storage, directory)? {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let orphan = extension == Some("idx")
            && !sources
                .iter()
                .any(|source| source.path.with_extension("idx") == path);
        if orphan || extension == Some("tmp") {
            disk::remove_file(storage, &path)?;
        }
    }
    Ok(())
}

/// The last segment may be one whose creation was never synced; nothing in it was ever acked then.
fn drop_half_rolled(
    storage: &dyn Storage,
    directory: &Path,
    identity: Identity,
    sources: &mut Vec<Source>,
    durable: u64,
) -> Result<(), Error> {
    let Some(last) = sources.last() else {
        return Ok(());
    };
    if last.preamble.is_some() || last.base_offset < durable || has_batch(last, identity)? {
        return Ok(());
    }
    mark_removed(
        storage,
        directory,
        std::iter::once(last.path.as_path()),
        storage.wall_clock_ns(),
    )?;
    sources.pop();
    Ok(())
}

fn has_batch(source: &Source, identity: Identity) -> Result<bool, Error> {
    let place = Place {
        position: PREAMBLE_BYTES,
        offset: source.base_offset,
        chain: None,
        epoch: 0,
    };
    let found = Scanner::new(&*source.file, source.len, identity)
        .look(&place, true)
        .map_err(|error| Error::io("read", &source.path, error))?;
    Ok(matches!(found, Found::Batch(_) | Found::Unsupported(_)))
}

/// Finishes a removal that the checkpoint tells of.
fn drop_removed(
    storage: &dyn Storage,
    directory: &Path,
    sources: &mut Vec<Source>,
    log_start: u64,
) -> Result<(), Error> {
    let bases: Vec<u64> = sources
        .iter()
        .skip(1)
        .map(|source| source.base_offset)
        .collect();
    let count = bases
        .iter()
        .take_while(|next_base| **next_base <= log_start)
        .count();
    if count == 0 {
        return Ok(());
    }
    let removed: Vec<Source> = sources.drain(..count).collect();
    mark_removed(
        storage,
        directory,
        removed.iter().map(|source| source.path.as_path()),
        storage.wall_clock_ns(),
    )
}
