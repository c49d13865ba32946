//! `DoPut`: batched append.
//!
//! A task per call decodes record batches, makes log batches of them on a blocking thread and hands these to their
//! partitions without waiting for each to be committed; the results are sent in order. What is under way is bounded in bytes, and so
//! is the number of results that the caller has not read.
use super::context::FlightContext;
use super::destination::{OpenPartition, PartitionBatches, PutDestination};
use super::intake::Intake;
use super::refusal::{append_failed, denied, internal, invalid, refuse};
use super::request::{PutCommand, parse};
use super::stage::StageTarget;
use super::whole::BodyEnd;
use super::{resolve, threads};
use crate::access::{Action, Authorization};
use crate::forward::Lanes;
use crate::partition::{AckLevel, Append, AppendError, Committed, Payload, count_publish_errors};
use crate::tls::Peer;
use arrow_array::RecordBatch;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use arrow_flight::flight_descriptor::DescriptorType;
use arrow_flight::{FlightData, FlightDescriptor, PutResult};
use bascule_record::{Producer, SealedBatch};
use bascule_wire::ErrorCode;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

/// Bytes of one call that are appended and not committed, in KiB. A larger batch goes alone.
const IN_FLIGHT_KIB: u32 = 32 << 10;
/// Results that wait for the caller to read them.
const MAX_RESULTS: usize = 65_536;
/// How long a call waits for the caller to read results before it ends.
const RESULT_PATIENCE: Duration = Duration::from_secs(30);

type Results = BoxStream<'static, Result<PutResult, Status>>;
type Outcome = Result<Committed, AppendError>;

/// What the pump sends to the results: an append under way, or the failure that ends the call.
enum Pending {
    Append(Arc<OpenPartition>, oneshot::Receiver<Outcome>),
    /// A record batch without rows; the call's only partition, if it has one.
    Empty(Option<u32>),
    Failed(Status),
}

/// Begins a call: reads the first message for its descriptor, then runs the pump in a task of its own.
///
/// # Errors
/// `PERMISSION_DENIED`, `INVALID_ARGUMENT`, `NOT_FOUND`, `FAILED_PRECONDITION`, UNAVAILABLE. Later failures end the results with their status. `end`: whether
/// `messages` came to their end.
pub async fn respond(
    context: &Arc<FlightContext>,
    peer: &Peer,
    mut messages: Streaming<FlightData>,
    end: BodyEnd,
) -> Result<Results, Status> {
    let first = messages.message().await?;
    let first = first.ok_or_else(|| invalid("the call carries no message".to_owned()))?;
    let command = command(first.flight_descriptor.as_ref())?;
    let names = (command.namespace.as_str(), command.stream.as_str());
    let authorization = resolve::authorize(context, peer, Action::Publish, names)?;
    let messages = stream::once(async { Ok(first) }).chain(messages);
    if let Some(staged) = command.stage {
        let target = StageTarget::open(context, peer, &command, &staged, authorization).await?;
        return Ok(target.results(messages, end).boxed());
    }
    let target = Target::open(context, &command, authorization, peer)?;
    let (sender, receiver) = mpsc::channel(MAX_RESULTS);
    let pump = tokio::spawn(pump(target, messages, sender.clone()));
    tokio::spawn(async move {
        if let Err(error) = pump.await {
            // Damaged Arrow messages may make the decoder panic: the caller's fault, and nobody else's harm.
            let status = invalid(format!("a record batch could not be decoded: {error}"));
            // This fails when nobody listens any more.
            let _ = sender.send(Pending::Failed(status)).await;
        }
    });
    Ok(results(receiver).boxed())
}

/// Reads the descriptor of a put: a JSON command, or a path, which names no partition.
fn command(descriptor: Option<&FlightDescriptor>) -> Result<PutCommand, Status> {
    let missing = || invalid("the first message carries no descriptor".to_owned());
    let descriptor = descriptor.ok_or_else(missing)?;
    if descriptor.r#type() == DescriptorType::Cmd {
        let command: PutCommand = parse("put command", &descriptor.cmd)?;
        command.check()?;
        return Ok(command);
    }
    let selection = super::info::selection(descriptor)?;
    Ok(PutCommand {
        namespace: selection.namespace,
        stream: selection.stream,
        partition: None,
        incarnation: None,
        producer: None,
        nats_copy: false,
        stage: None,
    })
}

/// A call that appends: where to, and what is under way.
struct Target {
    context: Arc<FlightContext>,
    place: Arc<PutDestination>,
    producer: Option<Producer>,
    nats_copy: bool,
    in_flight: Arc<Semaphore>,
    authorization: Authorization,
    lanes: Lanes,
}

impl Target {
    fn open(
        context: &Arc<FlightContext>,
        command: &PutCommand,
        authorization: Authorization,
        peer: &Peer,
    ) -> Result<Self, Status> {
        let producer = command.producer.map(|p| Producer {
            id: p.id,
            epoch: p.epoch,
            base_sequence: p.base_sequence,
        });
        Ok(Self {
            context: context.clone(),
            place: Arc::new(PutDestination::open(context, command)?),
            producer,
            nats_copy: command.nats_copy,
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_KIB as usize)),
            authorization,
            lanes: Lanes::new(&context.forwarder, peer),
        })
    }
}

/// Decodes and appends until the messages end, one fails, or nobody reads the results any more.
async fn pump(
    mut target: Target,
    messages: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
    results: mpsc::Sender<Pending>,
) {
    let mut decoder = decoder(messages);
    while let Some(decoded) = decoder.next().await {
        let appended = match decoded {
            Ok(decoded) => match decoded.payload {
                DecodedPayload::RecordBatch(batch) => target.append(batch, &results).await,
                DecodedPayload::Schema(_) | DecodedPayload::None => Ok(()),
            },
            Err(error) => Err(decode_failed(error)),
        };
        match appended {
            Ok(()) => {}
            Err(status) => {
                // This fails when nobody listens any more.
                let _ = results.send(Pending::Failed(status)).await;
                return;
            }
        }
    }
}

/// Decodes messages that were checked.
pub(super) fn decoder(
    messages: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
) -> FlightDataDecoder {
    let mut intake = Intake::default();
    let checked = messages.map(move |message| {
        let message = message?;
        intake.check(&message)?;
        Ok::<_, Status>(message)
    });
    FlightDataDecoder::new(checked.map_err(FlightError::from))
}

pub(super) fn decode_failed(error: FlightError) -> Status {
    match error {
        FlightError::Tonic(status) => *status,
        error => invalid(format!("a message could not be decoded: {error}")),
    }
}

impl Target {
    /// Appends the rows of one record batch; returns when they are handed over, not when they are committed.
    async fn append(
        &mut self,
        batch: RecordBatch,
        results: &mpsc::Sender<Pending>,
    ) -> Result<(), Status> {
        let allowed = self.authorization.renew(&self.context.access);
        allowed.map_err(|refusal| denied(&refusal))?;
        let rows = batch.num_rows();
        if rows == 0 {
            return deliver(results, Pending::Empty(self.place.only())).await;
        }
        let parts = self.seal(batch).await?;
        if let Some(producer) = &mut self.producer {
            producer.base_sequence = producer.base_sequence.wrapping_add(rows as u32);
        }
        for part in parts {
            let lane = Arc::new(part.lane);
            for batch in part.sealed {
                self.hand_over(&lane, batch, results).await?;
            }
        }
        Ok(())
    }

    /// Appends one log batch as soon as there is room.
    async fn hand_over(
        &mut self,
        lane: &Arc<OpenPartition>,
        batch: SealedBatch,
        results: &mpsc::Sender<Pending>,
    ) -> Result<(), Status> {
        let room = self.room_for(&batch).await?;
        let (producer, records) = (batch.producer(), batch.count() as usize);
        let (outcome, receiver) = oneshot::channel();
        let context = self.context.clone();
        let done = move |committed: Outcome| {
            drop(room);
            let statistics = &context.statistics;
            count_publish_errors(&statistics.publish_errors, &committed, records);
            if let Ok(committed) = &committed {
                statistics
                    .flight_rows_written
                    .add(u64::from(committed.count));
            }
            // This fails when nobody listens any more.
            let _ = outcome.send(committed);
        };
        let append = Append {
            payload: Payload::Sealed(batch),
            producer,
            republish: self.nats_copy,
            ack: AckLevel::All,
            done: Box::new(done),
        };
        self.lanes.append(&lane.place, append, None).await;
        deliver(results, Pending::Append(lane.clone(), receiver)).await
    }

    /// Makes log batches of the rows, on a blocking thread.
    async fn seal(&self, batch: RecordBatch) -> Result<Vec<PartitionBatches>, Status> {
        let (place, producer) = (self.place.clone(), self.producer);
        threads::run(move || place.seal(&batch, producer))
            .await
            .map_err(|lost| internal(format!("a record batch could not be taken in: {lost}")))?
    }

    async fn room_for(&self, batch: &SealedBatch) -> Result<OwnedSemaphorePermit, Status> {
        let wanted = u32::try_from(batch.batch_bytes() >> 10)
            .unwrap_or(u32::MAX)
            .clamp(1, IN_FLIGHT_KIB);
        let room = self.in_flight.clone().acquire_many_owned(wanted).await;
        room.map_err(|_| internal("the call's budget was closed".to_owned()))
    }
}

/// Hands a result to the caller's side. When results pile up unread the call ends with an error rather than wait for ever:
/// a caller that only writes would otherwise never see the reason.
async fn deliver(results: &mpsc::Sender<Pending>, result: Pending) -> Result<(), Status> {
    match timeout(RESULT_PATIENCE, results.send(result)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Status::cancelled("the caller went away")),
        Err(_) => {
            let message = format!("{MAX_RESULTS} results were not read: read them while writing");
            Err(refuse(
                Code::ResourceExhausted,
                ErrorCode::Busy,
                message,
                json!({}),
            ))
        }
    }
}

/// One result per log batch, in order; ends after the first failure.
fn results(
    receiver: mpsc::Receiver<Pending>,
) -> impl Stream<Item = Result<PutResult, Status>> + Send {
    stream::unfold(Some(receiver), |receiver| async move {
        let mut receiver = receiver?;
        match answer(receiver.recv().await?).await {
            Ok(answer) => {
                let app_metadata = Bytes::from(answer.to_string());
                Some((Ok(PutResult { app_metadata }), Some(receiver)))
            }
            Err(status) => Some((Err(status), None)),
        }
    })
}

async fn answer(pending: Pending) -> Result<Value, Status> {
    match pending {
        Pending::Empty(partition) => Ok(
            json!({"partition": partition, "base_offset": null, "count": 0, "timestamp_ns": null, "duplicate": false}),
        ),
        Pending::Failed(status) => Err(status),
        Pending::Append(lane, outcome) => match outcome.await {
            Ok(Ok(committed)) => Ok(
                json!({"partition": lane.number, "base_offset": committed.base_offset, "count": committed.count,
                "timestamp_ns": committed.timestamp, "duplicate": committed.duplicate}),
            ),
            Ok(Err(error)) => Err(append_failed(&lane.what, &error)),
            Err(_) => Err(internal(format!(
                "append to {} was dropped: its outcome is unknown",
                lane.what
            ))),
        },
    }
}
