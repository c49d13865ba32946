//! The pieces of this broker, and the sink table that judges them.
use super::file::{PieceFault, PieceFile};
use super::numbers::Digest;
use super::piece::PieceId;
use super::rules;
use super::table::{Link, SinkChanges, SinkTable, StaleVersion};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

/// Folder of pieces within that of their partition.
const FOLDER: &str = "stage";

/// The pieces of one broker. One lock guards the index; it is never held while anything waits for the disk, and no other
/// lock is taken under it.
#[derive(Debug)]
pub struct Stage {
    /// The folder of the partitions.
    home: OnceLock<PathBuf>,
    table: ArcSwap<SinkTable>,
    index: Mutex<Index>,
    version: watch::Sender<u64>,
}

/// Sealed pieces by incarnation, then identity.
#[derive(Debug, Default)]
struct Index {
    pieces: BTreeMap<u64, BTreeMap<PieceId, u64>>,
}

impl Default for Stage {
    fn default() -> Self {
        Self {
            home: OnceLock::new(),
            table: ArcSwap::default(),
            index: Mutex::default(),
            version: watch::Sender::new(0),
        }
    }
}

impl Stage {
    /// The sink table as it is now.
    pub fn table(&self) -> Arc<SinkTable> {
        self.table.load_full()
    }

    /// The table's version; changes after the table has.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Applies changes to the table. Pieces that are void by it are deleted later, on another thread.
    ///
    /// # Errors
    /// [`StaleVersion`]; nothing changes.
    pub fn set_sinks(&self, version: u64, changes: SinkChanges) -> Result<(), StaleVersion> {
        let mut index = self.index.lock();
        let table = Arc::new(self.table.load().changed(version, changes)?);
        for (incarnation, pieces) in &mut index.pieces {
            pieces.retain(|id, _| !rules::is_void(&table, *incarnation, id));
        }
        self.table.store(table);
        drop(index);
        self.version.send_replace(version);
        Ok(())
    }

    /// The pieces that a decided epoch takes of a partition, in the order of tasks, whose rows add up to what was decided.
    /// Waits for the disk.
    ///
    /// # Errors
    /// [`PieceFault`]: one cannot be read; [`PieceFault::Incomplete`].
    pub fn decided_pieces(
        &self,
        incarnation: u64,
        sink: u64,
        link: &Link,
    ) -> Result<Vec<PieceFile>, PieceFault> {
        let winners = self.winners(incarnation, sink, link);
        let folder = self.folder(incarnation);
        let pieces = winners
            .iter()
            .map(|id| PieceFile::open(&folder, incarnation, id))
            .collect::<Result<Vec<_>, _>>()?;
        let contents = || pieces.iter().map(PieceFile::contents);
        let rows = contents().map(|contents| contents.rows).sum();
        let digest = contents().fold(0_u128, |sum, contents| sum.wrapping_add(contents.digest.0));
        let decided = link.target(incarnation);
        if decided.is_some_and(|decided| (decided.rows, decided.digest) == (rows, Digest(digest))) {
            return Ok(pieces);
        }
        Err(PieceFault::Incomplete {
            incarnation,
            pieces: pieces.len(),
            rows,
            decided: decided.map_or(0, |decided| decided.rows),
        })
    }

    /// Winners that lie here, by task: a task wins with one attempt.
    fn winners(&self, incarnation: u64, sink: u64, link: &Link) -> Vec<PieceId> {
        let index = self.index.lock();
        let pieces = index.pieces.get(&incarnation).into_iter().flatten();
        pieces
            .map(|(id, _)| *id)
            .filter(|id| id.sink == sink && rules::is_winner(link, id))
            .collect()
    }

    /// The stage folder of a partition.
    fn folder(&self, incarnation: u64) -> PathBuf {
        let home = self.home.get().map_or(Path::new(""), PathBuf::as_path);
        home.join(incarnation.to_string()).join(FOLDER)
    }
}
