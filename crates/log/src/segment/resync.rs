//! Resynchronisation: where batches can be served again after damage.
//!
//! The length of a batch whose header is damaged is unknown, so the next batch has to be searched for. A record may hold the
//! image of a batch, with the right incarnation, partition and offsets, even a chain of several. Such an image must not be
//! taken for a batch of the log. The evidence, in this order, consists of values that the writer of a record cannot know:
//!
//! 1. *Length and link*: the payload after the damaged header still matches the length and the checksum in that header, so
//!    the next batch begins right after it; if that one's header is damaged too, the same again. The first batch with a valid
//!    header must carry the header checksum of the batch before it as its chain value. What an earlier run or a misdirected
//!    write left there does not.
//! 2. *Link*: the candidate's chain value equals the header checksum of the lost batch, as stored or as computed from its
//!    other bytes. One of the two is right unless both were hit. Bytes that do not resemble the lost batch's header prove
//!    nothing. A candidate that follows the batch before the lost one either is in the lost one's place or is a copy,
//!    perhaps of an earlier run: that does not link it. A linked candidate whose own payload is damaged is used only if no
//!    other evidence is found.
//! 3. *Anchor*: a chain of batches leads from the candidate to a position known from elsewhere: an entry of the index
//!    (checksummed, or in memory), the next segment's chain value, or the end of the batches. The batch after the record
//!    carries the link of the batch that holds the record, so a chain that begins inside a record never connects. A chain
//!    whose end is followed by anything but zeros does not count: it is misplaced.
//! 4. The next entry of the index itself.
//! 5. Only if the torn tail may begin in this segment and nothing else is known: the chain whose last valid batch reaches
//!    furthest in the file. This remains so after a next segment was begun after the lost tail.
//!
//! If the payload of the batch before fails its checksum too, its header may be a copy from elsewhere, whose length is right
//! in another place only: the bytes that it covers are searched as well. An image in its records proves nothing by reaching
//! furthest within it.
//!
//! A candidate without a link that begins above the durable point is never accepted: the bytes before it may be a hole that
//! no sync covered, and batches after such a hole must not come back. Nor is one that begins at the durable point, where
//! the next batch should begin, if the damaged header before it says that it does not follow.
//!
//! Remaining risk: each proof is a 32-bit checksum that a writer of records cannot predict, so one image in 2^32 passes; and
//! under 5, an image in the very last batch of a log that crashed, if that batch's header is damaged beyond 1 and 2. Without
//! proof, the offsets up to the next proven position are refused: too many rather than a wrong record.
use crate::io::fields::{u32_at as word, u64_at};
use crate::io::window::{WINDOW, is_media_error};
use crate::segment::index::SparseIndex;
use crate::segment::scan::{Found, LogPosition, Scanner};
use crate::segment::segment_file::SegmentFile;
use bascule_record::{HEADER_BYTES, Header, MAGIC};
use std::collections::HashSet;
use std::io;

const PAGE: u64 = 4096;

/// The end of a segment's batches, as far as it is known without reading them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentBounds {
    /// First offset after the segment; `u64::MAX` when unhints.
    pub offset: u64,
    /// Position after the last batch.
    pub position: Option<u64>,
    /// Link of the last batch.
    pub chain: Option<u32>,
    /// The last batches were lost before: no chain arrives at the end.
    pub is_lost: bool,
}

impl SegmentBounds {
    /// The bounds of the segment before `next`, by the preamble of `next`; unknown for the last segment.
    pub fn before(next: Option<&SegmentFile>) -> Self {
        let chain = next
            .and_then(|next| next.preamble)
            .map(|preamble| preamble.chain);
        Self {
            offset: next.map_or(u64::MAX, |next| next.base_offset),
            position: None,
            chain: chain.filter(|chain| *chain != 0),
            is_lost: next.is_some_and(|next| next.base_offset > 0) && chain == Some(0),
        }
    }

    fn is_unknown(&self) -> bool {
        self.offset == u64::MAX && self.position.is_none() && self.chain.is_none()
    }
}

/// Facts about a segment that are known without reading its batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanHints<'a> {
    /// Positions where batches begin.
    pub index: Option<&'a SparseIndex>,
    /// Where the batches end.
    pub end: SegmentBounds,
    /// Offsets from here on may be a torn tail; `u64::MAX` when none may.
    pub durable: u64,
}

/// The position that a chain of batches has to reach.
enum Target {
    /// The beginning of a batch.
    Batch(LogPosition),
    /// The end of the segment.
    End(SegmentBounds),
    /// Nothing is hints.
    Furthest,
}

/// The result of following payloads by the lengths in damaged headers.
enum LengthProof {
    /// The next batch begins here and is linked.
    Proven(LogPosition),
    /// The next batch should begin at this position, but the one there is not linked.
    Refuted(u64),
    /// No proof.
    Unknown,
}

/// The state of one search.
struct Search<'a> {
    lost: &'a LogPosition,
    /// Where the search begins: at the lost batch, or at the one before it if that one cannot be trusted.
    from: LogPosition,
    /// Chain values that the successor of the lost batch may carry.
    links: Vec<u32>,
    /// Where that successor should begin, if the batch there is not linked.
    refuted: Option<u64>,
    /// The first candidate that is linked, but damaged itself.
    damaged: Option<LogPosition>,
    /// End and beginning of the chain that reaches furthest.
    furthest: Option<(u64, LogPosition)>,
    /// Positions of batches in chains that failed.
    visited: HashSet<u64>,
}

impl<'a> Search<'a> {
    fn new(lost: &'a LogPosition, untrusted: Option<LogPosition>) -> Self {
        Self {
            lost,
            from: untrusted.unwrap_or(*lost),
            links: Vec::new(),
            refuted: None,
            damaged: None,
            furthest: None,
            visited: HashSet::new(),
        }
    }

    /// Returns whether the candidate follows the lost batch. A batch that follows the one before the lost one, in another
    /// place, may be from an earlier run.
    fn is_linked(&self, place: &LogPosition, header: &Header) -> bool {
        place.position >= self.lost.position + HEADER_BYTES as u64
            && header.base_offset > self.lost.offset
            && self.links.contains(&header.chain)
    }
}

impl Scanner<'_> {
    /// The first position after damage at `lost` from which batches can be served again; `None` if the rest is lost.
    pub fn resume_after(
        &mut self,
        lost: &LogPosition,
        hints: &ScanHints<'_>,
    ) -> io::Result<Option<LogPosition>> {
        let limit = hints.end.offset;
        let untrusted = self.untrusted_before(lost)?;
        let mut search = Search::new(lost, untrusted);
        if !self.has_valid_header(lost.position)? {
            match self.by_length(lost, limit)? {
                LengthProof::Proven(place) => return Ok(Some(place)),
                LengthProof::Refuted(position) => search.refuted = Some(position),
                LengthProof::Unknown => {}
            }
            if self.resembles(lost)? {
                search.links = self.links_at(lost.position)?;
            }
        }
        let entry = self.next_entry(&search.from, hints)?;
        let target = match entry {
            Some(place) => Target::Batch(place),
            None if hints.end.is_unknown() || hints.end.is_lost => Target::Furthest,
            None => Target::End(hints.end),
        };
        let to = entry.map_or(self.window.len, |place| place.position);
        let mut position = search.from.position + 1;
        while let Some(at) = self.next_magic(position, to)? {
            position = at + 1;
            if let Some((place, header)) = self.candidate(at, &search.from, limit)?
                && self.is_proven(&mut search, place, &header, &target, hints.durable)?
            {
                return Ok(Some(place));
            }
        }
        let furthest = search.furthest.map(|(_, place)| place);
        Ok(match target {
            Target::Furthest => furthest,
            Target::End(_) if hints.durable < limit => furthest,
            Target::Batch(_) | Target::End(_) => search.damaged.or(entry),
        })
    }

    /// Returns whether there is proof that the log continues at this candidate. Weaker evidence is kept in `search`.
    fn is_proven(
        &mut self,
        search: &mut Search<'_>,
        place: LogPosition,
        header: &Header,
        target: &Target,
        durable: u64,
    ) -> io::Result<bool> {
        let linked = search.is_linked(&place, header);
        if linked {
            if matches!(self.check(&place, true)?, Found::Batch(_)) {
                return Ok(true);
            }
            // Perhaps the rest of a copy; the original may be overwritten completely.
            search.damaged = search.damaged.or(Some(place));
        }
        let denied = header.base_offset == durable && search.refuted == Some(place.position);
        if denied || header.base_offset > durable && !linked {
            return Ok(false);
        }
        let (reached, end) = self.follow(place, target, &mut search.visited)?;
        // An image in a record of the untrusted batch ends within that batch.
        let leaves = place.position > search.lost.position || end > search.lost.position;
        if !reached && leaves && search.furthest.is_none_or(|(best, _)| end > best) {
            search.furthest = Some((end, place));
        }
        Ok(reached)
    }

    /// The batch whose header gave the position of the lost one, if its own payload fails its checksum: it may be a copy from
    /// elsewhere or from an earlier run, and its length may be right in another place only.
    fn untrusted_before(&mut self, lost: &LogPosition) -> io::Result<Option<LogPosition>> {
        let Some(position) = lost.previous_batch else {
            return Ok(None);
        };
        let Some(head) = self.readable(position, HEADER_BYTES)? else {
            return Ok(None);
        };
        let Ok(header) = Header::read(head) else {
            return Ok(None);
        };
        let before = LogPosition::at(position, header.base_offset);
        let is_valid = matches!(self.check(&before, true)?, Found::Batch(_));
        Ok((!is_valid).then_some(LogPosition {
            epoch: lost.epoch,
            ..before
        }))
    }

    /// Returns whether a valid header is there: then it proves nothing about the batch that should be there.
    fn has_valid_header(&mut self, position: u64) -> io::Result<bool> {
        let head = self.readable(position, HEADER_BYTES)?;
        Ok(head.is_some_and(|head| Header::read(head).is_ok()))
    }

    /// Evidence 1.
    fn by_length(&mut self, lost: &LogPosition, limit: u64) -> io::Result<LengthProof> {
        let mut position = lost.position;
        while let Some(end) = self.payload_end(position)? {
            if let Some((place, header)) = self.candidate(end, lost, limit)? {
                let linked = self.links_at(position)?.contains(&header.chain);
                return Ok(if linked {
                    LengthProof::Proven(place)
                } else {
                    LengthProof::Refuted(end)
                });
            }
            if self.has_valid_header(end)? {
                return Ok(LengthProof::Unknown);
            }
            position = end;
        }
        Ok(LengthProof::Unknown)
    }

    /// Where the payload after a damaged header ends, if it matches the length and the checksum in that header.
    fn payload_end(&mut self, position: u64) -> io::Result<Option<u64>> {
        let Some(head) = self.readable(position, HEADER_BYTES)? else {
            return Ok(None);
        };
        let (Some(stored), Some(crc)) = (word(head, 80), word(head, 104)) else {
            return Ok(None);
        };
        let end = position + HEADER_BYTES as u64 + u64::from(stored);
        if stored == 0 || end > self.window.len {
            return Ok(None);
        }
        let whole = HEADER_BYTES + stored as usize;
        let is_valid = self
            .readable(position, whole)?
            .and_then(|batch| batch.get(HEADER_BYTES..))
            .is_some_and(|payload| crc32c::crc32c(payload) == crc);
        Ok(is_valid.then_some(end))
    }

    /// Returns whether the bytes there may be the rest of the lost batch's header. Bytes from elsewhere do not give its link.
    fn resembles(&mut self, lost: &LogPosition) -> io::Result<bool> {
        let Some(head) = self.readable(lost.position, HEADER_BYTES)? else {
            return Ok(false);
        };
        let chain = word(head, 108).filter(|chain| *chain != 0);
        Ok(head.starts_with(&MAGIC)
            || u64_at(head, 32) == Some(lost.offset)
            || chain.is_some() && chain == lost.chain)
    }

    /// Chain values that the successor of the batch with the damaged header at `position` may carry.
    fn links_at(&mut self, position: u64) -> io::Result<Vec<u32>> {
        let Some(head) = self.readable(position, HEADER_BYTES)? else {
            return Ok(Vec::new());
        };
        let computed = head.get(..124).map(crc32c::crc32c);
        let links = [word(head, 124), computed, word(head, 112)];
        // Zeros would give 0, which is the link of a batch only by chance.
        Ok(links
            .into_iter()
            .flatten()
            .filter(|link| *link != 0)
            .collect())
    }

    /// The first entry of the index after `from` whose batch is at its position.
    fn next_entry(
        &mut self,
        from: &LogPosition,
        hints: &ScanHints<'_>,
    ) -> io::Result<Option<LogPosition>> {
        let Some(index) = hints.index else {
            return Ok(None);
        };
        let first = (0..index.len())
            .find(|i| index.get(*i).is_some_and(|e| e.position > from.position))
            .unwrap_or(index.len());
        for entry in (first..index.len()).filter_map(|i| index.get(i)) {
            let place = LogPosition {
                epoch: from.epoch,
                ..LogPosition::at(entry.position, entry.offset)
            };
            let is_valid = matches!(
                self.check(&place, false)?,
                Found::Batch(_) | Found::Payload(..)
            );
            if is_valid && entry.offset >= from.offset && entry.offset < hints.end.offset {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// A header at `position` that could continue the log after `from`. Its place has the chain that it carries: if the batch
    /// turns out to be torn, the next append continues with the link of the lost one.
    fn candidate(
        &mut self,
        position: u64,
        from: &LogPosition,
        limit: u64,
    ) -> io::Result<Option<(LogPosition, Header)>> {
        let Some(head) = self.readable(position, HEADER_BYTES)? else {
            return Ok(None);
        };
        let Ok(header) = Header::read(head) else {
            return Ok(None);
        };
        let place = LogPosition {
            epoch: from.epoch,
            chain: Some(header.chain),
            ..LogPosition::at(position, header.base_offset)
        };
        let possible = header.base_offset >= from.offset
            && header.next_offset() <= limit
            && place.fits(&header, self.identity)
            && position + header.batch_bytes() as u64 <= self.window.len;
        Ok(possible.then_some((place, header)))
    }

    /// Follows the chain from a candidate: whether it reaches the target, and the end of the last valid batch in it.
    /// `visited`: positions of batches in earlier chains that failed.
    fn follow(
        &mut self,
        from: LogPosition,
        target: &Target,
        visited: &mut HashSet<u64>,
    ) -> io::Result<(bool, u64)> {
        let (mut place, mut end) = (from, from.position);
        loop {
            if self.is_at(&place, target)? {
                return Ok((true, end));
            }
            let header = match self.check(&place, true)? {
                Found::Batch(header) => {
                    end = place.after(&header).position;
                    header
                }
                Found::Payload(header, _) => header,
                Found::End | Found::Unsupported(_) | Found::Damage(_) => return Ok((false, end)),
            };
            if !visited.insert(place.position) {
                return Ok((false, end));
            }
            place = place.after(&header);
        }
    }

    fn is_at(&mut self, place: &LogPosition, target: &Target) -> io::Result<bool> {
        Ok(match target {
            Target::Furthest => false,
            Target::Batch(anchor) => {
                place.position == anchor.position
                    && place.offset == anchor.offset
                    && matches!(
                        self.check(place, false)?,
                        Found::Batch(_) | Found::Payload(..)
                    )
            }
            Target::End(end) => {
                let chained = end.chain.zip(place.chain).map(|(a, b)| a == b);
                let placed = end.position.map(|position| position == place.position);
                let meets = end.offset == u64::MAX || end.offset == place.offset;
                // Without either, a sealed file ends with its last batch.
                let proven = chained
                    .or(placed)
                    .unwrap_or(place.position == self.window.len);
                let reached = meets && proven && placed.unwrap_or(true);
                reached && (placed.is_some() || matches!(self.check(place, false)?, Found::End))
            }
        })
    }

    /// The next position in `[from, to)` that holds the magic of a batch; unreadable pages are skipped.
    fn next_magic(&mut self, from: u64, to: u64) -> io::Result<Option<u64>> {
        let mut position = from;
        while position < to && position + HEADER_BYTES as u64 <= self.window.len {
            let Some(window) = self.readable(position, WINDOW)? else {
                // One page at a time until the bytes can be read.
                position = (position / PAGE + 1) * PAGE;
                continue;
            };
            let step = window.len().saturating_sub(MAGIC.len() - 1).max(1) as u64;
            match find_magic(window) {
                Some(at) if position + (at as u64) < to => return Ok(Some(position + at as u64)),
                Some(_) => return Ok(None),
                None => position += step,
            }
        }
        Ok(None)
    }

    /// As `bytes`, but `None` where the disk lost some of them. Of a window, the bytes before the bad page.
    fn readable(&mut self, position: u64, wanted: usize) -> io::Result<Option<&[u8]>> {
        let mut wanted = wanted;
        loop {
            match self.window.bytes(position, wanted) {
                Ok(_) => break,
                Err(error) if !is_media_error(&error) => return Err(error),
                Err(_) if wanted == WINDOW => {
                    let page_end = (position / PAGE + 1) * PAGE;
                    wanted = ((page_end - position) as usize).max(1);
                }
                Err(_) => return Ok(None),
            }
        }
        self.window.bytes(position, wanted).map(Some)
    }
}

/// Position of the first magic of a batch.
pub(crate) fn find_magic(bytes: &[u8]) -> Option<usize> {
    bytes.windows(MAGIC.len()).position(|at| at == MAGIC)
}
