//! Watches disk calls and the tasks of replicas, from the task that sends heartbeats.
//!
//! A leader resigns by itself, in the turns of its task: for a standstill, a full disk, a failed log, a sync that does not end.
//! If its task hangs, in a write for one, this stops its role (`partition/replica/gate.rs`), and resigns for it, again
//! and again until an entry settles it. Replicas that were reported as unable are reported as able once they are well for a while.
use crate::partition::Partition;
use crate::partition::replica::{ReplicaReport, Replicas, RoleSpec};
use bascule_replica::leader::{REPEAT_MS, Reason, Resignation, STUCK_CALL_MS};
use bascule_replica::types::{BrokerId, Instant64};
use std::collections::HashMap;

/// A broker that was stopped for longer sees nothing of it: what runs now may have run before.
const LONGEST_LOOK_MS: u64 = 300;
/// A replica is able again when it is well for so long.
const WELL_MS: u64 = 1_000;

/// What is known of the disk of all replicas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk {
    /// Odd while a round of syncs waits for the disk ([`bascule_log::GroupCommitter::progress`]).
    pub progress: u64,
    /// Nothing is written any more.
    pub has_failed: bool,
    /// Writes are refused for want of space.
    pub is_full: bool,
}

/// What was seen so far.
#[derive(Debug, Default)]
pub(crate) struct HealthWatch {
    last: Option<Instant64>,
    calls: Counter,
    /// By incarnation.
    replicas: HashMap<u64, Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    turns: Counter,
    /// When it was reported last.
    sent: Option<Instant64>,
    well_since: Option<Instant64>,
    /// The metadata says that it cannot lead.
    is_unable: bool,
}

/// For how long an odd number has stayed the same.
#[derive(Debug, Default)]
struct Counter {
    value: u64,
    age_ms: u64,
}

impl Counter {
    fn look(&mut self, value: u64, elapsed_ms: u64) -> u64 {
        let stays = value == self.value && value % 2 == 1;
        self.age_ms = if stays { self.age_ms + elapsed_ms } else { 0 };
        self.value = value;
        self.age_ms
    }
}

impl HealthWatch {
    /// Looks at everything; at least every [`LONGEST_LOOK_MS`]. Returns what is to be reported, by incarnation.
    pub fn look(
        &mut self,
        replicas: &Replicas,
        disk: Disk,
        now: Instant64,
    ) -> Vec<(u64, ReplicaReport)> {
        let last = self.last.replace(now);
        let elapsed = last.map_or(0, |last| now.since(last).min(LONGEST_LOOK_MS));
        let call_ms = self.calls.look(disk.progress, elapsed);
        replicas.set_oldest_call_ms(call_ms);
        let (own, open) = replicas.watched();
        let mut before = std::mem::take(&mut self.replicas);
        let mut reports = Vec::new();
        for (role, partition) in open {
            let mut watched = before.remove(&role.incarnation).unwrap_or_default();
            let turn_ms = watched.turns.look(partition.turn(), elapsed);
            let is_well = !disk.has_failed
                && !disk.is_full
                && call_ms.max(turn_ms) < STUCK_CALL_MS
                && partition.failure().is_none()
                && partition.damaged_ms(now).is_none();
            let was_unable = std::mem::replace(&mut watched.is_unable, role.is_unable(own));
            if was_unable && !watched.is_unable {
                partition.report_able();
            }
            let report = if role.leader == own {
                resign_for(own, &role, &partition, turn_ms)
            } else {
                None
            };
            let report = report.or_else(|| watched.able(&role, is_well, now));
            if let Some(report) = report.filter(|_| watched.is_due(now)) {
                watched.sent = Some(now);
                reports.push((role.incarnation, report));
            }
            self.replicas.insert(role.incarnation, watched);
        }
        reports
    }
}

impl Watched {
    fn is_due(&self, now: Instant64) -> bool {
        self.sent.is_none_or(|sent| now.since(sent) >= REPEAT_MS)
    }

    fn able(&mut self, role: &RoleSpec, is_well: bool, now: Instant64) -> Option<ReplicaReport> {
        let since = is_well.then(|| self.well_since.unwrap_or(now));
        self.well_since = since;
        let is_able = since.is_some_and(|since| now.since(since) >= WELL_MS);
        let leader_epoch = role.leader_epoch;
        (is_able && self.is_unable).then_some(ReplicaReport::Able { leader_epoch })
    }
}

/// Stops the role of a leader whose task hangs while another one can lead; what is sent for it then, and later, while that may
/// still be applied.
fn resign_for(
    own: u64,
    role: &RoleSpec,
    partition: &Partition,
    turn_ms: u64,
) -> Option<ReplicaReport> {
    let (leader_epoch, partition_epoch) = (role.leader_epoch, role.partition_epoch);
    let gate = partition.gate();
    if turn_ms > STUCK_CALL_MS && role.config().another_can_lead(BrokerId(own)) {
        if gate.stopped_at(leader_epoch).is_none() {
            partition.report_resignation(Reason::StuckCall);
        }
        gate.stop(leader_epoch, partition_epoch, true);
    }
    let is_open = gate.stopped_from_outside_at(leader_epoch) == Some(partition_epoch);
    is_open.then_some(ReplicaReport::Resign(Resignation {
        leader_epoch,
        partition_epoch,
        reason: Reason::StuckCall,
        hw_moved: false,
    }))
}
