//! The lag of each group and each query in each stream, over its partitions.
use super::text::escaped;
use crate::lag::{PositionLag, ReaderKind};
use crate::names::DEFAULT_NAMESPACE;
use std::collections::BTreeMap;

/// A reader in a stream, over its partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamLag {
    /// Offsets that it has not read, of all partitions in which it has a position.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Age of the oldest of them, ns.
    pub nanos: u64,
    /// Time since its last report, ns.
    pub age_ns: u64,
    /// How long its hold still counts without another report, ns.
    pub hold_ns: u64,
}

/// Sums by labels, without braces, of the readers of one kind.
pub(super) fn by_stream(all: &[PositionLag], kind: ReaderKind) -> BTreeMap<String, StreamLag> {
    let mut sums: BTreeMap<String, StreamLag> = BTreeMap::new();
    for position in all.iter().filter(|position| position.kind == kind) {
        let Some(lag) = position.lag else { continue };
        let sum = sums.entry(labels(position)).or_default();
        sum.records += lag.records;
        sum.bytes += lag.bytes;
        sum.nanos = sum.nanos.max(lag.nanos);
        sum.age_ns = sum.age_ns.max(position.age_ns.unwrap_or(0));
        sum.hold_ns = sum.hold_ns.max(position.hold_left_ns.unwrap_or(0));
    }
    sums
}

fn labels(position: &PositionLag) -> String {
    let label = match position.kind {
        ReaderKind::Group => "group",
        ReaderKind::Query => "query",
    };
    let (reader, stream) = (escaped(&position.reader), escaped(&position.stream));
    if position.namespace == DEFAULT_NAMESPACE {
        return format!("{label}=\"{reader}\",stream=\"{stream}\"");
    }
    let namespace = escaped(&position.namespace);
    format!("{label}=\"{reader}\",stream=\"{namespace}/{stream}\"")
}
