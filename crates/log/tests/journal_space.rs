//! The journal on a filesystem with little space.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails
mod clocked;
mod support;

use bascule_log::{Coordinator, Identity, JournalOptions, Log};
use clocked::Clocked;
use std::path::Path;
use std::sync::Arc;
use support::{batch, small};

const FILE_BYTES: u64 = 16 << 10;
const MINUTE_NS: i64 = 60_000_000_000;

fn create(home: &Path, incarnation: u64, coordinator: &Arc<Coordinator>) -> Log {
    let directory = home.join("partitions").join(incarnation.to_string());
    let identity = Identity {
        incarnation,
        partition: 0,
    };
    Log::create(&directory, identity, small(1 << 20), coordinator).unwrap()
}

/// So many rounds of all logs; returns how many of them went through the journal.
fn rounds(logs: &mut [Log], count: u64, coordinator: &Coordinator) -> u64 {
    let before = coordinator.statistics().journaled_rounds;
    for _ in 0..count {
        for log in &mut *logs {
            log.append(batch(b"value", 0), 1, 0).unwrap();
            log.commit(Box::new(|outcome| assert!(outcome.is_ok())));
        }
        while coordinator.step() {}
    }
    coordinator.statistics().journaled_rounds - before
}

#[test]
fn without_room_for_two_files_none_is_made_and_a_minute_later_it_is_tried_again() {
    let home = tempfile::tempdir().unwrap();
    let storage = Arc::new(Clocked::default());
    let options = JournalOptions {
        from_dirty_files: 2,
        file_bytes: FILE_BYTES,
        files: 3,
        ..JournalOptions::new(home.path().join("journal"), home.path().join("partitions"))
    };
    let coordinator = Coordinator::stepped_journaled(storage.clone(), options).unwrap();
    let mut logs = [
        create(home.path(), 1, &coordinator),
        create(home.path(), 2, &coordinator),
    ];
    storage.leave(2 * FILE_BYTES - 1);
    assert_eq!(rounds(&mut logs, 20, &coordinator), 0);
    assert_eq!(storage.asked(), 1);
    assert_eq!(
        std::fs::read_dir(home.path().join("journal"))
            .unwrap()
            .count(),
        0
    );
    storage.leave(2 * FILE_BYTES);
    storage.pass(MINUTE_NS - 1);
    assert_eq!(rounds(&mut logs, 5, &coordinator), 0);
    storage.pass(1);
    assert_eq!(
        rounds(&mut logs, 5, &coordinator),
        4,
        "the first has it made"
    );
    assert_eq!(storage.asked(), 2);
}
