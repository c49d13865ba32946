//! What replicas tell the controller: entries of the metadata log (`specs/formats/metadata.md`), gathered for a moment.
//!
//! Nobody here waits for an outcome: a replica sends again what no entry has settled, and partition epochs make late entries void.
use crate::partition::replica::ReplicaReport;
use crate::peer::Brokers;
use bascule_replica::leader::Reason;
use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// How long reports are gathered.
const GATHER: Duration = Duration::from_millis(5);
/// Most partitions of one entry.
const PARTITIONS: usize = 1_000;

/// Proposes entries of the metadata log.
pub(crate) trait Propose: Debug + Send + Sync {
    /// Has an entry committed; false = it was not, or nobody knows.
    fn propose(&self, entry: Bytes) -> BoxFuture<'static, bool>;
}

/// Reports that were not sent yet. Dropping it ends the sending.
#[derive(Debug)]
pub(super) struct Reports {
    waiting: Arc<Waiting>,
    task: AbortHandle,
}

#[derive(Debug, Default)]
struct Waiting {
    reports: Mutex<Vec<(u64, ReplicaReport)>>,
    added: Notify,
}

impl Reports {
    /// Call inside the runtime.
    pub fn start(brokers: Arc<Brokers>, proposer: Arc<dyn Propose>) -> Self {
        let waiting = Arc::<Waiting>::default();
        let task = tokio::spawn(send(waiting.clone(), brokers, proposer)).abort_handle();
        Self { waiting, task }
    }

    /// Adds a report of a partition; one of the same kind that was not sent yet is replaced.
    pub fn add(&self, incarnation: u64, report: ReplicaReport) {
        let mut reports = self.waiting.reports.lock();
        let same = |(known, other): &(u64, ReplicaReport)| {
            *known == incarnation && discriminant(other) == discriminant(&report)
        };
        // Two members may be unclean at once.
        if !matches!(report, ReplicaReport::Unclean { .. }) {
            reports.retain(|known| !same(known));
        }
        reports.push((incarnation, report));
        self.waiting.added.notify_one();
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn send(waiting: Arc<Waiting>, brokers: Arc<Brokers>, proposer: Arc<dyn Propose>) {
    loop {
        waiting.added.notified().await;
        tokio::time::sleep(GATHER).await;
        let reports = std::mem::take(&mut *waiting.reports.lock());
        let entries = reports
            .chunks(PARTITIONS)
            .flat_map(|reports| entries(&brokers, reports));
        join_all(entries.map(|entry| proposer.propose(entry))).await;
    }
}

/// The entries for reports of this broker's replicas.
fn entries(brokers: &Brokers, reports: &[(u64, ReplicaReport)]) -> Vec<Bytes> {
    let (own, boot_epoch) = (brokers.own_name(), brokers.own_boot_epoch());
    let name = |id: u64| brokers.name(id);
    let (mut changes, mut flags) = (Vec::new(), Vec::new());
    let mut resigned: BTreeMap<&'static str, Vec<Value>> = BTreeMap::new();
    let mut entries = Vec::new();
    for (incarnation, report) in reports {
        match report {
            ReplicaReport::Isr(change) => {
                let isr = change.isr.iter().map(|id| name(id.0));
                let verified = change.verified.iter();
                let verified = verified
                    .map(|(id, epoch)| json!({"broker_id": name(id.0), "boot_epoch": epoch}));
                changes.push(json!({
                    "incarnation": incarnation,
                    "leader_epoch": change.leader_epoch,
                    "partition_epoch": change.partition_epoch,
                    "isr": isr.collect::<Vec<_>>(),
                    "verified": verified.collect::<Vec<_>>(),
                }));
            }
            ReplicaReport::Resign(resignation) => {
                let partition = json!({
                    "incarnation": incarnation,
                    "leader_epoch": resignation.leader_epoch,
                    "partition_epoch": resignation.partition_epoch,
                    "hw_moved": resignation.hw_moved,
                });
                let reason = reason(resignation.reason);
                resigned.entry(reason).or_default().push(partition);
            }
            ReplicaReport::Unclean {
                leader_epoch,
                broker,
                boot_epoch,
            } => flags.push(json!({
                "incarnation": incarnation,
                "flags": ["unclean"],
                "leader_epoch": leader_epoch,
                "broker_id": name(*broker),
                "broker_boot_epoch": boot_epoch,
            })),
            ReplicaReport::OwnUnclean { leader_epoch } => flags.push(json!({
                "incarnation": incarnation,
                "flags": ["unclean"],
                "leader_epoch": leader_epoch,
            })),
            ReplicaReport::Able { leader_epoch } => flags.push(json!({
                "incarnation": incarnation,
                "flags": ["able"],
                "leader_epoch": leader_epoch,
            })),
            ReplicaReport::Leader {
                leader_epoch,
                last_epoch,
                end,
                high_watermark,
            } => {
                let position = json!({"epoch": last_epoch, "end": end, "hw": high_watermark});
                let body = json!({
                    "incarnation": incarnation,
                    "leader_epoch": leader_epoch,
                    "reporter": own,
                    "boot_epoch": boot_epoch,
                    "position": position,
                });
                entries.push(entry("report_leader", &body));
            }
        }
    }
    let by_run = |kind, field: &str, list: Vec<Value>| {
        let body = json!({"broker_id": own, "boot_epoch": boot_epoch, field: list});
        (!list.is_empty()).then(|| entry(kind, &body))
    };
    entries.extend(by_run("change_isr", "changes", changes));
    entries.extend(by_run("report_replicas", "reports", flags));
    for (reason, partitions) in resigned {
        let body = json!({
            "broker_id": own,
            "boot_epoch": boot_epoch,
            "partitions": partitions,
            "reason": reason,
        });
        entries.push(entry("resign", &body));
    }
    entries
}

fn entry(kind: &str, body: &Value) -> Bytes {
    Bytes::from(json!({"v": 1, "type": kind, "body": body}).to_string())
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Standstill => "standstill",
        Reason::DiskFull => "disk_full",
        Reason::StuckCall | Reason::DirectoryFailed | Reason::Damage => "failed",
    }
}
