//! What retention leaves for an archive or a reader that is behind.
#![allow(clippy::unwrap_used)]
mod keyed;
mod support;
mod tenfold;
use bascule_log::{ArchiveWait, Compaction, ReaderHold, Retention};
use keyed::{compact, put_each};
use support::*;
use tenfold::*;

/// Everything is due, but waits for an archive that has the records below `archived_to`.
fn waiting(archived_to: u64, max_bytes: u64) -> Retention {
    Retention {
        messages: 1,
        archive: Some(ArchiveWait {
            archived_to,
            max_bytes,
        }),
        ..Retention::default()
    }
}

#[test]
fn segments_wait_until_the_archive_has_them() {
    let home = Home::new();
    let mut log = nine_sealed_and_one(&home);
    assert_eq!(maintain(&mut log, waiting(0, 0), 0), 0);
    assert_eq!(maintain(&mut log, waiting(4, 0), 0), 4);
    assert_eq!(maintain(&mut log, waiting(4, 0), 0), 4);
    assert_eq!(
        maintain(&mut log, waiting(100, 0), 0),
        9,
        "the newest one stays, as without an archive"
    );
    assert_eq!(log.removed().unarchived, 0);
}

#[test]
fn an_archive_removes_nothing_that_no_limit_does() {
    let home = Home::new();
    let mut log = nine_sealed_and_one(&home);
    let retention = Retention {
        messages: 5,
        ..waiting(100, 0)
    };
    assert_eq!(maintain(&mut log, retention, 0), 5);
    assert_eq!(offsets(&log), [5, 6, 7, 8, 9]);
}

#[test]
fn segments_that_compaction_emptied_wait_as_any_other() {
    let home = Home::new();
    let mut log = home.create(small(100));
    put_each(&mut log, &[(&b"k"[..], Some(&b"value"[..])); 10]);
    put_each(&mut log, &[(b"x", Some(b"value")), (b"y", Some(b"value"))]);
    compact(&mut log, &Compaction::default(), i64::MAX).unwrap();
    for (archived_to, log_start) in [(5, 0), (8, 0), (9, 9), (100, 11)] {
        let waiting = waiting(archived_to, 0);
        assert_eq!(maintain(&mut log, waiting, 0), log_start, "{archived_to}");
    }
    assert_eq!(log.removed().unarchived, 0);
}

#[test]
fn beyond_the_cap_the_oldest_segments_go_unarchived_and_are_counted() {
    let home = Home::new();
    let mut log = nine_sealed_and_one(&home);
    let each = log.reader().bytes() / 10;
    assert_eq!(
        maintain(&mut log, waiting(2, 20 * each), 0),
        2,
        "below the cap"
    );
    assert_eq!(log.removed().unarchived, 0);
    assert_eq!(maintain(&mut log, waiting(3, 5 * each), 0), 5);
    let removed = log.removed();
    assert_eq!(
        (removed.records, removed.unarchived),
        (5, 2),
        "the archive has the third"
    );
}

/// Everything is due, but readers need the records from `from` on.
fn held(from: u64, unread_from: u64, max_bytes: u64) -> Retention {
    Retention {
        messages: 1,
        hold: Some(ReaderHold {
            from,
            unread_from,
            max_bytes,
        }),
        ..Retention::default()
    }
}

#[test]
fn segments_wait_until_readers_have_processed_them() {
    let home = Home::new();
    let mut log = nine_sealed_and_one(&home);
    assert_eq!(maintain(&mut log, held(0, 0, 0), 0), 0);
    assert_eq!(maintain(&mut log, held(4, 4, 0), 0), 4);
    let both = Retention {
        archive: waiting(6, 0).archive,
        ..held(8, 8, 0)
    };
    assert_eq!(maintain(&mut log, both, 0), 6, "the archive is behind");
    let both = Retention {
        archive: waiting(9, 0).archive,
        ..held(7, 7, 0)
    };
    assert_eq!(maintain(&mut log, both, 0), 7, "the reader is behind");
    assert_eq!(maintain(&mut log, held(100, 100, 0), 0), 9);
    let removed = log.removed();
    assert_eq!((removed.unread, removed.unarchived), (0, 0));
}

#[test]
fn beyond_the_cap_of_a_hold_the_oldest_segments_go_and_what_is_unread_is_counted() {
    let home = Home::new();
    let mut log = nine_sealed_and_one(&home);
    let each = log.reader().bytes() / 10;
    assert_eq!(maintain(&mut log, held(0, 2, 20 * each), 0), 0);
    assert_eq!(maintain(&mut log, held(0, 2, 5 * each), 0), 5);
    assert_eq!((log.removed().records, log.removed().unread), (5, 3));
    let unknown = held(0, u64::MAX, 3 * each);
    assert_eq!(maintain(&mut log, unknown, 0), 7, "no reader has reported");
    assert_eq!(log.removed().unread, 3);
}
