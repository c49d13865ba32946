//! The frames of one journal file, in the order in which they were written, and what of them is damaged.
//!
//! The checksum of a frame is also of the preamble, which nobody who writes records can know and no earlier use of the file
//! repeats. Where a frame does not check, the way on is the next position at which one does. In a file of version 1, where
//! the checksum is not of the preamble, it is the next frame that others prove:
//!
//! 1. it names the damaged one's checksum, as it stands there or as it should be;
//! 2. or, where nothing of the damaged one is left, it begins a row of linked frames one of which holds the very successor
//!    of the last batch that an earlier frame of this file held of its log.
//!
//! Frames that nothing proves are what earlier uses left: the file ends before them.
use super::format::{self, FRAME_BYTES, Run};
use super::replay::Source;
use crate::Identity;
use crate::damage::resume::find_magic;
use crate::disk::read_up_to;
use crate::storage::StorageFile;
use bascule_record::{HEADER_BYTES, Header, MAGIC};
use std::collections::HashMap;
use std::io;

const WINDOW: usize = 1 << 20;

/// One frame as it was found.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Where it begins, bytes.
    pub position: u64,
    /// Where its content begins.
    pub content: u64,
    /// The log and the offsets [start, end) that it holds or held, as far as its headers tell.
    pub of: Option<(Identity, u64, u64)>,
    /// Its sound batches.
    pub runs: Vec<Run>,
    /// Whether it is known to be a frame of this use of the file by more than its batches.
    pub is_proven: bool,
    /// Whether something of it does not check.
    pub is_damaged: bool,
}

/// What is known of a frame before its content is looked at.
struct Sound {
    named: u32,
    stored: u32,
    end: u64,
    first: Header,
}

/// Walks through one file.
pub(crate) struct Walk<'a> {
    file: &'a dyn StorageFile,
    len: u64,
    position: u64,
    /// Where checksums begin.
    seed: u32,
    /// Whether a frame that checks is one of this use.
    is_in_frames: bool,
    window: Window,
    /// What the next frame names as its link: the checksum of the one before, as it stands there and as it should be.
    links: Vec<u32>,
    /// End and link of the last batch of each log so far.
    known: HashMap<Identity, (u64, u32)>,
    ended: bool,
}

impl<'a> Walk<'a> {
    /// Begins behind the preamble; without one there are no frames.
    pub fn new(source: &'a Source) -> Self {
        Self {
            file: &*source.file.file,
            len: source.len,
            position: format::PREAMBLE_BYTES as u64,
            seed: source.preamble.map_or(0, |found| found.seed()),
            is_in_frames: source.preamble.is_some_and(|found| found.is_in_frames()),
            window: Window::default(),
            links: source.preamble.iter().map(|found| found.link).collect(),
            known: HashMap::new(),
            ended: source.preamble.is_none(),
        }
    }

    /// The next frame; `None` at the end.
    ///
    /// # Errors
    /// Those of the storage: what the disk does not give now may have been acknowledged, and may be there the next time.
    pub fn next(&mut self) -> io::Result<Option<Frame>> {
        if self.ended {
            return Ok(None);
        }
        let at = self.position;
        let head = self.bytes(at, FRAME_BYTES)?;
        if let Some(head) = &head
            && let Some(frame) = self.following(at, head)?
        {
            return Ok(Some(frame));
        }
        // Its length cannot be believed, or nothing of it is left.
        let ours = head.filter(|head| self.links.contains(&format::link(head)));
        let links = ours.iter().map(|head| format::next_link(head));
        let resumed = self.resume(at + 1, &links.collect::<Vec<_>>())?;
        match resumed {
            Some((position, link)) => (self.position, self.links) = (position, vec![link]),
            None => self.ended = true,
        }
        Ok((ours.is_some() || resumed.is_some()).then(|| Frame {
            position: at,
            content: at,
            of: None,
            runs: Vec::new(),
            is_proven: false,
            is_damaged: true,
        }))
    }

    /// The frame at the position, when it follows the one before and its length can be believed.
    fn following(&mut self, at: u64, head: &[u8]) -> io::Result<Option<Frame>> {
        let Some(content) = self.content(at, head)? else {
            return Ok(None);
        };
        let (stored, named) = (format::next_link(head), format::link(head));
        let computed = |link| format::computed(head, &content, link, self.seed);
        let is_sealed = self.links.iter().any(|link| computed(*link) == stored);
        let is_linked = self.links.contains(&named);
        let computed = computed(named);
        let end = at + (FRAME_BYTES + content.len()) as u64;
        let next = self.bytes(end, FRAME_BYTES)?;
        let next = next.map(|next| format::link(&next));
        let is_proven = is_sealed || is_linked && next == Some(computed);
        let found = format::batches(&content);
        // Without its own checksum the next frame tells whether the length is right, or all its batches do.
        if !is_proven && !(is_linked && (next == Some(stored) || found.is_whole)) {
            return Ok(None);
        }
        self.position = end;
        self.links = if is_sealed {
            vec![stored]
        } else {
            vec![stored, computed]
        };
        if let Some(run) = found.runs.last() {
            let end = (run.last.next_offset(), run.last.link());
            self.known.insert(Identity::of(&run.last), end);
        }
        let told = |first: Header| (Identity::of(&first), first.base_offset, found.end);
        Ok(Some(Frame {
            position: at,
            content: at + FRAME_BYTES as u64,
            of: found.first.map(told),
            is_proven,
            is_damaged: !(found.is_whole && is_sealed && is_linked),
            runs: found.runs,
        }))
    }

    /// The first frame from `from` on that proves itself, and the link that it names.
    fn resume(&mut self, from: u64, links: &[u32]) -> io::Result<Option<(u64, u32)>> {
        let mut position = from + FRAME_BYTES as u64;
        while let Some(batch) = self.next_magic(position)? {
            let begin = batch - FRAME_BYTES as u64;
            position = batch + 1;
            let Some(frame) = self.sound(begin)? else {
                continue;
            };
            let named = frame.named;
            if self.is_in_frames || links.contains(&named) {
                return Ok(Some((begin, named)));
            }
            match self.end_of_unproven_row(frame)? {
                None => return Ok(Some((begin, named))),
                Some(end) => position = end,
            }
        }
        Ok(None)
    }

    /// Where the row of linked frames ends; `None` when one of them goes on where an earlier frame of the file ended.
    fn end_of_unproven_row(&self, mut frame: Sound) -> io::Result<Option<u64>> {
        loop {
            let (first, chain) = (&frame.first, frame.first.chain);
            let known = self.known.get(&Identity::of(first));
            if chain != 0 && known == Some(&(first.base_offset, chain)) {
                return Ok(None);
            }
            match self.sound(frame.end)? {
                Some(next) if next.named == frame.stored => frame = next,
                _ => return Ok(Some(frame.end)),
            }
        }
    }

    /// Whether there is any frame in the file, of whatever use, as far as can be told without a preamble.
    pub fn finds_any(mut self) -> io::Result<bool> {
        let mut position = (format::PREAMBLE_BYTES + FRAME_BYTES) as u64;
        while let Some(batch) = self.next_magic(position)? {
            position = batch + 1;
            let head = self.bytes(batch - FRAME_BYTES as u64, FRAME_BYTES)?;
            let header = self.bytes(batch, HEADER_BYTES)?;
            let is_frame = head.is_some_and(|head| format::announced(&head).is_some());
            if is_frame && header.is_some_and(|header| Header::read(&header).is_ok()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A frame that checks by itself, as far as its first header.
    fn sound(&self, at: u64) -> io::Result<Option<Sound>> {
        let Some(bytes) = self.bytes(at, FRAME_BYTES + HEADER_BYTES)? else {
            return Ok(None);
        };
        let (head, content) = bytes.split_at(FRAME_BYTES);
        let (named, stored) = (format::link(head), format::next_link(head));
        let end = format::announced(head).map(|len| at + (FRAME_BYTES + len) as u64);
        let is_sealed = format::computed(head, content, named, self.seed) == stored;
        let first = Header::read(content).ok().filter(|_| is_sealed);
        let sound = first.zip(end).map(|(first, end)| Sound {
            named,
            stored,
            end,
            first,
        });
        Ok(sound.filter(|sound| sound.end <= self.len))
    }

    /// What a frame's head announces, when it can be one and the file has it.
    fn content(&self, at: u64, head: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match format::announced(head) {
            Some(len) => self.bytes(at + FRAME_BYTES as u64, len),
            None => Ok(None),
        }
    }

    /// The bytes at a position; `None` where the file does not have them.
    fn bytes(&self, position: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
        if position + len as u64 > self.len {
            return Ok(None);
        }
        let mut bytes = vec![0; len];
        let read = read_up_to(self.file, &mut bytes, position)?;
        Ok((read == len).then_some(bytes))
    }

    /// The next position from `from` on that holds the magic of a batch.
    fn next_magic(&mut self, from: u64) -> io::Result<Option<u64>> {
        let mut position = from;
        while position + (HEADER_BYTES as u64) <= self.len {
            if let Some(rest) = self.window.from(position) {
                if let Some(at) = find_magic(rest) {
                    return Ok(Some(position + at as u64));
                }
                // A magic may lie across the end of the window.
                position += (rest.len() - (MAGIC.len() - 1)) as u64;
            }
            self.window.position = position;
            self.window.bytes.resize(WINDOW, 0);
            let read = read_up_to(self.file, &mut self.window.bytes, position)?;
            self.window.bytes.truncate(read);
            if read < HEADER_BYTES {
                return Ok(None);
            }
        }
        Ok(None)
    }
}

/// Bytes of the file that were read in one piece.
#[derive(Default)]
struct Window {
    position: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// What it has from a position on, when that can hold a magic.
    fn from(&self, position: u64) -> Option<&[u8]> {
        let skipped = usize::try_from(position.checked_sub(self.position)?).ok()?;
        self.bytes
            .get(skipped..)
            .filter(|rest| rest.len() >= MAGIC.len())
    }
}
