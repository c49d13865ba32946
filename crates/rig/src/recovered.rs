//! Opening the logs of a directory and writing down all that is in them.
use crate::content::recognise;
use crate::ledger::{Entry, Kind, Ledger};
use bascule_log::{Error, GroupCommitter, Log, LogId, LogOptions, LogReader, ReadError, ReadMode};
use bascule_record::{Batch, Batches, Header};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const READ_BYTES: usize = 1 << 20;

/// Bits of an incarnation that are the partition's number.
const PARTITION_BITS: u32 = 16;

/// Opens (recovers) log `partition` under `directory`, or creates it as `new_incarnation`, and writes down its batches.
///
/// # Errors
/// Those of [`Log::open`] and [`Log::create`] and of reading; written down too.
pub fn open(
    directory: &Path,
    partition: u32,
    new_incarnation: u64,
    options: LogOptions,
    committer: &Arc<GroupCommitter>,
    ledger: &Ledger,
) -> Result<Log, Box<dyn std::error::Error>> {
    let entry = Entry {
        partition,
        ..Entry::default()
    };
    let opened = present_incarnation(directory, partition).and_then(|present| {
        let identity = LogId {
            incarnation: present.unwrap_or(new_incarnation),
            partition,
        };
        open_or_create(directory, identity, options, committer)
    });
    let (log, cut, damaged) = opened.inspect_err(|_| ledger.note(Kind::RecoveryFailed, entry))?;
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

/// An incarnation that no log had before: the engine relies on it, since the journal may still hold frames of a deleted
/// one. `begun`: how many logs this run has created again, less than 65,536, as is `partition`.
pub fn new_incarnation(run_id: u32, begun: u32, partition: u32) -> u64 {
    let number = u64::from(run_id) << PARTITION_BITS | u64::from(begun);
    number << PARTITION_BITS | u64::from(partition)
}

/// Under which incarnation the log is there; `None` when it is not. Should a deleted log have come back next to its
/// successor, the deleted one, so that it is found out.
fn present_incarnation(
    directory: &Path,
    partition: u32,
) -> Result<Option<u64>, Box<dyn std::error::Error>> {
    let listed = match std::fs::read_dir(partitions(directory)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        listed => listed?,
    };
    let mut present = None;
    for child in listed {
        let name = child?.file_name();
        // Deleted ones have marked names.
        let incarnation = name.to_str().and_then(|name| name.parse::<u64>().ok());
        let this = incarnation.filter(|n| n % (1 << PARTITION_BITS) == u64::from(partition));
        present = present.into_iter().chain(this).min();
    }
    Ok(present)
}

fn open_or_create(
    directory: &Path,
    identity: LogId,
    options: LogOptions,
    committer: &Arc<GroupCommitter>,
) -> Result<(Log, u64, u32), Box<dyn std::error::Error>> {
    let path = partitions(directory).join(identity.incarnation.to_string());
    match Log::open(&path, identity, options.clone(), committer) {
        Ok((log, found)) => Ok((log, found.cut_bytes, found.damaged.len() as u32)),
        Err(Error::Absent { .. }) => {
            let log = Log::create(&path, identity, options, committer)?;
            Ok((log, 0, 0))
        }
        Err(other) => Err(other.into()),
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
                    let batch = batch.ok();
                    if batch.as_ref().is_some_and(is_emptied) {
                        continue;
                    }
                    let entry = batch.and_then(|bytes| describe(&bytes, partition));
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

/// Compaction keeps the place of batches that have lost all their records.
fn is_emptied(bytes: &bytes::Bytes) -> bool {
    Header::read(bytes).is_ok_and(|header| header.count == 0)
}

fn describe(bytes: &bytes::Bytes, partition: u32) -> Option<(Kind, Entry)> {
    let header = Header::read(bytes).ok()?;
    let name = recognise(&Batch::read(bytes).ok()?)?;
    let entry = Entry {
        partition,
        offset: header.base_offset,
        count: header.span,
        run_id: name.run_id,
        counter: name.counter,
        extra: header.count.into(),
    };
    (name.partition == partition).then_some((Kind::Found, entry))
}
