//! The bytes of a WAL file: preamble, frames, cuts (`specs/formats/journal.md`).
//!
//! A frame proves by its checksum, which covers the preamble's, to which log number it belongs, and that its first batch is the
//! one it was written with. The others follow that one by their chain.
use crate::LogId;
use crate::io::fields::{seal, u32_at, u64_at, unseal};
use bascule_record::{HEADER_BYTES, Header, MAGIC as BATCH_MAGIC};
use std::ops::Range;

/// Length of a file's preamble, bytes.
pub(crate) const PREAMBLE_BYTES: usize = 64;
/// Length of a frame's head, bytes.
pub(crate) const FRAME_BYTES: usize = 16;
/// The only format that is written and read.
pub(crate) const VERSION: u32 = 4;
/// Length of the content of a cut, bytes.
pub(crate) const CUT_BYTES: usize = 32;
/// The checksum of a frame covers so much of its content: a batch's header without its own checksum.
const COVERED_BYTES: usize = HEADER_BYTES - size_of::<u32>();
const MAGIC: [u8; 4] = *b"BSCJ";

/// How far synced frames reach under one log number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalPosition {
    /// The log number; 0: none.
    pub number: u64,
    /// Checksum of its preamble: the same number of another data directory has another one.
    pub seed: u32,
    /// Position after the last synced frame, bytes; 0: unknown.
    pub end: u32,
}

/// Length of [`WalPosition`] on disk.
pub(crate) const POSITION_BYTES: usize = 16;

impl WalPosition {
    /// Log number u64, end u32, seed u32.
    pub fn to_bytes(self) -> [u8; POSITION_BYTES] {
        let fields =
            u128::from(self.number) | u128::from(self.end) << 64 | u128::from(self.seed) << 96;
        fields.to_le_bytes()
    }

    /// From the bytes at `at`.
    pub fn read(bytes: &[u8], at: usize) -> Option<Self> {
        Some(Self {
            number: u64_at(bytes, at)?,
            end: u32_at(bytes, at + 8)?,
            seed: u32_at(bytes, at + 12)?,
        })
    }
}

/// The beginning of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preamble {
    /// Of the format.
    pub version: u32,
    /// Ascends over all files; a file gets a new one each time it is recycled.
    pub number: u64,
    /// First log number of the broker's run that wrote it.
    pub run: u64,
    /// Unknown to writers of records, so no frame inside a record has it in its checksum.
    pub salt: u64,
    /// The last log number before this one that has synced frames.
    pub before: WalPosition,
    /// Of the data directory; its manifest has the same.
    pub data_dir_id: u64,
    /// Length of the file, bytes.
    pub file_bytes: u32,
    /// Link of the first frame; computed when it is written.
    pub link: u32,
}

impl Preamble {
    /// The log number, with frames up to that position.
    pub fn position(&self, end: u64) -> WalPosition {
        WalPosition {
            number: self.number,
            seed: self.link,
            end: end_of(end),
        }
    }
}

/// A position in a file, which is shorter than 4 GiB.
pub(crate) fn end_of(position: u64) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

/// The bytes of a preamble, and the preamble with the link of its first frame.
pub(crate) fn preamble(of: &Preamble) -> (Vec<u8>, Preamble) {
    let mut out = Vec::with_capacity(PREAMBLE_BYTES);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&of.version.to_le_bytes());
    for field in [of.number, of.run, of.salt] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&of.before.to_bytes());
    out.extend_from_slice(&of.data_dir_id.to_le_bytes());
    out.extend_from_slice(&of.file_bytes.to_le_bytes());
    seal(&mut out);
    let link = u32_at(&out, PREAMBLE_BYTES - 4).unwrap_or_default();
    (out, Preamble { link, ..*of })
}

/// A preamble of whatever version; `None` when it fails its checksum.
pub(crate) fn read_preamble(bytes: &[u8]) -> Option<Preamble> {
    let bytes = bytes.get(..PREAMBLE_BYTES)?;
    let body = unseal(bytes)?;
    (body.get(..4)? == MAGIC).then_some(())?;
    Some(Preamble {
        version: u32_at(body, 4)?,
        number: u64_at(body, 8)?,
        run: u64_at(body, 16)?,
        salt: u64_at(body, 24)?,
        before: WalPosition::read(body, 32)?,
        data_dir_id: u64_at(body, 48)?,
        file_bytes: u32_at(body, 56)?,
        link: u32_at(bytes, PREAMBLE_BYTES - 4)?,
    })
}

/// Kind of a frame's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Whole batches of one log, one after the other.
    Batches = 1,
    /// A [`Cut`].
    Cut = 2,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameHead {
    /// Length of the content, bytes.
    pub len: usize,
    /// Kind of the content.
    pub kind: Kind,
    /// Checksum of the frame before.
    pub link: u32,
    /// Its own.
    pub checksum: u32,
}

impl FrameHead {
    /// `None` when no frame can have this length and kind.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let len = u32_at(bytes, 0)? as usize;
        let kind = match u32_at(bytes, 4)? {
            1 if len >= HEADER_BYTES => Kind::Batches,
            2 if len == CUT_BYTES => Kind::Cut,
            _ => return None,
        };
        Some(Self {
            len,
            kind,
            link: link(bytes),
            checksum: u32_at(bytes, 12)?,
        })
    }

    /// How much of its content the checksum covers, bytes.
    pub fn covered(&self) -> usize {
        self.len.min(COVERED_BYTES)
    }

    /// Returns whether the checksum is the right one, of a frame under the log number whose preamble has the checksum `seed`.
    pub fn is_valid(&self, bytes: &[u8], covered: &[u8], seed: u32) -> bool {
        bytes
            .get(..12)
            .is_some_and(|head| checksum(seed, head, covered) == self.checksum)
    }
}

/// The link in the bytes of a head, whatever else they say.
pub(crate) fn link(head: &[u8]) -> u32 {
    u32_at(head, 8).unwrap_or_default()
}

fn checksum(seed: u32, head: &[u8], content: &[u8]) -> u32 {
    let covered = content.get(..COVERED_BYTES).unwrap_or(content);
    crc32c::crc32c_append(crc32c::crc32c_append(seed, head), covered)
}

/// Fills in the head before `content`; returns the link of the next frame.
pub(crate) fn frame(out: &mut [u8], kind: Kind, content: &[u8], link: u32, seed: u32) -> u32 {
    let mut head = Vec::with_capacity(FRAME_BYTES);
    head.extend_from_slice(&(content.len() as u32).to_le_bytes());
    head.extend_from_slice(&(kind as u32).to_le_bytes());
    head.extend_from_slice(&link.to_le_bytes());
    let crc = checksum(seed, &head, content);
    head.extend_from_slice(&crc.to_le_bytes());
    if let Some(out) = out.get_mut(..FRAME_BYTES) {
        out.copy_from_slice(&head);
    }
    crc
}

/// A log was cut: replay ignores earlier frames of it from `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The log.
    pub log: LogId,
    /// Its end, then.
    pub offset: u64,
    /// Leader epoch under which it was cut.
    pub epoch: u64,
}

impl Cut {
    /// Begins as a batch does, so that a scan after damage finds it.
    pub fn to_bytes(self) -> [u8; CUT_BYTES] {
        let mut out = Vec::with_capacity(CUT_BYTES);
        out.extend_from_slice(&BATCH_MAGIC);
        out.extend_from_slice(&self.log.partition.to_le_bytes());
        for field in [self.log.incarnation, self.offset, self.epoch] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.try_into().unwrap_or([0; CUT_BYTES])
    }

    /// The content of a frame of that kind.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            log: LogId {
                partition: u32_at(bytes, 4)?,
                incarnation: u64_at(bytes, 8)?,
            },
            offset: u64_at(bytes, 16)?,
            epoch: u64_at(bytes, 24)?,
        })
    }
}

/// Valid batches of a frame that lie one after the other.
#[derive(Clone, Debug)]
pub(crate) struct BatchRun {
    /// Where in the content.
    pub bytes: Range<usize>,
    /// First offset.
    pub start: u64,
    /// First offset after them.
    pub end: u64,
}

/// The batches in a frame.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    /// The valid ones; one run, when all are.
    pub runs: Vec<BatchRun>,
    /// Header of the first one; `None` when it fails its checksum.
    pub first: Option<Header>,
    /// First offset after the last batch that is reached by valid headers.
    pub end: u64,
    /// Whether every batch is valid.
    pub is_whole: bool,
}

/// Checks every batch. Nothing is found after one whose header is damaged.
pub(crate) fn batches(content: &[u8]) -> Batches {
    let mut found = Batches::default();
    let (mut at, mut before, mut is_open) = (0, None::<Header>, false);
    while let Some(head) = content.get(at..at + HEADER_BYTES) {
        let follows = |header: &Header| {
            before.is_none_or(|last| {
                last.incarnation == header.incarnation
                    && last.partition == header.partition
                    && last.next_offset() == header.base_offset
                    && last.link() == header.chain
            })
        };
        let Some(header) = Header::read(head).ok().filter(follows) else {
            break;
        };
        let to = at + header.batch_bytes();
        let Some(payload) = content.get(at + HEADER_BYTES..to) else {
            break;
        };
        let is_valid = crc32c::crc32c(payload) == header.payload_crc;
        match found.runs.last_mut().filter(|_| is_open) {
            Some(run) if is_valid => {
                run.bytes.end = to;
                run.end = header.next_offset();
            }
            None if is_valid => found.runs.push(BatchRun {
                bytes: at..to,
                start: header.base_offset,
                end: header.next_offset(),
            }),
            _ => {}
        }
        is_open = is_valid;
        found.first.get_or_insert(header);
        found.end = header.next_offset();
        before = Some(header);
        at = to;
    }
    let is_one = matches!(found.runs.as_slice(), [run] if run.bytes == (0..content.len()));
    found.is_whole = is_one;
    found
}
