//! One pass over the pieces of one published epoch of one partition.
use super::super::{AppendError, Partition, PartitionContext};
use crate::clock::now_ns;
use crate::stage::{Link, PieceFault, PieceFile, Sink, Target};
use bascule_log::{ReadError, failpoint};
use bascule_record::{Producer, SealedBatch};
use bytes::Bytes;
use std::sync::Arc;

/// Batches are appended in groups of at most so many bytes; a larger batch is a group of its own.
const GROUP_BYTES: usize = 4 << 20;

/// One pass; it waits for the disk and for the partition's task.
pub(super) struct Attempt {
    pub context: Arc<PartitionContext>,
    pub partition: Partition,
    pub sink: Arc<Sink>,
    /// What is in the log, once it was counted.
    pub counted: Option<Counted>,
}

/// Rows of the epoch that are in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    rows: u64,
    /// Offset of the first one.
    base_offset: Option<u64>,
}

/// Why a pass ended before its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The partition has closed.
    Closed,
    /// The table does not have this epoch any more.
    Changed,
    /// It is to be tried again; why, in one sentence.
    Blocked(String),
}

impl From<PieceFault> for Ended {
    fn from(fault: PieceFault) -> Self {
        Self::Blocked(fault.to_string())
    }
}

/// Batches that wait to be appended together.
#[derive(Default)]
struct Group {
    batches: Vec<SealedBatch>,
    bytes: usize,
}

impl Attempt {
    /// Appends what is missing; the offset of the first row once all rows are committed and synced.
    ///
    /// # Errors
    /// [`Ended`]: the next pass continues where this one ended.
    pub fn run(&mut self) -> Result<u64, Ended> {
        let sink = self.sink.clone();
        let link = sink.link.as_ref().ok_or(Ended::Changed)?;
        let incarnation = self.partition.identity().incarnation;
        let target = *link.target(incarnation).ok_or(Ended::Changed)?;
        failpoint::pass("link.started");
        let mut counted = self.count(link, &target)?;
        self.counted = Some(counted);
        if counted.rows < target.rows {
            let result = self.append_rest(link, &target, &mut counted);
            // After an unknown outcome it is counted again.
            self.counted = self.counted.map(|_| counted);
            result?;
        }
        failpoint::pass("link.appended");
        self.sync()?;
        failpoint::pass("link.synced");
        Ok(counted.base_offset.unwrap_or(target.from_offset))
    }

    /// Counts what is in the log, unless that is known.
    fn count(&mut self, link: &Link, target: &Target) -> Result<Counted, Ended> {
        if let Some(counted) = self.counted {
            return Ok(counted);
        }
        // What an earlier pass has appended is committed then.
        self.sync()?;
        let reader = self.partition.reader();
        let found = reader.produced(self.sink.producer, link.ordinal, target.from_offset);
        let found = found.map_err(|error| match error {
            ReadError::Closed => Ended::Closed,
            error => Ended::Blocked(format!("it is not known what is linked already: {error}")),
        })?;
        if found.records > target.rows {
            return Err(Ended::Blocked(format!(
                "the log has {} rows of this epoch, and {} were published",
                found.records, target.rows
            )));
        }
        Ok(Counted {
            rows: found.records,
            base_offset: found.base_offset,
        })
    }

    /// Appends the rows behind those that are in the log.
    fn append_rest(
        &mut self,
        link: &Link,
        target: &Target,
        counted: &mut Counted,
    ) -> Result<(), Ended> {
        let stage = &self.context.stage;
        let pieces = stage.decided_pieces(target.incarnation, self.sink.id, link)?;
        let mut rest = Rest {
            skip: counted.rows,
            next: counted.rows,
            producer: self.sink.producer,
            ordinal: link.ordinal,
        };
        let mut group = Group::default();
        for piece in &pieces {
            if rest.passes(piece) {
                continue;
            }
            for batch in piece.batches()? {
                let Some(batch) = rest.take(piece, &batch?, &self.partition)? else {
                    continue;
                };
                if group.bytes + batch.batch_bytes() > GROUP_BYTES {
                    self.append(link, std::mem::take(&mut group), counted)?;
                }
                group.bytes += batch.batch_bytes();
                group.batches.push(batch);
            }
        }
        self.append(link, group, counted)?;
        if counted.rows == target.rows {
            return Ok(());
        }
        Err(Ended::Blocked(format!(
            "the pieces have {} rows, and {} were published",
            counted.rows, target.rows
        )))
    }

    /// Appends a group, if the table still wants it.
    fn append(&mut self, link: &Link, group: Group, counted: &mut Counted) -> Result<(), Ended> {
        if group.batches.is_empty() {
            return Ok(());
        }
        if !self.is_decided(link) {
            return Err(Ended::Changed);
        }
        let rows: Vec<u64> = group
            .batches
            .iter()
            .map(|batch| u64::from(batch.count()))
            .collect();
        let linked = match self.partition.append_linked(group.batches) {
            Ok(linked) => linked,
            Err(error) => {
                self.counted = None;
                return Err(self.ended(&error));
            }
        };
        counted.rows += rows.iter().take(linked.batches).sum::<u64>();
        counted.base_offset = counted.base_offset.or(linked.base_offset);
        failpoint::pass("link.group_appended");
        linked
            .refused
            .map_or(Ok(()), |error| Err(self.ended(&error)))
    }

    fn is_decided(&self, link: &Link) -> bool {
        let incarnation = self.partition.identity().incarnation;
        let table = self.context.stage.table();
        table
            .decided(incarnation)
            .any(|(sink, other, _)| (sink.id, other.ordinal) == (self.sink.id, link.ordinal))
    }

    fn sync(&mut self) -> Result<(), Ended> {
        self.partition.sync_linked().map_err(|error| {
            self.counted = None;
            self.ended(&error)
        })
    }

    fn ended(&self, error: &AppendError) -> Ended {
        match (error, self.partition.failure()) {
            // Its task ended without an answer.
            (AppendError::Closed, Some(failure)) => {
                Ended::Blocked(format!("writes are refused: {failure}"))
            }
            (AppendError::Closed, None) => Ended::Closed,
            (error, _) => Ended::Blocked(error.to_string()),
        }
    }
}

/// Which rows come next.
struct Rest {
    /// Rows that are in the log and still to be passed.
    skip: u64,
    /// Number of the next row among those of the epoch and the partition.
    next: u64,
    producer: u64,
    ordinal: u32,
}

impl Rest {
    /// Whether all rows of a piece are in the log.
    fn passes(&mut self, piece: &PieceFile) -> bool {
        let rows = piece.contents().rows;
        let passes = rows <= self.skip;
        if passes {
            self.skip -= rows;
        }
        passes
    }

    /// The batch as it is to be appended; `None` = it is in the log.
    fn take(
        &mut self,
        piece: &PieceFile,
        stored: &Bytes,
        partition: &Partition,
    ) -> Result<Option<SealedBatch>, Ended> {
        let blocked = |text: String| {
            Ended::Blocked(format!(
                "{} cannot be linked: {text}",
                piece.path().display()
            ))
        };
        let producer = Producer {
            id: self.producer,
            epoch: self.ordinal,
            // An epoch has fewer than 2^32 rows for a partition.
            base_sequence: self.next as u32,
        };
        if self.skip > 0 {
            let header = bascule_record::Header::read(stored);
            let rows = header.map_err(|error| blocked(error.to_string()))?.count;
            self.skip = self
                .skip
                .checked_sub(u64::from(rows))
                .ok_or_else(|| blocked("the log has a part of one of its batches".to_owned()))?;
            return Ok(None);
        }
        let keys = partition.reader().keys();
        let batch = SealedBatch::restore(stored, &keys, now_ns(), producer);
        let batch = batch.map_err(|error| blocked(error.to_string()))?;
        self.next += u64::from(batch.count());
        Ok(Some(batch))
    }
}
