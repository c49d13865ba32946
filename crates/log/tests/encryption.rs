//! A log with keys: what is on disk, what a missing key costs, and nonces over restarts and cut tails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]
mod support;

use bascule_log::{Error, Log, LogOptions, LogReader, ReadError, ReadMode};
use bascule_record::crypt::{DataKey, KeyLack, KeyRing, SealError};
use bascule_record::{Batches, Header};
use std::collections::HashSet;
use support::{Home, batch, fill, small};

const VALUE: &[u8] = b"planted value that must not be found";

fn key(id: u32) -> (u32, Result<DataKey, KeyLack>) {
    (id, Ok(DataKey::new(id, &[id as u8; 32]).unwrap()))
}

fn lacking(id: u32) -> (u32, Result<DataKey, KeyLack>) {
    let master = "gone".to_owned();
    (id, Err(KeyLack::NoMaster { master }))
}

fn with(keys: impl IntoIterator<Item = (u32, Result<DataKey, KeyLack>)>) -> LogOptions {
    LogOptions {
        keys: KeyRing::new(keys),
        ..small(1 << 20)
    }
}

/// Base offset, key id and value of each batch of one record; `None` when it is locked.
fn read(reader: &LogReader) -> Vec<(u64, u32, Option<Vec<u8>>)> {
    let mut cursor = reader.cursor(0);
    let mut seen = Vec::new();
    while let Some(bytes) = cursor.next(u64::MAX, 4096, ReadMode::Blocking).unwrap() {
        for bytes in Batches::new(bytes) {
            let bytes = bytes.unwrap();
            let header = Header::read(&bytes).unwrap();
            let value = match reader.open(&bytes) {
                Ok(batch) => Some(batch.value(0).unwrap().to_vec()),
                Err(error) => {
                    assert!(error.is_locked() && error.is_unsupported(), "{error}");
                    None
                }
            };
            seen.push((header.base_offset, header.key_id, value));
        }
    }
    seen
}

fn on_disk(home: &Home) -> Vec<u8> {
    let files = home.segments();
    files
        .iter()
        .flat_map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// Without the zeros after them.
fn batches_on_disk(home: &Home) -> Vec<u8> {
    let mut bytes = on_disk(home);
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes.truncate(end + 1);
    bytes
}

fn shows_value(home: &Home) -> bool {
    on_disk(home).windows(VALUE.len()).any(|part| part == VALUE)
}

/// Opens, expects that recovery found nothing wrong, and shows everything to readers.
fn open(home: &Home, options: LogOptions) -> Log {
    let (log, recovery) = home.open(options);
    assert_eq!((recovery.cut_bytes, recovery.damaged), (0, vec![]));
    log.set_high_watermark(u64::MAX);
    log
}

#[test]
fn values_are_on_disk_only_without_keys() {
    for (keys, plain) in [(with([key(1)]), false), (with([]), true)] {
        let home = Home::new();
        let mut log = home.create(keys);
        fill(&mut log, [VALUE.to_vec()]);
        assert_eq!(read(&log.reader())[0].2.as_deref(), Some(VALUE));
        assert_eq!(shows_value(&home), plain);
    }
}

#[test]
fn keys_rotate_and_old_batches_stay_readable_as_long_as_their_key_is_there() {
    let home = Home::new();
    let value = |text: &str| Some(text.as_bytes().to_vec());
    let mut log = home.create(with([key(1)]));
    fill(&mut log, [b"a".to_vec()]);
    log.set_options(with([key(1), key(2)]));
    fill(&mut log, [b"b".to_vec()]);
    assert_eq!(
        read(&log.reader()),
        [(0, 1, value("a")), (1, 2, value("b"))]
    );
    drop(log);
    let log = open(&home, with([lacking(1), key(2)]));
    assert_eq!(read(&log.reader()), [(0, 1, None), (1, 2, value("b"))]);
    drop(log);
    let mut log = open(&home, with([key(2)]));
    fill(&mut log, [b"c".to_vec()]);
    assert_eq!(
        read(&log.reader()),
        [(0, 1, None), (1, 2, value("b")), (2, 2, value("c"))]
    );
}

#[test]
fn a_crash_without_keys_or_with_wrong_ones_loses_nothing() {
    let home = Home::new();
    let mut log = home.create(with([key(1)]));
    fill(&mut log, [b"a".to_vec(), b"b".to_vec()]);
    drop(log);
    let before = batches_on_disk(&home);
    let wrong = (1, Ok(DataKey::new(1, &[9; 32]).unwrap()));
    for keys in [with([]), with([lacking(1)]), with([wrong])] {
        // Recovery walks the whole segment, for the log was not closed.
        let log = open(&home, keys);
        assert_eq!(read(&log.reader()), [(0, 1, None), (1, 1, None)]);
        let error = log.reader().offset_at_or_after(1_001).unwrap_err();
        assert!(
            matches!(
                error,
                ReadError::Locked {
                    start: 1,
                    end: 2,
                    ..
                }
            ),
            "{error}"
        );
        drop(log);
        assert!(batches_on_disk(&home) == before, "the batches were changed");
    }
    let log = open(&home, with([key(1)]));
    assert_eq!(read(&log.reader()).len(), 2);
    assert!(
        read(&log.reader())
            .iter()
            .all(|(_, _, value)| value.is_some())
    );
    assert_eq!(log.reader().offset_at_or_after(1_001).unwrap(), Some(1));
}

#[test]
fn without_its_current_key_a_log_takes_nothing_and_stays_usable() {
    let home = Home::new();
    let mut log = home.create(with([key(1), lacking(2)]));
    for _ in 0..2 {
        let error = log.append(batch(VALUE, 5), 1, 5).unwrap_err();
        let Error::Encryption { source } = error else {
            panic!("{error}")
        };
        assert!(
            matches!(source, SealError::Key { key_id: 2, .. }),
            "{source}"
        );
        assert!(log.check_sealing().is_err());
    }
    assert!(!shows_value(&home));
    log.set_options(with([key(1), key(2)]));
    log.check_sealing().unwrap();
    fill(&mut log, [VALUE.to_vec()]);
    assert_eq!(read(&log.reader()), [(0, 2, Some(VALUE.to_vec()))]);
}

/// Each run writes offset 1 again, because the tail of the one before was torn.
#[test]
fn offsets_that_are_written_again_get_nonces_that_were_never_used() {
    let home = Home::new();
    let mut log = home.create(with([key(1)]));
    fill(&mut log, [b"first".to_vec()]);
    let end = log.reader().bytes() + 64;
    log.close().unwrap();
    let mut nonces = HashSet::new();
    for run in 0..40 {
        let (mut log, recovery) = home.open(with([key(1)]));
        assert_eq!(recovery.cut_bytes > 0, run > 0);
        fill(&mut log, [b"again".to_vec(), b"again".to_vec()]);
        let segment = home.segments().remove(0);
        drop(log);
        let bytes = std::fs::read(&segment).unwrap();
        let at = end as usize;
        let first = Header::read(&bytes[at..]).unwrap();
        let second = Header::read(&bytes[at + first.batch_bytes()..]).unwrap();
        assert_eq!((first.base_offset, second.base_offset), (1, 2));
        assert!(nonces.insert(first.nonce) && nonces.insert(second.nonce));
        // A torn first batch; the durable point is still before it.
        let mut torn = bytes;
        torn[at + 130] ^= 1;
        std::fs::write(&segment, torn).unwrap();
    }
}
