//! Compaction of one batch: the same place in the history, fewer records.
use crate::crypt::{NONCE_BYTES, SealError, Sealer};
use crate::gather::RecordColumns;
use crate::seal;
use crate::{Batch, Codec, Flags, Header, HeaderEntry, RecordRef};
use bytes::Bytes;

impl Batch {
    /// The batch with only those records for which `keep` (given the index) holds, under the same incarnation, epoch,
    /// base, span, base timestamp, producer and chain, marked SPARSE and REWRITTEN, with the link kept. Offsets and
    /// timestamps of the remaining records do not change; the maximum timestamp becomes the largest remaining one (and
    /// stays as it was when nothing remains).
    ///
    /// The new payload is encrypted by `sealer` (of [`crate::crypt::KeyRing::sealer`], one for each run of a compaction).
    ///
    /// # Errors
    /// [`SealError`]; [`SealError::Plain`] when this batch is encrypted and there is no sealer.
    pub fn rewrite(
        &self,
        codec: Codec,
        sealer: Option<&mut Sealer>,
        mut keep: impl FnMut(usize) -> bool,
    ) -> Result<Bytes, SealError> {
        if sealer.is_none() && self.header().flags.has(Flags::ENCRYPTED) {
            return Err(SealError::Plain);
        }
        let mut gathered = RecordColumns::default();
        let mut offsets = Vec::new();
        let mut headers = Vec::new();
        let mut max_timestamp = self.header().max_timestamp;
        for i in (0..self.len()).filter(|i| keep(*i)) {
            headers.clear();
            headers.extend(self.headers(i));
            push(&mut gathered, self, i, &headers);
            offsets.push((self.offset(i) - self.header().base_offset) as u32);
            max_timestamp = self.timestamp(i);
        }
        let mut header = *self.header();
        header.count = gathered.len() as u32;
        header.max_timestamp = max_timestamp;
        header.kept_link = self.header().link();
        header.flags.0 = header.flags.0 & !Flags::ENCRYPTED | Flags::REWRITTEN;
        header.key_id = 0;
        header.nonce = [0; NONCE_BYTES];
        let expected_bytes = self.payload().len();
        let sealed = seal::seal(
            &mut gathered,
            Some(&offsets),
            None,
            codec,
            header,
            expected_bytes,
        );
        match sealer {
            Some(sealer) => sealed.finish_encrypted(sealer),
            None => Ok(sealed.finish()),
        }
    }
}

fn push(gathered: &mut RecordColumns, batch: &Batch, i: usize, headers: &[HeaderEntry<'_>]) {
    let record = RecordRef {
        timestamp: batch.timestamp(i),
        origin_time: batch.origin_time(i),
        id: batch.id(i),
        key: batch.key(i),
        value: batch.value(i),
        headers,
        subject: batch.subject(i),
        reply: batch.reply(i).unwrap_or_default(),
    };
    let delta = (record.timestamp - batch.header().base_timestamp) as u32;
    let subject = gathered.subjects.find(record.subject.unwrap_or_default());
    gathered.push(&record, delta, subject);
}

/// Merges two adjacent batches without records into one: with the base and chain of `first` and the end and link of `last`.
/// Their producers are dropped. `None` unless both are of one incarnation, partition and epoch, have no records, follow each
/// other directly, and cover fewer than 2^32 offsets together.
pub fn merge_empty(first: &Header, last: &Header) -> Option<Bytes> {
    let are_adjacent = first.incarnation == last.incarnation
        && first.partition == last.partition
        && first.leader_epoch == last.leader_epoch
        && first.next_offset() == last.base_offset
        && first.count == 0
        && last.count == 0;
    let span = first.span.checked_add(last.span).filter(|_| are_adjacent)?;
    let mut header = seal::blank_header(0, span);
    header.incarnation = first.incarnation;
    header.partition = first.partition;
    header.leader_epoch = first.leader_epoch;
    header.base_offset = first.base_offset;
    header.base_timestamp = first.base_timestamp;
    header.max_timestamp = last.max_timestamp.max(first.base_timestamp);
    header.chain = first.chain;
    header.kept_link = last.link();
    header.flags.0 = Flags::REWRITTEN;
    let mut nothing = RecordColumns::default();
    Some(seal::seal(&mut nothing, Some(&[]), None, Codec::None, header, 0).finish())
}
