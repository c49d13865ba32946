//! Opening the logs of a directory and writing down all that is in them.
use crate::content::recognise;
use crate::ledger::{Entry, Kind, Ledger};
use bascule_log::{Coordinator, Error, Identity, Log, LogOptions, LogReader, ReadError, ReadMode};
use bascule_record::{Batch, Batches, Header};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const READ_BYTES: usize = 1 << 20;

/// Opens (recovers) or creates log `partition` under `directory` and writes down its batches.
///
/// # Errors
/// Those of [`Log::open`] and [`Log::create`] and of reading; written down too.
pub fn open(
    directory: &Path,
    partition: u32,
    options: LogOptions,
    coordinator: &Arc<Coordinator>,
    ledger: &Ledger,
) -> Result<Log, Box<dyn std::error::Error>> {
    let entry = Entry {
        partition,
        ..Entry::default()
    };
    let (log, cut, damaged) = open_or_create(directory, partition, options, coordinator)
        .inspect_err(|_| ledger.note(Kind::RecoveryFailed, entry))?;
    let reader = log.reader();
    log.set_high_watermark(reader.log_end());
    let mut entries = vec![(
        Kind::Recovered,
        Entry {
            offset: reader.log_start(),
            count: damaged,
            counter: reader.log_end(),
            extra: cut,
            ..entry
        },
    )];
    let unread = batches(&reader, partition, &mut entries);
    if unread.is_none() {
        entries.push((Kind::Listed, entry));
    }
    ledger.write(&entries);
    unread.map_or(Ok(log), |error| Err(error.into()))
}

/// Where the logs of a directory lie, by incarnation.
pub fn partitions(directory: &Path) -> PathBuf {
    directory.join("partitions")
}

fn open_or_create(
    directory: &Path,
    partition: u32,
    options: LogOptions,
    coordinator: &Arc<Coordinator>,
) -> Result<(Log, u64, u32), Error> {
    let identity = Identity {
        incarnation: u64::from(partition) + 1,
        partition,
    };
    let path = partitions(directory).join(identity.incarnation.to_string());
    match Log::open(&path, identity, options.clone(), coordinator) {
        Ok((log, found)) => Ok((log, found.cut_bytes, found.damaged.len() as u32)),
        Err(Error::Absent { .. }) => {
            Log::create(&path, identity, options, coordinator).map(|log| (log, 0, 0))
        }
        Err(other) => Err(other),
    }
}

/// Adds every batch from the log start to the high watermark, checked in whole; damage and bytes that no run sent are
/// `Wrong`. A read that the operating system refuses is tried once more; then the rest is `Unread`, with the error.
pub fn batches(
    reader: &LogReader,
    partition: u32,
    found: &mut Vec<(Kind, Entry)>,
) -> Option<ReadError> {
    let mut cursor = reader.cursor(reader.log_start());
    let mut refused_at = None;
    let at = |offset| Entry {
        partition,
        offset,
        ..Entry::default()
    };
    loop {
        match cursor.next(u64::MAX, READ_BYTES, ReadMode::Blocking) {
            Ok(None) => return None,
            Ok(Some(bytes)) => {
                for batch in Batches::new(bytes) {
                    let entry = batch.ok().and_then(|bytes| describe(&bytes, partition));
                    found.push(entry.unwrap_or_else(|| (Kind::Wrong, at(cursor.offset()))));
                }
            }
            Err(ReadError::Damaged(damage)) => {
                found.push((Kind::Wrong, at(damage.start)));
                cursor.skip_to(damage.end);
            }
            Err(_) if refused_at != Some(cursor.offset()) => refused_at = Some(cursor.offset()),
            Err(error) => {
                found.push((Kind::Unread, at(cursor.offset())));
                return Some(error);
            }
        }
    }
}

fn describe(bytes: &bytes::Bytes, partition: u32) -> Option<(Kind, Entry)> {
    let header = Header::read(bytes).ok()?;
    let name = recognise(&Batch::read(bytes).ok()?)?;
    let entry = Entry {
        partition,
        offset: header.base_offset,
        count: header.count,
        life: name.life,
        counter: name.counter,
        extra: 0,
    };
    (name.partition == partition).then_some((Kind::Found, entry))
}
