//! The way on behind damage: where batches can be served again.
//!
//! When the header of a batch is damaged its length is unknown, so the next one has to be looked for, and a record may
//! hold the image of a batch: right incarnation, partition, offsets, even a chain of several. Such an image must not be
//! taken for the log's own. What it cannot know is evidence, tried in this order:
//!
//! 1. *Extent and link*: the payload under the damaged header still matches the length and the checksum that stand in it,
//!    so that the next batch begins right behind; when its header is damaged too, the same again. The first sound one
//!    carries the header checksum of the one before it as its chain value: what an earlier life or a misdirected write
//!    left there does not.
//! 2. *Link*: the candidate's chain value equals the lost batch's header checksum, as stored or as computed from the
//!    other bytes. Whatever is damaged of a header, one of the two is right unless both were hit; where nothing of it is
//!    left, what stands there is not looked at. What follows the batch before the lost one lies in the lost one's place or is a
//!    copy, perhaps of what an earlier life wrote: that is no link. One whose own payload is
//!    damaged is taken only when nothing below leads on.
//! 3. *Anchor*: from the candidate a chain of batches leads exactly to a place known from elsewhere: an entry of the index
//!    (checksummed, or in memory), the next segment's chain value, or the end of the batches. The real batch behind the
//!    record carries the link of the real batch that holds it, so a chain that begins inside a record never connects.
//!    Nor does one behind whose end more lies than zeros: it lies where it does not belong.
//! 4. The next entry of the index itself.
//! 5. Only where the torn tail may begin in this segment, and nothing else is known: the chain whose last sound batch
//!    reaches furthest in the file. So it stays when a next segment was begun behind the loss of the tail.
//!
//! Where the batch before does not check either, its header may be a copy from elsewhere whose length is true in another
//! place only: what it covers is searched too. An image in its records proves nothing by reaching furthest within it.
//!
//! Without a link, a batch that begins above the durable point is never the way on: what lies between may be a hole that
//! no sync covered, and what lies behind such a hole must not come back. Nor is one that begins at the durable point where
//! the next batch should begin, when the header before it, damaged as it is, says that it does not follow.
//!
//! What remains: each proof is a 32-bit checksum that a writer of records cannot predict, so one image in 2^32 passes; and
//! under 5, an image in the very last batch of a log that crashed, when that batch's header is damaged beyond 1 and 2.
//! Where there is no proof the offsets up to the next place that has one are refused: too much rather than anything wrong.
use crate::io::fields::u64_at;
use crate::segment::index::SparseIndex;
use crate::segment::scan::{Found, LogPosition, Scanner, WINDOW, is_media_error};
use crate::segment::segment_file::SegmentFile;
use bascule_record::{HEADER_BYTES, Header, MAGIC};
use std::collections::HashSet;
use std::io;

const PAGE: u64 = 4096;

/// Where the batches of a segment end, as far as that is known without reading them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    /// First offset after the segment; `u64::MAX` when unknown.
    pub offset: u64,
    /// Position after the last batch.
    pub position: Option<u64>,
    /// Link of the last batch.
    pub chain: Option<u32>,
    /// The last batches were lost before: no chain arrives at the end.
    pub is_lost: bool,
}

impl Ending {
    /// Where the segment before `next` ends, as `next` tells; unknown for the last one.
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

/// What is known of a segment without reading its batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    /// Beginnings of batches.
    pub index: Option<&'a SparseIndex>,
    /// Where they end.
    pub end: Ending,
    /// Offsets from here on may be a torn tail; `u64::MAX` when none may.
    pub durable: u64,
}

/// What a chain of batches has to arrive at.
enum Target {
    /// The beginning of a batch.
    Batch(LogPosition),
    /// The end of the segment.
    End(Ending),
    /// Nothing is known.
    Furthest,
}

/// What payloads under damaged headers tell.
enum Extents {
    /// The next batch begins here and follows them.
    Lead(LogPosition),
    /// The next batch should begin at this position, but what lies there does not follow them.
    Refute(u64),
    /// Nothing.
    Unknown,
}

/// A search for the way on, and what was met on it.
struct Search<'a> {
    lost: &'a LogPosition,
    /// Where the search begins: at the lost batch, or at the one before it when that one is not to be trusted.
    from: LogPosition,
    /// What the successor of the lost batch may carry as its chain value.
    links: Vec<u32>,
    /// Where it should begin, when what lies there denies it.
    refuted: Option<u64>,
    /// The first one that is linked, but damaged itself.
    unsound: Option<LogPosition>,
    /// Where the chain ends that reaches furthest, and where it begins.
    furthest: Option<(u64, LogPosition)>,
    /// Batches from which a chain went on in vain.
    walked: HashSet<u64>,
}

impl<'a> Search<'a> {
    fn new(lost: &'a LogPosition, doubtful: Option<LogPosition>) -> Self {
        Self {
            lost,
            from: doubtful.unwrap_or(*lost),
            links: Vec::new(),
            refuted: None,
            unsound: None,
            furthest: None,
            walked: HashSet::new(),
        }
    }

    /// Whether it follows the lost batch. What follows the one before it, in another place than the lost one's, may be what
    /// an earlier life wrote there.
    fn is_linked(&self, place: &LogPosition, header: &Header) -> bool {
        place.position >= self.lost.position + HEADER_BYTES as u64
            && header.base_offset > self.lost.offset
            && self.links.contains(&header.chain)
    }
}

impl Scanner<'_> {
    /// The first place behind damage at `lost` from which batches can be served again; `None` when the rest is lost.
    pub fn resume_after(
        &mut self,
        lost: &LogPosition,
        known: &Known<'_>,
    ) -> io::Result<Option<LogPosition>> {
        let limit = known.end.offset;
        let doubtful = self.doubtful_before(lost)?;
        let mut search = Search::new(lost, doubtful);
        if !self.has_sound_header(lost.position)? {
            match self.by_extents(lost, limit)? {
                Extents::Lead(place) => return Ok(Some(place)),
                Extents::Refute(position) => search.refuted = Some(position),
                Extents::Unknown => {}
            }
            if self.resembles(lost)? {
                search.links = self.links_at(lost.position)?;
            }
        }
        let entry = self.next_entry(&search.from, known)?;
        let target = match entry {
            Some(place) => Target::Batch(place),
            None if known.end.is_unknown() || known.end.is_lost => Target::Furthest,
            None => Target::End(known.end),
        };
        let to = entry.map_or(self.len, |place| place.position);
        let mut position = search.from.position + 1;
        while let Some(at) = self.next_magic(position, to)? {
            position = at + 1;
            if let Some((place, header)) = self.candidate(at, &search.from, limit)?
                && self.leads_on(&mut search, place, &header, &target, known.durable)?
            {
                return Ok(Some(place));
            }
        }
        let furthest = search.furthest.map(|(_, place)| place);
        Ok(match target {
            Target::Furthest => furthest,
            Target::End(_) if known.durable < limit => furthest,
            Target::Batch(_) | Target::End(_) => search.unsound.or(entry),
        })
    }

    /// Whether there is proof that the log goes on at this candidate; what speaks for it without being a proof is noted.
    fn leads_on(
        &mut self,
        search: &mut Search<'_>,
        place: LogPosition,
        header: &Header,
        target: &Target,
        durable: u64,
    ) -> io::Result<bool> {
        let linked = search.is_linked(&place, header);
        if linked {
            if matches!(self.look(&place, true)?, Found::Batch(_)) {
                return Ok(true);
            }
            // Overwritten in part: perhaps a copy of the true one, which is overwritten whole.
            search.unsound = search.unsound.or(Some(place));
        }
        let denied = header.base_offset == durable && search.refuted == Some(place.position);
        if denied || header.base_offset > durable && !linked {
            return Ok(false);
        }
        let (reached, end) = self.follow(place, target, &mut search.walked)?;
        // An image in a record of the doubtful batch ends within it.
        let leaves = place.position > search.lost.position || end > search.lost.position;
        if !reached && leaves && search.furthest.is_none_or(|(best, _)| end > best) {
            search.furthest = Some((end, place));
        }
        Ok(reached)
    }

    /// The batch whose header told where the lost one should be, when its own payload does not check: it may be a copy from
    /// elsewhere, or of an earlier life, and what it says of its length may be true in another place only.
    fn doubtful_before(&mut self, lost: &LogPosition) -> io::Result<Option<LogPosition>> {
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
        let is_sound = matches!(self.look(&before, true)?, Found::Batch(_));
        Ok((!is_sound).then_some(LogPosition {
            epoch: lost.epoch,
            ..before
        }))
    }

    /// Whether a sound header lies there, so that it says nothing about another batch that should.
    fn has_sound_header(&mut self, position: u64) -> io::Result<bool> {
        let head = self.readable(position, HEADER_BYTES)?;
        Ok(head.is_some_and(|head| Header::read(head).is_ok()))
    }

    /// Proof 1.
    fn by_extents(&mut self, lost: &LogPosition, limit: u64) -> io::Result<Extents> {
        let mut position = lost.position;
        while let Some(end) = self.extent_end(position)? {
            if let Some((place, header)) = self.candidate(end, lost, limit)? {
                let linked = self.links_at(position)?.contains(&header.chain);
                return Ok(if linked {
                    Extents::Lead(place)
                } else {
                    Extents::Refute(end)
                });
            }
            if self.has_sound_header(end)? {
                return Ok(Extents::Unknown);
            }
            position = end;
        }
        Ok(Extents::Unknown)
    }

    /// Where the payload under a damaged header ends, when it matches what stands in the header.
    fn extent_end(&mut self, position: u64) -> io::Result<Option<u64>> {
        let Some(head) = self.readable(position, HEADER_BYTES)? else {
            return Ok(None);
        };
        let (Some(stored), Some(crc)) = (word(head, 80), word(head, 104)) else {
            return Ok(None);
        };
        let end = position + HEADER_BYTES as u64 + u64::from(stored);
        if stored == 0 || end > self.len {
            return Ok(None);
        }
        let whole = HEADER_BYTES + stored as usize;
        let sound = self
            .readable(position, whole)?
            .and_then(|batch| batch.get(HEADER_BYTES..))
            .is_some_and(|payload| crc32c::crc32c(payload) == crc);
        Ok(sound.then_some(end))
    }

    /// Whether what stands there may be left of the lost batch's header: bytes from elsewhere tell no link of it.
    fn resembles(&mut self, lost: &LogPosition) -> io::Result<bool> {
        let Some(head) = self.readable(lost.position, HEADER_BYTES)? else {
            return Ok(false);
        };
        let chain = word(head, 108).filter(|chain| *chain != 0);
        Ok(head.starts_with(&MAGIC)
            || u64_at(head, 32) == Some(lost.offset)
            || chain.is_some() && chain == lost.chain)
    }

    /// What the successor of the batch whose damaged header lies there may carry as its chain value.
    fn links_at(&mut self, position: u64) -> io::Result<Vec<u32>> {
        let Some(head) = self.readable(position, HEADER_BYTES)? else {
            return Ok(Vec::new());
        };
        let computed = head.get(..124).map(crc32c::crc32c);
        let links = [word(head, 124), computed, word(head, 112)];
        // 0 is what an empty place would give, and no link of a batch but by chance.
        Ok(links
            .into_iter()
            .flatten()
            .filter(|link| *link != 0)
            .collect())
    }

    /// The first entry of the index behind `from` that holds its batch.
    fn next_entry(
        &mut self,
        from: &LogPosition,
        known: &Known<'_>,
    ) -> io::Result<Option<LogPosition>> {
        let Some(index) = known.index else {
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
            let sound = matches!(
                self.look(&place, false)?,
                Found::Batch(_) | Found::Payload(..)
            );
            if sound && entry.offset >= from.offset && entry.offset < known.end.offset {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// A header at `position` that could continue the log behind `from`.
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
            ..LogPosition::at(position, header.base_offset)
        };
        let possible = header.base_offset >= from.offset
            && header.next_offset() <= limit
            && place.fits(&header, self.identity)
            && position + header.batch_bytes() as u64 <= self.len;
        Ok(possible.then_some((place, header)))
    }

    /// Follows the chain from a candidate: whether it leads to the target, and the end of the last sound batch in it.
    /// `walked`: batches from which an earlier chain went on in vain.
    fn follow(
        &mut self,
        from: LogPosition,
        target: &Target,
        walked: &mut HashSet<u64>,
    ) -> io::Result<(bool, u64)> {
        let (mut place, mut end) = (from, from.position);
        loop {
            if self.is_at(&place, target)? {
                return Ok((true, end));
            }
            let header = match self.look(&place, true)? {
                Found::Batch(header) => {
                    end = place.after(&header).position;
                    header
                }
                Found::Payload(header, _) => header,
                Found::End | Found::Unsupported(_) | Found::Damage(_) => return Ok((false, end)),
            };
            if !walked.insert(place.position) {
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
                        self.look(place, false)?,
                        Found::Batch(_) | Found::Payload(..)
                    )
            }
            Target::End(end) => {
                let chained = end.chain.zip(place.chain).map(|(a, b)| a == b);
                let placed = end.position.map(|position| position == place.position);
                let meets = end.offset == u64::MAX || end.offset == place.offset;
                // Without either, a sealed file ends where its last batch does.
                let proven = chained.or(placed).unwrap_or(place.position == self.len);
                let reached = meets && proven && placed.unwrap_or(true);
                reached && (placed.is_some() || matches!(self.look(place, false)?, Found::End))
            }
        })
    }

    /// The next position in `[from, to)` that holds the magic of a batch; what cannot be read is passed over.
    fn next_magic(&mut self, from: u64, to: u64) -> io::Result<Option<u64>> {
        let mut position = from;
        while position < to && position + HEADER_BYTES as u64 <= self.len {
            let Some(window) = self.readable(position, WINDOW)? else {
                // One page at a time until the bad ones are behind.
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

    /// As `bytes`, but `None` where the disk lost some of them. Of a window, what comes before the bad page.
    fn readable(&mut self, position: u64, wanted: usize) -> io::Result<Option<&[u8]>> {
        let mut wanted = wanted;
        loop {
            match self.bytes(position, wanted) {
                Ok(_) => break,
                Err(error) if !is_media_error(&error) => return Err(error),
                Err(_) if wanted == WINDOW => {
                    let page_end = (position / PAGE + 1) * PAGE;
                    wanted = ((page_end - position) as usize).max(1);
                }
                Err(_) => return Ok(None),
            }
        }
        self.bytes(position, wanted).map(Some)
    }
}

/// Where the first magic of a batch stands.
pub(crate) fn find_magic(window: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(rest) = window.get(from..) {
        let at = from + rest.iter().position(|byte| *byte == MAGIC[0])?;
        if window.get(at..at + MAGIC.len()) == Some(&MAGIC) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    crate::io::fields::u32_at(bytes, at)
}
