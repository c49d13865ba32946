//! Reading a file through a window.
use crate::io::disk::read_up_to;
use crate::io::storage::StorageFile;
use rustix::io::Errno;
use std::io;

/// Bytes read at a time; the first reads are smaller, for callers that need few bytes.
pub(crate) const WINDOW: usize = 256 << 10;
const FIRST_WINDOW: usize = 64 << 10;

/// Reads a file through a window.
pub(crate) struct FileWindow<'a> {
    file: &'a dyn StorageFile,
    /// Length of what is read, bytes.
    pub len: u64,
    buffer: Vec<u8>,
    /// Bytes to read the next time.
    window: usize,
    /// Bytes of the buffer that are filled, and the position of the first one in the file.
    filled: usize,
    filled_at: u64,
    /// Bytes read so far.
    pub bytes_read: u64,
}

impl<'a> FileWindow<'a> {
    /// A window on the first `len` bytes.
    pub fn new(file: &'a dyn StorageFile, len: u64) -> Self {
        Self {
            file,
            len,
            buffer: Vec::new(),
            window: FIRST_WINDOW,
            filled: 0,
            filled_at: 0,
            bytes_read: 0,
        }
    }

    /// Drops what is cached of the file from `position` on, here and in the page cache: later reads see the disk.
    pub fn forget(&mut self, position: u64) -> io::Result<()> {
        self.filled = 0;
        self.file.forget_cached(position)
    }

    /// Up to `wanted` bytes at `position`; fewer at the end of the file.
    pub fn bytes(&mut self, position: u64, wanted: usize) -> io::Result<&[u8]> {
        let available = usize::try_from(self.len.saturating_sub(position)).unwrap_or(usize::MAX);
        let wanted = wanted.min(available);
        let have = self.filled_at + self.filled as u64;
        if position < self.filled_at || position + wanted as u64 > have {
            let window = self.window;
            self.window = WINDOW.min(2 * window);
            match self.fill(position, wanted.max(window).min(available)) {
                // A bad page after the wanted bytes must not fail the read.
                Err(error) if is_media_error(&error) => self.fill(position, wanted)?,
                other => other?,
            }
        }
        let from = (position - self.filled_at) as usize;
        let window = self.buffer.get(from..self.filled).unwrap_or_default();
        Ok(window.get(..wanted).unwrap_or(window))
    }

    /// The bytes from `position` on that are at hand, at least `least` unless the file ends before.
    pub fn rest(&mut self, position: u64, least: usize) -> io::Result<&[u8]> {
        let have = self.filled_at + self.filled as u64;
        let is_at_hand = position >= self.filled_at && position + least as u64 <= have;
        let wanted = if is_at_hand {
            have - position
        } else {
            WINDOW as u64
        };
        self.bytes(position, wanted as usize)
    }

    /// Reads `len` bytes from `position` on, reusing what the buffer has of them.
    fn fill(&mut self, position: u64, len: usize) -> io::Result<()> {
        let have = self.filled_at + self.filled as u64;
        let keep = if position >= self.filled_at && position < have {
            let from = (position - self.filled_at) as usize;
            self.buffer.copy_within(from..self.filled, 0);
            self.filled - from
        } else {
            0
        };
        (self.filled, self.filled_at) = (keep, position);
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
        let rest = self.buffer.get_mut(keep..len).unwrap_or_default();
        let read = read_up_to(self.file, rest, position + keep as u64)?;
        self.filled += read;
        self.bytes_read += read as u64;
        Ok(())
    }
}

/// Returns whether the disk lost the bytes; other errors say nothing about them.
pub(crate) fn is_media_error(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::IO | Errno::BADMSG | Errno::UCLEAN | Errno::NODATA)
    )
}
