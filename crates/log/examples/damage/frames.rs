//! What a journal holds, read by its format page (`specs/formats/journal.md`) and not by the code that is judged; and what of
//! it is left in a damaged copy.
use bascule_record::{HEADER_BYTES, Header};
use std::fs;
use std::path::Path;

const PREAMBLE_BYTES: usize = 64;
const FRAME_BYTES: usize = 16;
/// Of the two marks at the end of a file: how far before it each lies.
const MARKS: [usize; 2] = [1024, 512];
const MARK_BYTES: usize = 32;
/// A slot of the head.
const HEAD_BYTES: usize = 512;
/// The head of a frame and the header of its first batch: these name its log.
const TELLING_BYTES: usize = FRAME_BYTES + HEADER_BYTES;

/// A file and the frames of its last use.
pub struct JournalFile {
    pub bytes: Vec<u8>,
    pub sequence: u64,
    pub run: u64,
    /// The use before, and where its frames end.
    pub before: (u64, u64),
    pub frames: Vec<Frame>,
}

/// One frame.
pub struct Frame {
    /// Where it lies, bytes [from, to).
    pub from: usize,
    pub to: usize,
    /// The log.
    pub incarnation: u64,
    /// Offsets [start, end).
    pub start: u64,
    pub end: u64,
    /// Of each batch where its header ends, and the next offset.
    headers: Vec<(usize, u64)>,
}

/// What is left of one frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Left {
    /// All of it.
    pub whole: bool,
    /// Its log and the offsets up to this one can be known; 0: nothing can.
    pub named_to: u64,
    /// That something is missing can be known by what stands there, or by what lies after it in the file.
    pub is_noticed: bool,
    /// That it was acknowledged can be known.
    pub is_vouched: bool,
}

/// The files that were used, by sequence number.
pub fn read(directory: &Path) -> Vec<JournalFile> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let journals = paths.filter(|path| path.extension().is_some_and(|name| name == "journal"));
    let files = journals.map(|path| fs::read(path).unwrap());
    let mut files: Vec<JournalFile> = files.filter_map(read_file).collect();
    files.sort_by_key(|file| file.sequence);
    files
}

fn read_file(bytes: Vec<u8>) -> Option<JournalFile> {
    let preamble = bytes.get(..PREAMBLE_BYTES)?;
    let seed = u32_at(preamble, 60)?;
    if !preamble.starts_with(b"BSCJ") || crc32c::crc32c(&preamble[..60]) != seed {
        return None;
    }
    let number = |at: usize| u64_at(preamble, at);
    // Only with version 4 the checksum says which batch is in a frame: it leaves out the header's own.
    let covered = if u32_at(preamble, 4)? < 4 {
        HEADER_BYTES
    } else {
        HEADER_BYTES - 4
    };
    let (sequence, run) = (number(8)?, number(16)?);
    let before = if u32_at(preamble, 4)? < 3 {
        (0, 0)
    } else {
        (number(32)?, u64::from(u32_at(preamble, 40)?))
    };
    let (mut frames, mut at, mut link) = (Vec::new(), PREAMBLE_BYTES, seed);
    while let Some((frame, next)) = read_frame(&bytes, at, link, (seed, covered)) {
        (at, link) = (frame.to, next);
        frames.push(frame);
    }
    Some(JournalFile {
        bytes,
        sequence,
        run,
        before,
        frames,
    })
}

/// The frame at the position, and the link of the next one.
fn read_frame(
    bytes: &[u8],
    at: usize,
    link: u32,
    (seed, covered): (u32, usize),
) -> Option<(Frame, u32)> {
    let to = at + FRAME_BYTES + u32_at(bytes, at)? as usize;
    let crc = crc32c::crc32c_append(seed, bytes.get(at..at + 12)?);
    let begin = at + FRAME_BYTES;
    let crc = crc32c::crc32c_append(crc, bytes.get(begin..begin + covered)?);
    if u32_at(bytes, at + 8)? != link || u32_at(bytes, at + 12)? != crc || to > bytes.len() {
        return None;
    }
    let first = Header::read(&bytes[at + FRAME_BYTES..]).ok()?;
    let (mut position, mut headers) = (at + FRAME_BYTES, Vec::new());
    while position < to {
        let header = Header::read(&bytes[position..]).ok()?;
        headers.push((position + HEADER_BYTES, header.next_offset()));
        position += header.batch_bytes();
    }
    let frame = Frame {
        from: at,
        to,
        incarnation: first.incarnation,
        start: first.base_offset,
        end: headers.last()?.1,
        headers,
    };
    Some((frame, crc))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The uses that the head of the journal names, each with a position up to which its frames were synced.
fn named_by_head(journal: &Path) -> Vec<(u64, u64)> {
    let bytes = fs::read(journal.with_extension("head")).unwrap_or_default();
    let slot = |at: usize| {
        let slot = bytes.get(at..at + HEAD_BYTES)?;
        let (body, crc) = slot.split_at(HEAD_BYTES - 4);
        (slot.starts_with(b"BSCH") && u32_at(crc, 0)? == crc32c::crc32c(body)).then_some(slot)
    };
    let slots = [slot(0), slot(4096)].into_iter().flatten();
    let newest = slots.max_by_key(|slot| u64_at(slot, 8));
    let named = |slot: &[u8]| {
        let kept = u32_at(slot, 40)? as usize;
        let places = [16].into_iter().chain((0..kept).map(|i| 48 + 16 * i));
        let uses = places.map(|at| Some((u64_at(slot, at)?, u64::from(u32_at(slot, at + 8)?))));
        uses.collect::<Option<Vec<_>>>()
    };
    newest.and_then(named).unwrap_or_default()
}

/// What is left of each frame of each file, under whatever name the files now are.
pub fn left(before: &[JournalFile], directory: &Path) -> Vec<Vec<Left>> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let now: Vec<Vec<u8>> = entries
        .map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .collect();
    let valid = read(directory);
    let mut named = named_by_head(directory);
    named.extend(valid.iter().map(|file| file.before));
    let of_file = |file: &JournalFile| {
        let same = now.iter().find(|now| is_use_of(now, file));
        // The next log number with frames, of any file, names its run.
        let mut later = valid.iter().filter(|other| other.sequence > file.sequence);
        let next = later.find(|other| !other.frames.is_empty());
        let continues = next.is_some_and(|next| next.run == file.run);
        let ours = named
            .iter()
            .filter(|(sequence, _)| *sequence == file.sequence);
        let known_to = ours.map(|(_, end)| *end as usize).max();
        let known_to = if continues {
            usize::MAX
        } else {
            known_to.unwrap_or(0)
        };
        same.map_or(vec![Left::default(); file.frames.len()], |now| {
            let marks = marks(file, now);
            let synced_to = marks.map_or(0, |(synced, _)| synced);
            let mut left = left_in(file, now, known_to.max(synced_to));
            for (frame, left) in file.frames.iter().zip(&mut left) {
                // A mark says that it was written, or one of the marks is missing: both are reported.
                left.is_noticed |= marks.is_none_or(|(_, written)| frame.from < written);
            }
            left
        })
    };
    before.iter().map(of_file).collect()
}

/// What both marks of the file's use say is left: that frames before a position were synced, and that frames before another
/// one were written. `None` when one of them is gone.
fn marks(file: &JournalFile, now: &[u8]) -> Option<(usize, usize)> {
    let mark = |before_end: &usize| {
        let at = file.bytes.len() - before_end;
        let (body, crc) = now.get(at..at + MARK_BYTES)?.split_at(MARK_BYTES - 4);
        let is_ours = u64_at(body, 0)? == file.sequence && body[8..12] == file.bytes[60..64];
        let is_valid = is_ours && u32_at(crc, 0)? == crc32c::crc32c(body);
        let fields = (u32_at(body, 12)? as usize, u32_at(body, 16)? as usize);
        is_valid.then_some(fields)
    };
    let [odd, even] = MARKS.each_ref().map(mark);
    let (odd, even) = (odd?, even?);
    Some((odd.0.max(even.0), odd.1.max(even.1)))
}

/// Returns whether it can still be known which log number of the file this is: the preamble is there, or its copy.
fn is_use_of(now: &[u8], file: &JournalFile) -> bool {
    let known = &file.bytes[..PREAMBLE_BYTES];
    let Some(begin) = now.get(..PREAMBLE_BYTES) else {
        return false;
    };
    begin == known || now.ends_with(known)
}

/// `known_to`: others tell that the frames before it were acknowledged.
fn left_in(file: &JournalFile, now: &[u8], known_to: usize) -> Vec<Left> {
    let changed = |from: usize, to: usize| {
        let now = now.get(from..to).unwrap_or_default().iter();
        let same = now.zip(&file.bytes[from..to]).filter(|(a, b)| a == b);
        to - from - same.count()
    };
    let mut left: Vec<Left> = Vec::new();
    let mut is_linked = true;
    for frame in &file.frames {
        let (from, is_inside) = (frame.from, frame.to <= now.len());
        let has_begin = is_inside && changed(from, from + TELLING_BYTES) == 0;
        let headers = frame.headers.iter();
        let known =
            headers.take_while(|(end, _)| has_begin && changed(end - HEADER_BYTES, *end) == 0);
        left.push(Left {
            whole: changed(from, frame.to) == 0,
            named_to: known.last().map_or(0, |(_, next)| *next),
            // The preamble says how long its file was made.
            is_noticed: is_linked && changed(from + 8, from + FRAME_BYTES) == 0
                || now.len() < file.bytes.len(),
            is_vouched: false,
        });
        is_linked = has_begin;
    }
    let (mut behind, mut is_vouched) = (Vec::new(), false);
    let mut any_behind = false;
    for (frame, left) in file.frames.iter().zip(&mut left).rev() {
        left.is_noticed |= any_behind;
        is_vouched |= frame.from < known_to;
        any_behind |= left.whole;
        if left.named_to > 0 {
            is_vouched |= behind.contains(&frame.incarnation);
            behind.push(frame.incarnation);
        }
        left.is_vouched = is_vouched;
    }
    left
}
