//! Records that go into one append.
use super::acks::PendingAck;
use crate::partition::IncomingRecord;

/// Approximate memory of a queued record in addition to its bytes, and of each of its headers.
const RECORD_OVERHEAD: usize = 256;
const HEADER_OVERHEAD: usize = size_of::<(bytes::Bytes, bytes::Bytes)>();

/// Records that go into one append, 1 to 1,024 of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) records: Vec<IncomingRecord>,
    /// Ascending by index into `records`.
    pub(crate) acks: Vec<PendingAck>,
    /// Bytes of the records as received, headers included.
    pub(crate) bytes: usize,
}

impl Group {
    /// Leaves out the records that `wanted` does not want, and their acks.
    pub(crate) fn keep(&mut self, mut wanted: impl FnMut(&IncomingRecord) -> bool) {
        let mut acks = std::mem::take(&mut self.acks).into_iter().peekable();
        let mut kept = Vec::with_capacity(self.records.len());
        self.bytes = 0;
        for (index, record) in (0u32..).zip(std::mem::take(&mut self.records)) {
            let ack = acks.next_if(|ack| ack.index == index);
            if wanted(&record) {
                self.acks.extend(ack.map(|ack| PendingAck {
                    index: kept.len() as u32,
                    ..ack
                }));
                self.bytes += record.received_bytes as usize;
                kept.push(record);
            }
        }
        self.records = kept;
    }

    /// Its approximate memory while it is queued.
    pub(crate) fn waiting_bytes(&self) -> usize {
        let headers: usize = self.records.iter().map(|record| record.headers.len()).sum();
        self.bytes + RECORD_OVERHEAD * self.records.len() + HEADER_OVERHEAD * headers
    }
}
