//! A leader of several replicas that cannot do its work stops, and resigns.
use super::*;
use crate::client_requests::{self, Answered, Asked, Positions, RequestServer};
use crate::partition::replica::{Question, ReplicaReport, RoleChanges, SlotState, ToBrokers};
use crate::replication::health::{Disk, HealthWatch};
use bascule_log::{FileWrapper, OpenMode, Storage, StorageFile, StorageWrapper};
use bascule_replica::leader::{Reason, Resignation, STUCK_CALL_MS};
use bascule_replica::types::{BrokerId, Instant64};
use parking_lot::{Condvar, Mutex};
use serde_json::json;
use std::io;
use std::path::Path;

const EPOCH: u64 = 10;
/// Made by the entry that names the leader, so that nobody has to be asked for records.
const INCARNATION: u64 = EPOCH << 16;

/// What the disk does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ills {
    hangs: bool,
    fails_syncs: bool,
    is_full: bool,
}

/// A disk that can fall ill, and recover.
#[derive(Clone, Debug, Default)]
struct IllDisk(Arc<(Mutex<Ills>, Condvar)>);

impl IllDisk {
    fn set(&self, ills: Ills) {
        *self.0.0.lock() = ills;
        self.0.1.notify_all();
    }

    fn write(&self) -> io::Result<()> {
        let mut ills = self.0.0.lock();
        while ills.hangs {
            self.0.1.wait(&mut ills);
        }
        if ills.is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

#[derive(Debug)]
struct IllFile(Arc<dyn StorageFile>, IllDisk);

impl FileWrapper for IllFile {
    fn inner(&self) -> &dyn StorageFile {
        &*self.0
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.1.write()?;
        self.inner().write_all_at(bytes, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.1.0.0.lock().fails_syncs {
            return Err(io::Error::other("the disk is broken"));
        }
        self.inner().sync_data()
    }
}

impl StorageWrapper for IllDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let file = Storage::open(&OsStorage, path, mode)?;
        Ok(Arc::new(IllFile(file, self.clone())))
    }
}

/// Nobody is reached; what is reported is kept.
#[derive(Debug, Default)]
struct Alone(Mutex<Vec<ReplicaReport>>);

impl ToBrokers for Alone {
    fn fetch(&self, _: u64, _: &Partition, _: SlotState) {}
    fn end_fetch(&self, _: u64, _: u64) {}
    fn disconnect(&self, _: u64) {}
    fn ask_position(&self, _: BrokerId, _: Question, _: &Partition) {}
    fn ask_range(&self, _: BrokerId, _: Question, _: u64, _: u64, _: &Partition) {}
    fn lease(&self) -> Instant64 {
        Instant64(u64::MAX)
    }
    fn report(&self, _: u64, report: ReplicaReport) {
        self.0.lock().push(report);
    }
    fn begin_leading(&self, _: &Partition) {}
    fn end_leading(&self, _: u64) {}
}

impl Alone {
    fn resigned(&self) -> Option<Resignation> {
        self.0.lock().iter().find_map(|report| match report {
            ReplicaReport::Resign(resignation) => Some(*resignation),
            _ => None,
        })
    }
}

/// A broker with one replica on a disk that can fall ill.
struct Rig {
    home: Home,
    disk: IllDisk,
    brokers: Arc<Alone>,
    partition: Partition,
}

fn rig() -> Rig {
    let disk = IllDisk::default();
    let mut home = home();
    home.committer = GroupCommitter::start_on(Arc::new(disk.clone()));
    let brokers = Arc::new(Alone::default());
    home.context.replicas.connect(brokers.clone());
    let spec = PartitionSpec {
        incarnation: INCARNATION,
        replicas: 3,
        ..spec()
    };
    let (partition, _) = home.open(spec);
    Rig {
        home,
        disk,
        brokers,
        partition,
    }
}

impl Rig {
    /// This broker, 1, and two others have a replica; `flags` are those of this broker's.
    fn role(&self, leader: u64, partition_epoch: u64, flags: &serde_json::Value) {
        let replica = |id: u64| {
            let mut replica = json!({
                "id": id, "boot_epoch": id, "confirmed": true, "unclean": false, "unable": false, "cut": false, "tried": false,
            });
            if id == 1
                && let (Some(replica), Some(flags)) = (replica.as_object_mut(), flags.as_object())
            {
                replica.extend(flags.clone());
            }
            replica
        };
        let leader_epoch = if leader == 1 { EPOCH } else { partition_epoch };
        let role = json!({
            "incarnation": INCARNATION, "leader": leader, "leader_epoch": leader_epoch, "partition_epoch": partition_epoch,
            "replicas": [replica(1), replica(2), replica(3)], "isr": [1, 2, 3], "eligible": [1, 2, 3], "min_isr": 1,
            "memory": false, "compacted": false, "losses": [],
        });
        let changes = json!({
            "broker": 1, "roles": [role], "removed": [], "applied": partition_epoch, "changed": [],
        });
        let changes: RoleChanges = serde_json::from_value(changes).unwrap();
        self.home
            .context
            .replicas
            .set_roles(partition_epoch, changes);
    }

    async fn led(&self) {
        self.role(1, EPOCH, &json!({}));
        until(|| self.partition.is_leading()).await;
    }

    fn disk(&self) -> Disk {
        Disk {
            progress: self.home.committer.progress(),
            has_failed: self.home.committer.failure().is_some(),
            is_full: false,
        }
    }

    /// The same, as soon as neither the disk nor the task works: their work takes no time here.
    async fn look_at_rest(
        &self,
        watch: &mut HealthWatch,
        now: &mut Instant64,
    ) -> Vec<ReplicaReport> {
        let is_at_rest = || {
            self.home.committer.progress().is_multiple_of(2)
                && self.partition.turn().is_multiple_of(2)
        };
        until(is_at_rest).await;
        self.look(watch, now)
    }

    /// Looks once more, 200 ms after `now`.
    fn look(&self, watch: &mut HealthWatch, now: &mut Instant64) -> Vec<ReplicaReport> {
        *now = now.plus(200);
        let reports = watch.look(&self.home.context.replicas, self.disk(), *now);
        assert!(
            reports
                .iter()
                .all(|(incarnation, _)| *incarnation == INCARNATION)
        );
        reports.into_iter().map(|(_, report)| report).collect()
    }

    fn resignation(reason: Reason, partition_epoch: u64) -> Resignation {
        Resignation {
            leader_epoch: EPOCH,
            partition_epoch,
            reason,
            hw_moved: false,
        }
    }
}

async fn until(condition: impl Fn() -> bool) {
    let waited = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, waited).await.expect("in time");
}

fn by_leader(value: &str) -> (Append, oneshot::Receiver<Outcome>) {
    let (append, outcome) = append(records(&[value]));
    let append = Append {
        ack: AckLevel::Leader,
        ..append
    };
    (append, outcome)
}

/// Until somebody resigns for the leader whose task hangs; the age of the call by then, ms.
fn hang(rig: &Rig, watch: &mut HealthWatch, now: &mut Instant64) -> u64 {
    let began = *now;
    loop {
        let reports = rig.look(watch, now);
        let Some(report) = reports.first() else {
            assert!(now.since(began) < 10_000, "nobody resigns");
            assert!(rig.partition.is_leading() && rig.partition.may_read());
            continue;
        };
        let expected = Rig::resignation(Reason::StuckCall, EPOCH);
        assert!(
            matches!(report, ReplicaReport::Resign(found) if *found == expected),
            "{report:?}"
        );
        return now.since(began);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_leader_whose_task_hangs_has_stopped_when_its_resignation_is_sent() {
    let rig = rig();
    rig.led().await;
    let (first, committed) = by_leader("first");
    rig.partition.append(first).await;
    assert_eq!(committed.await.unwrap().unwrap().base_offset, 0);
    rig.disk.set(Ills {
        hangs: true,
        ..Ills::default()
    });
    let (second, mut held) = by_leader("second");
    rig.partition.append(second).await;
    until(|| rig.partition.turn() % 2 == 1).await;
    let (mut watch, mut now) = (HealthWatch::default(), Instant64(50_000));
    let age = hang(&rig, &mut watch, &mut now);
    assert!(age > STUCK_CALL_MS, "{age}");
    assert!(!rig.partition.is_leading() && !rig.partition.may_read());
    // Another entry is on its way to the task, which could resume with it; the resignation is sent for that one, too.
    rig.role(1, EPOCH + 2, &json!({}));
    assert_eq!(
        rig.home.context.replicas.applied(),
        EPOCH,
        "the task has not taken it over"
    );
    let reports = (0..3).flat_map(|_| rig.look(&mut watch, &mut now));
    let reports: Vec<_> = reports.collect();
    let expected = Rig::resignation(Reason::StuckCall, EPOCH + 2);
    assert!(
        matches!(reports[..], [ReplicaReport::Resign(found)] if found == expected),
        "{reports:?}"
    );

    rig.disk.set(Ills::default());
    until(|| rig.home.context.replicas.applied() == EPOCH + 2).await;
    let (third, refused) = by_leader("third");
    rig.partition.append(third).await;
    assert!(matches!(
        refused.await.unwrap(),
        Err(AppendError::NotLeader)
    ));
    until(|| rig.partition.0.outstanding.load(Ordering::Acquire) == 0).await;
    rig.partition.flush(false).await;
    assert!(held.try_recv().is_err(), "it is on disk, and not answered");
    assert!(!rig.partition.is_leading());

    // A newer entry shows that the resignation was refused.
    rig.role(1, EPOCH + 3, &json!({}));
    assert_eq!(held.await.unwrap().unwrap().base_offset, 1);
    until(|| rig.partition.is_leading()).await;
    let (fourth, committed) = by_leader("fourth");
    rig.partition.append(fourth).await;
    assert_eq!(committed.await.unwrap().unwrap().base_offset, 2);
    for _ in 0..10 {
        assert!(rig.look_at_rest(&mut watch, &mut now).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_a_hanging_leader_appended_has_an_unknown_outcome_when_another_one_leads() {
    let rig = rig();
    rig.led().await;
    rig.disk.set(Ills {
        hangs: true,
        ..Ills::default()
    });
    let (append, held) = by_leader("held");
    rig.partition.append(append).await;
    until(|| rig.partition.turn() % 2 == 1).await;
    let (mut watch, mut now) = (HealthWatch::default(), Instant64(50_000));
    hang(&rig, &mut watch, &mut now);
    rig.role(2, EPOCH + 4, &json!({"unable": true}));
    assert_eq!(rig.home.context.replicas.applied(), EPOCH);
    rig.disk.set(Ills::default());
    assert!(matches!(
        held.await.unwrap(),
        Err(AppendError::LeaderChanged)
    ));
    until(|| rig.home.context.replicas.applied() == EPOCH + 4).await;
    assert!(!rig.partition.is_leading());
    // Well for a second, it reports so until an entry says that it can lead.
    let mut reports = Vec::new();
    for _ in 0..15 {
        reports.extend(rig.look_at_rest(&mut watch, &mut now).await);
    }
    let is_able = |report: &ReplicaReport| matches!(report, ReplicaReport::Able { leader_epoch } if *leader_epoch == EPOCH + 4);
    assert!(reports.len() >= 2 && reports.iter().all(is_able));
    rig.role(2, EPOCH + 5, &json!({}));
    for _ in 0..10 {
        assert!(rig.look_at_rest(&mut watch, &mut now).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nobody_resigns_for_a_task_that_hangs_while_nobody_else_can_lead() {
    let rig = rig();
    let changes = |id: u64| json!({"id": id, "boot_epoch": 9, "confirmed": false, "unclean": false, "unable": false, "cut": false, "tried": false});
    let role = json!({
        "incarnation": INCARNATION, "leader": 1, "leader_epoch": EPOCH, "partition_epoch": EPOCH,
        "replicas": [{"id": 1, "boot_epoch": 1, "confirmed": true, "unclean": false, "unable": false, "cut": false, "tried": false}, changes(2), changes(3)],
        "isr": [1], "eligible": [1, 2, 3], "min_isr": 1, "memory": false, "compacted": false, "losses": [],
    });
    let changes =
        json!({"broker": 1, "roles": [role], "removed": [], "applied": EPOCH, "changed": []});
    let replicas = &rig.home.context.replicas;
    replicas.set_roles(EPOCH, serde_json::from_value(changes).unwrap());
    until(|| rig.partition.is_leading()).await;
    rig.disk.set(Ills {
        hangs: true,
        ..Ills::default()
    });
    let (append, held) = by_leader("held");
    rig.partition.append(append).await;
    until(|| rig.partition.turn() % 2 == 1).await;
    let (mut watch, mut now) = (HealthWatch::default(), Instant64(50_000));
    for _ in 0..30 {
        assert!(rig.look(&mut watch, &mut now).is_empty());
    }
    assert!(rig.partition.is_leading() && rig.partition.may_read());
    rig.disk.set(Ills::default());
    assert_eq!(held.await.unwrap().unwrap().base_offset, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_leader_whose_log_has_failed_resigns_and_shows_nothing() {
    let rig = rig();
    rig.led().await;
    rig.disk.set(Ills {
        fails_syncs: true,
        ..Ills::default()
    });
    let (append, failed) = by_leader("lost");
    rig.partition.append(append).await;
    assert!(matches!(
        failed.await.unwrap(),
        Err(AppendError::Storage(_))
    ));
    until(|| rig.brokers.resigned().is_some()).await;
    let expected = Rig::resignation(Reason::DirectoryFailed, EPOCH);
    assert_eq!(rig.brokers.resigned(), Some(expected));
    assert!(!rig.partition.is_leading() && !rig.partition.may_read());
    // It never says that it can lead again.
    rig.role(2, EPOCH + 4, &json!({"unable": true}));
    let (mut watch, mut now) = (HealthWatch::default(), Instant64(50_000));
    for _ in 0..15 {
        assert!(rig.look_at_rest(&mut watch, &mut now).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_flush_waits_for_what_others_appended_until_it_is_committed_or_the_leader_ends() {
    let rig = rig();
    rig.led().await;
    assert!(rig.partition.flush_committed().await, "nothing to wait for");
    let (append, stored) = by_leader("not committed");
    rig.partition.append(append).await;
    assert!(stored.await.unwrap().is_ok());
    assert!(!rig.partition.is_committed());
    let mut flush = std::pin::pin!(rig.partition.flush_committed());
    assert!(flush.as_mut().now_or_never().is_none());
    // The task has dealt with the first one when it answers the second.
    rig.partition.flush(false).await;
    assert!(
        flush.as_mut().now_or_never().is_none(),
        "no follower has it"
    );
    let stopped = tokio::spawn({
        let partition = rig.partition.clone();
        async move { partition.flush_committed().await }
    });
    rig.partition.stop_leading();
    assert!(!flush.await && !stopped.await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_position_that_is_not_committed_in_time_has_an_unknown_outcome() {
    let rig = rig();
    rig.led().await;
    let events = rig.home.context.events.clone();
    let positions = Positions::new(10, events, Arc::default());
    let server = RequestServer::new("b1", &Arc::default(), &Arc::default(), positions);
    let attempt = async |question| {
        let asked = Asked {
            user: 7,
            address: String::new(),
            namespace: "orders".into(),
            stream: "paid".into(),
            ids: (2, 3),
            partition: 0,
            incarnation: 40,
            leader_epoch: EPOCH,
            deadline_ms: 0,
            question,
        };
        let limit = Duration::from_millis(50);
        server.attempt(&rig.partition, &asked, limit).await
    };
    let id = "\0iggy:consumer:1".to_owned();
    let store = |waits| client_requests::Question::StorePosition {
        id: id.clone(),
        offset: 4,
        waits,
    };
    let find = || client_requests::Question::FindPosition(id.clone());
    assert_eq!(attempt(store(true)).await, Answered::Unknown);
    assert_eq!(attempt(find()).await, Answered::Position(None));
    assert_eq!(attempt(store(false)).await, Answered::Stored);
    assert_eq!(attempt(find()).await, Answered::Position(Some(4)));
    let delete = client_requests::Question::DeletePosition(id.clone());
    assert_eq!(attempt(delete).await, Answered::Unknown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_leader_whose_disk_is_full_resigns_and_continues_when_that_is_refused() {
    let rig = rig();
    rig.led().await;
    rig.disk.set(Ills {
        is_full: true,
        ..Ills::default()
    });
    let (append, refused) = by_leader("no room");
    rig.partition.append(append).await;
    assert!(matches!(refused.await.unwrap(), Err(AppendError::Full)));
    until(|| rig.brokers.resigned().is_some()).await;
    let expected = Rig::resignation(Reason::DiskFull, EPOCH);
    assert_eq!(rig.brokers.resigned(), Some(expected));
    assert!(!rig.partition.is_leading() && !rig.partition.may_read());
    rig.disk.set(Ills::default());
    rig.role(1, EPOCH + 1, &json!({}));
    until(|| rig.partition.is_leading()).await;
    let (append, committed) = by_leader("room");
    rig.partition.append(append).await;
    assert_eq!(committed.await.unwrap().unwrap().base_offset, 0);
}
