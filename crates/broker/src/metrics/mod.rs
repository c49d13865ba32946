//! Metrics: their values, and the text of `/metrics`.
//!
//! Names, kinds and meanings are generated from `specs/metrics.toml` ([`table`]). [`mod@collect`] reads the values of the
//! broker, which are also those of `Engine.statistics`; [`mod@text`] writes them, and on request those of each partition.
//! Reading takes no lock that a publish takes for longer than a load.
mod collect;
mod context;
mod process;
mod readers;
mod table;
mod text;

pub(crate) use collect::collect;
pub(crate) use context::MetricsContext;
pub(crate) use text::text;

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Only grows, from 0 at every start.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by duration.
    Histogram,
    /// Its labels are the value.
    Info,
}

/// How many series a metric has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Series {
    /// One, in `Engine.statistics` too.
    One,
    /// One for each partition.
    Partition,
    /// Several, of fixed labels or for each group or query and stream.
    Labelled,
}

/// One row of `specs/metrics.toml`.
#[derive(Clone, Copy, Debug)]
struct Metric {
    /// Name in `Engine.statistics`.
    name: &'static str,
    /// Exported name without the suffix of its kind.
    family: &'static str,
    kind: Kind,
    /// Unit that the name ends with; empty = none.
    unit: &'static str,
    /// The number counts nanoseconds, the exported one seconds.
    in_nanos: bool,
    /// Labels and values of the one series that this row is, without braces.
    labels: &'static str,
    series: Series,
    help: &'static str,
}
