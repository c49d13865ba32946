//! Failpoints, set by the environment: each one of a log's life is passed, and an action at it happens.
//!
//! `cargo test -p bascule-log --features failpoints`.
#![cfg(feature = "failpoints")]
#![allow(clippy::unwrap_used)] // a test fails by a panic
use std::process::Command;

#[test]
fn a_process_aborts_at_its_failpoint_and_reports_it() {
    // The child runs the test below with the point set.
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "life_in_a_child",
            "--nocapture",
            "--include-ignored",
        ])
        .env("FAILPOINTS", "publish.synced=return(abort)")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("failpoint publish.synced: abort"), "{said}");
}

#[test]
fn a_pair_that_is_not_a_valid_action_is_refused_by_name() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "life_in_a_child",
            "--nocapture",
            "--include-ignored",
        ])
        .env("FAILPOINTS", "publish.synced=explode")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("publish.synced=explode"), "{said}");
}

#[test]
#[ignore = "run by the tests above in a process of its own"]
fn life_in_a_child() {
    use bascule_log::{GroupCommitter, Log, LogId, LogOptions};
    bascule_log::failpoint::set_from_environment().unwrap();
    let home = tempfile::tempdir().unwrap();
    let committer = GroupCommitter::start();
    let identity = LogId {
        incarnation: 1,
        partition: 0,
    };
    let mut log = Log::create(
        &home.path().join("1"),
        identity,
        LogOptions::default(),
        &committer,
    )
    .unwrap();
    let (done, result) = std::sync::mpsc::channel();
    log.commit(Box::new(move |outcome| done.send(outcome.is_ok()).unwrap()));
    assert!(result.recv().unwrap());
}
