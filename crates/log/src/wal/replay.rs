//! What the last life left in the journal, by log (reliability §3.1, step 3).
use super::JournalOptions;
use super::copies;
use super::format::{self, FRAME_BYTES, PREAMBLE_BYTES, Preamble, Reached};
use super::head::{Facts, Head};
use super::mark::{self, Marks};
use super::pending::{Part, Pending};
use super::ring::number;
use super::walk::{Frame, Walk};
use super::witness::{Claim, Witness};
use crate::io::disk::{self, SyncFile, read_up_to};
use crate::io::storage::{OpenMode, Storage, StorageFile};
use crate::segment::scan::Place;
use crate::state::checkpoint;
use crate::{Error, Identity, IoOp};
use bascule_record::Header;
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of the last life.
pub(crate) struct Source {
    /// Open as was asked for.
    pub file: Arc<SyncFile>,
    /// Its length, bytes.
    pub len: u64,
    /// Of its last use; `None` when it was never used, or when the beginning and its copy are damaged.
    pub preamble: Option<Preamble>,
    /// What of the beginning does not check.
    pub beginning: Option<JournalPlace>,
    /// How far it says itself that its frames reach.
    pub marks: Option<Marks>,
    /// Whether anything of it does not check and has to be told; known after [`look`].
    pub is_damaged: bool,
    /// How far its whole frames reach, when segments may not have them; known after [`look`].
    pub reached: Reached,
}

impl Source {
    /// Of its last use; 0 when it has none.
    pub fn sequence(&self) -> u64 {
        self.preamble.map_or(0, |preamble| preamble.sequence)
    }

    /// The use, with frames up to that position.
    pub fn reached_to(&self, end: u64) -> Reached {
        self.preamble.unwrap_or_default().reached_to(end)
    }

    /// Number of the data directory that it was written in; 0 when it does not tell.
    pub fn home(&self) -> u64 {
        self.preamble.map_or(0, |preamble| preamble.home)
    }

    /// It is not one of the journal's files: as if its beginning and the copy did not check.
    pub fn disown(&mut self) {
        self.preamble = None;
        self.marks = None;
        self.beginning = Some(JournalPlace::File);
    }

    /// First sequence number of the life that used it last; 0 when it does not tell.
    pub fn life(&self) -> u64 {
        self.preamble.map_or(0, |preamble| preamble.life)
    }
}

/// What of a journal does not check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalPlace {
    /// A frame, or several side by side of which nothing is left.
    Frame,
    /// The beginning, in whose place its copy is used: nothing is lost by it.
    Beginning,
    /// The beginning and its copy: none of the frames in the file can be read.
    File,
    /// The end of a file, which is shorter than it was made: frames may have been there.
    Cut,
    /// A whole file, which is gone, emptied or an older one; the path is that of the journal.
    Lost,
    /// The head, which tells what files there have to be: nothing is lost by it alone.
    Head,
    /// The marks of a file, which tell whether its last frames are missing: nothing is lost by it alone.
    Marks,
    /// Both of them, of a file of which nobody else says how far it reached: its last frames may be missing.
    End,
}

impl JournalPlace {
    /// Whether frames can be lost by it.
    pub fn can_cost(self) -> bool {
        !matches!(self, Self::Beginning | Self::Head | Self::Marks)
    }
}

/// Something in the journal that does not check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalDamage {
    /// The file.
    pub path: PathBuf,
    /// Position of the frame, bytes.
    pub position: u64,
    /// What it is.
    pub place: JournalPlace,
    /// The log and the offsets [start, end) that the frame held, as far as its headers can be read.
    pub of: Option<(Identity, u64, u64)>,
    /// Whether what it held was acknowledged. If not, nobody can tell: it may have been written when the broker ended.
    pub was_acked: bool,
}

impl JournalDamage {
    /// Whether acknowledged records may be lost by it.
    pub fn is_loss(&self) -> bool {
        let is_unknown = |place| {
            matches!(
                place,
                JournalPlace::File | JournalPlace::Cut | JournalPlace::Lost | JournalPlace::End
            )
        };
        self.was_acked || is_unknown(self.place)
    }
}

/// What the files of a journal hold.
pub(crate) struct Looked {
    /// What logs have to take over.
    pub pending: Pending,
    /// The files, by sequence number.
    pub sources: Vec<Source>,
    /// What does not check, in the order in which it was written.
    pub damages: Vec<JournalDamage>,
    /// How many frames are whole.
    pub frames: u64,
    /// Needed uses that have no file.
    pub absent: Vec<Reached>,
    /// The head, as it was found.
    pub head: Head,
    /// What it says; `None` when that cannot be believed.
    pub known: Option<Facts>,
}

/// Reads every file of the journal. Frames of partitions that are not there are passed over: they were deleted. So are
/// those that the segments have: that they were synced stays true whatever becomes of the checkpoint that says so.
pub(crate) fn look(
    storage: &dyn Storage,
    options: &JournalOptions,
    mode: OpenMode,
) -> Result<Looked, Error> {
    let mut head = Head::look(storage, &options.directory, mode)?;
    let mut sources = sources(storage, &options.directory, mode)?;
    let is_doubtful = disown_foreign(&mut head, &mut sources);
    copies::set_aside(&mut sources)?;
    let witness = Witness::new(&head, &sources);
    let present: HashSet<u64> = list_if_there(storage, &options.partitions)?
        .iter()
        .filter_map(|path| path.file_name()?.to_str()?.parse().ok())
        .collect();
    let mut settled: HashMap<Identity, u64> = HashMap::new();
    let mut is_wanted = |identity: Identity, end: u64| {
        let durable = settled.entry(identity).or_insert_with(|| {
            let directory = options.partitions.join(identity.incarnation.to_string());
            let slots = checkpoint::look(storage, &directory, identity);
            let last = slots.and_then(|slots| slots.last);
            last.map_or(0, |last| last.durable)
        });
        present.contains(&identity.incarnation) && end > *durable
    };
    let (mut parts, mut damages, mut frames) = (Vec::new(), Vec::new(), 0);
    // The newest first: a file tells of those before it.
    let mut later = None;
    for source in sources.iter_mut().rev() {
        let read = read_file(source, witness.claim(source, later.as_ref()))?;
        later = if read.any { source.preamble } else { later };
        frames += read.frames;
        if witness.needs(source) || source.is_damaged {
            source.is_damaged = !read.damages.is_empty();
            source.reached = source.reached_to(read.sure_end());
            damages.extend(read.damages.into_iter().rev());
        }
        let wanted = read.parts.into_iter().rev();
        parts.extend(wanted.filter(|(identity, part)| is_wanted(*identity, part.end)));
    }
    let beside = witness.damages(head.path(), &options.directory, &sources, is_doubtful);
    damages.extend(beside.into_iter().rev());
    damages.reverse();
    let mut pending = Pending::default();
    for (identity, part) in parts.into_iter().rev() {
        pending.add(identity, part);
    }
    Ok(Looked {
        pending,
        sources,
        damages,
        frames,
        known: witness.facts().cloned(),
        absent: witness.into_absent(),
        head,
    })
}

/// Takes files of another data directory, or a head that is of none of theirs, for what cannot be read. Returns whether
/// either may be it: there is one file, and the head is another directory's.
fn disown_foreign(head: &mut Head, sources: &mut [Source]) -> bool {
    let home = head.home();
    let homes = sources.iter().map(Source::home).filter(|home| *home > 0);
    let (files, ours) = homes.fold((0, 0), |(files, ours), of| {
        (files + 1, ours + usize::from(of == home))
    });
    if home == 0 || ours == files {
        return false;
    }
    if ours == 0 {
        head.disown();
        return files == 1;
    }
    let foreign = |source: &&mut Source| source.home() > 0 && source.home() != home;
    sources.iter_mut().filter(foreign).for_each(Source::disown);
    false
}

/// What one file holds.
#[derive(Default)]
pub(crate) struct FileRead {
    /// Parts of all logs, in order.
    pub parts: Vec<(Identity, Part)>,
    /// What does not check, in order.
    pub damages: Vec<JournalDamage>,
    /// Frames that are whole.
    pub frames: u64,
    /// Whether there is any frame.
    pub any: bool,
    /// Position behind the last whole frame.
    pub end: u64,
    /// Position of the first frame of which nobody knows that it was acknowledged.
    pub acked_to: u64,
}

/// Position and log of a frame, and which parts and damages are of it.
type Told = (u64, Option<Identity>, Range<usize>, Range<usize>);

impl FileRead {
    /// Notes of which frames it is known that they were acknowledged: those before `acked_to`, and those behind which one tells
    /// so. With `has_life` a round has at most one frame of a log, and begins when the one before it was synced; before a life
    /// told of itself, a round could have several.
    fn note_acked(&mut self, frames: Vec<Told>, acked_to: u64, has_life: bool) {
        let mut was_acked = false;
        let mut behind = HashSet::new();
        self.acked_to = u64::MAX;
        for (position, identity, parts, damages) in frames.into_iter().rev() {
            was_acked |= position < acked_to;
            was_acked |= has_life && identity.is_some_and(|identity| !behind.insert(identity));
            if !was_acked {
                self.acked_to = position;
            }
            for (_, part) in self.parts.get_mut(parts).unwrap_or_default() {
                part.was_acked = was_acked;
            }
            for damage in self.damages.get_mut(damages).unwrap_or_default() {
                damage.was_acked = was_acked;
            }
        }
    }

    /// How far acknowledged frames certainly reached: what was perhaps never synced must not be missed by the next start, and
    /// an end that nobody knows is none; 0 then.
    fn sure_end(&self) -> u64 {
        let is_unknown = |damage: &JournalDamage| damage.place == JournalPlace::End;
        if self.damages.iter().any(is_unknown) {
            return 0;
        }
        self.end.min(self.acked_to)
    }
}

/// Reads one file; `claim`: what others say of it.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn read_file(source: &Source, claim: Claim) -> Result<FileRead, Error> {
    let failed = |error| Error::io(IoOp::Read, &source.file.path, error);
    let marks = source.marks.as_ref();
    let claim = claim.and(marks);
    let mut read = FileRead::default();
    let damage = |position, place, of| JournalDamage {
        path: source.file.path.clone(),
        position,
        place,
        of,
        was_acked: false,
    };
    if let Some(place) = source.beginning {
        read.damages.push(JournalDamage {
            was_acked: source.preamble.is_none() && claim.acked_to > 0,
            ..damage(0, place, None)
        });
    }
    let place_of = |is_cut_off| {
        if is_cut_off {
            JournalPlace::Cut
        } else {
            JournalPlace::Frame
        }
    };
    let mut frames = Vec::new();
    let mut walk = Walk::new(source);
    while let Some(frame) = walk.next().map_err(failed)? {
        let (parts, damages) = (read.parts.len(), read.damages.len());
        if frame.is_damaged {
            let place = place_of(frame.is_cut_off);
            read.damages.push(damage(frame.position, place, frame.of));
        } else {
            read.frames += 1;
            read.end = walk.position();
        }
        add_parts(&mut read.parts, source, &frame);
        let identity = frame.of.map(|(identity, _, _)| identity);
        frames.push((
            frame.position,
            identity,
            parts..read.parts.len(),
            damages..read.damages.len(),
        ));
    }
    read.any = !frames.is_empty();
    if let Some((position, place)) = told_of_end(&walk, &claim, marks) {
        let damages = read.damages.len()..read.damages.len() + 1;
        read.damages.push(damage(position, place, None));
        if place.can_cost() {
            frames.push((position, None, 0..0, damages));
        }
    }
    read.note_acked(frames, claim.acked_to, source.life() != 0);
    Ok(read)
}

/// What is told of the end of a file that was walked through, with its position; `None`: nothing.
fn told_of_end(walk: &Walk, claim: &Claim, marks: Option<&Marks>) -> Option<(u64, JournalPlace)> {
    // How many marks are missing that have to be there. One that is left may be that of the round before the last, of which
    // then some or all may be missing.
    let gone = marks.map_or(0, |marks| 2 - marks.valid);
    let gone = if claim.is_begun { gone } else { 0 };
    let silent_end = walk.silent_end();
    let is_cut = silent_end.is_some_and(|end| !walk.has_room_behind(end));
    let is_missed = silent_end.is_some_and(|end| end < claim.reached);
    let may_be_missed = silent_end.is_some() && !claim.is_ended;
    let end = silent_end.unwrap_or(walk.position());
    let place = match gone {
        _ if is_cut => JournalPlace::Cut,
        2 if !claim.is_ended => JournalPlace::End,
        1 if is_missed && !claim.is_ended => JournalPlace::End,
        _ if is_missed => JournalPlace::Frame,
        0 => return None,
        1 if may_be_missed => JournalPlace::Frame,
        _ => JournalPlace::Marks,
    };
    let of_marks = marks.filter(|_| place == JournalPlace::Marks);
    Some((of_marks.map_or(end, |marks| marks.position), place))
}

fn add_parts(parts: &mut Vec<(Identity, Part)>, source: &Source, frame: &Frame) {
    let Some((identity, start, end)) = frame.of else {
        return;
    };
    let is_sure = frame.is_proven && source.life() != 0;
    let part = |position, len, range: (u64, u64)| Part {
        file: Arc::clone(&source.file),
        position,
        len,
        start: range.0,
        end: range.1,
        frame_start: if is_sure { start } else { 0 },
        was_acked: false,
    };
    let mut known = start;
    for run in &frame.runs {
        let (position, len) = (frame.content + run.bytes.start as u64, run.bytes.len());
        known = run.last.next_offset();
        parts.push((
            identity,
            part(position, len, (run.first.base_offset, known)),
        ));
    }
    if known < end {
        parts.push((identity, part(frame.position, 0, (known, end))));
    }
}

/// The files in the directory.
pub(crate) fn sources(
    storage: &dyn Storage,
    directory: &Path,
    mode: OpenMode,
) -> Result<Vec<Source>, Error> {
    let mut sources = Vec::new();
    for path in list_if_there(storage, directory)? {
        if number(&path).is_some() {
            sources.push(open(storage, &path, mode)?);
        }
    }
    Ok(sources)
}

fn list_if_there(
    storage: &dyn Storage,
    directory: &Path,
) -> Result<Vec<std::path::PathBuf>, Error> {
    match disk::list(storage, directory) {
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(Vec::new())
        }
        other => other,
    }
}

pub(crate) fn open(storage: &dyn Storage, path: &Path, mode: OpenMode) -> Result<Source, Error> {
    of_file(&SyncFile::open(storage, path, mode)?)
}

fn of_file(file: &Arc<SyncFile>) -> Result<Source, Error> {
    let failed = |source| Error::io(IoOp::Read, &file.path, source);
    let len = file.file.len().map_err(failed)?;
    let mut bytes = [0; PREAMBLE_BYTES + FRAME_BYTES];
    read_up_to(&*file.file, &mut bytes, 0).map_err(failed)?;
    let begin = bytes.get(..PREAMBLE_BYTES).unwrap_or_default();
    let sound = format::read_preamble(begin);
    let mut preamble = sound.or_else(|| format::mended_preamble(&bytes));
    if preamble.is_none() {
        preamble = copy_of_preamble(&*file.file, len).map_err(failed)?;
    }
    if let Some(newer) = preamble.filter(|preamble| preamble.version > format::VERSION) {
        return Err(Error::NewerFormat {
            path: file.path.clone(),
            found: newer.version,
            supported: format::VERSION,
        });
    }
    let mut source = Source {
        file: Arc::clone(file),
        len,
        preamble,
        beginning: None,
        marks: None,
        is_damaged: false,
        reached: Reached::default(),
    };
    if let Some(preamble) = &source.preamble {
        source.marks = mark::read(&*file.file, len, preamble).map_err(failed)?;
    }
    if sound.is_none() {
        let is_used = begin.iter().any(|byte| *byte != 0);
        source.beginning = beginning(&source, is_used).map_err(failed)?;
    }
    Ok(source)
}

fn copy_of_preamble(file: &dyn StorageFile, len: u64) -> io::Result<Option<Preamble>> {
    let mut copy = [0; PREAMBLE_BYTES];
    if len < 2 * PREAMBLE_BYTES as u64 {
        return Ok(None);
    }
    read_up_to(file, &mut copy, len - PREAMBLE_BYTES as u64)?;
    Ok(format::read_preamble(&copy))
}

/// What a beginning that does not check costs; `None`: the file was never used.
fn beginning(source: &Source, is_used: bool) -> io::Result<Option<JournalPlace>> {
    if source.preamble.is_some() {
        return Ok(Some(JournalPlace::Beginning));
    }
    if Walk::new(source).finds_any()? {
        return Ok(Some(JournalPlace::File));
    }
    Ok(is_used.then_some(JournalPlace::Frame))
}

/// The batch at `place`, when the file holds it.
pub(crate) fn find(
    file: &Arc<SyncFile>,
    identity: Identity,
    place: &Place,
) -> Result<Option<(Header, Bytes)>, Error> {
    let read = read_file(&of_file(file)?, Claim::default())?;
    let ours = |(of, part): &&(Identity, Part)| *of == identity && part.start <= place.offset;
    for (_, part) in read.parts.iter().rev().filter(ours) {
        let found = part
            .batches()?
            .find(|(header, _)| place.fits(header, identity));
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
