//! What a partition's log needs from time to time: retention, compaction, a trim.
use super::Partition;
use super::writer::Writer;
use crate::clock::cautious_now_ns;
use crate::events::PartitionChange;
use bascule_log::{CompactionReport, Error, Log, ReaderHold, Retention};
use serde_json::json;
use std::time::Instant;

/// Retention, unless that is left to the leader, then compaction; what waits for the disk happens on threads of the log.
///
/// # Errors
/// Those of [`bascule_log::Log::maintain`].
pub(super) fn maintain(partition: &Partition, writer: &mut Writer) -> Result<(), Error> {
    let hold = writer.reader_hold(Instant::now());
    if writer.may_remove() {
        writer.hold();
        trim(writer)?;
        let retention = Retention {
            hold,
            ..writer.spec.retention()
        };
        count_removed(writer, |log| log.maintain(&retention, cautious_now_ns()))?;
    }
    compact(partition, writer, hold)
}

fn compact(
    partition: &Partition,
    writer: &mut Writer,
    hold: Option<ReaderHold>,
) -> Result<(), Error> {
    let Some(mut compaction) = writer.spec.compaction() else {
        return Ok(());
    };
    if let Some(hold) = hold.filter(|hold| partition.0.reader.bytes() <= hold.max_bytes) {
        compaction.held_from = hold.from;
    }
    compaction.replicated_to = writer.replicated_to();
    let running = Running::begin(partition);
    let done = Box::new(move |outcome| running.end(&outcome));
    let submitted = writer.log.compact(&compaction, cautious_now_ns(), done);
    submitted.map(|_| ())
}

impl Writer {
    /// Forgets what an archive has when that is more than the log ever had: the log lost its end, or is an older copy, and its next
    /// records are others than those of the archive. Stays so until another offset is given.
    pub(super) fn check_archived(&mut self) {
        let (given, end) = (self.spec.archived_to, self.partition.0.reader.log_end());
        if given > end {
            let text = format!(
                "the archive's end {given} is beyond the end {end} of the log, which was restored or lost its end: \
                 retention waits for a new report of the archive"
            );
            let fields = json!({"archived_to": given});
            self.partition
                .report_with(PartitionChange::ArchiveVoid, &text, fields);
            self.void_archive = Some(given);
        }
        if self.void_archive == Some(given) {
            self.spec.archived_to = 0;
        } else {
            self.void_archive = None;
        }
    }
}

/// Runs `work` and counts the segments that it removes.
fn count_removed(
    writer: &mut Writer,
    work: impl FnOnce(&mut Log) -> Result<u64, Error>,
) -> Result<(), Error> {
    let before = writer.log.removed();
    let done = work(&mut writer.log);
    let removed = writer.log.removed();
    let statistics = &writer.partition.0.context.statistics;
    let counters = [
        (
            &statistics.retention_segments,
            removed.segments - before.segments,
        ),
        (
            &statistics.retention_records,
            removed.records - before.records,
        ),
        (&statistics.retention_bytes, removed.bytes - before.bytes),
        (
            &statistics.retention_unarchived,
            removed.unarchived - before.unarchived,
        ),
        (&statistics.retention_unread, removed.unread - before.unread),
    ];
    for (counter, removed) in counters {
        counter.add(removed);
    }
    let unarchived = removed.unarchived - before.unarchived;
    if unarchived > 0 {
        let text = format!(
            "retention removed {unarchived} records that the archive does not have: the partition has more than {} bytes; \
             repair the archive, or raise retention_after_archive_max_bytes",
            writer.spec.archive_wait_bytes
        );
        writer.partition.report(PartitionChange::Unarchived, &text);
    }
    let unread = removed.unread - before.unread;
    if unread > 0 {
        let text = format!(
            "retention removed {unread} records that a query has not processed: the partition has more than {} bytes; \
             see which query is behind (bascule lag), or raise retention_hold_max_bytes",
            writer.spec.hold_bytes
        );
        writer.partition.report(PartitionChange::Unread, &text);
    }
    done.map(|_| ())
}

/// A compaction that waits for its turn or runs. Dropped at its end, and at once when none is due.
struct Running(Partition);

impl Running {
    fn begin(partition: &Partition) -> Self {
        partition.0.context.statistics.compactions_open.add(1);
        Self(partition.clone())
    }

    fn end(self, outcome: &Result<CompactionReport, Error>) {
        let statistics = &self.0.0.context.statistics;
        match outcome {
            Ok(report) => {
                statistics.compaction_runs.add(u64::from(!report.cancelled));
                statistics.compaction_records.add(report.records);
                let removed = report.bytes_before.saturating_sub(report.bytes_after);
                statistics.compaction_bytes.add(removed);
            }
            Err(_) => statistics.compaction_errors.add(1),
        }
        tell(&self.0, outcome);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.context.statistics.compactions_open.sub(1);
    }
}

/// Hides what was trimmed on request, as far as no link needs it.
///
/// # Errors
/// Those of [`bascule_log::Log::trim`].
pub(super) fn trim(writer: &mut Writer) -> Result<(), Error> {
    writer.hold();
    let before = writer.spec.trimmed_to;
    count_removed(writer, |log| log.trim(before, cautious_now_ns()))
}

fn tell(partition: &Partition, outcome: &Result<CompactionReport, Error>) {
    match outcome {
        Ok(report) if report.segments > 0 || report.skipped > 0 => {
            let text = format!(
                "{} records removed from {} segments, {} bytes became {}; {} segments were left as they are",
                report.records,
                report.segments,
                report.bytes_before,
                report.bytes_after,
                report.skipped
            );
            partition.report(PartitionChange::Compacted, &text);
        }
        Ok(_) => {}
        Err(error) => partition.report(
            PartitionChange::CompactionFailed,
            &format!("not compacted: {error}"),
        ),
    }
}
