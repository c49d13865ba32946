//! The text format of `OpenMetrics` 1.0.
use super::collect::collect;
use super::context::MetricsContext;
use super::readers::{StreamLag, by_stream};
use super::table::METRICS;
use super::{Kind, Metric, Series};
use crate::lag::{PositionLag, ReaderKind};
use crate::partition::{Partition, PartitionStatus};
use crate::view::PartitionView;
use bascule_log::{Durations, bounds};
use std::collections::{BTreeMap, HashMap};
use std::fmt::{Display, Formatter, Write};

const NANOS: u64 = 1_000_000_000;

/// The answer of `/metrics`, with the series of each partition and of each consumer group and query on request. Blocks as [`collect`].
pub(crate) fn text(context: &MetricsContext, has_partitions: bool, has_groups: bool) -> String {
    let values: HashMap<_, _> = collect(context).into_iter().collect();
    let rows = if has_partitions {
        rows(context)
    } else {
        Vec::new()
    };
    let readers = has_groups.then(|| Readers::of(&context.lags()));
    let mut out = String::with_capacity(16 << 10);
    let mut family = "";
    for metric in METRICS {
        if metric.kind == Kind::Histogram {
            if let Some(durations) = durations(context, metric.name) {
                head(&mut out, metric);
                histogram(&mut out, metric, &durations);
            }
        } else if metric.kind == Kind::Info {
            let labels = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
            head(&mut out, metric);
            sample(&mut out, metric, &labels, 1);
        } else if metric.series == Series::Labelled {
            if let Some(series) = labelled(context, readers.as_ref(), metric.name) {
                head(&mut out, metric);
                for (labels, value) in series {
                    sample(&mut out, metric, &format!("{{{labels}}}"), value);
                }
            }
        } else if metric.series == Series::Partition {
            if has_partitions {
                head(&mut out, metric);
            }
            for row in &rows {
                if let Some(value) = row.value(metric.name) {
                    sample(&mut out, metric, &row.labels, value);
                }
            }
        } else if let Some(value) = values.get(metric.name) {
            // Rows of one family are one metric with several series.
            if metric.family != family {
                head(&mut out, metric);
            }
            let labels = match metric.labels {
                "" => String::new(),
                labels => format!("{{{labels}}}"),
            };
            sample(&mut out, metric, &labels, *value);
        }
        family = metric.family;
    }
    out.push_str("# EOF\n");
    out
}

/// Lags by labels.
struct Readers {
    groups: BTreeMap<String, StreamLag>,
    queries: BTreeMap<String, StreamLag>,
}

impl Readers {
    fn of(lags: &[PositionLag]) -> Self {
        Self {
            groups: by_stream(lags, ReaderKind::Group),
            queries: by_stream(lags, ReaderKind::Query),
        }
    }
}

/// Labels without braces and values of a metric with several series; `None` = it is switched off.
fn labelled(
    context: &MetricsContext,
    readers: Option<&Readers>,
    name: &str,
) -> Option<Vec<(String, u64)>> {
    match name {
        "calls" => return Some(context.statistics.calls.series()),
        "publish_errors" => return Some(context.statistics.publish_errors.series()),
        "forwarded" => return Some(context.statistics.forwarded.series()),
        "peer_frames_refused" => return Some(context.statistics.peer_refusals.series()),
        _ => {}
    }
    let readers = readers?;
    let (sums, value): (_, fn(&StreamLag) -> u64) = match name {
        "group_lag" => (&readers.groups, |lag| lag.records),
        "group_lag_bytes" => (&readers.groups, |lag| lag.bytes),
        "group_lag_nanos" => (&readers.groups, |lag| lag.nanos),
        "query_lag" => (&readers.queries, |lag| lag.records),
        "query_lag_bytes" => (&readers.queries, |lag| lag.bytes),
        "query_lag_nanos" => (&readers.queries, |lag| lag.nanos),
        "query_report_age_nanos" => (&readers.queries, |lag| lag.age_ns),
        "query_hold_nanos" => (&readers.queries, |lag| lag.hold_ns),
        _ => return None,
    };
    let series = sums.iter();
    Some(
        series
            .map(|(labels, lag)| (labels.clone(), value(lag)))
            .collect(),
    )
}

/// One partition: its labels, once, and its values.
struct Row {
    labels: String,
    isr: u64,
    leader_epoch: u64,
    /// Absent when it is not open on this broker.
    status: Option<PartitionStatus>,
}

impl Row {
    fn value(&self, name: &str) -> Option<u64> {
        match name {
            "partition_isr" => return Some(self.isr),
            "partition_leader_epoch" => return Some(self.leader_epoch),
            _ => {}
        }
        let status = self.status.as_ref()?;
        match name {
            "partition_log_start" => Some(status.log_start),
            "partition_high_watermark" => Some(status.high_watermark),
            "partition_log_end" => Some(status.log_end),
            "partition_bytes" => Some(status.bytes),
            "partition_subscribers" => Some(status.subscribers),
            "partition_last_received_nanos" => Some(status.last_received.unsigned_abs()),
            "partition_nats_dropped" => Some(status.nats_dropped),
            _ => None,
        }
    }
}

fn rows(context: &MetricsContext) -> Vec<Row> {
    let view = context.checks.view.load();
    let mut rows: Vec<Row> = Vec::new();
    for stream in view.streams() {
        let (namespace, name) = (escaped(&stream.namespace), escaped(&stream.name));
        rows.extend(stream.partitions.iter().map(|partition| {
            row(
                partition,
                format!(
                    "{{namespace=\"{namespace}\",stream=\"{name}\",partition=\"{}\"}}",
                    partition.number
                ),
            )
        }));
    }
    rows
}

fn row(partition: &PartitionView, labels: String) -> Row {
    Row {
        labels,
        isr: partition.isr.len() as u64,
        leader_epoch: partition.leader_epoch,
        status: partition.handle.as_ref().map(Partition::status),
    }
}

// Writing to a String does not fail.
fn head(out: &mut String, metric: &Metric) {
    let Metric {
        family, unit, help, ..
    } = metric;
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
        Kind::Info => "info",
    };
    let _ = writeln!(out, "# TYPE {family} {kind}");
    if !unit.is_empty() {
        let _ = writeln!(out, "# UNIT {family} {unit}");
    }
    let _ = writeln!(out, "# HELP {family} {}", escaped(help));
}

fn sample(out: &mut String, metric: &Metric, labels: &str, value: u64) {
    let suffix = match metric.kind {
        Kind::Counter => "_total",
        Kind::Gauge | Kind::Histogram => "",
        Kind::Info => "_info",
    };
    let _ = if metric.in_nanos {
        writeln!(out, "{}{suffix}{labels} {}", metric.family, Seconds(value))
    } else {
        writeln!(out, "{}{suffix}{labels} {value}", metric.family)
    };
}

/// Nanoseconds, written as seconds.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:09}", self.0 / NANOS, self.0 % NANOS)
    }
}

fn durations(context: &MetricsContext, name: &str) -> Option<Durations> {
    match name {
        "queue_wait" => Some(context.statistics.queue_wait.durations()),
        "append_duration" => Some(context.statistics.append_duration.durations()),
        "sync_duration" => Some(context.checks.committer.upgrade()?.statistics().durations),
        _ => None,
    }
}

fn histogram(out: &mut String, metric: &Metric, durations: &Durations) {
    let family = metric.family;
    let mut count = 0;
    let bounds = bounds().map(|bound| Seconds(bound).to_string());
    let bounds = bounds.iter().map(String::as_str).chain(["+Inf"]);
    for (bound, more) in bounds.zip(durations.counts) {
        count += more;
        let _ = writeln!(out, "{family}_bucket{{le=\"{bound}\"}} {count}");
    }
    let _ = writeln!(out, "{family}_count {count}");
    let _ = writeln!(out, "{family}_sum {}", Seconds(durations.nanos));
}

/// A label's value or a help text between its quotes.
pub(super) fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_has_a_value_and_every_value_a_row() {
        let data = tempfile::tempdir().unwrap();
        let engine = crate::engine::Engine::new(
            &serde_json::from_value(serde_json::json!({
                "data_dir": data.path(), "cluster_id": "c", "broker_id": "b", "runtime_threads": 1, "namespace": "n",
            }))
            .unwrap(),
        )
        .unwrap();
        let statistics = engine.statistics();
        let values: BTreeSet<&str> = statistics
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let of_the_broker = |metric: &&Metric| {
            metric.series == Series::One && matches!(metric.kind, Kind::Counter | Kind::Gauge)
        };
        let rows: BTreeSet<&str> = METRICS
            .iter()
            .filter(of_the_broker)
            .map(|m| m.name)
            .collect();
        assert_eq!(values, rows);
    }

    #[test]
    fn label_values_and_seconds_are_written_as_the_format_asks() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
        let metric = METRICS
            .iter()
            .find(|metric| metric.name == "sync_nanos")
            .unwrap();
        let mut out = String::new();
        head(&mut out, metric);
        sample(&mut out, metric, "", 1_500_000_000);
        let expected = "# TYPE bascule_sync_seconds counter\n# UNIT bascule_sync_seconds seconds\n";
        assert!(out.starts_with(expected), "{out}");
        assert!(
            out.ends_with("\nbascule_sync_seconds_total 1.500000000\n"),
            "{out}"
        );
    }
}
