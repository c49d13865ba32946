//! The window at a start: from the file, as far as it agrees with the log, and from the log.
use super::hash_message_id;
use super::window::WINDOW_NS;
use super::{IdBudget, MessageIds, Snapshot};
use crate::partition::decode_batch;
use bascule_log::{LogId, LogReader, ReadError, ReadMode};
use bascule_record::{Batch, Batches, Header};
use bascule_wire::jetstream::MESSAGE_ID;
use bytes::Bytes;
use std::path::Path;

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// The ids of the last two minutes and of the last record. Blocks. `directory`: where the file is; `None` for an encrypted
/// log, which has none. `now_ns`: time of day.
///
/// Records that are damaged or locked are passed over.
///
/// # Errors
/// A sentence, when log or file cannot be read: then it is not known which ids were stored.
pub(crate) fn recover(
    reader: &LogReader,
    identity: LogId,
    directory: Option<&Path>,
    budget: IdBudget,
    now_ns: i64,
) -> Result<MessageIds, String> {
    let mut ids = MessageIds::new(budget, now_ns);
    let oldest = now_ns.saturating_sub(WINDOW_NS);
    let mut start = start(reader, oldest).map_err(|error| error.to_string())?;
    if let Some(snapshot) = usable(reader, identity, directory)? {
        for entry in &snapshot.entries {
            ids.insert(&entry.id, entry.offset, entry.time.min(now_ns));
        }
        // The file may be older than the window: what lies between is not needed.
        start = start.max(snapshot.end);
    }
    read(reader, start, now_ns, &mut ids).map_err(|error| error.to_string())?;
    ids.expire(now_ns);
    Ok(ids)
}

/// Where the log has to be read from: the first record that is recent enough, or else the last one.
fn start(reader: &LogReader, oldest: i64) -> Result<u64, ReadError> {
    let end = reader.high_watermark();
    let last = end.saturating_sub(1).max(reader.log_start());
    match reader.offset_at_or_after(oldest) {
        Ok(found) => Ok(found.unwrap_or(last).min(last)),
        Err(ReadError::Damaged(damage)) => Ok(damage.start.min(last)),
        Err(ReadError::Locked { start, .. }) => Ok(start.min(last)),
        Err(error) => Err(error),
    }
}

/// The file, if it is of this history of the log.
fn usable(
    reader: &LogReader,
    identity: LogId,
    directory: Option<&Path>,
) -> Result<Option<Snapshot>, String> {
    let Some(directory) = directory else {
        return Ok(None);
    };
    let found = Snapshot::load(directory)
        .map_err(|error| format!("message-ids cannot be read: {error}"))?;
    Ok(found.filter(|snapshot| {
        snapshot.identity == identity
            && snapshot.end <= reader.high_watermark()
            && (snapshot.end <= reader.log_start()
                || snapshot.link == link_before(reader, snapshot.end))
    }))
}

/// Link of the batch before `end`, which commits to all that lies before; `None` when there is no such batch.
pub(crate) fn link_before(reader: &LogReader, end: u64) -> Option<u32> {
    let last = end
        .checked_sub(1)
        .filter(|last| *last >= reader.log_start())?;
    let mut cursor = reader.cursor(last);
    let bytes = cursor.next(end, 1, ReadMode::Blocking).ok().flatten()?;
    let header = Header::read(&Batches::new(bytes).next()?.ok()?).ok()?;
    (header.base_offset <= last && last < header.next_offset()).then(|| header.link())
}

fn read(
    reader: &LogReader,
    start: u64,
    now_ns: i64,
    ids: &mut MessageIds,
) -> Result<(), ReadError> {
    let (end, mut next) = (reader.high_watermark(), start);
    let mut cursor = reader.cursor(next);
    while next < end {
        match cursor.next(end, READ_BYTES, ReadMode::Blocking) {
            Ok(Some(bytes)) => {
                for bytes in Batches::new(bytes) {
                    next = take(reader, bytes, next, now_ns, ids)?;
                }
            }
            Ok(None) => return Ok(()),
            Err(ReadError::Damaged(damage)) => next = damage.end,
            Err(ReadError::Locked { end, .. }) => next = end,
            Err(error) => return Err(error),
        }
        cursor.skip_to(next);
    }
    Ok(())
}

/// Remembers the ids of a batch from offset `next` on; the offset after it.
fn take(
    reader: &LogReader,
    bytes: Result<Bytes, bascule_record::DamageError>,
    next: u64,
    now_ns: i64,
    ids: &mut MessageIds,
) -> Result<u64, ReadError> {
    let batch = match decode_batch(reader, bytes) {
        Ok(batch) => batch,
        Err(ReadError::Damaged(damage)) => return Ok(damage.end.max(next)),
        Err(ReadError::Locked { end, .. }) => return Ok(end.max(next)),
        Err(error) => return Err(error),
    };
    for record in batch.seek(next)..batch.len() {
        if let Some(id) = id_of(&batch, record) {
            let time = batch.timestamp(record).min(now_ns);
            ids.insert(id, batch.offset(record), time);
        }
    }
    Ok(batch.header().next_offset().max(next))
}

/// The text of a record's id: the first header of its name, which is what the id is the hash of. A header that a client
/// sent otherwise is not an id.
fn id_of(batch: &Batch, record: usize) -> Option<&[u8]> {
    let id = batch.id(record);
    if id == 0 {
        return None;
    }
    let mut headers = batch.headers(record);
    headers
        .find(|header| header.key == MESSAGE_ID && hash_message_id(header.value) == id)
        .map(|header| header.value)
}
