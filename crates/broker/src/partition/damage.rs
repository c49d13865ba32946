//! What a partition says of damaged records: to the log of the broker once for each range, to callers every time.
use super::Partition;
use crate::clock::since_boot;
use crate::events::PartitionChange;
use bascule_log::integrity::{Damage, Fault};
use std::sync::Arc;

impl Partition {
    /// From now on damage that was not known is counted and said.
    pub(super) fn watch_for_damage(&self) {
        let weak = Arc::downgrade(&self.0);
        self.0.reader.on_damage(move |damage| {
            if let Some(inner) = weak.upgrade() {
                Self(inner).report_damage(damage);
            }
        });
    }

    /// Says and counts ranges that were known when the partition was opened.
    pub(crate) fn report_quarantine(&self) {
        for damage in self.0.reader.quarantine() {
            self.report_damage(&damage);
        }
    }

    fn report_damage(&self, damage: &Damage) {
        self.0.read_role.damaged.note(since_boot());
        let statistics = &self.0.context.statistics;
        statistics.damaged_ranges.add(1);
        statistics.damaged_offsets.add(damage.end - damage.start);
        let fields = serde_json::json!({
            "start": damage.start,
            "end": damage.end,
            "fault": damage.fault.name(),
            "path": damage.path,
            "position": damage.position,
        });
        let remedy = match damage.fault {
            Fault::Wal => {
                "They were only in the journal: restore the data directory from a backup that has them, or continue without them"
            }
            _ => {
                "Restore the file from a backup, or check it with `bascule log verify` while the broker is stopped"
            }
        };
        let text = format!("{damage}; they are refused, all others are served. {remedy}");
        self.report_with(PartitionChange::Damaged, &text, fields);
    }
}

/// The error of a reader: the offsets, the file, and where to continue. `what` names stream and partition.
pub(crate) fn sentence(what: &str, damage: &Damage) -> String {
    let file = damage.path.file_name().unwrap_or_default();
    format!(
        "offsets [{}, {}) of {what} are damaged on disk ({}, position {} of {}): start at offset {} to continue after them; \
         on the broker's machine `bascule log verify` shows how to repair them",
        damage.start,
        damage.end,
        damage.fault,
        damage.position,
        file.to_string_lossy(),
        damage.end
    )
}
