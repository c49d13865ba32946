//! Files of a partition: each structure by itself with its checksum recomputed, and whole directories with edits.
use crate::input::Input;
use crate::memory::Memory;
use bascule_log::fuzz;
use bascule_log::{Error, GroupCommitter, Log, LogId, LogOptions, ReadError, ReadMode};
use bascule_record::{Batch, BatchBuilder, BatchLimits, Batches, Codec, Producer, RecordRef};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// Whose files all inputs are.
const IDENTITY: LogId = LogId {
    incarnation: 7,
    partition: 2,
};
/// Where the log lies.
const HOME: &str = "/log";
/// Edits of one input, at most.
const EDITS: usize = 8;

/// An index file.
pub(crate) fn index(data: &[u8]) {
    for bytes in [data, &sealed(data)] {
        let mut input = Input::new(bytes.get(24..).unwrap_or_default());
        if let Some((next, entries)) = fuzz::index(bytes, IDENTITY, input.u64()) {
            assert!(entries <= bytes.len());
            let _ = next;
        }
    }
}

/// One slot of a checkpoint.
pub(crate) fn checkpoint(data: &[u8]) {
    fuzz::checkpoint_slot(data, IDENTITY);
    fuzz::checkpoint_slot(&sealed(data), IDENTITY);
}

/// One slot of the journal's head, the first bytes of one of its files, or a mark at its end.
pub(crate) fn journal(data: &[u8]) {
    for bytes in [data, &sealed(data)] {
        fuzz::wal_manifest(bytes);
        fuzz::wal_preamble(bytes);
        fuzz::wal_end_marker(bytes);
    }
}

/// An epochs file, each entry of which has its own checksum.
pub(crate) fn epochs(data: &[u8]) {
    let resealed: Vec<u8> = data.chunks(24).flat_map(sealed).collect();
    for bytes in [data, &resealed] {
        let entries = fuzz::epochs(bytes, IDENTITY);
        let ascending = |pair: &[(u64, u64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        assert!(entries.windows(2).all(ascending));
    }
}

/// A preamble.
pub(crate) fn preamble(data: &[u8]) {
    fuzz::preamble(data);
    fuzz::preamble(&sealed(data));
}

/// A snapshot of producers; what reads is written and read alike.
pub(crate) fn producers(data: &[u8]) {
    for bytes in [data, &sealed(data)] {
        if let Some(again) = fuzz::producers(bytes, IDENTITY) {
            assert_eq!(fuzz::producers(&again, IDENTITY).as_ref(), Some(&again));
        }
    }
}

/// A file of message ids, as it is, with its checksum repaired, and with its head repaired too; what reads is written alike.
pub(crate) fn message_ids(data: &[u8]) {
    let mut headed = data.to_vec();
    write(&mut headed, 0, b"BSMI\x01\0\0\0");
    for bytes in [data, &sealed(data), &sealed(&headed)] {
        if let Some((written, count)) = bascule_broker::fuzz::message_ids(bytes) {
            assert_eq!(written, bytes);
            assert!(count < bytes.len());
        }
    }
}

/// The directory of a small log with edits, opened twice: recovery ends, agrees with itself, and serves what it promises.
pub(crate) fn recover(data: &[u8]) {
    let mut files = BASE.clone();
    let mut input = Input::new(data);
    for _ in 0..EDITS {
        if input.is_empty() {
            break;
        }
        edit(&mut files, &mut input);
    }
    let storage = Arc::new(Memory::default());
    for (path, bytes) in files {
        storage.put(path, bytes);
    }
    let first = open(&storage);
    let second = open(&storage);
    // Damage stays as it is; what a cut removed stays removed.
    match (first, second) {
        (Ok(first), Ok(second)) => agree(&first, &second),
        (Err(_), Err(_)) => {}
        (first, second) => panic!("recovery differs from itself: {first:?}, {second:?}"),
    }
}

/// The same ends, and the same value wherever both serve one. (An index that is taken at its word may hide damage that
/// the scan of the next open finds the way around.)
fn agree(first: &Content, second: &Content) {
    assert_eq!((first.0, first.1), (second.0, second.1), "the ends moved");
    let known: BTreeMap<_, _> = first.2.iter().cloned().collect();
    for (offset, value) in &second.2 {
        let before = known.get(offset);
        assert!(
            before.is_none_or(|before| before == value),
            "offset {offset} has another value"
        );
    }
}

/// Changes one file.
fn edit(files: &mut [(PathBuf, Vec<u8>)], input: &mut Input<'_>) {
    let (which, kind, at) = (input.byte(), input.byte(), usize::from(input.u16()));
    let count = files.len().max(1);
    let Some((_, bytes)) = files.get_mut(usize::from(which) % count) else {
        return;
    };
    match kind % 6 {
        0 => bytes.truncate(at),
        1 => bytes.extend_from_slice(input.short()),
        2 => write(bytes, at, input.short()),
        3 => {
            let from = bytes.get(usize::from(input.u16())..).unwrap_or_default();
            let piece: Vec<u8> = from.iter().take(512).copied().collect();
            write(bytes, at, &piece);
        }
        4 => {
            // A batch header with its checksum recomputed: the code after the checksum is reached.
            write(bytes, at, input.short());
            let start = at - at % 4;
            let crc = bytes.get(start..start + 124).map(crc32c::crc32c);
            if let Some(crc) = crc {
                write(bytes, start + 124, &crc.to_le_bytes());
            }
        }
        _ => *bytes = sealed(bytes),
    }
}

fn write(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(with) {
        *to = *from;
    }
}

/// What an opened log holds: ends, and the offset and value of every record that can be read.
type Content = (u64, u64, Vec<(u64, Option<Vec<u8>>)>);

fn open(storage: &Arc<Memory>) -> Result<Content, Error> {
    let committer = GroupCommitter::stepped(storage.clone());
    let (log, recovery) = Log::open(Path::new(HOME), IDENTITY, options(), &committer)?;
    let reader = log.reader();
    log.set_high_watermark(reader.log_end());
    let (start, end) = (reader.log_start(), reader.log_end());
    assert!(start <= end, "the log starts behind its end");
    assert!(recovery.damaged.iter().all(|(from, to)| from < to));
    let (mut cursor, mut read, mut next) = (reader.cursor(start), Vec::new(), start);
    loop {
        match cursor.next(end, 1 << 20, ReadMode::Blocking) {
            Ok(Some(bytes)) => take(bytes, &mut read, &mut next),
            // A refusal must lead on, or a reader would stand still.
            Err(ReadError::Damaged(damage)) if damage.end > next && damage.end < end => {
                next = damage.end;
                cursor = reader.cursor(next);
            }
            Ok(None) | Err(_) => break,
        }
    }
    Ok((start, end, read))
}

fn take(bytes: bytes::Bytes, read: &mut Vec<(u64, Option<Vec<u8>>)>, next: &mut u64) {
    for batch in Batches::new(bytes).flatten() {
        let Ok(batch) = Batch::read(&batch) else {
            *next = (*next).max(batch_end(&batch));
            continue;
        };
        for i in 0..batch.len() {
            read.push((batch.offset(i), batch.value(i).map(<[u8]>::to_vec)));
        }
        *next = (*next).max(batch.header().next_offset());
    }
}

fn batch_end(bytes: &[u8]) -> u64 {
    bascule_record::Header::read(bytes).map_or(0, |header| header.next_offset())
}

/// The files of a log of a few segments, made once.
static BASE: LazyLock<Vec<(PathBuf, Vec<u8>)>> = LazyLock::new(|| match make() {
    Ok(files) => files,
    Err(error) => panic!("no log to begin with: {error}"),
});

fn make() -> Result<Vec<(PathBuf, Vec<u8>)>, Error> {
    let storage = Arc::new(Memory::default());
    let committer = GroupCommitter::stepped(storage.clone());
    let mut log = Log::create(Path::new(HOME), IDENTITY, options(), &committer)?;
    let mut builder = BatchBuilder::new(BatchLimits::default());
    for i in 0..12_u32 {
        let value = i.to_le_bytes();
        let record = RecordRef {
            timestamp: i64::from(i) * 1000,
            key: Some(b"k"),
            value: Some(&value),
            ..RecordRef::default()
        };
        for _ in 0..3 {
            let _ = builder.push(&record);
        }
        let producer = (i % 3 == 0).then_some(Producer {
            id: 5,
            epoch: 1,
            base_sequence: i,
        });
        if let Some(batch) = builder.seal(Codec::None, producer, None) {
            log.append(batch, 1 + u64::from(i / 5), i64::from(i) * 1000)?;
        }
        committer.step();
    }
    log.close()?;
    Ok(storage.content())
}

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 1500,
        preallocate_bytes: 512,
        ..LogOptions::default()
    }
}

/// The bytes with their last four as the checksum of those before.
fn sealed(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    if let Some(at) = bytes.len().checked_sub(4) {
        let crc = crc32c::crc32c(bytes.get(..at).unwrap_or_default());
        write(&mut bytes, at, &crc.to_le_bytes());
    }
    bytes
}
