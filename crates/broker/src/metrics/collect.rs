//! The values of the broker: counters, gauges, and what is computed from the view.
use super::context::MetricsContext;
use super::process::process;
use crate::checks::space;
use crate::view::View;

/// Every value of the broker by its name in `specs/metrics.toml`. Those that the system does not give are absent. Blocks
/// for as long as the data directory's file system does not answer.
pub(crate) fn collect(context: &MetricsContext) -> Vec<(&'static str, u64)> {
    let mut values = context.statistics.values();
    values.extend(admission(context));
    values.extend(syncs(context));
    values.extend(view(&context.checks.view.load()));
    values.extend(run_state(context));
    values.extend(context.reported.values());
    values.extend(process());
    values
}

fn admission(context: &MetricsContext) -> Vec<(&'static str, u64)> {
    let (admission, events) = (&context.admission, &context.events);
    let (partitions, checks) = (&context.partitions, &context.checks);
    let free = partitions.inflight.available_permits();
    let inflight = partitions.limits.inflight_bytes.saturating_sub(free);
    vec![
        ("events_dropped", events.dropped()),
        ("events_waiting", events.waiting() as u64),
        ("inflight_bytes", inflight as u64),
        ("staged_bytes", partitions.stage.bytes()),
        ("connections_open", admission.connections_open() as u64),
        ("calls_open", admission.calls_open() as u64),
        ("request_bytes", admission.request_bytes() as u64),
        ("answer_bytes", admission.answer_bytes() as u64),
        ("calls_denied", context.access.denied()),
        ("admin_requests_open", events.requests_open() as u64),
        ("admin_requests_refused", events.requests_refused()),
        (
            "event_loop_blocked",
            u64::from(checks.event_loop.is_blocked()),
        ),
        ("nats_connected", u64::from(checks.nats.is_connected())),
    ]
}

/// Absent while the engine is being closed.
fn syncs(context: &MetricsContext) -> Vec<(&'static str, u64)> {
    let Some(committer) = context.checks.committer.upgrade() else {
        return Vec::new();
    };
    let sync = committer.statistics();
    vec![
        ("sync_rounds", sync.rounds),
        ("sync_files", sync.files),
        ("sync_nanos", sync.nanos),
        ("sync_longest_nanos", sync.longest_nanos),
        ("sync_journaled_rounds", sync.wal_rounds),
        ("sync_journal_bytes", sync.wal_bytes),
        ("journal_damages", committer.wal_damages().len() as u64),
    ]
}

fn view(view: &View) -> [(&'static str, u64); 8] {
    let (mut partitions, mut open, mut paused, mut failed, mut without_leader, mut bytes) =
        (0, 0, 0, 0, 0, 0);
    for partition in view.streams().flat_map(|stream| &stream.partitions) {
        partitions += 1;
        paused += u64::from(partition.paused);
        without_leader += u64::from(partition.leader.is_empty());
        if let Some(handle) = &partition.handle {
            open += 1;
            failed += u64::from(handle.failure().is_some());
            bytes += handle.status().bytes;
        }
    }
    [
        ("streams", view.streams().count() as u64),
        ("groups", view.groups.len() as u64),
        ("partitions", partitions),
        ("partitions_open", open),
        ("partitions_paused", paused),
        ("partitions_failed", failed),
        ("partitions_without_leader", without_leader),
        ("storage_bytes", bytes),
    ]
}

fn run_state(context: &MetricsContext) -> Vec<(&'static str, u64)> {
    let mut values = vec![
        ("ready", u64::from(context.checks.is_ready())),
        (
            "process_start_nanos",
            context.checks.run_state.began_ns.unsigned_abs(),
        ),
    ];
    if let Ok(space) = space(&context.checks.data) {
        values.push(("disk_free_bytes", space.free));
        values.push(("disk_size_bytes", space.size));
    }
    values
}
