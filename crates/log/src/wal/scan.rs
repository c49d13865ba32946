//! The frames of one WAL file, in the order in which they were written, and the gaps that damage left between them.
//!
//! A frame's checksum covers the preamble, so neither a frame inside a record nor one of an earlier log number is valid.
//! After a frame that fails its checksum the scan continues at the next valid frame that it has not met yet: a copy of an
//! earlier frame, from a misdirected write, is skipped.
use super::format::{self, Batches, CUT_BYTES, Cut, FRAME_BYTES, FrameHead, Kind, PREAMBLE_BYTES};
use super::replay::WalFile;
use crate::io::window::FileWindow;
use crate::segment::resync::find_magic;
use bascule_record::MAGIC;
use std::collections::HashSet;
use std::io;

/// One step of a scan.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Where it begins, bytes.
    pub position: u64,
    /// Its content.
    pub content: Content,
}

/// The content of a frame.
#[derive(Debug)]
pub(crate) enum Content {
    /// Batches, which may be damaged; they begin after the head.
    Batches(Batches),
    /// A cut.
    Cut(Cut),
    /// Unknown: one frame or several that are damaged.
    Gap,
}

impl Content {
    /// Returns whether all of it is valid.
    pub fn is_whole(&self) -> bool {
        match self {
            Self::Batches(batches) => batches.is_whole,
            Self::Cut(_) => true,
            Self::Gap => false,
        }
    }
}

/// Scans one file.
pub(crate) struct Scan<'a> {
    window: FileWindow<'a>,
    position: u64,
    /// Where checksums begin.
    seed: u32,
    /// The link that the next frame has.
    link: u32,
    /// Checksums of the frames that were reached from the one before.
    seen: HashSet<u32>,
    /// Nothing led to the frame at the position: it may be a copy of a later one.
    is_resumed: bool,
    has_ended: bool,
    /// No byte after this position proves that there were more frames.
    clean_end: Option<u64>,
}

impl<'a> Scan<'a> {
    /// Begins after the preamble; without one there are no frames.
    pub fn new(file: &'a WalFile) -> Self {
        let link = file.preamble.map(|preamble| preamble.link);
        Self {
            window: FileWindow::new(&*file.file.file, file.len),
            position: PREAMBLE_BYTES as u64,
            seed: link.unwrap_or_default(),
            link: link.unwrap_or_default(),
            seen: HashSet::new(),
            is_resumed: false,
            has_ended: link.is_none(),
            clean_end: None,
        }
    }

    /// The next frame; `None` at the end.
    ///
    /// # Errors
    /// Those of the storage: bytes that the disk does not return now may have been acknowledged, and be readable next time.
    pub fn next(&mut self) -> io::Result<Option<Frame>> {
        if self.has_ended {
            return Ok(None);
        }
        let at = self.position;
        if let Some(head) = self.valid_head(at)?.filter(|head| head.link == self.link)
            && let Some(bytes) = self.bytes(at + FRAME_BYTES as u64, head.len)?
        {
            let content = match head.kind {
                Kind::Batches => Content::Batches(format::batches(&bytes)),
                Kind::Cut => Cut::read(&bytes).map_or(Content::Gap, Content::Cut),
            };
            self.position = at + (FRAME_BYTES + head.len) as u64;
            self.link = head.checksum;
            if !std::mem::take(&mut self.is_resumed) {
                self.seen.insert(head.checksum);
            }
            if !content.is_whole() && !self.is_followed()? {
                self.resume_within(at)?;
            }
            return Ok(Some(Frame {
                position: at,
                content,
            }));
        }
        let is_linked = self.is_followed()?;
        let (resumed, copies) = self.resume(at + 1)?;
        match resumed {
            Some((position, link)) => {
                (self.position, self.link, self.is_resumed) = (position, link, true);
            }
            None => self.has_ended = true,
        }
        if is_linked || resumed.is_some() || copies {
            return Ok(Some(Frame {
                position: at,
                content: Content::Gap,
            }));
        }
        self.clean_end = Some(at);
        Ok(None)
    }

    /// After the frame that was found last, bytes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Where the frames end, when nothing there says that there were more.
    pub fn clean_end(&self) -> Option<u64> {
        self.clean_end
    }

    /// Returns whether the frame at the position follows the one before it.
    fn is_followed(&mut self) -> io::Result<bool> {
        let head = self.bytes(self.position, FRAME_BYTES)?;
        Ok(head.is_some_and(|head| format::link(&head) == self.link))
    }

    /// A frame whose content is damaged and that none follows may be a copy of another frame's beginning: continues at a frame
    /// within it.
    fn resume_within(&mut self, at: u64) -> io::Result<()> {
        if let (Some((position, link)), _) = self.resume(at + 1)?
            && position < self.position
        {
            (self.position, self.link, self.is_resumed) = (position, link, true);
        }
        Ok(())
    }

    /// The first valid frame that begins at `from` or later and was not met before, with the link in it; and whether copies of
    /// frames that were met come before it.
    fn resume(&mut self, from: u64) -> io::Result<(Option<(u64, u32)>, bool)> {
        let (mut position, mut copies) = (from + FRAME_BYTES as u64, false);
        while let Some(content) = self.next_magic(position)? {
            let begin = content - FRAME_BYTES as u64;
            position = content + 1;
            let Some(head) = self.valid_head(begin)? else {
                continue;
            };
            if !self.seen.contains(&head.checksum) {
                return Ok((Some((begin, head.link)), copies));
            }
            copies = true;
        }
        Ok((None, copies))
    }

    /// The head of a frame that the file has whole and whose checksum is right.
    fn valid_head(&mut self, at: u64) -> io::Result<Option<FrameHead>> {
        let Some(bytes) = self.bytes(at, FRAME_BYTES)? else {
            return Ok(None);
        };
        let Some(head) = FrameHead::read(&bytes) else {
            return Ok(None);
        };
        let content = at + FRAME_BYTES as u64;
        if content + head.len as u64 > self.window.len {
            return Ok(None);
        }
        let covered = self.bytes(content, head.covered())?;
        let is_valid = covered.is_some_and(|covered| head.is_valid(&bytes, &covered, self.seed));
        Ok(is_valid.then_some(head))
    }

    /// The bytes at a position; `None` where the file does not have them.
    fn bytes(&mut self, position: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
        let bytes = self.window.bytes(position, len)?;
        Ok((bytes.len() == len).then(|| bytes.to_vec()))
    }

    /// The next position from `from` on that holds the magic of a batch or a cut. The window then begins with a head before it.
    fn next_magic(&mut self, from: u64) -> io::Result<Option<u64>> {
        let mut position = from;
        loop {
            let head = position - FRAME_BYTES as u64;
            let bytes = self.window.rest(head, FRAME_BYTES + CUT_BYTES)?;
            let Some(content) = bytes.get(FRAME_BYTES..).filter(|of| of.len() >= CUT_BYTES) else {
                return Ok(None);
            };
            if let Some(at) = find_magic(content) {
                return Ok(Some(position + at as u64));
            }
            // A magic may cross the end.
            position += (content.len() - (MAGIC.len() - 1)) as u64;
        }
    }
}
