//! How far readers are behind that store or report their positions: consumer groups and queries.
use crate::clock::now_ns;
use crate::holds::{Holds, QueryStream};
use crate::liftbridge::{GroupPosition, GroupPositions};
use crate::names::DEFAULT_NAMESPACE;
use crate::partition::Partition;
use crate::view::View;
use bascule_log::ReadMode;
use bascule_record::{Batches, Header};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Bytes read for the time of one record: at least one batch.
const READ_BYTES: usize = 16 << 10;

/// Who keeps a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReaderKind {
    /// A consumer group, by its stored cursors.
    Group,
    /// A query, by what it reports.
    Query,
}

/// How far a reader is behind in one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Lag {
    /// Committed offsets that it has not read.
    pub records: u64,
    /// Stored bytes of their batches, as [`bascule_log::LogReader::bytes_from`] counts them.
    pub bytes: u64,
    /// Age of the oldest of them, ns.
    pub nanos: u64,
}

/// A position, with the lag if its partition is open here and is still the same creation.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PositionLag {
    pub kind: ReaderKind,
    /// Group or query.
    pub reader: String,
    pub namespace: String,
    pub stream: String,
    pub partition: i32,
    pub incarnation: u64,
    /// The offset to read next.
    pub next: u64,
    /// Time since the query's last report about the stream, ns; `None` for groups.
    pub age_ns: Option<u64>,
    /// How long the query's hold still counts without another report, ns, 0 = not any more; `None` = it holds nothing.
    pub hold_left_ns: Option<u64>,
    pub lag: Option<Lag>,
}

/// Where a query continues in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryPosition {
    /// Number of the partition.
    pub partition: i32,
    /// Which creation of it.
    pub incarnation: u64,
    /// The offset to read next.
    pub next: u64,
}

/// What a query has reported about one stream.
#[derive(Debug)]
struct Reported {
    at: Instant,
    positions: Vec<QueryPosition>,
}

/// The positions that queries have reported. In memory only.
#[derive(Debug, Default)]
pub(crate) struct QueryPositions(Mutex<BTreeMap<QueryStream, Reported>>);

impl QueryPositions {
    /// Replaces the positions of a query in a stream; none = they are forgotten.
    pub(crate) fn set(&self, key: QueryStream, positions: Vec<QueryPosition>) {
        let mut known = self.0.lock();
        if positions.is_empty() {
            known.remove(&key);
        } else {
            let at = Instant::now();
            known.insert(key, Reported { at, positions });
        }
    }

    fn read(&self, holds: &Holds) -> Vec<PositionLag> {
        let now = Instant::now();
        let known = self.0.lock();
        let positions = known.iter().flat_map(|(key, reported)| {
            let age = now.saturating_duration_since(reported.at);
            reported.positions.iter().map(move |position| {
                let left = holds.left(key, position.incarnation, now);
                of_query(key, position, age, left)
            })
        });
        positions.collect()
    }
}

/// The positions of all groups and queries. Waits for the disk.
pub(crate) fn lags(
    view: &View,
    groups: &GroupPositions,
    queries: &QueryPositions,
    holds: &Holds,
) -> Vec<PositionLag> {
    let now_ns = now_ns();
    let mut all: Vec<PositionLag> = groups.read().into_iter().map(of_group).collect();
    all.extend(queries.read(holds));
    for position in &mut all {
        let partition = partition_of(view, position);
        position.lag = partition.map(|partition| lag(partition, position.next, now_ns));
    }
    all
}

fn of_group(position: GroupPosition) -> PositionLag {
    PositionLag {
        kind: ReaderKind::Group,
        reader: position.group,
        namespace: DEFAULT_NAMESPACE.to_owned(),
        stream: position.stream,
        partition: position.partition,
        incarnation: position.incarnation,
        next: position.next,
        age_ns: None,
        hold_left_ns: None,
        lag: None,
    }
}

fn of_query(
    key: &QueryStream,
    position: &QueryPosition,
    age: Duration,
    hold_left: Option<Duration>,
) -> PositionLag {
    PositionLag {
        kind: ReaderKind::Query,
        reader: key.query.clone(),
        namespace: key.namespace.clone(),
        stream: key.stream.clone(),
        partition: position.partition,
        incarnation: position.incarnation,
        next: position.next,
        age_ns: Some(nanos(age)),
        hold_left_ns: hold_left.map(nanos),
        lag: None,
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The open partition that a position belongs to: of this creation.
fn partition_of<'a>(view: &'a View, position: &PositionLag) -> Option<&'a Partition> {
    let stream = view.stream(&position.namespace, &position.stream)?;
    let place = stream.partition(position.partition)?;
    let is_its = place.incarnation == position.incarnation;
    place.handle.as_ref().filter(|_| is_its)
}

fn lag(partition: &Partition, next: u64, now_ns: i64) -> Lag {
    let reader = partition.reader();
    let (next, end) = (next.max(reader.log_start()), reader.high_watermark());
    if next >= end {
        return Lag::default();
    }
    let arrived = first_time(partition, next, end).unwrap_or(now_ns);
    Lag {
        records: end - next,
        bytes: reader.bytes_from(next),
        nanos: u64::try_from(now_ns.saturating_sub(arrived)).unwrap_or(0),
    }
}

/// Receipt time of the batch that holds the first record from `next` on, ns; `None` when it cannot be read, which is
/// counted as damage.
fn first_time(partition: &Partition, next: u64, end: u64) -> Option<i64> {
    let mut cursor = partition.reader().cursor(next);
    let read = cursor.next(end, READ_BYTES, ReadMode::Blocking);
    let first = Batches::new(read.ok()??).next()?.ok()?;
    Some(Header::read(&first).ok()?.base_timestamp)
}
