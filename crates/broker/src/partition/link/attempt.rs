//! The link of one published epoch to one partition, in turns.
use super::super::{AppendError, Partition, PartitionContext};
use super::rest::Rest;
use crate::stage::{Link, PieceFault, Sink, Target};
use bascule_log::{ProducedScan, ReadError, failpoint};
use bascule_record::SealedBatch;
use std::sync::Arc;

/// A turn ends when it has read so many bytes of the log, or of pieces; it has at most the last batch more of them in memory.
const TURN_BYTES: usize = 4 << 20;

/// What one link knows from one turn to the next. It has no file open between turns.
pub(super) struct Attempt {
    context: Arc<PartitionContext>,
    partition: Partition,
    state: State,
}

/// How far the link is.
enum State {
    /// It is not known what is in the log.
    Unknown,
    /// The log is being counted.
    Counting(ProducedScan),
    /// Rows of the epoch that are in the log.
    Counted(Counted),
    /// The rows after them are being appended.
    Appending(Counted, Box<Rest>),
}

/// Rows of the epoch that are in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    rows: u64,
    /// Offset of the first one.
    base_offset: Option<u64>,
}

/// What is to be linked.
struct Epoch<'a> {
    sink: &'a Sink,
    link: &'a Link,
    target: &'a Target,
}

/// How a turn ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The link needs another one.
    More,
    /// All rows are committed and synced; the offset of the first one.
    Linked(u64),
}

/// Why a link cannot continue.
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

impl Attempt {
    /// Nothing is known yet of what is in the log.
    pub fn new(context: Arc<PartitionContext>, partition: Partition) -> Self {
        Self {
            context,
            partition,
            state: State::Unknown,
        }
    }

    /// Counts a part of the log, or appends the next rows; syncs after the last ones. `sink`: its row of the table. Waits for the
    /// disk and for the partition's task.
    ///
    /// # Errors
    /// [`Ended`]: the next turn continues behind the rows that are in the log.
    pub fn turn(&mut self, sink: &Sink) -> Result<Turn, Ended> {
        let link = sink.link.as_ref().ok_or(Ended::Changed)?;
        let incarnation = self.partition.identity().incarnation;
        let target = link.target(incarnation).ok_or(Ended::Changed)?;
        let epoch = Epoch { sink, link, target };
        let (counted, rest) = match std::mem::replace(&mut self.state, State::Unknown) {
            State::Appending(counted, rest) => (counted, Some(rest)),
            state => {
                let Some(counted) = self.counted(state, &epoch)? else {
                    return Ok(Turn::More);
                };
                self.state = State::Counted(counted);
                (counted, self.rest(&epoch, counted)?)
            }
        };
        self.append(&epoch, counted, rest)
    }

    /// What is in the log; `None` = a part of it is still to be read.
    fn counted(&mut self, state: State, epoch: &Epoch<'_>) -> Result<Option<Counted>, Ended> {
        let mut scan = match state {
            State::Counted(counted) | State::Appending(counted, _) => return Ok(Some(counted)),
            State::Counting(scan) => scan,
            State::Unknown => {
                failpoint::pass("link.started");
                // What was appended before is committed then.
                self.sync()?;
                let (sink, link) = (epoch.sink, epoch.link);
                let reader = self.partition.reader();
                reader.produced(sink.producer, link.ordinal, epoch.target.from_offset)
            }
        };
        let found = scan.read(TURN_BYTES).map_err(|error| match error {
            ReadError::Closed => Ended::Closed,
            error => Ended::Blocked(format!("it is not known what is linked already: {error}")),
        })?;
        let Some(found) = found else {
            self.state = State::Counting(scan);
            return Ok(None);
        };
        if found.records > epoch.target.rows {
            return Err(Ended::Blocked(format!(
                "the log has {} rows of this epoch, and {} were published",
                found.records, epoch.target.rows
            )));
        }
        Ok(Some(Counted {
            rows: found.records,
            base_offset: found.base_offset,
        }))
    }

    /// The rows that are not in the log; `None` = all are.
    fn rest(&self, epoch: &Epoch<'_>, counted: Counted) -> Result<Option<Box<Rest>>, Ended> {
        let (sink, link, target) = (epoch.sink, epoch.link, epoch.target);
        if counted.rows == target.rows {
            return Ok(None);
        }
        let stage = &self.context.stage;
        let pieces = stage.decided_pieces(target.incarnation, sink.id, link)?;
        let rest = Rest::new(pieces, counted.rows, sink.producer, link.ordinal);
        Ok(Some(Box::new(rest)))
    }

    /// Appends the next group; after the last one all rows are synced.
    fn append(
        &mut self,
        epoch: &Epoch<'_>,
        mut counted: Counted,
        rest: Option<Box<Rest>>,
    ) -> Result<Turn, Ended> {
        // What an error leaves.
        self.state = State::Counted(counted);
        if let Some(mut rest) = rest {
            let group = rest.group(&self.partition, TURN_BYTES)?;
            self.append_group(epoch, group.batches, &mut counted)?;
            if !group.is_last {
                rest.close_file();
                self.state = State::Appending(counted, rest);
                return Ok(Turn::More);
            }
            if counted.rows != epoch.target.rows {
                return Err(Ended::Blocked(format!(
                    "the pieces have {} rows, and {} were published",
                    counted.rows, epoch.target.rows
                )));
            }
        }
        failpoint::pass("link.appended");
        self.sync()?;
        failpoint::pass("link.synced");
        let base_offset = counted.base_offset.unwrap_or(epoch.target.from_offset);
        Ok(Turn::Linked(base_offset))
    }

    /// Appends batches, if the table still wants them, and counts them.
    fn append_group(
        &mut self,
        epoch: &Epoch<'_>,
        batches: Vec<SealedBatch>,
        counted: &mut Counted,
    ) -> Result<(), Ended> {
        if batches.is_empty() {
            return Ok(());
        }
        if !self.is_decided(epoch) {
            return Err(Ended::Changed);
        }
        let rows = batches.iter().map(|batch| u64::from(batch.count()));
        let rows: Vec<u64> = rows.collect();
        let linked = match self.partition.append_linked(batches) {
            Ok(linked) => linked,
            Err(error) => {
                self.state = State::Unknown;
                return Err(self.ended(&error));
            }
        };
        counted.rows += rows.iter().take(linked.batches).sum::<u64>();
        counted.base_offset = counted.base_offset.or(linked.base_offset);
        self.state = State::Counted(*counted);
        failpoint::pass("link.group_appended");
        linked
            .refused
            .map_or(Ok(()), |error| Err(self.ended(&error)))
    }

    fn is_decided(&self, epoch: &Epoch<'_>) -> bool {
        let table = self.context.stage.table();
        table
            .decided(epoch.target.incarnation)
            .any(|(sink, link, _)| (sink.id, link.ordinal) == (epoch.sink.id, epoch.link.ordinal))
    }

    fn sync(&mut self) -> Result<(), Ended> {
        self.partition.sync_linked().map_err(|error| {
            self.state = State::Unknown;
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
