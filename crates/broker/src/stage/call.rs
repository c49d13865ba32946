//! One call that stages: the rows of one task attempt for one stream.
use super::destination::{StagePartition, StageStream};
use super::error::StageError;
use super::file::PieceFile;
use super::format::Contents;
use super::index::{CallKey, charge};
use super::numbers::Digest;
use super::store::Stage;
use super::table::Sink;
use super::writer::PieceWriter;
use crate::clock::now_ns;
use bascule_log::failpoint;
use bascule_record::{BatchBuilder, BatchLimits, Codec};
use bascule_wire::flight::digest::RowDigest;
use bascule_wire::flight::ingest::{Ingest, IngestError};
use bascule_wire::flight::spread::Rows;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Most rows of one epoch for one partition, exclusive.
const MAX_ROWS: u64 = 1 << 32;
/// Most partitions of one epoch.
const MAX_TARGETS: usize = 1000;
/// Batches of pieces: records, and bytes where there are few partitions.
const BATCH_RECORDS: usize = 16 << 10;
const BATCH_BYTES: usize = 1 << 20;
const MIN_BATCH_BYTES: usize = 64 << 10;
/// Gathered and not yet written, bytes: of all calls, and of one.
const GATHERED: usize = 64 << 20;
const GATHERED_BY_CALL: usize = 16 << 20;
/// Files that are synced at once.
const SYNCS: usize = 8;

/// Rows that are being staged. Dropped before it is sealed it leaves nothing. Its methods wait for the disk.
#[derive(Debug)]
pub struct StageCall {
    stage: Arc<Stage>,
    key: CallKey,
    sink: Arc<Sink>,
    stream: StageStream,
    parts: BTreeMap<u32, Part>,
    /// Receipt time of all rows; a link gives them another.
    now: i64,
    batch_bytes: usize,
}

/// The rows for one partition.
#[derive(Debug)]
struct Part {
    partition: Arc<StagePartition>,
    builder: BatchBuilder,
    digest: RowDigest,
    piece: PieceWriter,
    /// What it counts against quotas, bytes.
    charged: u64,
}

/// A piece that a call sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SealedPiece {
    pub partition: u32,
    pub incarnation: u64,
    pub rows: u64,
    pub digest: Digest,
    /// Of its file.
    pub bytes: u64,
}

/// Why rows are not taken.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// A row cannot be stored.
    #[error(transparent)]
    Row(#[from] IngestError),
    /// It cannot be staged.
    #[error(transparent)]
    Stage(#[from] StageError),
}

impl StageCall {
    /// A call that was let in.
    pub(super) fn new(
        stage: &Arc<Stage>,
        key: CallKey,
        sink: Arc<Sink>,
        stream: StageStream,
    ) -> Self {
        let batch_bytes = GATHERED_BY_CALL / stream.incarnations.len().max(1);
        Self {
            stage: stage.clone(),
            key,
            sink,
            stream,
            parts: BTreeMap::new(),
            now: now_ns(),
            batch_bytes: batch_bytes.clamp(MIN_BATCH_BYTES, BATCH_BYTES),
        }
    }

    /// Takes `rows` of `batch`, which are for `partition`: the same one in all calls for its number.
    ///
    /// # Errors
    /// [`TakeError`]; the call is over then.
    pub fn take(
        &mut self,
        partition: &Arc<StagePartition>,
        batch: &Ingest<'_>,
        rows: &Rows,
    ) -> Result<(), TakeError> {
        let number = partition.number;
        self.add_part(partition)?;
        let Some(part) = self.parts.get_mut(&number) else {
            return Ok(());
        };
        let mut at = 0;
        loop {
            at = batch.push(
                rows,
                at,
                self.now,
                &mut part.builder,
                Some(&mut part.digest),
            )?;
            if at == rows.len() {
                break;
            }
            part.write(&self.stage, &self.sink)?;
        }
        if part.digest.rows() >= MAX_ROWS {
            return Err(TakeError::Stage(StageError::TooMany {
                what: format!("rows for partition {number}"),
                limit: MAX_ROWS - 1,
                remedy: "let a trigger read less at once, or write to more partitions",
            }));
        }
        Ok(())
    }

    /// Ends a record batch: writes the largest parts until what is left in memory is within bounds. Fails early when the
    /// pieces could not be sealed any more.
    ///
    /// # Errors
    /// [`StageError`]; the call is over then.
    pub fn settle(&mut self) -> Result<(), StageError> {
        self.stage.check(&self.key.0)?;
        let calls = {
            let mut index = self.stage.index();
            index.touch(&self.key.0, Instant::now());
            index.calls()
        };
        let most = (GATHERED / calls.max(1)).min(GATHERED_BY_CALL);
        let mut gathered: usize = self.parts.values().map(|part| part.builder.bytes()).sum();
        if gathered <= most {
            return Ok(());
        }
        let mut largest: Vec<_> = self.parts.values_mut().collect();
        largest.sort_unstable_by_key(|part| std::cmp::Reverse(part.builder.bytes()));
        for part in largest {
            if gathered <= most / 2 {
                break;
            }
            gathered -= part.builder.bytes();
            part.write(&self.stage, &self.sink)?;
        }
        Ok(())
    }

    /// Seals a piece for each partition that got rows, in order of their numbers. When it returns, all of them are on disk
    /// and count; after an error, none does.
    ///
    /// # Errors
    /// [`StageError`].
    pub fn seal(mut self) -> Result<Vec<SealedPiece>, StageError> {
        for part in self.parts.values_mut() {
            part.write(&self.stage, &self.sink)?;
        }
        let new = self.unsealed()?;
        if let Err(error) = self.seal_files(&new).and_then(|()| self.enter(&new)) {
            for number in &new {
                if let Some(part) = self.parts.get(number) {
                    part.piece.remove_sealed();
                }
            }
            return Err(error);
        }
        failpoint::pass("stage.sealed");
        Ok(self.parts.values().map(Part::sealed).collect())
    }

    /// Opens a part for the first rows of a partition.
    fn add_part(&mut self, partition: &Arc<StagePartition>) -> Result<(), StageError> {
        let (number, incarnation) = (partition.number, partition.incarnation);
        if self.parts.contains_key(&number) {
            return Ok(());
        }
        if self.parts.len() == MAX_TARGETS {
            return Err(StageError::TooMany {
                what: "partitions with rows".to_owned(),
                limit: MAX_TARGETS as u64,
                remedy: "write to fewer partitions",
            });
        }
        let piece = PieceWriter::new(
            self.stage.folder_of(partition),
            self.key.0,
            self.stage.next_file(),
        );
        let least = charge(0);
        let broker_bytes = self.stage.broker_bytes();
        let mut index = self.stage.index();
        index.reserve(&self.sink, least, 1, broker_bytes)?;
        index.writes_to(incarnation);
        drop(index);
        let limits = BatchLimits {
            records: BATCH_RECORDS,
            bytes: self.batch_bytes,
            record_bytes: partition.max_record_bytes,
        };
        let part = Part {
            partition: partition.clone(),
            builder: BatchBuilder::new(limits),
            digest: RowDigest::new(&self.stream.name),
            piece,
            charged: least,
        };
        self.parts.insert(number, part);
        Ok(())
    }

    /// The parts that are not sealed yet. A call of this name may have sealed some or all: they must be the same then.
    fn unsealed(&self) -> Result<Vec<u32>, StageError> {
        let id = &self.key.0;
        let different = || StageError::Different {
            task: id.task,
            attempt: id.task_attempt,
        };
        let is_here = |incarnation: &u64| self.stage.index().has(*incarnation, id);
        let written: Vec<_> = self
            .parts
            .values()
            .map(|part| part.piece.incarnation())
            .collect();
        let mut others = self.stream.incarnations.iter();
        if others.any(|incarnation| !written.contains(incarnation) && is_here(incarnation)) {
            return Err(different());
        }
        let mut new = Vec::new();
        for (number, part) in &self.parts {
            let incarnation = part.piece.incarnation();
            if !is_here(&incarnation) {
                new.push(*number);
                continue;
            }
            let known = PieceFile::open(part.piece.folder(), incarnation, id)?;
            let known = known.contents();
            if (known.rows, known.digest) != (part.digest.rows(), Digest(part.digest.value())) {
                return Err(different());
            }
        }
        Ok(new)
    }

    fn seal_files(&self, numbers: &[u32]) -> Result<(), StageError> {
        let parts: Vec<_> = numbers
            .iter()
            .filter_map(|number| self.parts.get(number))
            .collect();
        let seal = |part: &Part| part.piece.seal(part.digest.value());
        if let [part] = parts[..] {
            return seal(part);
        }
        let work = Mutex::new(parts.into_iter());
        let failure = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..SYNCS.min(numbers.len()) {
                scope.spawn(|| {
                    while let Some(part) = { work.lock().next() } {
                        if let Err(error) = seal(part) {
                            failure.lock().get_or_insert(error);
                            return;
                        }
                    }
                });
            }
        });
        failure.into_inner().map_or(Ok(()), Err)
    }

    /// From now on the pieces count, unless the table has made them void meanwhile.
    fn enter(&mut self, numbers: &[u32]) -> Result<(), StageError> {
        let id = self.key.0;
        let mut index = self.stage.index();
        self.stage.check(&id)?;
        let parts = numbers.iter().filter_map(|number| self.parts.get(number));
        if let Some(part) = parts
            .clone()
            .find(|part| index.is_deleted(part.piece.incarnation()))
        {
            return Err(StageError::Deleted {
                partition: part.piece.number(),
            });
        }
        for part in parts {
            index.add(part.piece.incarnation(), id, part.piece.file_bytes());
        }
        index.touch(&id, Instant::now());
        drop(index);
        for number in numbers {
            if let Some(part) = self.parts.get_mut(number) {
                // What it counts goes with the piece now.
                part.charged = 0;
            }
        }
        Ok(())
    }
}

impl Part {
    /// Writes what was gathered.
    fn write(&mut self, stage: &Stage, sink: &Sink) -> Result<(), StageError> {
        let own = Some(self.partition.subject.as_str()).filter(|own| !own.is_empty());
        let Some(batch) = self.builder.seal(Codec::None, None, own) else {
            return Ok(());
        };
        let stamped = self.piece.stamp(&self.partition.reader, batch)?;
        let after = charge(self.piece.file_bytes() + stamped.len() as u64);
        let more = after - self.charged;
        stage.index().reserve(sink, more, 0, stage.broker_bytes())?;
        self.charged = after;
        self.piece.append(&stamped)
    }

    fn sealed(&self) -> SealedPiece {
        let Contents { rows, digest, .. } = self.piece.contents(self.digest.value());
        SealedPiece {
            partition: self.piece.number(),
            incarnation: self.piece.incarnation(),
            rows,
            digest,
            bytes: self.piece.file_bytes(),
        }
    }
}

impl Drop for StageCall {
    /// Releases what the call held; what it wrote and did not seal is removed by another thread.
    fn drop(&mut self) {
        let left: Vec<PathBuf> = self
            .parts
            .values()
            .filter(|part| part.charged > 0)
            .map(|part| part.piece.temporary().to_owned())
            .collect();
        let mut index = self.stage.index();
        for part in self.parts.values().filter(|part| part.charged > 0) {
            index.release(self.sink.id, part.charged, 1);
        }
        let incarnations = self.parts.values().map(|part| part.piece.incarnation());
        index.end(&self.key, incarnations);
        drop(index);
        self.stage.remove_later(left);
    }
}
