//! What a partition's log needs from time to time: retention, compaction, a trim.
use super::Partition;
use super::writer::Writer;
use crate::clock::cautious_now_ns;
use crate::events::PartitionChange;
use bascule_log::{CompactionReport, Error, Log};

/// Retention, then compaction; what waits for the disk happens on threads of the log.
///
/// # Errors
/// Those of [`bascule_log::Log::maintain`].
pub(super) fn maintain(partition: &Partition, writer: &mut Writer) -> Result<(), Error> {
    writer.hold();
    trim(writer)?;
    let now_ns = cautious_now_ns();
    let retention = writer.spec.retention();
    count_removed(writer, |log| log.maintain(&retention, now_ns))?;
    let Some(compaction) = writer.spec.compaction() else {
        return Ok(());
    };
    let running = Running::begin(partition);
    let done = Box::new(move |outcome| running.end(&outcome));
    writer.log.compact(&compaction, now_ns, done).map(|_| ())
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
    ];
    for (counter, removed) in counters {
        counter.add(removed);
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
