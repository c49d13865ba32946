//! The bytes of a journal file (`specs/formats/journal.md`).
//!
//! | Position | What |
//! |---|---|
//! | 0 | preamble, 64 bytes |
//! | 64 | frames, back to back; behind the last one zeros, or what an earlier use of the file left |
//! | before the copy | marks of how far the frames reach ([`super::mark`]) |
//! | length − 64 | copy of the preamble |
//!
//! Preamble: magic `BSCJ`, version u32 = 4, sequence number u64 (ascending over all uses of all files), life u64 (the first
//! sequence number of the life that writes it), salt u64, of the last use before that has synced frames the sequence number
//! u64, the position u32 behind them and the preamble's checksum u32, the data directory u64 (a number of its own), length of
//! the file u32 (0: not told, and there are no marks), CRC-32C of bytes 0–59. Frame, 16 bytes and its content, whole batches of one log
//! one after the other:
//!
//! | Offset | Type | Field |
//! |---|---|---|
//! | 0 | u32 | length of the content, bytes |
//! | 4 | u32 | kind = 1: batches |
//! | 8 | u32 | link: bytes 12–15 of the frame before; of the first, the preamble's checksum |
//! | 12 | u32 | CRC-32C of the preamble's bytes 0–59, of bytes 0–11 and of the first batch's header without its own checksum (the first 124 bytes of the content) |
//!
//! So a frame proves by itself to which use of the file it belongs, and that its first batch is the one it was written with;
//! the others follow that one by their chain. Up to version 3 the checksum is of the header's own, too, and so says nothing of
//! what the header says: a CRC over bytes and their CRC is the same for all bytes. In version 1 its checksum leaves out the preamble, and
//! there is no copy. In version 2 the preamble says nothing of other uses, and nobody says anything of a use of version 2: a
//! file whose frames were changed since others named its end is one.
use crate::io::fields::{seal, u32_at, u64_at, unseal};
use bascule_record::{HEADER_BYTES, Header};
use std::ops::Range;

/// Length of a file's preamble, bytes.
pub(crate) const PREAMBLE_BYTES: usize = 64;
/// Length of what stands before the batches, bytes.
pub(crate) const FRAME_BYTES: usize = 16;
/// Format written here, and the newest read.
pub(crate) const VERSION: u32 = 4;
/// Of a use of which nobody knows how far it reached.
pub(crate) const VERSION_REWRITTEN: u32 = 2;
/// The last one whose frames do not say which batch is in them.
const VERSION_UNBOUND: u32 = 3;
const MAGIC: [u8; 4] = *b"BSCJ";
const BATCHES: u32 = 1;

/// How far synced frames reach in a use of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Sequence number of the use; 0: there is none.
    pub sequence: u64,
    /// The checksum of its preamble, where the checksums of its frames begin: another directory's use of that number has
    /// another one.
    pub seed: u32,
    /// Position behind the last of them, bytes.
    pub end: u32,
}

/// Length of [`Reached`] on disk.
pub(crate) const REACHED_BYTES: usize = 16;

impl Reached {
    /// Sequence number u64, end u32, seed u32.
    pub fn to_bytes(self) -> [u8; REACHED_BYTES] {
        let fields =
            u128::from(self.sequence) | u128::from(self.end) << 64 | u128::from(self.seed) << 96;
        fields.to_le_bytes()
    }

    /// From the bytes at that place.
    pub fn read(bytes: &[u8], at: usize) -> Option<Self> {
        Some(Self {
            sequence: u64_at(bytes, at)?,
            end: u32_at(bytes, at + 8)?,
            seed: u32_at(bytes, at + 12)?,
        })
    }
}

/// What stands at the beginning of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preamble {
    /// Of the format.
    pub version: u32,
    /// Ascends over all uses of all files.
    pub sequence: u64,
    /// The first sequence number of the life that wrote it, in which each log has at most one frame in a round; 0 from a
    /// version that did not tell.
    pub life: u64,
    /// What nobody who writes records knows, and so no frame in a record has in its checksum.
    pub salt: u64,
    /// The last use before this one that has synced frames.
    pub before: Reached,
    /// Of the data directory, which its head names too; 0 from a version that did not tell.
    pub home: u64,
    /// Length of the file, bytes; 0 from a version that did not tell.
    pub file_bytes: u32,
    /// Link of the first frame; computed when it is written.
    pub link: u32,
}

impl Preamble {
    /// Whether a frame of this use proves that it is one; then a copy of the preamble stands at the end of the file, too.
    pub fn is_in_frames(&self) -> bool {
        self.version > 1
    }

    /// Whether others know how far it reaches, and it knows that of others.
    pub fn is_witnessed(&self) -> bool {
        self.version > VERSION_REWRITTEN
    }

    /// The use, with frames up to that position.
    pub fn reached_to(&self, end: u64) -> Reached {
        Reached {
            sequence: self.sequence,
            seed: self.link,
            end: end_of(end),
        }
    }

    /// What the checksums of frames are of.
    pub fn seal(&self) -> Seal {
        Seal {
            seed: if self.is_in_frames() { self.link } else { 0 },
            is_bound: self.version > VERSION_UNBOUND,
        }
    }
}

/// What the checksums of a use's frames are of, beside head and content.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seal {
    /// Where they begin.
    seed: u32,
    /// Whether another first batch would have another one.
    pub is_bound: bool,
}

impl Seal {
    fn checksum(self, head: &[u8], content: &[u8]) -> u32 {
        let len = if self.is_bound {
            HEADER_BYTES - size_of::<u32>()
        } else {
            HEADER_BYTES
        };
        let header = content.get(..len).unwrap_or(content);
        crc32c::crc32c_append(crc32c::crc32c_append(self.seed, head), header)
    }
}

/// A position in a file, which is no longer than that; what is behind it is not spoken of.
pub(crate) fn end_of(position: u64) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

/// The bytes of the preamble of one use of a file, and the preamble with the link of its first frame.
pub(crate) fn preamble(of: &Preamble) -> (Vec<u8>, Preamble) {
    let mut out = Vec::with_capacity(PREAMBLE_BYTES);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&of.version.to_le_bytes());
    for field in [of.sequence, of.life, of.salt] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&of.before.to_bytes());
    out.extend_from_slice(&of.home.to_le_bytes());
    out.extend_from_slice(&of.file_bytes.to_le_bytes());
    seal(&mut out);
    let link = u32_at(&out, PREAMBLE_BYTES - 4).unwrap_or_default();
    (out, Preamble { link, ..*of })
}

/// A preamble; `None` when it does not check.
pub(crate) fn read_preamble(bytes: &[u8]) -> Option<Preamble> {
    let bytes = bytes.get(..PREAMBLE_BYTES)?;
    let body = unseal(bytes)?;
    (body.get(..4)? == MAGIC).then_some(())?;
    let version = u32_at(body, 4)?;
    let is_witnessed = version > VERSION_REWRITTEN;
    let before = Reached::read(body, 32)?;
    let home = u64_at(body, 48)?;
    Some(Preamble {
        version,
        sequence: u64_at(body, 8)?,
        life: u64_at(body, 16)?,
        salt: u64_at(body, 24)?,
        before: if is_witnessed {
            before
        } else {
            Reached::default()
        },
        home: if is_witnessed { home } else { 0 },
        file_bytes: u32_at(body, 56)?,
        link: u32_at(bytes, PREAMBLE_BYTES - 4)?,
    })
}

/// The preamble of which one byte was changed. The first frame has to name its link, too.
pub(crate) fn mended_preamble(bytes: &[u8]) -> Option<Preamble> {
    let preamble = bytes.get(..PREAMBLE_BYTES)?;
    let first_link = u32_at(bytes, PREAMBLE_BYTES + 8)?;
    let read = |bytes: &[u8]| read_preamble(bytes).filter(|found| found.link == first_link);
    with_one_byte_changed(preamble, read)
}

/// The head of a frame and the header of its first batch, of which one byte was changed, but none of the link: as it was.
pub(crate) fn mended_begin(bytes: &[u8], seal: Seal) -> Option<([u8; FRAME_BYTES], Header)> {
    let link = u32_at(bytes, 8)?;
    with_one_byte_changed(bytes, |bytes| {
        let (head, header) = bytes.split_first_chunk()?;
        let is_sealed = computed(head, header, link, seal) == next_link(head);
        let header = Header::read(header).ok().filter(|_| is_sealed)?;
        announced(head).map(|_| (*head, header))
    })
}

/// What `read` makes of the bytes when one of them is another; of the first one of which it makes something.
fn with_one_byte_changed<T>(bytes: &[u8], read: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    let mut mended = bytes.to_vec();
    for at in 0..bytes.len() {
        let before = *mended.get(at)?;
        for value in 0..=u8::MAX {
            *mended.get_mut(at)? = value;
            let found = read(&mended);
            if found.is_some() {
                return found;
            }
        }
        *mended.get_mut(at)? = before;
    }
    None
}

/// Fills in the 16 bytes before `content`; returns the link of the next frame.
pub(crate) fn frame(out: &mut [u8], content: &[u8], link: u32, seal: Seal) -> u32 {
    let mut head = Vec::with_capacity(FRAME_BYTES);
    head.extend_from_slice(&(content.len() as u32).to_le_bytes());
    head.extend_from_slice(&BATCHES.to_le_bytes());
    head.extend_from_slice(&link.to_le_bytes());
    let crc = seal.checksum(&head, content);
    head.extend_from_slice(&crc.to_le_bytes());
    if let Some(out) = out.get_mut(..FRAME_BYTES) {
        out.copy_from_slice(&head);
    }
    crc
}

/// The link in a frame's head.
pub(crate) fn link(head: &[u8]) -> u32 {
    u32_at(head, 8).unwrap_or_default()
}

/// Length of the content that a frame announces; `None` when it cannot be one.
pub(crate) fn announced(head: &[u8]) -> Option<usize> {
    let len = u32_at(head, 0)? as usize;
    (u32_at(head, 4)? == BATCHES && len >= HEADER_BYTES).then_some(len)
}

/// The checksum in a frame's head, which the frame behind it names as its link.
pub(crate) fn next_link(head: &[u8]) -> u32 {
    u32_at(head, 12).unwrap_or_default()
}

/// The checksum of a frame that follows `link`, as it should be.
pub(crate) fn computed(head: &[u8], content: &[u8], link: u32, seal: Seal) -> u32 {
    let mut head = head.get(..8).unwrap_or_default().to_vec();
    head.extend_from_slice(&link.to_le_bytes());
    seal.checksum(&head, content)
}

/// Whole batches of a frame that lie one behind the other, each the next one's predecessor.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Where in the content.
    pub bytes: Range<usize>,
    /// Header of the first batch.
    pub first: Header,
    /// Header of the last one.
    pub last: Header,
}

/// The content of a frame, batch by batch.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// Its sound batches; one run, when all are.
    pub runs: Vec<Run>,
    /// Header of the first batch, when it is known.
    pub first: Option<Header>,
    /// First offset after the last batch whose header is known.
    pub end: u64,
    /// Whether every batch is sound.
    pub is_whole: bool,
}

/// Looks at every batch. One that does not check is passed over, when its header does or one byte of that was changed; behind
/// another one nothing is found. `first`: the header of the first batch, where it is known but for what stands there.
pub(crate) fn batches(content: &[u8], first: Option<Header>) -> Content {
    let mut found = Content::default();
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
        let whole = Header::read(head).ok().filter(follows);
        let mended = || match before {
            None => first,
            Some(_) => with_one_byte_changed(head, |head| Header::read(head).ok().filter(follows)),
        };
        let Some(header) = whole.or_else(mended) else {
            break;
        };
        let to = at + header.batch_bytes();
        let Some(payload) = content.get(at + HEADER_BYTES..to) else {
            break;
        };
        let is_sound = whole.is_some() && crc32c::crc32c(payload) == header.payload_crc;
        match found.runs.last_mut().filter(|_| is_open) {
            Some(run) if is_sound => {
                run.bytes.end = to;
                run.last = header;
            }
            None if is_sound => found.runs.push(Run {
                bytes: at..to,
                first: header,
                last: header,
            }),
            _ => {}
        }
        is_open = is_sound;
        found.first.get_or_insert(header);
        found.end = header.next_offset();
        before = Some(header);
        at = to;
    }
    let is_one = matches!(found.runs.as_slice(), [run] if run.bytes == (0..content.len()));
    found.is_whole = is_one;
    found
}
