//! Message ids over restarts, kills and damaged files.
use super::*;

#[test]
fn ids_survive_kills() {
    let home = home();
    for run in 0..4_u64 {
        until_killed(async {
            let partition = home.led(acknowledging());
            for earlier in 0..run {
                let id = format!("id-{earlier}");
                assert_eq!(
                    one(&partition, with_id(&id)).await,
                    Err(RejectReason::Duplicate(earlier))
                );
            }
            let last = run.checked_sub(1).map(|earlier| format!("id-{earlier}"));
            let mut message = with_id(&format!("id-{run}"));
            if let Some(last) = last {
                message
                    .headers
                    .push(("Nats-Expected-Last-Msg-Id".into(), last.into()));
            }
            assert_eq!(one(&partition, message).await, Ok(run));
        });
    }
}

#[test]
fn ids_of_trimmed_records_survive_kills() {
    let home = home();
    until_killed(async {
        let partition = home.led(acknowledging());
        for id in ["a", "b", "c"] {
            one(&partition, with_id(id)).await.unwrap();
        }
        partition.configure(PartitionSpec {
            trimmed_to: 3,
            ..acknowledging()
        });
        assert_eq!(one(&partition, message("d", &[])).await, Ok(3));
        assert_eq!(partition.reader().log_start(), 3);
    });
    until_killed(async {
        let partition = home.led(acknowledging());
        assert_eq!(
            one(&partition, with_id("b")).await,
            Err(RejectReason::Duplicate(1))
        );
        assert_eq!(one(&partition, with_id("e")).await, Ok(4));
    });
}

#[test]
fn ids_of_records_that_retention_removed_survive_kills() {
    let home = home();
    let removing = || PartitionSpec {
        segment_bytes: 4096,
        retention_messages: 2,
        cleaner_interval_ms: 20,
        ..acknowledging()
    };
    until_killed(async {
        let partition = home.led(removing());
        assert_eq!(one(&partition, with_id("a")).await, Ok(0));
        let limit = std::time::Instant::now() + Duration::from_mins(1);
        while partition.reader().log_start() == 0 {
            assert!(std::time::Instant::now() < limit);
            one(&partition, message(&"v".repeat(900), &[]))
                .await
                .unwrap();
        }
    });
    until_killed(async {
        let partition = home.led(removing());
        assert_eq!(
            one(&partition, with_id("a")).await,
            Err(RejectReason::Duplicate(0))
        );
    });
}

#[tokio::test]
async fn a_clean_stop_leaves_a_file_and_a_damaged_one_is_not_needed() {
    let home = home();
    let path = home.directory().join("message-ids");
    for (run, damage) in [false, true, true].into_iter().enumerate() {
        let partition = home.led(acknowledging());
        let expected = if run == 0 {
            Ok(0)
        } else {
            Err(RejectReason::Duplicate(0))
        };
        assert_eq!(one(&partition, with_id("a")).await, expected);
        partition.close(EndReason::Closed).await;
        let mut bytes = fs::read(&path).expect("a file");
        if damage {
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
}

/// All files of a directory.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

#[tokio::test]
async fn a_file_of_another_history_is_not_believed() {
    let home = home();
    let partition = home.led(acknowledging());
    one(&partition, with_id("a")).await.unwrap();
    partition.close(EndReason::Closed).await;
    let older = files(&home.directory());
    let partition = home.led(acknowledging());
    one(&partition, with_id("lost")).await.unwrap();
    partition.close(EndReason::Closed).await;
    let newer = fs::read(home.directory().join("message-ids")).unwrap();
    // The log is the older one, as after a power cut in class memory or from a backup; the file is the newer one.
    for (path, bytes) in &older {
        fs::write(path, bytes).unwrap();
    }
    let forge = |path: &Path| fs::write(path.join("message-ids"), &newer).unwrap();
    forge(&home.directory());
    let partition = home.led(acknowledging());
    assert_eq!(
        one(&partition, with_id("lost")).await,
        Ok(1),
        "it is not stored"
    );
    partition.close(EndReason::Closed).await;
    // The same when the log has gone on with other records.
    for (path, bytes) in &older {
        fs::write(path, bytes).unwrap();
    }
    let partition = home.led(spec());
    one(&partition, message("another", &[])).await.unwrap();
    partition.close(EndReason::Closed).await;
    forge(&home.directory());
    let partition = home.led(acknowledging());
    assert_eq!(
        one(&partition, with_id("lost")).await,
        Ok(2),
        "it is not stored"
    );
    assert_eq!(
        one(&partition, with_id("a")).await,
        Err(RejectReason::Duplicate(0))
    );
}

#[tokio::test]
async fn an_edit_to_on_reads_what_the_log_has() {
    let home = home();
    let partition = home.led(spec());
    assert_eq!(one(&partition, with_id("a")).await, Ok(0));
    partition.configure(acknowledging());
    assert_eq!(
        one(&partition, with_id("a")).await,
        Err(RejectReason::Duplicate(0))
    );
    assert!(partition.acknowledges_jetstream());
    partition.configure(spec());
    assert_eq!(one(&partition, with_id("a")).await, Ok(1));
    assert!(!partition.acknowledges_jetstream());
}

#[tokio::test]
async fn a_full_window_refuses_new_ids_and_knows_the_old_ones() {
    let home = Home::new(Limits {
        nats_message_id_bytes: 400,
        ..Limits::default()
    });
    let partition = home.led(acknowledging());
    for (offset, id) in ["a", "b"].into_iter().enumerate() {
        assert_eq!(one(&partition, with_id(id)).await, Ok(offset as u64));
    }
    assert_eq!(
        one(&partition, with_id("c")).await,
        refused(Refusal::WindowFull)
    );
    assert_eq!(
        one(&partition, with_id("a")).await,
        Err(RejectReason::Duplicate(0))
    );
    assert_eq!(one(&partition, message("without", &[])).await, Ok(2));
    // The bound is the broker's: what a partition remembered is given back when it ends.
    partition.close(EndReason::Deleted).await;
    let partition = home.led(acknowledging());
    assert_eq!(one(&partition, with_id("c")).await, Ok(0));
}

#[tokio::test]
async fn a_file_that_cannot_be_read_makes_ids_unknown_and_not_new() {
    let home = home();
    let partition = home.led(acknowledging());
    one(&partition, with_id("a")).await.unwrap();
    partition.close(EndReason::Closed).await;
    let path = home.directory().join("message-ids");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let partition = home.led(acknowledging());
    let answer = one(&partition, with_id("a")).await;
    assert!(
        matches!(&answer, Err(RejectReason::Refused(Refusal::Unavailable(why))) if why.contains("message-ids")),
        "{answer:?}"
    );
    assert_eq!(one(&partition, message("without", &[])).await, Ok(1));
    assert_eq!(home.changes(PartitionChange::MessageIdsUnknown), 1);
}
