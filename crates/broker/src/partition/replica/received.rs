//! Batches that came from another broker.
use bascule_log::Start;
use bascule_record::{Batches, Header};
use bascule_replica::follower::Batch;
use bytes::Bytes;

/// Whole batches, up to the first that cannot be read. The log verifies payloads before it takes them.
#[derive(Debug, Default)]
pub(super) struct Received {
    bytes: Bytes,
    /// Their headers.
    pub batches: Vec<Batch>,
    /// Where each of them ends in `bytes`.
    ends: Vec<usize>,
    /// Of a reset: where the log is to begin.
    pub start: Option<Start>,
}

impl Received {
    pub fn new(bytes: Bytes) -> Self {
        let (mut batches, mut ends, mut end) = (Vec::new(), Vec::new(), 0);
        for batch in Batches::new(bytes.clone()) {
            let Ok(batch) = batch else { break };
            let Ok(header) = Header::read(&batch) else {
                break;
            };
            end += batch.len();
            ends.push(end);
            batches.push(Batch {
                base: header.base_offset,
                end: header.next_offset(),
                epoch: header.leader_epoch,
                chain: header.chain,
                link: header.link(),
            });
        }
        Self {
            bytes,
            batches,
            ends,
            start: None,
        }
    }

    /// Where the log is to begin, instead of batches.
    pub fn reset(start: Option<Start>) -> Self {
        Self {
            start,
            ..Self::default()
        }
    }

    /// The bytes of the first `count` batches.
    pub fn first(&self, count: usize) -> Bytes {
        let last = count.checked_sub(1).and_then(|last| self.ends.get(last));
        self.bytes.slice(..last.copied().unwrap_or_default())
    }
}
