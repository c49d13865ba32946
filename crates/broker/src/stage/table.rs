//! The sink table: what the data plane knows of the sinks (`specs/formats/seam.md`, "Sink table").
//!
//! One immutable value, swapped whole. What may be staged, what is void and what is to be linked follows from it alone
//! ([`super::rules`]).
use super::numbers::{Digest, Token};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The sinks as they are after one entry of the metadata log.
#[derive(Clone, Debug, Default)]
pub struct SinkTable {
    version: u64,
    is_complete: bool,
    sinks: HashMap<u64, Arc<Sink>>,
    /// Sinks whose decided epoch has a target, by the target's incarnation; ascending ids.
    decided: BTreeMap<u64, Vec<u64>>,
}

/// One sink: a row of the table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sink {
    /// Index of the entry that created the record, never used again.
    pub id: u64,
    /// `namespace/name`, for sentences.
    pub name: String,
    /// Who may stage; empty = a broker without identities.
    pub owner: String,
    /// Index of the entry that opened it last. Pieces of a lower one are void.
    pub generation: u64,
    /// Pieces of this generation at or below it are void; `None` = the current query has decided none.
    pub last_epoch: Option<u64>,
    /// Producer id of what is linked, at least 2^63.
    pub producer: u64,
    /// Most staged bytes; 0 = the default.
    pub quota_bytes: u64,
    /// Attempts that may not be published any more.
    pub expired: Vec<Attempt>,
    /// What is decided and not linked everywhere.
    pub link: Option<Link>,
}

/// One attempt to write an epoch of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// Generation of the sink.
    pub generation: u64,
    /// Spark's batch id.
    pub epoch: u64,
    /// Drawn once for each attempt.
    pub token: Token,
}

/// A decided epoch: which pieces are to be appended where.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Generation of the pieces; may be lower than that of the sink.
    pub generation: u64,
    /// Epoch of the pieces.
    pub epoch: u64,
    /// Token of the pieces.
    pub token: Token,
    /// Producer epoch of what is linked, from 1.
    pub ordinal: u32,
    /// The attempt of each task, by task.
    pub winners: Vec<u64>,
    /// Partitions that are still to be linked, each once.
    pub targets: Vec<Target>,
}

/// What a decided epoch brings to one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The partition.
    pub incarnation: u64,
    /// Rows, below 2^32.
    pub rows: u64,
    /// Of these rows.
    pub digest: Digest,
    /// No row of this epoch is below this offset.
    pub from_offset: u64,
}

/// `Engine.set_sinks`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SinkChanges {
    /// Rows that are new or changed.
    pub sinks: Vec<Sink>,
    /// Ids of records that are gone.
    pub removed: Vec<u64>,
    /// All sinks are known from now on: in the first call of a run.
    #[serde(default)]
    pub complete: bool,
}

/// A version that is not above the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("version {version} of the sink table does not follow version {known}")]
pub struct StaleVersion {
    /// As given.
    pub version: u64,
    /// What is known.
    pub known: u64,
}

impl Link {
    /// The attempt whose pieces it takes.
    pub fn attempt(&self) -> Attempt {
        Attempt {
            generation: self.generation,
            epoch: self.epoch,
            token: self.token,
        }
    }

    /// What it brings to a partition; `None` = nothing that is still to be linked.
    pub fn target(&self, incarnation: u64) -> Option<&Target> {
        let mut targets = self.targets.iter();
        targets.find(|target| target.incarnation == incarnation)
    }
}

impl SinkTable {
    /// Index of the metadata entry after which the sinks are so; 0 = none was seen yet.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether all sinks are known. Before that nothing is staged, linked, deleted from stage folders, or removed by
    /// retention, compaction and trims.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// A sink by the id of its record.
    pub fn sink(&self, id: u64) -> Option<&Arc<Sink>> {
        self.sinks.get(&id)
    }

    /// All sinks, in no order.
    pub fn sinks(&self) -> impl Iterator<Item = &Arc<Sink>> {
        self.sinks.values()
    }

    /// What is to be linked to a partition, by ascending id of the sink.
    pub fn decided(&self, incarnation: u64) -> impl Iterator<Item = (&Arc<Sink>, &Link, &Target)> {
        let ids = self.decided.get(&incarnation).into_iter().flatten();
        ids.filter_map(move |id| {
            let sink = self.sinks.get(id)?;
            let link = sink.link.as_ref()?;
            Some((sink, link, link.target(incarnation)?))
        })
    }

    /// Partitions to which something is to be linked, ascending.
    pub fn targets(&self) -> impl Iterator<Item = u64> {
        self.decided.keys().copied()
    }

    /// Offset from which on a partition's log must be kept for links; `None` = they need nothing of it. Until the table is
    /// complete that is the whole log.
    pub fn hold(&self, incarnation: u64) -> Option<u64> {
        if !self.is_complete {
            return Some(0);
        }
        self.decided(incarnation)
            .map(|(_, _, target)| target.from_offset)
            .min()
    }

    /// The table after `changes`.
    ///
    /// # Errors
    /// [`StaleVersion`].
    pub fn changed(&self, version: u64, changes: SinkChanges) -> Result<Self, StaleVersion> {
        let known = self.version;
        if version < known || (version == known && self.is_complete) {
            return Err(StaleVersion { version, known });
        }
        let mut table = Self {
            version,
            is_complete: self.is_complete || changes.complete,
            ..self.clone()
        };
        for id in &changes.removed {
            table.sinks.remove(id);
        }
        for sink in changes.sinks {
            table.sinks.insert(sink.id, Arc::new(sink));
        }
        table.decided = decided(&table.sinks);
        Ok(table)
    }
}

fn decided(sinks: &HashMap<u64, Arc<Sink>>) -> BTreeMap<u64, Vec<u64>> {
    let mut decided: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for sink in sinks.values() {
        for target in sink.link.iter().flat_map(|link| &link.targets) {
            decided.entry(target.incarnation).or_default().push(sink.id);
        }
    }
    for ids in decided.values_mut() {
        ids.sort_unstable();
    }
    decided
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = r#"{"id": 3, "name": "default/orders", "owner": "", "generation": 9, "last_epoch": 4,
        "producer": 9223372036854775811, "quota_bytes": 0,
        "expired": [{"generation": 9, "epoch": 5, "token": "000000000000000000000000000000ff"}],
        "link": {"generation": 8, "epoch": 4, "token": "00000000000000000000000000000001", "ordinal": 1,
            "winners": [64], "targets": [{"incarnation": 65536, "rows": 2,
                "digest": "00000000000000000000000000000002", "from_offset": 7}]}}"#;

    fn changes(text: &str) -> SinkChanges {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_document_of_the_seam_is_read_and_unknown_keys_are_refused() {
        let first = format!(r#"{{"sinks": [{ROW}], "removed": [], "complete": true}}"#);
        let table = SinkTable::default().changed(9, changes(&first)).unwrap();
        let sink = table.sink(3).unwrap();
        assert_eq!(sink.expired[0].token, Token(255));
        assert_eq!(sink.producer, (1 << 63) + 3);
        let (_, link, target) = table.decided(65_536).next().unwrap();
        assert_eq!(
            (link.ordinal, target.digest, table.hold(65_536)),
            (1, Digest(2), Some(7))
        );
        let text = ROW.replace("\"owner\"", "\"ownr\"");
        let error = serde_json::from_str::<Sink>(&text).unwrap_err().to_string();
        assert!(error.contains("ownr"), "{error}");
    }

    #[test]
    fn versions_ascend_and_what_is_removed_is_gone() {
        let first = changes(&format!(
            r#"{{"sinks": [{ROW}], "removed": [], "complete": true}}"#
        ));
        let table = SinkTable::default().changed(0, first.clone()).unwrap();
        let stale = StaleVersion {
            version: 0,
            known: 0,
        };
        assert_eq!(table.changed(0, first).map(drop), Err(stale));
        let table = table
            .changed(1, changes(r#"{"sinks": [], "removed": [3]}"#))
            .unwrap();
        assert!(table.is_complete() && table.sink(3).is_none());
        assert_eq!((table.version(), table.hold(65_536)), (1, None));
    }
}
