//! `DoPut` with `stage`: rows become pieces of an epoch of a sink, which no reader sees until it is published.
//!
//! A task per call decodes record batches and has them written on a blocking thread, one after the other. Nothing is answered
//! before all rows were sent and every piece is sealed; a call that ends earlier leaves nothing.
use super::context::FlightContext;
use super::destination::{lane, not_taken, spread, stream};
use super::put::{decode_failed, decoder};
use super::refusal::{denied, internal, invalid, refuse, staging_failed};
use super::request::{PutCommand, StageCommand};
use super::whole::BodyEnd;
use super::{resolve, threads};
use crate::access::Authorization;
use crate::resume::{RESUMES, resume};
use crate::stage::{SealedPiece, StageCall, StageError, StagePartition, StageStream, TakeError};
use crate::tls::Peer;
use crate::view::StreamView;
use arrow_array::RecordBatch;
use arrow_flight::decode::DecodedPayload;
use arrow_flight::{FlightData, PutResult};
use bascule_wire::ErrorCode;
use bascule_wire::flight::ingest::Ingest;
use bytes::Bytes;
use futures_util::stream::{self as streams, Stream, StreamExt};
use serde_json::json;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Code, Status};

/// How long a call may send nothing.
const SILENCE: Duration = Duration::from_mins(1);
/// How long a call may last. Its attempt does not expire before, because each record batch counts as work on it, empty ones too.
const LIFETIME: Duration = Duration::from_hours(24);

/// What helps against each of them.
const ALIVE: &str = "send an empty record batch every 20 s while there are no rows";
const SHORTER: &str = "let a trigger read less at once, or write with more tasks";

/// A call that stages.
pub struct StageTarget {
    context: Arc<FlightContext>,
    authorization: Authorization,
    stream: Arc<StreamView>,
    incarnation: Option<u64>,
    rule: Rule,
    /// Partitions that got rows, by number: a call keeps to them.
    lanes: HashMap<u32, Arc<StagePartition>>,
    call: StageCall,
}

/// Where rows go.
#[derive(Clone, Copy)]
struct Rule {
    /// The partition that the request names.
    named: Option<u32>,
    partitions: NonZeroU32,
    /// Where rows without a key go.
    keyless: u32,
}

/// What became of a record batch.
enum Step {
    Taken,
    /// It has rows for partitions that the call has not seen yet.
    Needs(Vec<u32>, RecordBatch),
}

impl StageTarget {
    /// Lets a call in.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, `NOT_FOUND`, `FAILED_PRECONDITION`, `PERMISSION_DENIED`, `RESOURCE_EXHAUSTED`, UNAVAILABLE.
    pub async fn open(
        context: &Arc<FlightContext>,
        peer: &Peer,
        command: &PutCommand,
        staged: &StageCommand,
        authorization: Authorization,
    ) -> Result<Self, Status> {
        let (stream, partitions) = stream(context, command)?;
        if let Some(number) = command.partition {
            resolve::partition(&stream, number)?;
        }
        let client = peer.identity.as_deref().unwrap_or_default();
        let stage = &context.partitions.stage;
        let call = stage
            .begin(staged.piece(), stage_stream(&stream), client)
            .await;
        let call = call.map_err(|error| staging_failed(&error))?;
        Ok(Self {
            context: context.clone(),
            authorization,
            stream,
            incarnation: command.incarnation,
            rule: Rule {
                named: command.partition,
                partitions,
                keyless: staged.task % partitions.get(),
            },
            lanes: HashMap::new(),
            call,
        })
    }

    /// Takes all rows, then answers. `end`: whether `messages` came to their end.
    pub fn results(
        self,
        messages: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
        end: BodyEnd,
    ) -> impl Stream<Item = Result<PutResult, Status>> + Send {
        // In a task of its own: damaged Arrow messages may make the decoder panic. It ends when the caller goes away.
        let mut staging = JoinSet::new();
        staging.spawn(self.run(messages, end));
        streams::once(async move {
            match staging.join_next().await {
                Some(Ok(staged)) => staged,
                Some(Err(error)) => Err(invalid(format!(
                    "a record batch could not be decoded: {error}"
                ))),
                None => Err(internal("the call was not begun".to_owned())),
            }
        })
        .flat_map(|staged| {
            streams::iter(match staged {
                Ok(pieces) => pieces.iter().map(|piece| Ok(answer(piece))).collect(),
                Err(status) => vec![Err(status)],
            })
        })
    }

    async fn run(
        mut self,
        messages: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
        end: BodyEnd,
    ) -> Result<Vec<SealedPiece>, Status> {
        let until = Instant::now() + LIFETIME;
        let mut decoder = decoder(messages);
        loop {
            let next = timeout_at(until, timeout(SILENCE, decoder.next())).await;
            let decoded = match next {
                Ok(Ok(Some(decoded))) => decoded.map_err(decode_failed)?,
                Ok(Ok(None)) => break,
                Ok(Err(_)) => return Err(too_slow("sent nothing for", SILENCE, ALIVE)),
                Err(_) => return Err(too_slow("lasted", LIFETIME, SHORTER)),
            };
            if let DecodedPayload::RecordBatch(batch) = decoded.payload {
                self = self.stage(batch).await?;
            }
        }
        if !end.is_reached() {
            return Err(Status::cancelled("the caller gave the call up"));
        }
        let sealed = threads::run(move || self.call.seal()).await;
        let sealed =
            sealed.map_err(|lost| internal(format!("staged rows were not sealed: {lost}")))?;
        sealed.map_err(|error| staging_failed(&error))
    }

    /// Takes the rows of one record batch.
    async fn stage(mut self, batch: RecordBatch) -> Result<Self, Status> {
        let allowed = self.authorization.renew(&self.context.access);
        allowed.map_err(|refusal| denied(&refusal))?;
        let partitions = &self.context.partitions;
        if partitions.stage.is_full(&partitions.disk_full) {
            return Err(staging_failed(&StageError::Full));
        }
        let mut batch = batch;
        loop {
            let (call, rule, stream) = (self.call, self.rule, self.stream.clone());
            let known = self.lanes.clone();
            let taken = threads::run(move || take(call, &stream, rule, batch, &known)).await;
            let taken = taken.map_err(|lost| internal(format!("rows were not staged: {lost}")))?;
            let step;
            (self.call, step) = taken?;
            match step {
                Step::Taken => return Ok(self),
                Step::Needs(numbers, again) => {
                    for number in numbers {
                        let lane = self.lane(number).await?;
                        self.lanes.insert(number, lane);
                    }
                    batch = again;
                }
            }
        }
    }

    /// A partition that takes rows; resumed when it is paused.
    async fn lane(&self, number: u32) -> Result<Arc<StagePartition>, Status> {
        let (namespace, name) = (self.stream.namespace.as_str(), self.stream.name.as_str());
        let mut resumes = 0;
        loop {
            let stream = resolve::stream(&self.context.view.load(), namespace, name)?;
            let before = resolve::partition(&self.stream, number)?.incarnation;
            let expected = self.incarnation.unwrap_or(before);
            let paused = resolve::partition(&stream, number)?;
            if !(paused.paused && paused.handle.is_none()) || resumes == RESUMES {
                let lane = lane(&self.context, &stream, number, Some(expected));
                return lane.map(|partition| Arc::new(partition.stage_partition()));
            }
            let resumed =
                resume(&self.context.events, (namespace, name), number as i32, None).await;
            resumed.map_err(|refused| {
                let what = resolve::label(&self.stream, number);
                refuse(
                    Code::Unavailable,
                    ErrorCode::Unavailable,
                    format!("{what} is paused and was not resumed: {}", refused.message),
                    json!({}),
                )
            })?;
            resumes += 1;
        }
    }
}

/// Takes the rows of a record batch, unless partitions have to be opened for them first.
#[allow(clippy::needless_pass_by_value)] // what the thread owns
fn take(
    mut call: StageCall,
    stream: &StreamView,
    rule: Rule,
    batch: RecordBatch,
    lanes: &HashMap<u32, Arc<StagePartition>>,
) -> Result<(StageCall, Step), Status> {
    if batch.num_rows() == 0 {
        // Whoever sends it still works on the epoch, and learns here that it may not be published any more.
        call.settle().map_err(|error| staging_failed(&error))?;
        return Ok((call, Step::Taken));
    }
    let bound = Ingest::bind(&batch, &stream.name).map_err(not_taken)?;
    let parts = spread(
        &bound,
        batch.num_rows(),
        rule.named,
        rule.partitions,
        rule.keyless,
    )?;
    let found: Vec<_> = parts.keys().map(|number| lanes.get(number)).collect();
    let new: Vec<_> = parts
        .keys()
        .zip(&found)
        .filter_map(|(number, lane)| lane.is_none().then_some(*number))
        .collect();
    if !new.is_empty() {
        drop(bound);
        return Ok((call, Step::Needs(new, batch)));
    }
    for (lane, rows) in found.iter().flatten().zip(parts.values()) {
        call.take(lane, &bound, rows).map_err(|error| match error {
            TakeError::Row(error) => not_taken(error),
            TakeError::Stage(error) => staging_failed(&error),
        })?;
    }
    call.settle().map_err(|error| staging_failed(&error))?;
    Ok((call, Step::Taken))
}

fn stage_stream(stream: &StreamView) -> StageStream {
    let partitions = stream.partitions.iter();
    StageStream {
        id: stream.id,
        name: stream.name.clone(),
        incarnations: partitions.map(|partition| partition.incarnation).collect(),
    }
}

fn answer(piece: &SealedPiece) -> PutResult {
    let answer = json!({"partition": piece.partition, "incarnation": piece.incarnation, "rows": piece.rows,
        "digest": piece.digest, "bytes": piece.bytes});
    PutResult {
        app_metadata: Bytes::from(answer.to_string()),
    }
}

fn too_slow(what: &str, limit: Duration, remedy: &str) -> Status {
    let seconds = limit.as_secs();
    refuse(
        Code::DeadlineExceeded,
        ErrorCode::DeadlineExceeded,
        format!("the call {what} {seconds} s, the most it may: nothing of it is staged; {remedy}"),
        json!({"limit_s": seconds}),
    )
}
