//! Which messages are stored, and what the others are answered.
use super::*;

#[tokio::test]
async fn a_repeated_id_is_stored_once_and_answered_with_the_original() {
    let home = home();
    let partition = home.led(acknowledging());
    let first = send(
        &partition,
        vec![
            with_id("a"),
            message("none", &[]),
            with_id("a"),
            with_id("b"),
        ],
    )
    .await;
    assert_eq!((first.base_offset, first.count), (0, 3));
    let rejected: Vec<_> = first
        .rejected
        .iter()
        .map(|one| (one.index, one.reason.clone()))
        .collect();
    assert_eq!(
        rejected,
        [(2, RejectReason::Duplicate(0))],
        "within one append"
    );
    assert_eq!(
        one(&partition, with_id("b")).await,
        Err(RejectReason::Duplicate(2))
    );
    assert_eq!(one(&partition, with_id("c")).await, Ok(3));
    assert_eq!(values(&partition), ["a", "none", "b", "c"]);
}

#[tokio::test]
async fn ids_are_compared_by_their_text() {
    let home = home();
    let partition = home.led(acknowledging());
    let (mut one_text, mut other_text) = (with_id("one"), with_id("other"));
    // As if the two had the same hash.
    (one_text.id, other_text.id) = (7, 7);
    assert_eq!(one(&partition, one_text).await, Ok(0));
    assert_eq!(one(&partition, other_text).await, Ok(1));
    assert_eq!(
        one(&partition, with_id("one")).await,
        Err(RejectReason::Duplicate(0))
    );
}

#[tokio::test]
async fn an_enveloped_message_is_known_by_its_id_and_has_no_other_condition() {
    let home = home();
    let partition = home.led(acknowledging());
    let enveloped = |headers: &[(&str, &str)]| IncomingRecord {
        is_plain_nats: false,
        expected_offset: -1,
        ..message("e", headers)
    };
    let both = [
        ("Nats-Msg-Id", "a"),
        ("Nats-Expected-Stream", "other"),
        ("Nats-Rollup", "all"),
    ];
    assert_eq!(one(&partition, enveloped(&both)).await, Ok(0));
    assert_eq!(
        one(&partition, with_id("a")).await,
        Err(RejectReason::Duplicate(0))
    );
    assert_eq!(
        one(&partition, enveloped(&both)).await,
        Err(RejectReason::Duplicate(0))
    );
    // A header that a gRPC client sets is not an id.
    let mut foreign = enveloped(&[("Nats-Msg-Id", "a")]);
    foreign.id = 0;
    assert_eq!(one(&partition, foreign).await, Ok(1));
}

#[tokio::test]
async fn conditions_are_checked_in_the_order_of_nats_server() {
    let home = home();
    let partition = home.led(PartitionSpec {
        concurrency_control: true,
        ..acknowledging()
    });
    assert_eq!(one(&partition, with_id("a")).await, Ok(0));
    let send = async |headers: &[(&str, &str)]| one(&partition, message("x", headers)).await;
    let (id, stream, sequence, last) = (
        ("Nats-Msg-Id", "a"),
        ("Nats-Expected-Stream", "other"),
        ("Nats-Expected-Last-Sequence", "7"),
        ("Nats-Expected-Last-Msg-Id", "z"),
    );
    let rollup = ("Nats-Rollup", "all");
    let unsupported = Refusal::Unsupported(Bytes::from_static(b"Nats-Rollup"));
    assert_eq!(
        send(&[id, stream, sequence, last, rollup]).await,
        refused(unsupported)
    );
    assert_eq!(
        send(&[id, sequence, last, stream]).await,
        refused(Refusal::WrongStream)
    );
    assert_eq!(
        send(&[id, last, sequence]).await,
        refused(Refusal::WrongLastSequence(1))
    );
    assert_eq!(send(&[id, last]).await, Err(RejectReason::Duplicate(0)));
    let wrong_id = Refusal::WrongLastId(Bytes::from_static(b"a"));
    assert_eq!(send(&[last]).await, refused(wrong_id));
    let right = [
        ("Nats-Expected-Stream", "s"),
        ("Nats-Expected-Last-Sequence", "1"),
        ("Nats-Expected-Last-Msg-Id", "a"),
        ("Nats-Msg-Id", "b"),
    ];
    assert_eq!(send(&right).await, Ok(1));
    assert_eq!(
        send(&[]).await,
        Ok(2),
        "the envelope's expected offset is not a plain message's"
    );
    let none = Refusal::WrongLastId(Bytes::new());
    assert_eq!(
        send(&[("Nats-Expected-Last-Msg-Id", "b")]).await,
        refused(none)
    );
    // What was refused left nothing behind: its id may come.
    assert_eq!(
        send(&[("Nats-Msg-Id", "new"), sequence]).await,
        refused(Refusal::WrongLastSequence(3))
    );
    assert_eq!(send(&[("Nats-Msg-Id", "new")]).await, Ok(3));
}

#[tokio::test]
async fn conditions_count_what_the_same_append_stores() {
    let home = home();
    let partition = home.led(acknowledging());
    let expecting =
        |sequence: &str| message(sequence, &[("Nats-Expected-Last-Sequence", sequence)]);
    let committed = send(&partition, ["0", "1", "1", "2"].map(expecting).to_vec()).await;
    let rejected: Vec<_> = committed
        .rejected
        .iter()
        .map(|one| (one.index, one.reason.clone()))
        .collect();
    assert_eq!(
        rejected,
        [(2, RejectReason::Refused(Refusal::WrongLastSequence(2)))]
    );
    assert_eq!(values(&partition), ["0", "1", "2"]);
}

#[tokio::test]
async fn without_the_option_headers_are_content() {
    let home = home();
    let partition = home.led(spec());
    for offset in 0..2 {
        let control = [
            ("Nats-Msg-Id", "a"),
            ("Nats-Expected-Stream", "x"),
            ("Nats-TTL", "1s"),
        ];
        assert_eq!(one(&partition, message("v", &control)).await, Ok(offset));
    }
}

#[tokio::test]
async fn a_duplicate_waits_until_its_original_is_durable() {
    let disk = Arc::new(Disk::default());
    let mut home = home();
    home.committer = GroupCommitter::start_on(disk.clone());
    let partition = home.led(acknowledging());
    one(&partition, with_id("before")).await.unwrap();
    disk.hold(true);
    let (original, mut first) = append(Payload::Records(vec![with_id("a")]));
    partition.append(original).await;
    while partition.reader().log_end() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (duplicate, mut second) = append(Payload::Records(vec![with_id("a")]));
    partition.append(duplicate).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(
        first.try_recv().is_err() && second.try_recv().is_err(),
        "nothing is synced yet"
    );
    disk.hold(false);
    let (first, second) = (
        first.await.unwrap().unwrap(),
        second.await.unwrap().unwrap(),
    );
    assert_eq!((first.base_offset, first.rejected.len()), (1, 0));
    assert_eq!(second.rejected[0].reason, RejectReason::Duplicate(1));
    assert!(partition.reader().durable_end() >= 2);
}

#[tokio::test]
async fn what_a_full_disk_refused_is_not_remembered_and_its_duplicate_fails_with_it() {
    let disk = Arc::new(Disk::default());
    let mut home = home();
    home.committer = GroupCommitter::start_on(disk.clone());
    let partition = home.led(acknowledging());
    assert_eq!(one(&partition, with_id("before")).await, Ok(0));
    disk.fill(true);
    // One group: what is queued before the task runs.
    let mut outcomes = Vec::new();
    let expecting = message("x", &[("Nats-Expected-Last-Sequence", "9")]);
    for message in [with_id("a"), with_id("a"), with_id("before"), expecting] {
        let (append, outcome) = append(Payload::Records(vec![message]));
        partition.try_append(append).unwrap();
        outcomes.push(outcome);
    }
    let mut answers = Vec::new();
    for outcome in outcomes {
        answers.push(outcome.await.unwrap());
    }
    assert!(
        matches!(answers[0], Err(AppendError::Full)),
        "{:?}",
        answers[0]
    );
    assert!(
        matches!(answers[1], Err(AppendError::Full)),
        "a duplicate of nothing: {:?}",
        answers[1]
    );
    let known = answers[2].as_ref().unwrap();
    assert_eq!(known.rejected[0].reason, RejectReason::Duplicate(0));
    assert!(
        answers[3].is_err(),
        "its last sequence counted what was not stored"
    );
    disk.fill(false);
    let last = message(
        "y",
        &[
            ("Nats-Expected-Last-Msg-Id", "before"),
            ("Nats-Msg-Id", "a"),
        ],
    );
    assert_eq!(one(&partition, last).await, Ok(1));
    assert_eq!(
        one(&partition, with_id("a")).await,
        Err(RejectReason::Duplicate(1))
    );
}
