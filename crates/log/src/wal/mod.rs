//! The journal of a data directory: one file to sync when many partitions are dirty at once.
//!
//! A round of the group committer that finds many dirty segments copies what each of them has got since its last commit into
//! the journal, syncs that one file and answers; the segments themselves are synced later (64 MiB or 5 s), by the
//! background worker. With few dirty segments a round syncs them directly, unless it has few bytes and one of them waits for that
//! later sync: then the round would have to do it, and goes to the journal as well.
//!
//! * [`ring`]: the files, made in advance, filled one after the other and used again once the segments are synced.
//! * [`head`]: which uses of the files there have to be, in a file beside them.
//! * [`mod@format`]: preamble and frames; the bytes are in `specs/formats/journal.md`.
//! * [`mark`]: how far the frames of a file reach, in a place of its own.
//! * `walk`: the frames of a file, also behind damage. A damaged file ends as `damaged` beside the others.
//! * `witness`: what is missing of files or of their ends, by what others say of them.
//! * [`replay`]: what the journal holds at a start, by partition.
//! * `recovery::replay`: a log takes its part when it is opened.
//! * [`lazy`]: the segments that are to be synced later.
//! * [`forget`]: takes the part of a log out, when the log is cut.
//!
//! Invariants. A log's *settled end* (what its segments have durably) never passes what was synced in them, and only it
//! goes into checkpoints; the *durable end* counts the journal too. A journal file is used again only when every segment
//! with a range in it has been synced, and the head does not name it any more; a round is acknowledged only when the head names
//! the use that it is in. After a failed sync of the journal or of a segment the directory is failed.
//! A batch is replayed only at its own offset and onto its own predecessor, so replaying twice is replaying once, and
//! what was deleted, trimmed or written since stays as it is. Between the settled end and the durable end readers find in
//! the journal what a segment has lost.
mod copies;
pub(crate) mod forget;
pub(crate) mod format;
pub(crate) mod head;
mod lazy;
pub(crate) mod mark;
pub(crate) mod pending;
mod range;
pub(crate) mod replay;
pub(crate) mod ring;
#[cfg(test)]
mod tests;
mod walk;
mod witness;

use crate::failpoint;
use crate::io::disk::{self, SyncFile};
use crate::io::files::Files;
use crate::io::jobs::JobSender;
use crate::io::storage::{OpenMode, Storage};
use crate::segment::scan::Place;
use crate::state::shared::UnsyncedBatches;
use crate::{Error, Identity, IoOp};
use bascule_record::Header;
use bytes::Bytes;
use format::{Preamble, Reached};
use head::{Facts, Head, KEPT};
use lazy::{Lazy, LazySegments};
use parking_lot::{Condvar, Mutex};
use pending::{Part, Pending};
use range::{by_log, content_bytes};
use replay::{Looked, Source};
use ring::{Ring, Use};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use range::Range;
pub use replay::{JournalDamage, JournalPlace};

/// Segments are synced when so many journal bytes hang on them, or when the oldest has waited so long.
const LAZY_BYTES: u64 = 64 << 20;
const LAZY_TIME: Duration = Duration::from_secs(5);

/// Fewer bytes than these of a round with few segments go where the batches before them went. More are worth a sync of the
/// segment, and would be written twice here.
const FEW_BYTES: usize = 96 << 10;

/// Where the journal is and when it is used.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// Directory of the journal's files; made when it is first used.
    pub directory: PathBuf,
    /// Directory whose children, named by incarnation, are the logs that may use it.
    pub partitions: PathBuf,
    /// Dirty segments in a round from which on it is used, at least 1. Small rounds of fewer go on in it.
    pub from_dirty_files: usize,
    /// Size of one file, bytes; at least 2 KiB, less than 4 GiB.
    pub file_bytes: u64,
    /// Files at most, and as many again with what logs of the last life have yet to take over; when all are full, rounds sync
    /// directly until segments are synced. At least 2, at most 14.
    pub files: usize,
    /// Only of a stepped group committer, which has no time: so many rounds stand for the 5 s after which segments are synced.
    pub lazy_rounds: u32,
}

impl JournalOptions {
    /// Four files of 64 MiB, used from 4 dirty segments on: measured, 4 in one round take 2 to 4 times as long as one file.
    pub fn new(directory: PathBuf, partitions: PathBuf) -> Self {
        Self {
            directory,
            partitions,
            from_dirty_files: 4,
            file_bytes: 64 << 20,
            files: 4,
            lazy_rounds: 16,
        }
    }
}

struct State {
    ring: Ring,
    lazy: LazySegments,
    lazy_bytes: u64,
    lazy_since: Option<Instant>,
    lazy_rounds: u32,
    /// A job syncs segments.
    settling: bool,
    /// The uses that it will end.
    retiring: Vec<Use>,
    pending: Pending,
    buffer: Vec<u8>,
}

/// The journal of one data directory.
pub(crate) struct Journal {
    options: JournalOptions,
    files: Arc<Files>,
    background: JobSender,
    threads: bool,
    state: Mutex<State>,
    /// Whoever holds both has locked the state first; its owner need not hold it to write.
    head: Mutex<Head>,
    /// Told at the end of each job that syncs segments.
    settled: Condvar,
    /// What did not check when it was opened.
    damages: Vec<JournalDamage>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Journal {
    /// Looks at what the last life left in the journal, and syncs its files and their names: that life may have been killed
    /// before it did, and the files will bear acks again.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be read or synced; [`Error::NewerFormat`].
    pub fn open(
        options: JournalOptions,
        files: &Arc<Files>,
        background: JobSender,
        threads: bool,
    ) -> Result<Arc<Self>, Error> {
        let storage = files.storage();
        let looked = replay::look(storage, &options, OpenMode::ReadWrite)?;
        let sources = &looked.sources;
        if !sources.is_empty() {
            sources.iter().try_for_each(|source| source.file.sync())?;
            disk::sync_directory_and_name(storage, &options.directory)?;
        }
        let options = JournalOptions {
            from_dirty_files: options.from_dirty_files.max(1),
            file_bytes: options.file_bytes.clamp(2 << 10, u64::from(u32::MAX)),
            files: options.files.clamp(2, KEPT / 2),
            ..options
        };
        let damages = looked.damages.clone();
        let (state, head) = begin(looked, &options, storage)?;
        Ok(Arc::new(Self {
            options,
            files: Arc::clone(files),
            background,
            threads,
            state: Mutex::new(state),
            head: Mutex::new(head),
            settled: Condvar::new(),
            damages,
        }))
    }

    /// Whether the log in `directory` may use the journal.
    pub fn serves(&self, directory: &Path) -> bool {
        directory.parent() == Some(&self.options.partitions)
    }

    /// Whether a round in which these segments are dirty, with so many bytes in all, should use it: when they are many; or
    /// when the bytes are few and a segment has many more to sync, because earlier batches are only here. Those of which a
    /// job has begun to sync the segment are not counted: who writes alone goes back to its segment by that.
    pub fn wants(&self, dirty: &[&SyncFile], bytes: usize) -> bool {
        let is_many = dirty.len() >= self.options.from_dirty_files;
        let may_go_on = || {
            let state = self.state.lock();
            dirty.iter().any(|file| state.lazy.has(file))
        };
        is_many || (bytes < FEW_BYTES && may_go_on())
    }

    /// Copies the ranges into the journal and syncs it. Returns the bytes written; `None` when the round has to sync the
    /// segments instead: no file is ready, or there is no space.
    ///
    /// # Errors
    /// [`Error::Io`]: then the directory has to fail.
    pub fn write(self: &Arc<Self>, ranges: &[&Range]) -> Result<Option<u64>, Error> {
        let Some(frames) = by_log(ranges) else {
            return Ok(None);
        };
        let mut state = self.state.lock();
        let State { ring, buffer, .. } = &mut *state;
        let bytes: u64 = frames
            .iter()
            .map(|ranges| content_bytes(ranges) + format::FRAME_BYTES as u64)
            .sum();
        if !ring.room_for(bytes, self.options.file_bytes) {
            self.prepare(ring);
            return Ok(None);
        }
        let Some(current) = ring.current() else {
            return Ok(None);
        };
        buffer.clear();
        current.begin(buffer);
        let Some(link) = put_frames(buffer, &frames, current.link, current.of.seal()) else {
            return Ok(None);
        };
        let path = &current.file.path;
        if let Err(source) = current.write(buffer, self.options.file_bytes) {
            let error = Error::io(IoOp::Write, path, source);
            return ring.end_unacked(error);
        }
        if current.position == 0 {
            failpoint::pass("journal.recycled");
        }
        current.file.sync()?;
        let written = buffer.len() as u64;
        if current.position == 0 {
            let newest = current.of.reached_to(written);
            if let Err(error) = self.head.lock().began(self.files.storage(), newest) {
                return ring.end_unacked(error);
            }
            failpoint::pass("journal.head_synced");
        }
        current.synced(written, link);
        self.note(&mut state, ranges, written);
        Ok(Some(written))
    }

    /// The segments of these ranges are to be synced later.
    fn note(self: &Arc<Self>, state: &mut State, ranges: &[&Range], written: u64) {
        for range in ranges {
            state.lazy.add(Lazy {
                file: Arc::clone(&range.file),
                shared: Arc::clone(&range.shared),
                end: range.end,
            });
        }
        state.lazy_bytes += written;
        state.lazy_rounds += 1;
        if self.threads {
            state.lazy_since.get_or_insert_with(Instant::now);
        }
        if state.ring.is_half_full(self.options.file_bytes) {
            self.prepare(&mut state.ring);
        }
    }

    /// The batch at `place` of a log, from what was synced here and not in its segment yet. The system may have dropped that
    /// from memory after a write that failed: then this is where it is.
    pub fn find(&self, identity: Identity, place: &Place) -> Option<(Header, Bytes)> {
        let state = self.state.lock();
        let mut files = state.ring.in_use();
        files.extend(state.retiring.iter().map(|of| Arc::clone(&of.file)));
        drop(state);
        // A file that cannot be read holds nothing that can be had.
        files
            .iter()
            .find_map(|file| replay::find(file, identity, place).ok().flatten())
    }

    /// Has another file made when none is ready and there may be one more; after one could not be made, a minute later.
    fn prepare(self: &Arc<Self>, ring: &mut Ring) {
        let now_ns = self.files.storage().monotonic_ns();
        let Some(name) = ring.next_to_make(self.options.files, now_ns) else {
            return;
        };
        let path = self.options.directory.join(name);
        let journal = Arc::clone(self);
        // Until it is there rounds sync many segments: that must not wait for what acks do not wait for.
        self.background.submit_first(Box::new(move || {
            let made = journal.make(&path);
            let now_ns = journal.files.storage().monotonic_ns();
            journal.state.lock().ring.made(made.as_ref().ok(), now_ns);
            if let Err(error) = made {
                journal.files.fail_if_fatal(&error);
            }
        }));
    }

    /// Makes one, and before the first one the head: without it none may be used.
    fn make(&self, path: &Path) -> Result<Arc<SyncFile>, Error> {
        let storage = self.files.storage();
        disk::create_directories(storage, &self.options.directory)?;
        let home = self.state.lock().ring.home();
        self.head.lock().make(storage, home)?;
        ring::make(storage, path, self.options.file_bytes)
    }

    /// What a log in the directory of this journal has to take over when it is opened.
    pub fn replay(&self, identity: Identity) -> Option<Vec<Part>> {
        self.state.lock().pending.take_over(identity)
    }

    /// What of the journal did not check when it was opened, in the order in which it was written.
    pub fn damages(&self) -> &[JournalDamage] {
        &self.damages
    }

    /// The log has taken over its part, durably. The files of the last life that no other log waits for are used again.
    pub fn replayed(&self, identity: Identity) {
        self.state.lock().pending.remove(identity);
        self.free_old();
    }

    /// What did not check was told where it is kept, and need not be told by the next start.
    pub fn told(&self) {
        let told = self.state.lock().ring.told();
        if told {
            self.free_old();
        }
    }

    /// Files of the last life that nothing hangs on any more are used again, once the head does not name them.
    fn free_old(&self) {
        match self.need_less(false) {
            Ok(named) => self.release_old(&mut self.state.lock(), &named),
            Err(error) => self.files.fail_if_fatal(&error),
        }
    }

    /// `named`: what the head says, or said a while ago.
    fn release_old(&self, state: &mut State, named: &Facts) {
        let State { ring, pending, .. } = state;
        ring.release_old(&self.options, self.files.storage(), pending, named);
    }
}

impl UnsyncedBatches for Journal {
    fn find(&self, identity: Identity, place: &Place) -> Option<(Header, Bytes)> {
        Self::find(self, identity, place)
    }
}

/// Puts a frame for the ranges of each log behind what is in the buffer; returns the link of the next one. `None` when a
/// batch cannot be had.
fn put_frames(
    buffer: &mut Vec<u8>,
    frames: &[Vec<&Range>],
    mut link: u32,
    seal: format::Seal,
) -> Option<u32> {
    for ranges in frames {
        let at = buffer.len();
        let len = content_bytes(ranges) as usize;
        buffer.resize(at + format::FRAME_BYTES + len, 0);
        let (frame, content) = buffer
            .get_mut(at..)
            .and_then(|rest| rest.split_at_mut_checked(format::FRAME_BYTES))
            .unwrap_or_default();
        let mut rest = &mut *content;
        for range in ranges {
            let (place, behind) = std::mem::take(&mut rest).split_at_mut(range.bytes());
            range.copy_to(place).then_some(())?;
            rest = behind;
        }
        link = format::frame(frame, content, link, seal);
    }
    Some(link)
}

/// What the first use of a life says, behind `newest`.
fn first_of_life(sources: &[Source], newest: Reached, head: &Head, salt: u64) -> Preamble {
    let used = sources.iter().map(Source::sequence);
    let named = head.facts().map(|facts| facts.home);
    let mut named = named.into_iter().chain(sources.iter().map(Source::home));
    Preamble {
        sequence: used.fold(newest.sequence, u64::max) + 1,
        salt,
        before: newest,
        // The first life's moment, or what there is.
        home: named.rfind(|home| *home > 0).unwrap_or(salt.max(1)),
        ..Preamble::default()
    }
}

/// A life that begins with what was found. What no log has anything to take over from is needed no more.
fn begin(
    looked: Looked,
    options: &JournalOptions,
    storage: &dyn Storage,
) -> Result<(State, Head), Error> {
    let Looked {
        pending,
        sources,
        damages,
        absent,
        mut head,
        known,
        frames: _,
    } = looked;
    let is_used = known.is_some() || !sources.is_empty();
    // Where the head tells nothing it will name the last use that is there.
    let last = || sources.last().map(|last| last.reached_to(0));
    let newest = known.map(|known| known.newest).or_else(last);
    // Of the moment, which nobody who writes records knows to the nanosecond.
    let salt = storage.wall_clock_ns().cast_unsigned();
    let next = first_of_life(&sources, newest.unwrap_or_default(), &head, salt);
    let mut ring = Ring::new(sources, next);
    if damages.iter().any(JournalDamage::is_loss) {
        ring.keep_until_told(absent);
    }
    if is_used {
        let needed = ring.needed(&[], &pending);
        match head.set(storage, needed.clone()) {
            Ok(()) => ring.release_old(options, storage, &pending, &needed),
            // All of them are needed until it can be said that they are not.
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error),
        }
    }
    let state = State {
        ring,
        lazy: LazySegments::default(),
        lazy_bytes: 0,
        lazy_since: None,
        lazy_rounds: 0,
        settling: false,
        retiring: Vec::new(),
        pending,
        buffer: Vec::new(),
    };
    Ok((state, head))
}
