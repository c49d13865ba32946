//! Appends: batches, order, rejections, duplicates, bounds.
use super::*;

#[tokio::test]
async fn an_append_is_answered_when_readers_can_see_it() {
    let home = home();
    let partition = home.led(spec());
    let mut watch = partition.watch();
    let committed = put(&partition, records(&["a", "b", "c"])).await.unwrap();
    assert_eq!((committed.base_offset, committed.count), (0, 3));
    assert!(committed.rejected.is_empty() && !committed.duplicate);
    assert!(committed.commit_timestamp >= committed.timestamp);
    assert_eq!(partition.reader().durable_end(), 3);
    assert_eq!(*watch.borrow_and_update(), 3);
    let (stored, batches) = read(&partition);
    assert_eq!(batches, 1);
    let time = committed.timestamp;
    let expected = ["a", "b", "c"].map(|value| (time, value.to_owned()));
    let stored: Vec<_> = stored
        .into_iter()
        .map(|(_, time, value)| (time, value))
        .collect();
    assert_eq!(stored, expected);
    let status = partition.status();
    assert_eq!(
        (status.log_start, status.high_watermark, status.log_end),
        (0, 3, 3)
    );
    assert_eq!((status.first_received, status.last_received), (time, time));
}

#[tokio::test]
async fn what_waits_becomes_one_batch_and_offsets_follow_the_order_of_calls() {
    let home = home();
    let partition = home.led(spec());
    // The task cannot run before this one waits.
    let mut outcomes = Vec::new();
    for i in 0..100 {
        let (append, outcome) = append(records(&[&format!("{i}-0"), &format!("{i}-1")]));
        partition.try_append(append).unwrap();
        outcomes.push(outcome);
    }
    for (i, outcome) in outcomes.into_iter().enumerate() {
        assert_eq!(outcome.await.unwrap().unwrap().base_offset, 2 * i as u64);
    }
    let (stored, batches) = read(&partition);
    assert_eq!((stored.len(), batches), (200, 1));
    assert_eq!(stored[7].2, "3-1");
    assert_eq!(home.context.statistics.batches_appended.get(), 1);
}

#[tokio::test]
async fn batches_close_at_their_bound() {
    let home = home();
    let partition = home.led(PartitionSpec {
        batch_records: 10,
        ..spec()
    });
    let many: Vec<String> = (0..25).map(|i| i.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let committed = put(&partition, records(&many)).await.unwrap();
    assert_eq!((committed.base_offset, committed.count), (0, 25));
    let (stored, batches) = read(&partition);
    assert_eq!((stored.len(), batches), (25, 3));
}

#[tokio::test]
async fn oversized_records_are_rejected_alone() {
    let home = home();
    let partition = home.led(spec());
    let huge = "x".repeat(1001);
    let committed = put(&partition, records(&["a", &huge, "b"])).await.unwrap();
    assert_eq!((committed.base_offset, committed.count), (0, 2));
    let rejected: Vec<_> = committed
        .rejected
        .iter()
        .map(|one| (one.index, one.reason.clone()))
        .collect();
    assert_eq!(rejected, [(1, RejectReason::TooLarge)]);
    let only = put(&partition, records(&[&huge])).await.unwrap();
    assert_eq!(
        (only.base_offset, only.count, only.rejected.len()),
        (2, 0, 1)
    );
    assert_eq!(values(&partition), ["a", "b"]);
}

#[tokio::test]
async fn expected_offsets_are_checked_record_by_record() {
    let home = home();
    let partition = home.led(PartitionSpec {
        concurrency_control: true,
        ..spec()
    });
    let expecting = |offsets: &[i64]| {
        Payload::Records(
            offsets
                .iter()
                .map(|offset| IncomingRecord {
                    expected_offset: *offset,
                    ..record("v")
                })
                .collect(),
        )
    };
    let committed = put(&partition, expecting(&[0, 1, 5, -1, 3, -2]))
        .await
        .unwrap();
    let rejected: Vec<_> = committed.rejected.iter().map(|one| one.index).collect();
    assert_eq!((committed.count, rejected), (4, vec![2, 5]));
    let late = put(&partition, expecting(&[0])).await.unwrap();
    assert_eq!(late.rejected[0].reason, RejectReason::IncorrectOffset);
    assert_eq!(
        put(&partition, expecting(&[4])).await.unwrap().base_offset,
        4
    );
}

#[tokio::test]
async fn a_repeated_batch_gets_its_first_offsets_also_after_a_restart() {
    let home = home();
    let partition = home.led(spec());
    put(&partition, records(&["before"])).await.unwrap();
    let first = put(&partition, Payload::Sealed(sealed(0, &["a", "b"])))
        .await
        .unwrap();
    assert_eq!(
        (first.base_offset, first.count, first.duplicate),
        (1, 2, false)
    );
    put(&partition, records(&["between"])).await.unwrap();
    let again = put(&partition, Payload::Sealed(sealed(0, &["a", "b"])))
        .await
        .unwrap();
    assert_eq!(
        (again.base_offset, again.count, again.duplicate),
        (1, 2, true)
    );
    assert_eq!(again.timestamp, first.timestamp);
    let gap = put(&partition, Payload::Sealed(sealed(7, &["z"]))).await;
    assert!(matches!(gap, Err(AppendError::Sequence(_))), "{gap:?}");
    partition.close(EndReason::Closed).await;
    let partition = home.led(spec());
    let again = put(&partition, Payload::Sealed(sealed(0, &["a", "b"])))
        .await
        .unwrap();
    assert_eq!((again.base_offset, again.duplicate), (1, true));
    assert_eq!(values(&partition), ["before", "a", "b", "between"]);
}

#[tokio::test]
async fn a_duplicate_that_waits_with_its_original_is_committed_with_it() {
    let home = home();
    let partition = home.led(spec());
    let (first, first_outcome) = append(Payload::Sealed(sealed(0, &["a"])));
    let (second, second_outcome) = append(Payload::Sealed(sealed(0, &["a"])));
    partition.try_append(first).unwrap();
    partition.try_append(second).unwrap();
    let (first, second) = (first_outcome.await.unwrap(), second_outcome.await.unwrap());
    assert!(!first.unwrap().duplicate);
    assert!(second.unwrap().duplicate);
    assert_eq!(partition.reader().high_watermark(), 1);
}

#[tokio::test]
async fn a_full_queue_gives_the_append_back_and_makes_others_wait() {
    let home = Home::new(Limits {
        queue_records: 2,
        ..Limits::default()
    });
    let partition = home.led(spec());
    let (first, first_outcome) = append(records(&["a", "b"]));
    partition.try_append(first).unwrap();
    let (second, mut second_outcome) = append(records(&["c"]));
    let second = partition.try_append(second).unwrap_err();
    assert!(
        second_outcome.try_recv().is_err(),
        "not answered: it was given back"
    );
    partition.append(second).await;
    assert_eq!(first_outcome.await.unwrap().unwrap().base_offset, 0);
    assert_eq!(second_outcome.await.unwrap().unwrap().base_offset, 2);
    // All room comes back: the same fits again.
    assert!(put(&partition, records(&["d", "e"])).await.is_ok());
}

#[tokio::test]
async fn an_append_larger_than_the_queue_enters_an_idle_partition() {
    let home = Home::new(Limits {
        queue_records: 2,
        queue_bytes: 1000,
        inflight_bytes: 500,
        ..Limits::default()
    });
    let partition = home.led(spec());
    let committed = put(&partition, records(&["v"; 50])).await.unwrap();
    assert_eq!(committed.count, 50);
}

#[tokio::test]
async fn a_caller_that_gives_up_while_it_waits_is_answered_busy() {
    let home = Home::new(Limits {
        queue_records: 1,
        ..Limits::default()
    });
    let partition = home.led(spec());
    let (first, _first) = append(records(&["a"]));
    partition.try_append(first).unwrap();
    let (second, outcome) = append(records(&["b"]));
    let waiting = partition.append(second);
    assert!(waiting.now_or_never().is_none());
    assert!(matches!(outcome.await.unwrap(), Err(AppendError::Busy)));
    assert!(put(&partition, records(&["c"])).await.is_ok());
    assert_eq!(values(&partition), ["a", "c"]);
}

#[tokio::test]
async fn timestamps_never_go_back_across_payloads() {
    let home = home();
    let partition = home.led(spec());
    let mut builder = BatchBuilder::new(BatchLimits::default());
    let ahead = RecordRef {
        timestamp: now_ns() + 3_600_000_000_000,
        value: Some(b"ahead"),
        ..RecordRef::default()
    };
    builder.push(&ahead).unwrap();
    let batch = builder.seal(Codec::None, None, None).unwrap();
    let mut outcomes = Vec::new();
    for payload in [records(&["a"]), Payload::Sealed(batch), records(&["b"])] {
        let (append, outcome) = append(payload);
        partition.try_append(append).unwrap();
        outcomes.push(outcome);
    }
    let mut reported = Vec::new();
    for outcome in outcomes {
        reported.push(outcome.await.unwrap().unwrap().timestamp);
    }
    let (stored, _) = read(&partition);
    let stored: Vec<_> = stored.into_iter().map(|(_, time, _)| time).collect();
    assert_eq!(stored, reported);
    assert!(stored.is_sorted() && stored[1] == ahead.timestamp);
}

#[tokio::test]
async fn headers_subjects_and_ids_are_stored() {
    let home = home();
    let partition = home.led(spec());
    let record = IncomingRecord {
        key: Bytes::from_static(b"k"),
        headers: vec![(Bytes::from_static(b"h"), Bytes::from_static(b"\xff"))],
        subject: Bytes::from_static(b"s.3.sub"),
        reply: Bytes::from_static(b"inbox"),
        id: 77,
        ..record("v")
    };
    let own = IncomingRecord {
        subject: Bytes::from_static(b"s.3"),
        ..super::record("w")
    };
    put(&partition, Payload::Records(vec![record, own]))
        .await
        .unwrap();
    let reader = partition.reader();
    let bytes = reader
        .cursor(0)
        .next(2, 1, ReadMode::Blocking)
        .unwrap()
        .unwrap();
    let batch = Batch::read(&bytes).unwrap();
    assert_eq!((batch.key(0), batch.id(0)), (Some(&b"k"[..]), 77));
    assert_eq!(
        (batch.subject(0), batch.reply(0)),
        (Some("s.3.sub"), Some("inbox"))
    );
    assert_eq!(batch.subject(1).unwrap_or_default(), "");
    let header = batch.headers(0).next().unwrap();
    assert_eq!((header.key_kind, header.key), (2, &b"h"[..]));
    assert_eq!((header.value_kind, header.value), (1, &b"\xff"[..]));
    assert_eq!(partition.0.outstanding.load(Ordering::Acquire), 0);
}

#[tokio::test]
async fn a_duplicate_of_what_is_not_synced_waits_for_the_sync() {
    let mut home = home();
    home.committer = GroupCommitter::stepped(Arc::new(OsStorage));
    let partition = home.led(spec());
    let send = |sequence| append(Payload::Sealed(sealed(sequence, &["a"])));
    // Two in one group, then one more that finds both appended and none synced.
    let ((first, mut one), (again, mut two), (later, mut three)) = (send(0), send(0), send(0));
    partition.append(first).await;
    partition.append(again).await;
    while partition.reader().log_end() == 0 {
        tokio::task::yield_now().await;
    }
    partition.append(later).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    for outcome in [&mut one, &mut two, &mut three] {
        assert!(outcome.try_recv().is_err(), "answered before the sync");
    }
    assert_eq!(partition.reader().high_watermark(), 0);
    while home.committer.step() {}
    for (outcome, duplicate) in [(one, false), (two, true), (three, true)] {
        let committed = outcome.await.unwrap().unwrap();
        assert_eq!((committed.base_offset, committed.duplicate), (0, duplicate));
    }
    assert_eq!(partition.reader().log_end(), 1);
}
