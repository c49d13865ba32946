//! How far consumer groups are behind: from their stored positions and the ends of their partitions.
use super::text::escaped;
use crate::clock::now_ns;
use crate::liftbridge::{GroupPosition, GroupPositions};
use crate::names::DEFAULT_NAMESPACE;
use crate::partition::Partition;
use crate::view::View;
use bascule_log::ReadMode;
use bascule_record::{Batches, Header};
use std::collections::BTreeMap;

/// Bytes read for the time of one record: at least one batch.
const READ_BYTES: usize = 16 << 10;

/// A group in a stream, over its partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lag {
    /// Committed offsets that the group has not read, of all partitions in which it has a position.
    pub records: u64,
    /// Age of the oldest of them, ns.
    pub nanos: u64,
}

/// By labels, without braces. Waits for the disk.
pub(super) fn lags(view: &View, positions: &GroupPositions) -> BTreeMap<String, Lag> {
    let mut lags: BTreeMap<String, Lag> = BTreeMap::new();
    let now_ns = now_ns();
    for position in positions.read() {
        let Some(lag) = partition_of(view, &position).map(|read| lag(read, position.next, now_ns))
        else {
            continue;
        };
        let (group, stream) = (escaped(&position.group), escaped(&position.stream));
        let labels = format!("group=\"{group}\",stream=\"{stream}\"");
        let sum = lags.entry(labels).or_default();
        sum.records += lag.records;
        sum.nanos = sum.nanos.max(lag.nanos);
    }
    lags
}

/// The open partition that a position belongs to: of this creation.
fn partition_of<'a>(view: &'a View, position: &GroupPosition) -> Option<&'a Partition> {
    let stream = view.stream(DEFAULT_NAMESPACE, &position.stream)?;
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
