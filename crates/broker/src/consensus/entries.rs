//! How an entry of the metadata group is stored: one batch of one record, so that any index is a boundary for truncation.
//!
//! The offset is the library's index, the leader epoch the term. Without a key the record is a command, its id the proposal; key
//! `b` is a blank entry, `m` a membership (`MessagePack`). Batches of several commands, from a time with one voter, are read too.
use super::types::{Command, Entry, log_id};
use bascule_record::{Batch, BatchBuilder, BatchLimits, BuildError, Codec, RecordRef, SealedBatch};
use bytes::Bytes;
use openraft::EntryPayload;
use std::io;

const BLANK: &[u8] = b"b";
const MEMBERSHIP: &[u8] = b"m";

/// The batch of an entry.
///
/// # Errors
/// `InvalidInput`: it is larger than a batch may be.
pub(super) fn to_batch(entry: &Entry, now_ns: i64) -> io::Result<SealedBatch> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    let (key, value, id): (Option<&[u8]>, Bytes, u128) = match &entry.payload {
        EntryPayload::Normal(command) => (None, command.bytes.clone(), command.proposal),
        EntryPayload::Blank => (Some(BLANK), Bytes::new(), 0),
        EntryPayload::Membership(membership) => {
            let bytes =
                rmp_serde::to_vec(membership).map_err(|error| invalid(error.to_string()))?;
            (Some(MEMBERSHIP), bytes.into(), 0)
        }
    };
    let record = RecordRef {
        timestamp: now_ns,
        id,
        key,
        value: Some(&value),
        ..RecordRef::default()
    };
    let mut builder = BatchBuilder::new(BatchLimits::default());
    builder
        .push(&record)
        .map_err(|error: BuildError| invalid(error.to_string()))?;
    builder
        .seal(Codec::None, None, None)
        .ok_or_else(|| invalid("the entry is empty".into()))
}

/// The entries of a batch from `from` on (the library's index, inclusive).
///
/// # Errors
/// `InvalidData`: the bytes are not a batch, or a record is not an entry.
pub(super) fn from_batch(bytes: &Bytes, from: u64) -> io::Result<Vec<Entry>> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    let batch = Batch::read(bytes).map_err(|error| invalid(error.to_string()))?;
    let term = batch.header().leader_epoch;
    let entries = (batch.seek(from)..batch.len()).map(|i| {
        let value = batch.value(i).unwrap_or_default();
        let payload = match batch.key(i) {
            None => EntryPayload::Normal(Command {
                proposal: batch.id(i),
                bytes: Bytes::copy_from_slice(value),
            }),
            Some(BLANK) => EntryPayload::Blank,
            Some(MEMBERSHIP) => EntryPayload::Membership(
                rmp_serde::from_slice(value).map_err(|error| invalid(error.to_string()))?,
            ),
            Some(key) => {
                let index = batch.offset(i) + 1;
                return Err(invalid(format!(
                    "entry {index} is of the unknown kind {key:?}"
                )));
            }
        };
        Ok(Entry {
            log_id: log_id(term, batch.offset(i)),
            payload,
        })
    });
    entries.collect()
}
