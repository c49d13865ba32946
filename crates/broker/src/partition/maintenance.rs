//! What a partition's log needs from time to time: retention, compaction, a trim.
use super::writer::Writer;
use super::{Partition, commit::now_ns};
use bascule_log::{ClockGuard, CompactionReport, Error};
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::time::Instant;

/// A time of day for removal, ns since 1970: one that a clock set forward does not hurry. Each call is a look at the clock.
pub(crate) fn cautious_now_ns() -> i64 {
    static CLOCK: OnceLock<(Instant, Mutex<ClockGuard>)> = OnceLock::new();
    let (began, guard) =
        CLOCK.get_or_init(|| (Instant::now(), Mutex::new(ClockGuard::new(now_ns(), 0))));
    let elapsed = i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX);
    guard.lock().believed(now_ns(), elapsed)
}

/// Retention, then compaction; what waits for the disk happens on threads of the log.
///
/// # Errors
/// Those of [`bascule_log::Log::maintain`].
pub(super) fn maintain(partition: &Partition, writer: &mut Writer) -> Result<(), Error> {
    let now_ns = cautious_now_ns();
    let retention = writer.spec.retention();
    writer.log.maintain(&retention, now_ns)?;
    let Some(compaction) = writer.spec.compaction() else {
        return Ok(());
    };
    let told = partition.clone();
    let done = Box::new(move |outcome| tell(&told, &outcome));
    writer.log.compact(&compaction, now_ns, done).map(|_| ())
}

/// Hides what was trimmed on request.
///
/// # Errors
/// Those of [`bascule_log::Log::trim`].
pub(super) fn trim(writer: &mut Writer) -> Result<(), Error> {
    let before = writer.spec.trimmed_to;
    writer.log.trim(before, cautious_now_ns()).map(|_| ())
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
            partition.report("compacted", &text);
        }
        Ok(_) => {}
        Err(error) => partition.report("compaction_failed", &format!("not compacted: {error}")),
    }
}
