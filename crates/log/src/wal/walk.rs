//! The frames of one journal file, in the order in which they were written, and what of them is damaged.
//!
//! The checksum of a frame is also of the preamble, which nobody who writes records can know and no earlier use of the file
//! repeats. Where a frame does not check, the way on is the next position at which one does that was not met before. In a file of version 1, where
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
use crate::io::disk::read_up_to;
use crate::io::storage::StorageFile;
use crate::segment::resync::find_magic;
use bascule_record::{HEADER_BYTES, Header, MAGIC};
use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;

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
    /// Whether the file is too short for it.
    pub is_cut_off: bool,
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
    /// Length that it was made with, bytes; 0: nobody knows.
    made: u64,
    position: u64,
    /// What checksums are of.
    seal: format::Seal,
    /// Whether a frame that checks is one of this use.
    is_in_frames: bool,
    window: Window,
    /// What the next frame names as its link: the checksum of the one before, as it stands there and as it should be.
    links: Vec<u32>,
    /// End and link of the last batch of each log so far.
    known: HashMap<Identity, (u64, u32)>,
    /// Checksum and first batch's link of each whole frame so far that the one before led to.
    seen: HashSet<(u32, u32)>,
    /// The frame at the position was searched for.
    resumed: bool,
    /// Copies of frames that were passed over.
    copies: usize,
    ended: bool,
    /// Nothing of what stands where it ended is told.
    silent_end: Option<u64>,
}

impl<'a> Walk<'a> {
    /// Begins behind the preamble; without one there are no frames.
    pub fn new(source: &'a Source) -> Self {
        Self {
            file: &*source.file.file,
            len: source.len,
            made: source.preamble.map_or(0, |found| found.file_bytes.into()),
            position: format::PREAMBLE_BYTES as u64,
            seal: source.preamble.unwrap_or_default().seal(),
            is_in_frames: source.preamble.is_some_and(|found| found.is_in_frames()),
            window: Window::default(),
            links: source.preamble.iter().map(|found| found.link).collect(),
            known: HashMap::new(),
            seen: HashSet::new(),
            resumed: false,
            copies: 0,
            ended: source.preamble.is_none(),
            silent_end: None,
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
            && let Some(frame) = self.frame(at, head)?
        {
            return Ok(Some(frame));
        }
        // Its length cannot be believed, or nothing of it is left.
        let ours = head.filter(|head| self.links.contains(&format::link(head)));
        let links = ours.iter().map(|head| format::next_link(head));
        let resumed = self.resume(at + 1..self.len, &links.collect::<Vec<_>>())?;
        let is_cut_off = match &ours {
            Some(head) if resumed.is_none() => self.is_cut_off(at, head)?,
            _ => false,
        };
        match resumed {
            Some(found) => self.go_on_at(found),
            None => self.ended = true,
        }
        let is_told = ours.is_some() || resumed.is_some() || std::mem::take(&mut self.copies) > 0;
        self.silent_end = (!is_told).then_some(at);
        Ok(is_told.then(|| Frame {
            position: at,
            content: at,
            of: None,
            runs: Vec::new(),
            is_proven: false,
            is_damaged: true,
            is_cut_off,
        }))
    }

    /// Whether the frame with this head, which follows the one before, never had room in a file of this length.
    fn is_cut_off(&self, at: u64, head: &[u8]) -> io::Result<bool> {
        let begin = self.bytes(at, FRAME_BYTES + HEADER_BYTES)?;
        let header = begin.as_ref().and_then(|begin| begin.get(FRAME_BYTES..));
        let is_sealed = header.is_some_and(|header| self.is_sealed(head, header));
        let announced = format::announced(head).filter(|_| is_sealed);
        let end = at + (FRAME_BYTES + announced.unwrap_or(HEADER_BYTES)) as u64;
        Ok(!self.has_room_behind(end))
    }

    /// Whether the file has the length that it was made with, as far as that is known; and the copy of the preamble, where
    /// there is one, has room behind frames that end there.
    pub fn has_room_behind(&self, end: u64) -> bool {
        let has_copy = !self.is_in_frames || end + format::PREAMBLE_BYTES as u64 <= self.len;
        self.len >= self.made && has_copy
    }

    /// Behind the frame that was found last.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Where the frames end, when nothing tells that there were more.
    pub fn silent_end(&self) -> Option<u64> {
        self.silent_end
    }

    fn go_on_at(&mut self, (position, link): (u64, u32)) {
        (self.position, self.links, self.resumed) = (position, vec![link], true);
    }

    /// The frame at the position, as it stands there or as it was before a byte was changed, when it follows the one before
    /// and its length can be believed.
    fn frame(&mut self, at: u64, head: &[u8]) -> io::Result<Option<Frame>> {
        let content = self.content(at, head)?;
        let is_sealed = content
            .as_ref()
            .is_some_and(|content| self.is_sealed(head, content));
        if !is_sealed
            && let Some((head, first)) = self.mended(at, head)?
            && let Some(content) = self.content(at, &head)?
        {
            return self.following(at, &head, &content, true, Some(first));
        }
        match content {
            Some(content) => self.following(at, head, &content, is_sealed, None),
            None => Ok(None),
        }
    }

    /// Whether its checksum is that of a frame behind the one before, and its first header checks.
    fn is_sealed(&self, head: &[u8], content: &[u8]) -> bool {
        let computed = |link: &u32| format::computed(head, content, *link, self.seal);
        let stored = format::next_link(head);
        let is_sealed = self.links.iter().any(|link| computed(link) == stored);
        is_sealed && Header::read(content).is_ok()
    }

    /// Whether a frame holds what it was written with, and not what lay in its place before. `is_proven`: its checksum is of
    /// what it holds; `is_named`: the next frame names it.
    fn is_own(&self, first: &Header, is_proven: bool, is_named: bool) -> bool {
        let known = self.known.get(&Identity::of(first));
        match (self.seal.is_bound, is_proven) {
            (true, true) => true,
            // Its head or its content is not as it was; if not the head, then the content.
            (true, false) => !is_named && known == Some(&(first.base_offset, first.chain)),
            (false, _) => known.is_none_or(|(end, _)| first.base_offset >= *end),
        }
    }

    /// Head and first header of the frame at the position, which names the one before, when one other byte of them was
    /// changed.
    fn mended(&self, at: u64, head: &[u8]) -> io::Result<Option<([u8; FRAME_BYTES], Header)>> {
        if !self.links.contains(&format::link(head)) {
            return Ok(None);
        }
        let begin = self.bytes(at, FRAME_BYTES + HEADER_BYTES)?;
        Ok(begin.and_then(|begin| format::mended_begin(&begin, self.seal)))
    }

    /// As [`Walk::frame`]. `is_sealed`: whether the checksum holds, as it stands or mended; `first`: the header of its first
    /// batch, when head or header were mended.
    fn following(
        &mut self,
        at: u64,
        head: &[u8],
        content: &[u8],
        is_sealed: bool,
        first: Option<Header>,
    ) -> io::Result<Option<Frame>> {
        let (stored, named) = (format::next_link(head), format::link(head));
        let is_linked = self.links.contains(&named);
        let computed = format::computed(head, content, named, self.seal);
        let end = at + (FRAME_BYTES + content.len()) as u64;
        let next = self.bytes(end, FRAME_BYTES)?;
        let next = next.map(|next| format::link(&next));
        let is_proven = is_sealed || is_linked && next == Some(computed);
        let mut found = format::batches(content, first);
        let is_own = |first: &Header| self.is_own(first, is_proven, next == Some(stored));
        if !found.first.as_ref().is_none_or(is_own) {
            found = format::Content::default();
        }
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
        self.remember(&found, stored);
        if !found.is_whole && next != Some(stored) && next != Some(computed) {
            self.look_within(at, end)?;
        }
        let told = |first: Header| (Identity::of(&first), first.base_offset, found.end);
        Ok(Some(Frame {
            position: at,
            content: at + FRAME_BYTES as u64,
            of: found.first.map(told),
            is_proven,
            is_damaged: first.is_some() || !(found.is_whole && is_sealed && is_linked),
            is_cut_off: false,
            runs: found.runs,
        }))
    }

    /// Takes note of a frame with this checksum.
    fn remember(&mut self, found: &format::Content, stored: u32) {
        // One that nothing led to may itself be a copy of what follows.
        let is_led_to = !std::mem::take(&mut self.resumed);
        let first = found.first.filter(|_| is_led_to && found.is_whole);
        self.seen.extend(first.map(|first| (stored, first.link())));
        if let Some(run) = found.runs.last() {
            let end = (run.last.next_offset(), run.last.link());
            self.known.insert(Identity::of(&run.last), end);
        }
    }

    /// A copy that lies in the wrong place may have the length of more than was copied: goes on at a frame in there.
    fn look_within(&mut self, at: u64, end: u64) -> io::Result<()> {
        let behind = at + (FRAME_BYTES + HEADER_BYTES) as u64;
        if self.is_in_frames
            && let Some(found) = self.resume(behind..end, &[])?
        {
            self.go_on_at(found);
        }
        Ok(())
    }

    /// The first frame that begins in the range and proves itself, and the link that it names.
    fn resume(&mut self, range: Range<u64>, links: &[u32]) -> io::Result<Option<(u64, u32)>> {
        let mut position = range.start + FRAME_BYTES as u64;
        while let Some(batch) = self.next_magic(position)? {
            if batch >= range.end + FRAME_BYTES as u64 {
                break;
            }
            let begin = batch - FRAME_BYTES as u64;
            position = batch + 1;
            let Some(frame) = self.sound(begin)? else {
                continue;
            };
            // A write that went to the wrong place: what it says lies before, where it belongs.
            if self.seen.contains(&(frame.stored, frame.first.link())) {
                self.copies += 1;
                continue;
            }
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
        let is_sealed = format::computed(head, content, named, self.seal) == stored;
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
            let rest = (self.len - position).min(WINDOW as u64);
            self.window.bytes.resize(rest as usize, 0);
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
