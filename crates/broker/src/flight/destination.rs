//! Where the rows of a `DoPut` go: the partition that the request names, or each row to its own.
use super::context::FlightContext;
use super::refusal::{append_failed, invalid, refuse};
use super::request::PutCommand;
use super::resolve;
use crate::clock::now_ns;
use crate::forward;
use crate::names::{DEFAULT_NAMESPACE, is_internal};
use crate::partition::{AppendError, Partition};
use crate::view::{PartitionView, StreamView};
use arrow_array::RecordBatch;
use bascule_record::{BatchBuilder, BatchLimits, BuildError, Codec, Producer, SealedBatch};
use bascule_wire::ErrorCode;
use bascule_wire::flight::ingest::{Ingest, IngestError, IngestTarget};
use bascule_wire::flight::spread::Rows;
use serde_json::json;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tonic::{Code, Status};

/// Most rows of one record batch of an idempotent producer, or whose rows go to several partitions.
const MAX_ROWS: usize = 1 << 24;
/// Most bytes of one record batch of an idempotent producer.
const MAX_BYTES: usize = 64 << 20;
/// Log batches made from record batches without a producer: records and bytes.
const SPLIT: BatchLimits = BatchLimits {
    records: 16 << 10,
    bytes: 1 << 20,
    record_bytes: MAX_BYTES,
};
/// One record batch of a producer is one log batch.
const WHOLE: BatchLimits = BatchLimits {
    records: MAX_ROWS,
    bytes: MAX_BYTES,
    record_bytes: MAX_BYTES,
};

/// Whose turn it is to get the rows without a key, by the stream's id: streams that share a place share turns.
static TURNS: [AtomicU32; 256] = [const { AtomicU32::new(0) }; 256];

/// Where a call appends.
pub struct PutDestination {
    context: Arc<FlightContext>,
    stream: Arc<StreamView>,
    partitions: NonZeroU32,
    /// The partition that the request names.
    named: Option<u32>,
    /// The incarnation that the request expects.
    incarnation: Option<u64>,
    /// Where rows without a key go that have a choice.
    sticky: u32,
}

/// A partition that takes appends, here or where it is led.
pub struct OpenPartition {
    /// Its number.
    pub number: u32,
    /// How sentences call it.
    pub what: String,
    /// Where it takes them.
    pub place: forward::Destination,
    /// Subject that it listens on; empty = none.
    subject: String,
    /// Largest record that it takes, as far as this broker knows, bytes. The leader checks it too.
    record_bytes: usize,
}

/// Log batches for one partition.
pub struct PartitionBatches {
    /// The partition.
    pub lane: OpenPartition,
    /// In the order of their rows.
    pub sealed: Vec<SealedBatch>,
}

impl OpenPartition {
    /// A partition that is led here, of a broker without others.
    fn local(partition: Partition, what: String) -> Self {
        let identity = partition.identity();
        Self {
            number: identity.number,
            what,
            subject: identity.subject.clone(),
            record_bytes: partition.max_record_bytes(),
            place: partition.into(),
        }
    }
}

impl PutDestination {
    /// Where the rows of `command` go.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, `NOT_FOUND`, `FAILED_PRECONDITION`, UNAVAILABLE. Without a partition, when none of the stream
    /// takes appends.
    pub fn open(context: &Arc<FlightContext>, command: &PutCommand) -> Result<Self, Status> {
        let (stream, partitions) = stream(context, command)?;
        let mut place = Self {
            context: context.clone(),
            stream,
            partitions,
            named: command.partition,
            incarnation: command.incarnation,
            sticky: 0,
        };
        match place.only() {
            Some(number) => drop(place.lane(number)?),
            None => place.sticky = place.choose()?,
        }
        Ok(place)
    }

    /// The partition of every row: the request names it, or the stream has one only.
    pub fn only(&self) -> Option<u32> {
        self.named.or((self.partitions.get() == 1).then_some(0))
    }

    /// Makes log batches of the rows, by partition. Nothing is left to be refused then but by the partitions themselves.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for rows that cannot be stored; as [`PutDestination::open`] for their partitions.
    pub fn seal(
        &self,
        batch: &RecordBatch,
        producer: Option<Producer>,
    ) -> Result<Vec<PartitionBatches>, Status> {
        let bound = Ingest::bind(batch, &self.stream.name).map_err(not_taken)?;
        let parts = self.spread(&bound, batch.num_rows())?;
        // Every partition is checked before any row is taken: a batch is not appended in part for a foreseeable reason.
        let lanes = parts
            .into_iter()
            .map(|(number, rows)| Ok((self.lane(number)?, rows)))
            .collect::<Result<Vec<_>, Status>>()?;
        let sealed = lanes.into_iter().map(|(lane, rows)| {
            let sealed = seal(&bound, &rows, (&self.stream.name, &lane), producer)?;
            Ok(PartitionBatches { lane, sealed })
        });
        sealed.collect()
    }

    fn spread(&self, bound: &Ingest<'_>, rows: usize) -> Result<BTreeMap<u32, Rows>, Status> {
        spread(bound, rows, self.named, self.partitions, self.sticky)
    }

    /// The partition for rows without a key: the next in turn that takes appends.
    fn choose(&self) -> Result<u32, Status> {
        let turn = TURNS
            .get(self.stream.id as usize % TURNS.len())
            .map_or(0, |turn| turn.fetch_add(1, Ordering::Relaxed));
        let count = self.partitions.get();
        let first = turn % count;
        let mut refused = None;
        for number in (first..count).chain(0..first) {
            match self.lane(number) {
                Ok(_) => return Ok(number),
                Err(status) => refused = refused.or(Some(status)),
            }
        }
        Err(refused.unwrap_or_else(|| invalid("the stream has no partition".to_owned())))
    }

    /// A partition by number, when it takes appends; with other brokers their leader decides that.
    fn lane(&self, number: u32) -> Result<OpenPartition, Status> {
        let (context, stream) = (&self.context, &self.stream);
        let view = resolve::partition(stream, number)?;
        let what = resolve::label(stream, number);
        let place = forward::Destination::find(&context.forwarder, stream, view);
        let Some(place) = place.filter(|_| context.forwarder.is_connected()) else {
            let partition = lane(context, stream, number, self.incarnation)?;
            return Ok(OpenPartition::local(partition, what));
        };
        check_writable(view, &what)?;
        resolve::check_incarnation(view, &what, self.incarnation)?;
        let open = view.handle.as_ref();
        Ok(OpenPartition {
            number,
            what,
            place,
            subject: stream.partition_subject(number).into_owned(),
            record_bytes: open.map_or(MAX_BYTES, Partition::max_record_bytes),
        })
    }
}

/// The stream of a call that writes, and how many partitions it has.
///
/// # Errors
/// `INVALID_ARGUMENT`, `NOT_FOUND`.
pub(super) fn stream(
    context: &FlightContext,
    command: &PutCommand,
) -> Result<(Arc<StreamView>, NonZeroU32), Status> {
    if command.namespace == DEFAULT_NAMESPACE && is_internal(&command.stream) {
        let text = "stream is reserved: the broker alone writes to it";
        return Err(invalid(format!("{}: {text}", command.stream)));
    }
    let stream = resolve::stream(&context.view.load(), &command.namespace, &command.stream)?;
    let count = u32::try_from(stream.partitions.len()).unwrap_or(u32::MAX);
    let partitions = NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
    check_needs(command, count)?;
    Ok((stream, partitions))
}

/// The rows of each partition; `named`: that of all rows. `sticky`: where rows without a key go that have a choice.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(super) fn spread(
    bound: &Ingest<'_>,
    rows: usize,
    named: Option<u32>,
    partitions: NonZeroU32,
    sticky: u32,
) -> Result<BTreeMap<u32, Rows>, Status> {
    if let Some(number) = named {
        let all = bound.all(number).map_err(not_taken)?;
        return Ok(BTreeMap::from([(number, all)]));
    }
    if rows > MAX_ROWS {
        return Err(invalid(format!(
            "a record batch without a partition has at most {MAX_ROWS} rows; this one has {rows}: send smaller ones"
        )));
    }
    bound.spread(partitions, sticky).map_err(not_taken)
}

/// A partition of a stream by number, when it takes rows on this broker.
///
/// # Errors
/// `NOT_FOUND`, `FAILED_PRECONDITION`, UNAVAILABLE.
pub(super) fn lane(
    context: &FlightContext,
    stream: &StreamView,
    number: u32,
    incarnation: Option<u64>,
) -> Result<Partition, Status> {
    let view = resolve::partition(stream, number)?;
    let what = resolve::label(stream, number);
    check_writable(view, &what)?;
    let partition = resolve::handle(context, stream, view, incarnation)?;
    if !partition.is_leading() {
        return Err(append_failed(&what, &AppendError::NotLeader));
    }
    Ok(partition)
}

fn check_writable(view: &PartitionView, what: &str) -> Result<(), Status> {
    if !view.readonly {
        return Ok(());
    }
    let message = format!("{what} is read-only");
    Err(refuse(
        Code::FailedPrecondition,
        ErrorCode::Readonly,
        message,
        json!({}),
    ))
}

/// Refuses what only means something for one partition where the request names none of several.
fn check_needs(command: &PutCommand, partitions: u32) -> Result<(), Status> {
    if command.partition.is_some() || partitions == 1 {
        return Ok(());
    }
    let key = match (&command.producer, &command.incarnation) {
        (Some(_), _) => "producer",
        (None, Some(_)) => "incarnation",
        (None, None) => return Ok(()),
    };
    let (namespace, stream) = (&command.namespace, &command.stream);
    Err(invalid(format!(
        "{key} needs partition: {namespace}/{stream} has {partitions} partitions, and {key} is for one of them; make a call for each partition"
    )))
}

fn seal(
    bound: &Ingest<'_>,
    rows: &Rows,
    (stream, lane): (&str, &OpenPartition),
    producer: Option<Producer>,
) -> Result<Vec<SealedBatch>, Status> {
    let target = IngestTarget {
        stream,
        partition: lane.number,
        subject: Some(lane.subject.as_str()).filter(|subject| !subject.is_empty()),
        now: now_ns(),
        codec: Codec::None,
        producer,
    };
    let limits = if producer.is_some() { WHOLE } else { SPLIT };
    let mut builder = BatchBuilder::new(BatchLimits {
        record_bytes: lane.record_bytes,
        ..limits
    });
    let sealed = bound.seal(rows, &target, &mut builder);
    let sealed = sealed.map_err(not_taken)?;
    if producer.is_some() && sealed.len() > 1 {
        return Err(invalid(format!(
            "a record batch of an idempotent producer has at most {MAX_ROWS} rows and {MAX_BYTES} bytes; this one has {} rows: send smaller ones",
            rows.len()
        )));
    }
    Ok(sealed)
}

/// A row that cannot be stored.
pub(super) fn not_taken(error: IngestError) -> Status {
    match error {
        IngestError::Record {
            cause: BuildError::TooLarge { bytes, limit },
            ..
        } => refuse(
            Code::InvalidArgument,
            ErrorCode::TooLarge,
            error.to_string(),
            json!({"bytes": bytes, "limit": limit}),
        ),
        error => invalid(error.to_string()),
    }
}
