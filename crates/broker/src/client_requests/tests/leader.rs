//! What a leader answers, with an open partition.
use super::*;
use crate::encryption::MasterKeyStore;
use crate::limits::Limits;
use crate::partition::replica::{Question as Position, ReplicaReport, SlotState, ToBrokers};
use crate::partition::{
    AckLevel, Append, CommitObserver, CommittedAppend, IncomingRecord, Partition, PartitionContext,
    PartitionSpec, Payload,
};
use bascule_log::GroupCommitter;
use bascule_replica::types::{BrokerId, Instant64};
use tokio::sync::oneshot;

/// A user who may only send.
const SENDER: u64 = 8;
const CONSUMER: &str = "\0iggy:consumer:1";

/// Makes one detail of a request wrong.
type Change = fn(&mut Asked);

/// Republishes nothing.
#[derive(Debug)]
struct NoObserver;

impl CommitObserver for NoObserver {
    fn on_commit(&self, _: &Partition, _: &mut dyn Iterator<Item = CommittedAppend<'_>>) {}
}

/// Nobody is reached, and the lease never ends.
#[derive(Debug)]
struct Alone;

impl ToBrokers for Alone {
    fn fetch(&self, _: u64, _: &Partition, _: SlotState) {}
    fn end_fetch(&self, _: u64, _: u64) {}
    fn disconnect(&self, _: u64) {}
    fn ask_position(&self, _: BrokerId, _: Position, _: &Partition) {}
    fn ask_range(&self, _: BrokerId, _: Position, _: u64, _: u64, _: &Partition) {}
    fn lease(&self) -> Instant64 {
        Instant64(u64::MAX)
    }
    fn report(&self, _: u64, _: ReplicaReport) {}
    fn begin_leading(&self, _: &Partition) {}
    fn end_leading(&self, _: u64) {}
}

/// A broker that leads the partition of [`asked`], with one record.
struct Rig {
    _folder: tempfile::TempDir,
    _committer: Arc<GroupCommitter>,
    partition: Partition,
    view: Arc<ArcSwap<View>>,
    server: RequestServer,
}

fn spec() -> PartitionSpec {
    serde_json::from_value(serde_json::json!({
        "namespace": "orders", "stream": "paid", "number": 0, "incarnation": 40,
        "subject": "s", "base_subject": "s", "queue_group": "", "replicas": 3,
        "durability": "disk", "codec": "none", "nats_copy": "none",
        "max_record_bytes": 1000, "batch_records": 1024, "batch_bytes": 1 << 20,
        "retention_age_ms": 0, "retention_bytes": 0, "retention_messages": 0, "cleaner_interval_ms": 0,
        "segment_bytes": 1 << 20, "segment_age_ms": 0, "concurrency_control": false,
    }))
    .unwrap()
}

async fn append(partition: &Partition) {
    let (done, outcome) = oneshot::channel();
    let record = IncomingRecord {
        value: Some(Bytes::from_static(b"one")),
        expected_offset: -1,
        received_bytes: 3,
        ..IncomingRecord::default()
    };
    let append = Append {
        payload: Payload::Records(vec![record]),
        producer: None,
        republish: false,
        ack: AckLevel::All,
        done: Box::new(move |outcome| done.send(outcome).unwrap()),
    };
    partition.append(append).await;
    outcome.await.unwrap().unwrap();
}

impl Rig {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let committer = GroupCommitter::start();
        let events = Arc::new(Events::new(1024).unwrap());
        let (keys, observer) = (MasterKeyStore::default(), Arc::new(NoObserver));
        let context =
            PartitionContext::new(Limits::default(), events, Arc::default(), keys, observer);
        let context = Arc::new(context);
        context.replicas.connect(Arc::new(Alone));
        let place = folder.path().join("40");
        let (partition, _) = Partition::open(&context, spec(), &place, &committer, false).unwrap();
        partition.lead(5);
        append(&partition).await;
        let mut view = view("b1");
        let other = UserRights {
            everywhere: UserAction::Send as u8,
            ..UserRights::clone(&view.users[&USER])
        };
        Arc::make_mut(&mut view.users).insert(SENDER, Arc::new(other));
        let view = Arc::new(ArcSwap::from_pointee(view));
        let server = server(&view);
        let rig = Self {
            _folder: folder,
            _committer: committer,
            partition,
            view,
            server,
        };
        rig.shown(|_| {});
        rig
    }

    /// From now on the view shows the partition so.
    fn shown(&self, change: impl Fn(&mut PartitionView)) {
        let mut view = View::clone(&self.view.load());
        let mut stream = stream("b1");
        stream.partitions[0].handle = Some(self.partition.clone());
        change(&mut stream.partitions[0]);
        let streams = view.namespaces.get_mut("orders").unwrap();
        streams.insert("paid".into(), Arc::new(stream));
        self.view.store(Arc::new(view));
    }

    async fn answer(&self, asked: &Asked) -> Answered {
        let answer = self.server.answer(&encode(asked).unwrap()).await.unwrap();
        decode(&answer).unwrap()
    }

    async fn shows_its_record(&self) -> bool {
        let answered = self.answer(&read()).await;
        matches!(answered, Answered::Read { start: 0, end: 1, batches } if !batches.is_empty())
    }
}

#[tokio::test]
async fn a_leader_answers_nothing_of_which_one_detail_is_wrong() {
    let rig = Rig::new().await;
    assert!(rig.shows_its_record().await);
    let wrong: [(&str, Change); 9] = [
        ("an unknown user", |asked| asked.user = 9),
        ("a user who may only send", |asked| asked.user = SENDER),
        ("the number of the namespace", |asked| asked.ids.0 = 1),
        ("the number of the stream", |asked| asked.ids.1 = 4),
        ("the incarnation", |asked| asked.incarnation = 41),
        ("the epoch", |asked| asked.leader_epoch = 6),
        ("the partition", |asked| asked.partition = 1),
        ("the stream", |asked| asked.stream = "sent".into()),
        ("the namespace", |asked| asked.namespace = "default".into()),
    ];
    for (what, change) in wrong {
        let mut asked = read();
        change(&mut asked);
        assert_eq!(rig.answer(&asked).await, Answered::Later, "{what}");
    }
    let mut flush = asked(Question::Flush);
    assert_eq!(rig.answer(&flush).await, Answered::Later, "may not send");
    flush.user = SENDER;
    assert_eq!(rig.answer(&flush).await, Answered::Flushed);
}

#[tokio::test]
async fn a_broker_answers_for_no_partition_that_another_one_leads_or_that_is_paused() {
    let rig = Rig::new().await;
    rig.shown(|partition| partition.leader = "b2".into());
    assert_eq!(rig.answer(&read()).await, Answered::Later);
    rig.shown(|partition| partition.paused = true);
    assert_eq!(rig.answer(&read()).await, Answered::Later);
    rig.shown(|partition| partition.handle = None);
    assert_eq!(rig.answer(&read()).await, Answered::Later);
    rig.shown(|_| {});
    assert!(rig.shows_its_record().await);
}

#[tokio::test]
async fn an_answer_counts_only_while_the_broker_leads() {
    let rig = Rig::new().await;
    let questions = [
        read().question,
        Question::FindPosition(CONSUMER.into()),
        Question::DeletePosition(CONSUMER.into()),
    ];
    let attempts = async |expected: [Answered; 3]| {
        for (question, expected) in questions.iter().zip(expected) {
            let asked = asked(question.clone());
            let answered = rig.server.attempt(&rig.partition, &asked, PATIENCE).await;
            let answered = match answered {
                Answered::Read { start, end, .. } => Answered::Read {
                    start,
                    end,
                    batches: Bytes::new(),
                },
                other => other,
            };
            assert_eq!(answered, expected);
        }
    };
    let found = Answered::Read {
        start: 0,
        end: 1,
        batches: Bytes::new(),
    };
    attempts([found, Answered::Position(None), Answered::Deleted(false)]).await;
    rig.partition.stop_leading();
    attempts([Answered::Later, Answered::Later, Answered::Later]).await;
}

#[tokio::test]
async fn reads_wait_for_a_share_within_their_deadline() {
    let rig = Rig::new().await;
    let request = encode(&read()).unwrap();
    let mut held = Vec::new();
    for _ in 0..READS {
        held.push(rig.server.answer(&request).await.unwrap());
    }
    let mut late = read();
    late.deadline_ms = 20;
    assert_eq!(rig.answer(&late).await, Answered::Later);
    held.pop();
    assert!(rig.shows_its_record().await);
}
