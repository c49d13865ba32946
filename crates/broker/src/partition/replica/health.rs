//! What a leader has to know of its own disk and log, and who sees that its task hangs.
use crate::events::PartitionChange;
use crate::partition::Partition;
use crate::partition::writer::Writer;
use bascule_replica::leader::{Health, Reason};
use bascule_replica::types::Instant64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// So long after an append that found no space a disk counts as full.
const FULL: Duration = Duration::from_secs(10);

/// A number that is odd while the task of a partition works, and another one in each turn.
#[derive(Debug, Default)]
pub(in crate::partition) struct Turns(AtomicU64);

impl Turns {
    /// The task begins to work, or has done it.
    pub fn pass(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The number now.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// When damage of a log became known here; milliseconds of the clock of leases.
#[derive(Debug, Default)]
pub(in crate::partition) struct DamagedSince(AtomicU64);

impl DamagedSince {
    /// Damage is known; only the first counts.
    pub fn note(&self, now: Instant64) {
        let now = now.0.max(1);
        // Known already otherwise.
        let _ = self
            .0
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// How long it has been known, ms; `None` = there is none.
    pub fn age_ms(&self, now: Instant64) -> Option<u64> {
        let since = self.0.load(Ordering::Relaxed);
        (since > 0).then(|| now.since(Instant64(since)))
    }
}

impl Partition {
    /// See [`Turns`]: an odd number that stays shows a task that hangs, or has failed.
    pub(crate) fn turn(&self) -> u64 {
        self.0.read_role.turns.value()
    }

    /// How long damage of the log has been known here, ms; `None` = there is none, or retention has removed it all.
    pub(crate) fn damaged_ms(&self, now: Instant64) -> Option<u64> {
        let age = self.0.read_role.damaged.age_ms(now)?;
        (!self.0.reader.quarantine().is_empty()).then_some(age)
    }
}

impl Partition {
    /// Logs why its leader resigns.
    pub(crate) fn report_resignation(&self, reason: Reason) {
        let why = match reason {
            Reason::Standstill => "nothing was committed for 5 s",
            Reason::StuckCall => "a call to the disk, or its task, does not end",
            Reason::DirectoryFailed => "its log has failed",
            Reason::DiskFull => "the disk is full",
            Reason::Damage => "records of its log are damaged",
        };
        let text = format!("another replica is to lead it: {why}");
        self.report(PartitionChange::Resigned, &text);
    }

    /// Logs that its replica may be named as the leader again.
    pub(crate) fn report_able(&self) {
        self.report(PartitionChange::Able, "its replica here can lead again");
    }
}

impl Writer {
    /// What the leader has to know of its own disk and log.
    pub(super) fn health(&self) -> Health {
        Health {
            oldest_call_ms: self.partition.context().replicas.oldest_call_ms(),
            directory_failed: self.partition.failure().is_some(),
            disk_full: self.full.is_some_and(|seen| seen.elapsed() < FULL),
            damaged_ms: self.partition.damaged_ms(super::now()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_as_old_as_its_first_range() {
        let damaged = DamagedSince::default();
        assert_eq!(damaged.age_ms(Instant64(50)), None);
        damaged.note(Instant64(50));
        damaged.note(Instant64(80));
        assert_eq!(damaged.age_ms(Instant64(90)), Some(40));
    }
}
