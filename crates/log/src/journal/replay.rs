//! What the last life left in the journal, and how a log takes its part over (reliability specification §3.1, step 3).
use super::JournalOptions;
use super::format::{self, FRAME_BYTES, PREAMBLE_BYTES};
use super::ring::number;
use crate::checkpoint::Slots;
use crate::disk::{self, SyncFile, read_up_to};
use crate::failpoint;
use crate::maintain::current;
use crate::scan::Place;
use crate::storage::{OpenMode, Storage, StorageFile};
use crate::{Error, Identity, Log};
use bascule_record::{HEADER_BYTES, Header};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// A file of the last life.
pub(crate) struct Source {
    /// Open for reading and writing.
    pub file: Arc<SyncFile>,
    /// Its length, bytes.
    pub len: u64,
    /// Of its last use; 0 when it has none.
    pub sequence: u64,
}

/// Where the batches of one frame lie.
#[derive(Clone, Debug)]
pub(crate) struct FrameAt {
    file: Arc<SyncFile>,
    position: u64,
    len: usize,
    /// First offset after its batches.
    end: u64,
}

impl FrameAt {
    /// Its batches.
    pub fn content(&self) -> Result<Bytes, Error> {
        read(&*self.file.file, self.position, self.len)
            .map_err(|source| Error::io("read", &self.file.path, source))
    }
}

/// Frames by log, in the order in which they were written.
#[derive(Default)]
pub(crate) struct Pending {
    frames: HashMap<Identity, Vec<FrameAt>>,
    /// How many lie in a file, by its address, which they keep alive.
    uses: HashMap<usize, usize>,
}

impl Pending {
    /// Whether some log has something to take over from the file.
    pub fn is_in(&self, file: &Arc<SyncFile>) -> bool {
        let uses = self.uses.get(&(Arc::as_ptr(file) as usize));
        uses.is_some_and(|uses| *uses > 0)
    }

    /// What a log has to take over; `None` when nothing.
    pub fn take_over(&self, identity: Identity) -> Option<Replay> {
        self.frames.get(&identity).cloned().map(Replay)
    }

    /// It has.
    pub fn remove(&mut self, identity: Identity) {
        for frame in self.frames.remove(&identity).unwrap_or_default() {
            let uses = self.uses.entry(Arc::as_ptr(&frame.file) as usize);
            uses.and_modify(|uses| *uses -= 1);
        }
    }

    fn add(&mut self, identity: Identity, frame: FrameAt) {
        *self
            .uses
            .entry(Arc::as_ptr(&frame.file) as usize)
            .or_default() += 1;
        self.frames.entry(identity).or_default().push(frame);
    }
}

/// Reads each file of the journal up to the first frame that does not follow the one before; of those that do not check
/// only the batches are missed. Frames of partitions that are not there are passed over:
/// they were deleted. So are those that the segments have: that they were synced stays true whatever becomes of the
/// checkpoint that says so.
pub(crate) fn look(
    storage: &dyn Storage,
    options: &JournalOptions,
) -> Result<(Pending, Vec<Source>), Error> {
    let sources = sources(storage, &options.directory)?;
    let present: HashSet<u64> = list_if_there(storage, &options.partitions)?
        .iter()
        .filter_map(|path| path.file_name()?.to_str()?.parse().ok())
        .collect();
    let mut settled: HashMap<Identity, u64> = HashMap::new();
    let mut settled_end = |identity: Identity| {
        *settled.entry(identity).or_insert_with(|| {
            let directory = options.partitions.join(identity.incarnation.to_string());
            let slots = Slots::look(storage, &directory, identity);
            let last = slots.and_then(|slots| slots.last);
            last.map_or(0, |last| last.durable)
        })
    };
    let mut pending = Pending::default();
    for source in sources.iter().filter(|source| source.sequence > 0) {
        frames(source, |header, frame| {
            let identity = Identity {
                incarnation: header.incarnation,
                partition: header.partition,
            };
            if present.contains(&header.incarnation) && frame.end > settled_end(identity) {
                pending.add(identity, frame);
            }
        })
        .map_err(|error| Error::io("read", &source.file.path, error))?;
    }
    Ok((pending, sources))
}

/// The files in the directory, by sequence number.
pub(crate) fn sources(storage: &dyn Storage, directory: &Path) -> Result<Vec<Source>, Error> {
    let mut sources = Vec::new();
    for path in list_if_there(storage, directory)? {
        if number(&path).is_some() {
            sources.push(open(storage, &path)?);
        }
    }
    sources.sort_by_key(|source| source.sequence);
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

pub(crate) fn open(storage: &dyn Storage, path: &Path) -> Result<Source, Error> {
    let file = SyncFile::open(storage, path, OpenMode::ReadWrite)?;
    let failed = |source| Error::io("read", path, source);
    let len = file.file.len().map_err(failed)?;
    let mut bytes = [0; PREAMBLE_BYTES];
    read_up_to(&*file.file, &mut bytes, 0).map_err(failed)?;
    let sequence = match format::read_preamble(&bytes) {
        Some((version, _, _)) if version > format::VERSION => {
            return Err(Error::NewerFormat {
                path: path.to_path_buf(),
                found: version,
                supported: format::VERSION,
            });
        }
        Some((_, sequence, _)) => sequence,
        None => 0,
    };
    Ok(Source {
        file,
        len,
        sequence,
    })
}

/// Calls `found` for each whole frame, with the header of its first batch.
pub(crate) fn frames(
    source: &Source,
    mut found: impl FnMut(&Header, FrameAt),
) -> std::io::Result<()> {
    let file = &*source.file.file;
    let mut head = [0; PREAMBLE_BYTES];
    read_up_to(file, &mut head, 0)?;
    let Some((_, _, mut link)) = format::read_preamble(&head) else {
        return Ok(());
    };
    let mut position = PREAMBLE_BYTES as u64;
    let mut content = Vec::new();
    loop {
        let mut head = [0; FRAME_BYTES];
        if read_up_to(file, &mut head, position)? < FRAME_BYTES {
            return Ok(());
        }
        let Some(len) = format::announced(&head, link) else {
            return Ok(());
        };
        let at = position + FRAME_BYTES as u64;
        if at + len as u64 > source.len {
            return Ok(());
        }
        content.resize(len, 0);
        if read_up_to(file, &mut content, at)? < len {
            return Ok(());
        }
        // One that does not check is damaged, or was being written: the next one tells by its link whether it was there too.
        let headers = format::check(&head, &content).unwrap_or_default();
        if let (Some(first), Some(last)) = (headers.first(), headers.last()) {
            let frame = FrameAt {
                file: Arc::clone(&source.file),
                position: at,
                len,
                end: last.next_offset(),
            };
            found(first, frame);
        }
        link = format::next_link(&head);
        position = at + len as u64;
    }
}

/// What one log has to take over.
pub(crate) struct Replay(Vec<FrameAt>);

impl Replay {
    /// Whether some batch of it belongs at the place.
    pub fn continues(&self, place: &Place) -> Result<bool, Error> {
        let mut found = false;
        self.each(|header, _| {
            found |= header.base_offset == place.offset && Some(header.chain) == place.chain;
            Ok(())
        })?;
        Ok(found)
    }

    /// The number of the last batch that begins at the offset.
    fn last_at(&self, offset: u64) -> Result<Option<usize>, Error> {
        let (mut last, mut number) = (None, 0);
        self.each(|header, _| {
            if header.base_offset == offset {
                last = Some(number);
            }
            number += 1;
            Ok(())
        })?;
        Ok(last)
    }

    /// Calls `visit` for each batch, in the order in which they were written.
    fn each(
        &self,
        mut visit: impl FnMut(&Header, Bytes) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for frame in &self.0 {
            let mut rest = frame.content()?;
            while rest.len() >= HEADER_BYTES {
                let Ok(header) = Header::read(&rest) else {
                    break;
                };
                if rest.len() < header.batch_bytes() {
                    break;
                }
                visit(&header, rest.split_to(header.batch_bytes()))?;
            }
        }
        Ok(())
    }
}

impl Log {
    /// Appends those batches that continue the log where recovery ended it, and syncs them; the others are there already,
    /// or belong to a history that is over. Returns how many were appended.
    ///
    /// Behind a lost tail nobody knows the link of the last batch any more: then the newest one at the log end is taken.
    pub(crate) fn take_over(&mut self, replay: &Replay) -> Result<u64, Error> {
        let end = self.shared.log_end();
        let behind_lost = self.chain == 0 && end > 0;
        let first = if behind_lost {
            replay.last_at(end)?
        } else {
            None
        };
        let (mut taken, mut number) = (0, 0);
        replay.each(|header, batch| {
            let is_first = first == Some(number);
            number += 1;
            if self.continues(header, is_first) {
                if self.roll_due(header.base_timestamp) {
                    self.roll(header.base_timestamp)?;
                }
                self.write(&batch, header)?;
                taken += 1;
                failpoint::pass("journal.replay.half");
            }
            Ok(())
        })?;
        if taken > 0 {
            // The syncs of a roll first: what follows must not be told before.
            self.settle();
            self.coordinator.check_usable()?;
            self.target()?.sync()?;
            if let Some(epochs) = self.epochs.take_unsynced() {
                epochs.sync()?;
            }
            self.committed_to = self.active.end();
            self.shared.raise_settled_end(self.shared.log_end());
            let mut checkpoint = self.checkpoint.lock();
            checkpoint.write(
                self.coordinator.files().storage(),
                current(&self.shared, false),
            )?;
            checkpoint.let_go();
        }
        Ok(taken)
    }

    fn continues(&self, header: &Header, whatever_chain: bool) -> bool {
        header.base_offset == self.shared.log_end()
            && (whatever_chain || header.chain == self.chain)
            && header.leader_epoch >= self.epochs.last()
            && header.incarnation == self.shared.identity.incarnation
            && header.partition == self.shared.identity.partition
    }
}

/// The batch at `place`, when the file holds it in a frame that is whole.
pub(crate) fn find(
    file: &Arc<SyncFile>,
    identity: Identity,
    place: &Place,
) -> std::io::Result<Option<(Header, Bytes)>> {
    let source = Source {
        file: Arc::clone(file),
        len: file.file.len()?,
        sequence: 0,
    };
    let mut candidates = Vec::new();
    frames(&source, |first, frame| {
        let ours =
            first.incarnation == identity.incarnation && first.partition == identity.partition;
        if ours && first.base_offset <= place.offset {
            candidates.push(frame);
        }
    })?;
    for frame in candidates.iter().rev() {
        let mut rest = read(&*file.file, frame.position, frame.len)?;
        while let Ok(header) = Header::read(&rest)
            && rest.len() >= header.batch_bytes()
        {
            let batch = rest.split_to(header.batch_bytes());
            if place.fits(&header, identity) {
                return Ok(Some((header, batch)));
            }
        }
    }
    Ok(None)
}

fn read(file: &dyn StorageFile, position: u64, len: usize) -> std::io::Result<Bytes> {
    let mut content = vec![0; len];
    let read = read_up_to(file, &mut content, position)?;
    content.truncate(read);
    Ok(Bytes::from(content))
}
