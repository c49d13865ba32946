//! Lanes against a leader that is played by the test, and appends that travel.
use super::item::{Content, Item, Publisher, payload};
use super::link::{Answer, Link, Outgoing};
use super::outcome::{of_answer, to_answer};
use super::*;
use crate::access::{Action, Denied};
use crate::partition::{
    AckLevel, Append, AppendError, Committed, IncomingRecord, Payload, RejectReason, Rejected,
};
use crate::peer::{Broker, Own};
use crate::tls::Peer;
use crate::view::{PartitionView, StreamView};
use bascule_log::SequenceError;
use bascule_record::{BatchBuilder, BatchLimits, Codec, Producer, RecordRef};
use bascule_wire::peer::{Forward, ForwardAnswer, Frame, FrameType, Preamble};
use bytes::Bytes;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

type Outcome = Result<Committed, AppendError>;

const PRODUCER: Producer = Producer {
    id: 9,
    epoch: 2,
    base_sequence: 40,
};

/// A broker of three that leads nothing, and the frames that it sends to each leader.
struct Entry {
    forwarder: Arc<Forwarder>,
    lanes: Lanes,
    frames: mpsc::UnboundedReceiver<(u64, Outgoing)>,
}

fn brokers() -> Brokers {
    let own = Own {
        name: "b1".into(),
        cluster_id: [7; 16],
        rescues: 0,
        level: 1,
        raft_id: 1,
        nonce: 1,
        boot_epoch: 1,
        nonces: vec![1],
    };
    let other = |id: u64| {
        let broker = Broker {
            name: format!("b{id}"),
            address: "127.0.0.1:1".into(),
            boot_epoch: 0,
            nonce: 0,
        };
        (id, broker)
    };
    Brokers::new(own, [2, 3].map(other).into())
}

fn stream(leader: &str, leader_epoch: u64) -> StreamView {
    StreamView {
        namespace: "default".into(),
        name: "s".into(),
        id: 1,
        subject: "s".into(),
        created_ns: 0,
        partition_by_subject: false,
        concurrency_control: false,
        resume_all: false,
        groups: Vec::new(),
        partitions: vec![PartitionView {
            number: 0,
            incarnation: 40,
            leader: leader.into(),
            leader_epoch,
            isr: Vec::new(),
            readonly: false,
            paused: false,
            handle: None,
        }],
    }
}

impl Entry {
    fn new() -> Self {
        let forwarder = Arc::new(Forwarder::new(ForwarderParts {
            broker_id: "b1".into(),
            view: Arc::default(),
            statistics: Arc::default(),
            events: Arc::new(Events::new(64).unwrap()),
            budget: 1 << 20,
        }));
        forwarder.connect(Arc::new(brokers()), None);
        let (all, frames) = mpsc::unbounded_channel();
        for leader in [2, 3] {
            let (sender, mut outgoing) = mpsc::unbounded_channel();
            let link = Arc::new(Link::to(sender));
            forwarder.links.lock().insert(leader, link);
            let all = all.clone();
            tokio::spawn(async move {
                while let Some(frame) = outgoing.recv().await {
                    all.send((leader, frame)).unwrap();
                }
            });
        }
        let entry = Self {
            lanes: Lanes::new(&forwarder, &Peer::default()),
            forwarder,
            frames,
        };
        entry.led_by("b2", 5);
        entry
    }

    fn led_by(&self, leader: &str, epoch: u64) {
        let mut view = View::default();
        let streams = view.namespaces.entry("default".into()).or_default();
        streams.insert("s".into(), Arc::new(stream(leader, epoch)));
        self.forwarder.view.store(Arc::new(view));
    }

    async fn append(
        &mut self,
        value: &'static str,
        producer: Option<Producer>,
        within: Duration,
    ) -> oneshot::Receiver<Outcome> {
        let (sender, outcome) = oneshot::channel();
        let append = Append {
            payload: Payload::Records(vec![record(value)]),
            producer,
            republish: true,
            ack: AckLevel::All,
            done: Box::new(move |outcome| sender.send(outcome).unwrap()),
        };
        let view = self.forwarder.view.load();
        let stream = view.stream("default", "s").unwrap();
        let place = Destination::find(&self.forwarder, stream, &stream.partitions[0]).unwrap();
        let until = Some(Instant::now() + within);
        assert!(!self.lanes.append(&place, append, until).await);
        outcome
    }

    async fn next(&mut self) -> (u64, &'static str, oneshot::Sender<Answer>) {
        let next = tokio::time::timeout(LIMIT, self.frames.recv()).await;
        let (leader, frame) = next.expect("a frame").unwrap();
        let payload = frame.content.to_payload().unwrap();
        let Payload::Records(records) = payload else {
            panic!("records were sent");
        };
        let value = records[0].value.clone().unwrap();
        let value = VALUES.into_iter().find(|one| one.as_bytes() == value);
        (leader, value.unwrap(), frame.answer)
    }

    fn is_quiet(&mut self) -> bool {
        self.frames.try_recv().is_err()
    }
}

/// Reached only when something is wrong.
const LIMIT: Duration = Duration::from_mins(1);
const VALUES: [&str; 4] = ["one", "two", "three", "four"];

fn record(value: &'static str) -> IncomingRecord {
    IncomingRecord {
        value: Some(Bytes::from_static(value.as_bytes())),
        expected_offset: -1,
        ..IncomingRecord::default()
    }
}

fn stored(offset: u64) -> Answer {
    Answer::Outcome(Ok(Committed {
        base_offset: offset,
        timestamp: 1,
        commit_timestamp: 2,
        count: 1,
        rejected: Vec::new(),
        duplicate: false,
    }))
}

fn refused(error: AppendError) -> Answer {
    Answer::Outcome(Err(error))
}

async fn offset(outcome: oneshot::Receiver<Outcome>) -> u64 {
    let outcome = tokio::time::timeout(LIMIT, outcome).await.unwrap();
    outcome.unwrap().unwrap().base_offset
}

async fn error(outcome: oneshot::Receiver<Outcome>) -> AppendError {
    let outcome = tokio::time::timeout(LIMIT, outcome).await.unwrap();
    outcome.unwrap().unwrap_err()
}

#[tokio::test]
async fn what_a_leader_refused_is_sent_again_before_what_follows_and_to_the_next_leader() {
    let mut entry = Entry::new();
    let one = entry.append("one", None, LIMIT).await;
    let two = entry.append("two", None, LIMIT).await;
    let (leader, value, answer) = entry.next().await;
    assert_eq!((leader, value), (2, "one"));
    assert!(entry.is_quiet(), "one goes alone until the leader takes it");
    entry.led_by("b3", 6);
    answer.send(refused(AppendError::NotLeader)).unwrap();
    let (leader, value, answer) = entry.next().await;
    assert_eq!((leader, value), (3, "one"));
    answer.send(stored(7)).unwrap();
    let (leader, value, answer) = entry.next().await;
    assert_eq!((leader, value), (3, "two"));
    answer.send(stored(8)).unwrap();
    assert_eq!((offset(one).await, offset(two).await), (7, 8));
    let forwarded = &entry.forwarder.statistics.forwarded;
    assert_eq!((forwarded.committed.get(), forwarded.retried.get()), (2, 1));
}

/// A lane whose leader has taken one append, and three more under way there.
async fn under_way(
    entry: &mut Entry,
    producers: [Option<Producer>; 3],
) -> (
    Vec<oneshot::Receiver<Outcome>>,
    Vec<oneshot::Sender<Answer>>,
) {
    let first = entry.append("one", None, LIMIT).await;
    entry.next().await.2.send(stored(0)).unwrap();
    offset(first).await;
    let (mut outcomes, mut answers) = (Vec::new(), Vec::new());
    for (value, producer) in VALUES[1..].iter().zip(producers) {
        outcomes.push(entry.append(value, producer, LIMIT).await);
    }
    for value in &VALUES[1..] {
        let next = entry.next().await;
        assert_eq!(&next.1, value);
        answers.push(next.2);
    }
    (outcomes, answers)
}

#[tokio::test]
async fn nothing_is_sent_again_behind_something_that_is_stored() {
    let mut entry = Entry::new();
    let (outcomes, answers) = under_way(&mut entry, [None; 3]).await;
    let given = [
        refused(AppendError::NotLeader),
        stored(4),
        refused(AppendError::Busy),
    ];
    for (answer, given) in answers.into_iter().zip(given) {
        answer.send(given).unwrap();
    }
    let (_, value, answer) = entry.next().await;
    assert_eq!(value, "four", "it has nothing behind it");
    answer.send(stored(5)).unwrap();
    let [two, three, four] = outcomes.try_into().unwrap();
    assert!(matches!(error(two).await, AppendError::NotLeader));
    assert_eq!((offset(three).await, offset(four).await), (4, 5));
}

#[tokio::test]
async fn without_an_answer_the_call_ends_and_nothing_is_repeated() {
    let mut entry = Entry::new();
    let (outcomes, answers) = under_way(&mut entry, [None; 3]).await;
    let given = [
        Answer::NotSent("gone".into()),
        Answer::Lost("gone".into()),
        Answer::NotSent("gone".into()),
    ];
    for (answer, given) in answers.into_iter().zip(given) {
        answer.send(given).unwrap();
    }
    let [two, three, four] = outcomes.try_into().unwrap();
    assert!(matches!(error(two).await, AppendError::Unreachable(_)));
    assert!(matches!(error(three).await, AppendError::Unknown(_)));
    assert!(matches!(error(four).await, AppendError::Unknown(_)));
    tokio::time::timeout(LIMIT, entry.lanes.unknown())
        .await
        .unwrap();
    let later = entry.append("one", None, LIMIT).await;
    assert!(matches!(error(later).await, AppendError::Unknown(_)));
    assert!(entry.is_quiet());
}

#[tokio::test]
async fn a_batch_of_a_producer_is_repeated_and_never_said_not_to_be_stored() {
    let mut entry = Entry::new();
    let (outcomes, answers) = under_way(&mut entry, [Some(PRODUCER); 3]).await;
    for answer in answers {
        answer.send(Answer::Lost("gone".into())).unwrap();
    }
    entry.led_by("b3", 6);
    let (leader, value, answer) = entry.next().await;
    assert_eq!((leader, value), (3, "two"));
    answer.send(stored(4)).unwrap();
    let (_, value, answer) = entry.next().await;
    assert_eq!(value, "three");
    answer.send(refused(AppendError::Readonly)).unwrap();
    let (_, value, answer) = entry.next().await;
    assert_eq!(value, "four");
    answer.send(refused(AppendError::LeaderChanged)).unwrap();
    let (_, value, answer) = entry.next().await;
    assert_eq!(value, "four");
    answer.send(stored(6)).unwrap();
    let [two, three, four] = outcomes.try_into().unwrap();
    assert_eq!((offset(two).await, offset(four).await), (4, 6));
    assert!(matches!(error(three).await, AppendError::Unknown(_)));
}

#[tokio::test]
async fn without_a_leader_in_time_the_error_says_that_nothing_was_stored() {
    let mut entry = Entry::new();
    entry.led_by("", 5);
    let outcome = entry.append("one", None, Duration::from_millis(30)).await;
    let text = error(outcome).await.to_string();
    assert_eq!(text, "partition 0 of stream \"s\" has no leader");
    entry.forwarder.view.store(Arc::default());
    entry.led_by("b2", 5);
    let outcome = entry.append("two", None, Duration::ZERO).await;
    assert!(matches!(error(outcome).await, AppendError::Unreachable(_)));
    assert!(entry.is_quiet());
    assert_eq!(entry.forwarder.statistics.forwarded.expired.get(), 2);
}

fn content(payload: Payload, producer: Option<Producer>) -> Content {
    let append = Append {
        payload,
        producer,
        republish: true,
        ack: AckLevel::Leader,
        done: Box::new(|_| ()),
    };
    Item::new(append, Instant::now() + LIMIT).unwrap().content
}

fn head_and_body(content: &Content) -> (Forward, Bytes) {
    let target = Target {
        namespace: "default".into(),
        stream: "s".into(),
        number: 3,
        incarnation: 40,
    };
    let until = Instant::now() + LIMIT;
    let frame = content.to_frame(8, &target, 41, &Publisher::default(), until);
    let (preamble, payload) = frame.split_first_chunk().unwrap();
    let preamble = Preamble::read(*preamble, frame.len()).unwrap();
    let frame: Frame = preamble
        .with_payload(Bytes::copy_from_slice(payload))
        .unwrap();
    assert_eq!(frame.kind, FrameType::Forward);
    (Forward::read(&frame).unwrap(), frame.body)
}

#[test]
fn every_field_of_a_record_arrives() {
    let records = vec![
        IncomingRecord {
            key: Bytes::from_static(b"key"),
            value: None,
            headers: vec![
                (Bytes::from_static(b"name"), Bytes::from_static(&[0xff, 0])),
                (Bytes::from_static(b"name"), Bytes::new()),
            ],
            subject: Bytes::from_static(b"s.1"),
            reply: Bytes::from_static(b"answers"),
            id: u128::MAX - 7,
            is_plain_nats: false,
            origin_time: Some(i64::MIN),
            expected_offset: -1,
            received_bytes: 900,
        },
        IncomingRecord {
            value: Some(Bytes::new()),
            expected_offset: 17,
            received_bytes: 12,
            ..IncomingRecord::default()
        },
    ];
    let content = content(Payload::Records(records.clone()), Some(PRODUCER));
    let (head, body) = head_and_body(&content);
    let named = head.producer.unwrap();
    assert_eq!((named.id, named.epoch, named.base_sequence), (9, 2, 40));
    assert_eq!(
        (head.incarnation, head.partition, head.leader_epoch),
        (40, 3, 41)
    );
    assert!(head.republish && !head.to_all && head.principal.is_none());
    let Payload::Records(found) = payload(&head, &body, 0).unwrap() else {
        panic!("records were sent");
    };
    assert_eq!(format!("{found:?}"), format!("{records:?}"));
}

#[test]
fn a_sealed_batch_arrives_checked() {
    let mut builder = BatchBuilder::new(BatchLimits {
        records: 10,
        bytes: 1 << 20,
        record_bytes: 1 << 10,
    });
    let record = RecordRef {
        value: Some(b"value"),
        timestamp: 77,
        ..RecordRef::default()
    };
    builder.push(&record).unwrap();
    let batch = builder.seal(Codec::None, Some(PRODUCER), None).unwrap();
    let content = content(Payload::Sealed(batch), Some(PRODUCER));
    let (head, body) = head_and_body(&content);
    let Payload::Sealed(found) = payload(&head, &body, 5).unwrap() else {
        panic!("a batch was sent");
    };
    assert_eq!((found.count(), found.producer()), (1, Some(PRODUCER)));
    assert_eq!(found.timestamps(), (77, 77));
    let refused = payload(&head, &body, 4).unwrap_err().to_string();
    assert!(
        refused.contains("5 bytes, and the stream allows 4"),
        "{refused}"
    );
    for at in 0..body.len() {
        let mut changed = body.to_vec();
        changed[at] ^= 4;
        assert!(
            payload(&head, &changed.into(), 1 << 10).is_err(),
            "byte {at}"
        );
    }
}

#[test]
fn every_outcome_arrives() {
    let errors = [
        AppendError::NotLeader,
        AppendError::Closed,
        AppendError::Busy,
        AppendError::Readonly,
        AppendError::TooFewReplicas {
            in_sync: 1,
            required: 2,
        },
        AppendError::LeaderChanged,
        AppendError::Full,
        AppendError::NoDescriptor,
        AppendError::Storage("disk".into()),
        AppendError::Encryption("key".into()),
        AppendError::Sequence(SequenceError::Gap {
            expected: 4,
            got: 9,
        }),
        AppendError::Sequence(SequenceError::Fenced { current: 3, got: 2 }),
        AppendError::Sequence(SequenceError::TooMany { limit: 10 }),
        AppendError::Denied(Denied::Nameless),
        AppendError::Denied(Denied::NotAllowed {
            action: Action::Publish,
            resource: "s".into(),
        }),
        AppendError::Invalid("too much".into()),
    ];
    for error in errors {
        let found = of_answer(again(&to_answer(3, &Err(error.clone())))).unwrap_err();
        assert_eq!(format!("{found:?}"), format!("{error:?}"));
    }
    let reasons = [
        RejectReason::TooLarge,
        RejectReason::IncorrectOffset,
        RejectReason::Encryption,
        RejectReason::Batch,
        RejectReason::Duplicate(12),
    ];
    let rejected = (0..).zip(reasons);
    let committed = Committed {
        base_offset: 1 << 40,
        timestamp: -5,
        commit_timestamp: 1_800_000_000_000_000_000,
        count: 2,
        rejected: rejected
            .map(|(index, reason)| Rejected { index, reason })
            .collect(),
        duplicate: true,
    };
    let shown = format!("{committed:?}");
    let found = of_answer(again(&to_answer(3, &Ok(committed)))).unwrap();
    assert_eq!(format!("{found:?}"), shown);
}

/// What is read of an answer that was written.
fn again(answer: &ForwardAnswer) -> ForwardAnswer {
    let frame = Frame::write(FrameType::ForwardAnswer, answer, b"");
    let (preamble, payload) = frame.split_first_chunk().unwrap();
    let preamble = Preamble::read(*preamble, frame.len()).unwrap();
    let frame = preamble.with_payload(Bytes::copy_from_slice(payload));
    ForwardAnswer::read(&frame.unwrap()).unwrap()
}
