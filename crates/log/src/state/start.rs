//! Where a log begins that has nothing before it: what a leader sends to a follower whose records it no longer has.
use crate::LogId;
use crate::io::fields::{i64_at, seal, u32_at, u64_at, unseal};
use crate::state::producers::Producers;
use bytes::Bytes;

/// Name of the file that says where a log is to begin.
pub(crate) const RESETTING: &str = "resetting";

const MAGIC: [u8; 4] = *b"BSCR";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 56;
const EPOCH_BYTES: usize = 16;

/// The state of a log at one of its boundaries, without the records before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Base offset of the next batch.
    pub offset: u64,
    /// Chain of the next batch; it commits to the whole history before it.
    pub chain: u32,
    /// Lowest leader epoch that the next batch may have.
    pub epoch: u64,
    /// No record after it is earlier, ns since 1970; `i64::MIN` when nothing was ever appended.
    pub last_timestamp: i64,
    /// Leader epochs and the offset where each began, both ascending, below [`Start::offset`].
    pub epochs: Vec<(u64, u64)>,
    /// The producers with every batch below [`Start::offset`], as in the `producers` file.
    pub producers: Bytes,
}

impl Start {
    /// Where a log begins whose history is kept elsewhere, as in a snapshot: behind the record at offset `last`, which was
    /// appended under leader epoch `epoch`. It has no chain to that history and knows no producers.
    pub fn after(last: u64, epoch: u64, identity: LogId) -> Self {
        let offset = last.saturating_add(1);
        Self {
            offset,
            chain: 0,
            epoch,
            last_timestamp: i64::MIN,
            epochs: vec![(epoch, last)],
            producers: Producers::default().to_bytes(identity, offset).into(),
        }
    }

    /// Its bytes (`specs/formats/segment.md`).
    pub fn to_bytes(&self, identity: LogId) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.producers.len() + 4);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&identity.incarnation.to_le_bytes());
        out.extend_from_slice(&identity.partition.to_le_bytes());
        out.extend_from_slice(&self.chain.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.last_timestamp.to_le_bytes());
        out.extend_from_slice(&(self.epochs.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.producers.len() as u32).to_le_bytes());
        for (epoch, start) in &self.epochs {
            out.extend_from_slice(&epoch.to_le_bytes());
            out.extend_from_slice(&start.to_le_bytes());
        }
        out.extend_from_slice(&self.producers);
        seal(&mut out);
        out
    }

    /// Reads the bytes. `None` when they are damaged, of another log or version, or inconsistent: epochs that do not ascend, or
    /// reach the offset, or producers with batches from there on.
    pub fn read(bytes: &[u8], identity: LogId) -> Option<Self> {
        let body = unseal(bytes)?;
        let is_ours = body.get(..4)? == MAGIC
            && u32_at(body, 4)? == VERSION
            && u64_at(body, 8)? == identity.incarnation
            && u32_at(body, 16)? == identity.partition;
        if !is_ours {
            return None;
        }
        let offset = u64_at(body, 24)?;
        let (count, len) = (u32_at(body, 48)? as usize, u32_at(body, 52)? as usize);
        let rest = body.get(HEAD_BYTES..)?;
        let (epochs, producers) = rest.split_at_checked(count.checked_mul(EPOCH_BYTES)?)?;
        let epochs = epochs.chunks_exact(EPOCH_BYTES);
        let epochs = epochs.map(|entry| Some((u64_at(entry, 0)?, u64_at(entry, 8)?)));
        let epochs: Vec<(u64, u64)> = epochs.collect::<Option<_>>()?;
        let ascends = |pair: &[(u64, u64)]| matches!(pair, [a, b] if a.0 < b.0 && a.1 <= b.1);
        let (_, end) = Producers::read(producers, identity)?;
        let is_valid = epochs.windows(2).all(ascends)
            && epochs.last().is_none_or(|(_, start)| *start < offset)
            && (producers.len(), end) == (len, offset);
        is_valid.then(|| Self {
            offset,
            chain: u32_at(body, 20).unwrap_or_default(),
            epoch: u64_at(body, 32).unwrap_or_default(),
            last_timestamp: i64_at(body, 40).unwrap_or(i64::MIN),
            epochs,
            producers: Bytes::copy_from_slice(producers),
        })
    }
}
