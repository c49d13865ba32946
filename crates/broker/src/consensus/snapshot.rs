//! Snapshots between voters (frame types 21 and 22): chunks, each with a checksum, the whole with a digest.
//!
//! The one that sends has read all of it; the one that receives holds what has arrived, and stores nothing before the last chunk
//! and the digest have come. Whatever ends between leaves nothing behind: the library sends a snapshot again from its beginning.
use super::network::{Kind, Transport, decode, encode};
use super::types::{SnapshotOf, Types, Vote};
use bytes::Bytes;
use openraft::raft::SnapshotResponse;
use openraft::{EmptyNode, Raft, Snapshot, SnapshotMeta};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::io::{self, Cursor};
use std::time::{Duration, Instant};

/// Most bytes of a snapshot in one chunk.
pub(super) const CHUNK_BYTES: usize = 1 << 20;
/// Largest snapshot that is received.
const SNAPSHOT_BYTES: u64 = 1 << 30;
/// What has arrived of a snapshot that nobody continues is released after this.
const IDLE: Duration = Duration::from_secs(30);

/// Body of a request (type 21).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Chunk {
    /// Of the leader that sends.
    pub vote: Vote,
    /// What the snapshot covers.
    pub meta: SnapshotMeta<u64, EmptyNode>,
    /// Of its first byte in the snapshot.
    pub position: u64,
    /// Of the whole snapshot, bytes.
    pub size: u64,
    /// CRC-32C of `bytes`.
    pub crc: u32,
    /// SHA-256 of the whole snapshot.
    pub sha256: Bytes,
    /// At least one, and at most [`CHUNK_BYTES`]; none of an empty snapshot.
    pub bytes: Bytes,
}

/// Body of its answer (type 22).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answered {
    /// Taken; the next chunk begins there.
    Next(u64),
    /// The snapshot is installed, or older than what is there; or this broker knows a newer leader. Its vote.
    Ended(Vote),
}

/// Sends a snapshot to a voter, chunk by chunk.
///
/// # Errors
/// The voter cannot be reached, or refused a chunk: the snapshot is sent again, from its beginning.
pub(super) async fn send(
    transport: &dyn Transport,
    to: u64,
    vote: Vote,
    snapshot: SnapshotOf,
    timeout: Duration,
) -> io::Result<SnapshotResponse<u64>> {
    let bytes = Bytes::from(snapshot.snapshot.into_inner());
    let sha256 = Bytes::copy_from_slice(digest(&SHA256, &bytes).as_ref());
    let mut position = 0;
    loop {
        let end = bytes.len().min(position + CHUNK_BYTES);
        let piece = bytes.slice(position..end);
        let chunk = Chunk {
            vote,
            meta: snapshot.meta.clone(),
            position: position as u64,
            size: bytes.len() as u64,
            crc: crc32c::crc32c(&piece),
            sha256: sha256.clone(),
            bytes: piece,
        };
        let asked = transport.ask(to, Kind::Snapshot, encode(&chunk)?, timeout);
        match decode(&tokio::time::timeout(timeout, asked).await??)? {
            Answered::Ended(vote) => return Ok(SnapshotResponse::new(vote)),
            Answered::Next(next) if next == end as u64 && end < bytes.len() => position = end,
            Answered::Next(next) => {
                let size = bytes.len();
                return Err(invalid(format!(
                    "a chunk that ends at {end} of {size} was answered with {next}"
                )));
            }
        }
    }
}

/// A snapshot, and what it covers.
type Whole = (SnapshotMeta<u64, EmptyNode>, Vec<u8>);

/// What has arrived of one snapshot.
#[derive(Debug)]
struct Partial {
    first: Chunk,
    bytes: Vec<u8>,
    heard: Instant,
}

/// Puts chunks together; of one snapshot at a time.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    partial: Option<Partial>,
}

impl Receiver {
    /// Takes a chunk; installs the snapshot with the last one.
    ///
    /// # Errors
    /// `InvalidData`: the chunk is damaged or does not follow: what has arrived is dropped. Others: this voter has stopped.
    pub async fn take(&mut self, raft: &Raft<Types>, chunk: Chunk) -> io::Result<Answered> {
        let own = raft.with_raft_state(|state| *state.vote_ref()).await;
        let own = own.map_err(io::Error::other)?;
        let is_newer = matches!(
            chunk.vote.partial_cmp(&own),
            Some(Ordering::Greater | Ordering::Equal)
        );
        if !is_newer {
            return Ok(Answered::Ended(own));
        }
        let vote = chunk.vote;
        let Some((meta, bytes)) = self.assemble(chunk)? else {
            let next = self
                .partial
                .as_ref()
                .map_or(0, |partial| partial.bytes.len());
            return Ok(Answered::Next(next as u64));
        };
        let snapshot = Snapshot {
            meta,
            snapshot: Box::new(Cursor::new(bytes)),
        };
        let answer = raft.install_full_snapshot(vote, snapshot).await;
        Ok(Answered::Ended(answer.map_err(io::Error::other)?.vote))
    }

    /// Releases what nobody continues.
    pub fn expire(&mut self) {
        self.partial
            .take_if(|partial| partial.heard.elapsed() >= IDLE);
    }

    /// Adds a chunk; the whole snapshot with its last one.
    fn assemble(&mut self, mut chunk: Chunk) -> io::Result<Option<Whole>> {
        let before = self.partial.take();
        check(&chunk)?;
        let bytes = std::mem::take(&mut chunk.bytes);
        let mut partial = match before {
            _ if chunk.position == 0 => Partial {
                first: chunk,
                bytes: Vec::new(),
                heard: Instant::now(),
            },
            Some(partial) if partial.is_continued_by(&chunk) => partial,
            _ => {
                let (position, index) = (chunk.position, &chunk.meta.snapshot_id);
                return Err(invalid(format!(
                    "a chunk at {position} of the snapshot {index} follows nothing that has arrived"
                )));
            }
        };
        partial.bytes.extend_from_slice(&bytes);
        partial.heard = Instant::now();
        if (partial.bytes.len() as u64) < partial.first.size {
            self.partial = Some(partial);
            return Ok(None);
        }
        if digest(&SHA256, &partial.bytes).as_ref() != partial.first.sha256 {
            let index = &partial.first.meta.snapshot_id;
            return Err(invalid(format!(
                "the snapshot {index} has another SHA-256 than its first chunk says"
            )));
        }
        Ok(Some((partial.first.meta, partial.bytes)))
    }
}

impl Partial {
    fn is_continued_by(&self, chunk: &Chunk) -> bool {
        let first = &self.first;
        chunk.position == self.bytes.len() as u64
            && chunk.vote == first.vote
            && chunk.meta == first.meta
            && (chunk.size, &chunk.sha256) == (first.size, &first.sha256)
    }
}

/// Refuses what is not a chunk of a snapshot that may be received.
fn check(chunk: &Chunk) -> io::Result<()> {
    let (length, size) = (chunk.bytes.len() as u64, chunk.size);
    if size > SNAPSHOT_BYTES {
        return Err(invalid(format!(
            "a snapshot of {size} bytes is over the limit of {SNAPSHOT_BYTES}"
        )));
    }
    let end = chunk.position.checked_add(length);
    let is_within = end.is_some_and(|end| end <= size) && length <= CHUNK_BYTES as u64;
    if !is_within || (length == 0 && size > 0) {
        let position = chunk.position;
        return Err(invalid(format!(
            "a chunk of {length} bytes at {position} of {size}; it has 1 to {CHUNK_BYTES} of them"
        )));
    }
    let computed = crc32c::crc32c(&chunk.bytes);
    if computed != chunk.crc {
        let (position, stored) = (chunk.position, chunk.crc);
        return Err(invalid(format!(
            "the chunk at {position} has the checksum {computed:08x}, and {stored:08x} was sent with it"
        )));
    }
    Ok(())
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
