//! `DoGet`: one scan of one partition, answered over a raw body.
//!
//! A task per call asks a blocking thread for the next message, and asks again only when the connection has taken the one
//! before: at most one message waits. The task ends when the scan does, or when the caller goes away.
use super::body::{Produced, ScanBody};
use super::context::FlightContext;
use super::range;
use super::refusal::{
    denied, ended, history_changed, internal, invalid, out_of_range, read_failed, refuse,
};
use super::request::{End, Expectation, ScanTicket, Start, parse};
use super::scan::{Scan, Step};
use super::{info, offsets, resolve, threads, unary};
use crate::access::{Access, Action, Authorization};
use crate::partition::Partition;
use crate::subscriptions::Slot;
use crate::tls::Peer;
use arrow_flight::Ticket;
use bascule_log::{ReadError, ReadMode};
use bascule_wire::ErrorCode;
use bytes::Bytes;
use prost::Message;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::{Code, Status};

/// A step over at most this many records is taken on the runtime's own thread when nothing need be read from the disk.
const INLINE_RECORDS: u64 = 64;
/// Largest ticket, bytes.
const MAX_TICKET_BYTES: usize = 64 << 10;

/// Answers a call. The response begins at once; the scan runs in a task of its own.
///
/// # Errors
/// `PERMISSION_DENIED`, `INVALID_ARGUMENT`, `NOT_FOUND`, `FAILED_PRECONDITION`, `OUT_OF_RANGE`, `RESOURCE_EXHAUSTED`, UNAVAILABLE. Later
/// failures end the body with their status.
pub async fn respond(
    context: Arc<FlightContext>,
    request: http::Request<Body>,
) -> Result<Body, Status> {
    resolve::check_serving(&context)?;
    let peer = resolve::peer(request.extensions());
    let ticket = read_ticket(request.into_body()).await?;
    let ticket: ScanTicket = parse("ticket", &ticket)?;
    check(&ticket)?;
    let (call, first) = Call::open(context, &peer, ticket).await?;
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(call.run(sender));
    Ok(Body::new(ScanBody::new(first, receiver)))
}

/// The one message of the request body: five bytes of gRPC, then a `Ticket`.
async fn read_ticket(body: Body) -> Result<Bytes, Status> {
    let message = unary::read("ticket", body, MAX_TICKET_BYTES).await?;
    let ticket = Ticket::decode(message);
    Ok(ticket
        .map_err(|error| invalid(format!("ticket is not a valid Ticket: {error}")))?
        .ticket)
}

fn check(ticket: &ScanTicket) -> Result<(), Status> {
    offsets::check_wait(ticket.wait_ms)?;
    if ticket.follow && matches!(ticket.end, End::Latest | End::Time(_)) {
        let message =
            "a scan that follows ends at an offset or never: end must be null or an offset";
        return Err(invalid(message.to_owned()));
    }
    Ok(())
}

fn no_place(limit: usize) -> Status {
    refuse(
        Code::ResourceExhausted,
        ErrorCode::Busy,
        format!(
            "limits.subscriptions ({limit}) subscriptions and scans are open: close some, try again later, or raise it"
        ),
        json!({"limit": limit}),
    )
}

/// Where a call ends, exclusive.
#[derive(Clone, Copy, Debug)]
enum Limit {
    /// Before this offset: committed, or waited for by a call that follows.
    Offset(u64),
    /// At the high watermark after the long poll, at most here.
    AfterWait(u64),
}

/// Why a wait ended.
enum Wake {
    Moved,
    PartitionEnded,
    CallerGone,
}

/// A running call.
#[derive(Debug)]
struct Call {
    what: String,
    partition: Partition,
    watch: watch::Receiver<u64>,
    /// `None` only while a step runs elsewhere.
    scan: Option<Scan>,
    limit: Limit,
    follow: bool,
    wait: Duration,
    authorization: Authorization,
    access: Arc<Access>,
    _slot: Slot,
}

impl Call {
    /// The call and the first message of its answer.
    async fn open(
        context: Arc<FlightContext>,
        peer: &Peer,
        ticket: ScanTicket,
    ) -> Result<(Self, Bytes), Status> {
        let names = (ticket.namespace.as_str(), ticket.stream.as_str());
        let authorization = resolve::authorize(&context, peer, Action::Subscribe, names)?;
        let slot = context.subscriptions.take().map_err(no_place)?;
        let view = context.view.load_full();
        let stream = resolve::stream(&view, &ticket.namespace, &ticket.stream)?;
        let view = resolve::partition(&stream, ticket.partition)?;
        let partition = resolve::readable(&context, &stream, view, ticket.incarnation)?;
        let what = resolve::label(&stream, ticket.partition);
        let projection = info::projection(ticket.columns.as_deref())?;
        let filter = info::filter(ticket.subject.as_deref())?;
        check_history(&partition, &ticket, &what).await?;
        let (start, limit) = positions(&partition, &ticket, &what).await?;
        let (scan, first) = Scan::open(&context, &partition, projection, filter, start)?;
        let scan = Some(scan.bounded(ticket.max_rows, ticket.max_bytes));
        let wait = Duration::from_millis(ticket.wait_ms);
        let watch = partition.watch();
        let follow = ticket.follow;
        Ok((
            Self {
                what,
                partition,
                watch,
                scan,
                limit,
                follow,
                wait,
                authorization,
                access: context.access.clone(),
                _slot: slot,
            },
            first,
        ))
    }

    /// Sends messages until the scan ends. A failure is the last thing sent.
    async fn run(mut self, sender: mpsc::Sender<Produced>) {
        if let Err(status) = self.produce(&sender).await {
            // This fails when nobody listens any more.
            let _ = sender.send(Err(status)).await;
        }
    }

    async fn produce(&mut self, sender: &mpsc::Sender<Produced>) -> Result<(), Status> {
        if !self.wait.is_zero() {
            let wait = self.wait;
            // The deadline is the ordinary end of a long poll; the other outcomes show in the steps that follow.
            let _ = timeout(wait, self.wait_for_more(sender)).await;
        }
        let until = match self.limit {
            Limit::Offset(until) => until,
            Limit::AfterWait(most) => self.partition.reader().high_watermark().min(most),
        };
        while let Ok(room) = sender.reserve().await {
            let allowed = self.authorization.renew(&self.access);
            allowed.map_err(|refusal| denied(&refusal))?;
            match self.step(until).await? {
                Step::Message(chunks) => room.send(Ok(chunks)),
                Step::Scanned | Step::WouldBlock => {}
                Step::Complete => return Ok(()),
                Step::CaughtUp if self.follow => {
                    drop(room);
                    match self.wait_for_more(sender).await {
                        Wake::Moved => {}
                        Wake::PartitionEnded => {
                            return Err(ended(&self.what, self.partition.end()));
                        }
                        Wake::CallerGone => return Ok(()),
                    }
                }
                Step::CaughtUp => {
                    let reader = self.partition.reader();
                    return Err(out_of_range(
                        &self.what,
                        until,
                        reader.log_start(),
                        reader.high_watermark(),
                    ));
                }
            }
        }
        Ok(())
    }

    /// One step of the scan: here when little is left and it is in memory, on a blocking thread otherwise, so that large
    /// scans do not hold up the calls of others.
    async fn step(&mut self, until: u64) -> Result<Step, Status> {
        let lost = || internal("the scan was lost in a failed step".to_owned());
        let mut scan = self.scan.take().ok_or_else(lost)?;
        let end = self.partition.reader().high_watermark().min(until);
        if end.saturating_sub(scan.next_offset()) <= INLINE_RECORDS {
            match scan.step(until, ReadMode::NoWait) {
                Ok(Step::WouldBlock) => {}
                done => {
                    self.scan = Some(scan);
                    return done;
                }
            }
        }
        let work = move || {
            let step = scan.step(until, ReadMode::Blocking);
            (scan, step)
        };
        let (scan, step) = threads::run(work)
            .await
            .map_err(|lost| internal(format!("a step of the scan failed: {lost}")))?;
        self.scan = Some(scan);
        step
    }

    async fn wait_for_more(&mut self, sender: &mpsc::Sender<Produced>) -> Wake {
        let next = self.scan.as_ref().map_or(0, Scan::next_offset);
        tokio::select! {
            moved = self.watch.wait_for(|high_watermark| *high_watermark > next) => {
                if moved.is_ok() { Wake::Moved } else { Wake::PartitionEnded }
            }
            () = sender.closed() => Wake::CallerGone,
        }
    }
}

/// Refuses a scan of another history than the ticket expects.
async fn check_history(
    partition: &Partition,
    ticket: &ScanTicket,
    what: &str,
) -> Result<(), Status> {
    let Some(Expectation { offset, link }) = ticket.expect else {
        return Ok(());
    };
    let reader = partition.reader();
    let high_watermark = reader.high_watermark();
    if offset > high_watermark {
        return Err(out_of_range(
            what,
            offset,
            reader.log_start(),
            high_watermark,
        ));
    }
    let joined = tokio::task::spawn_blocking(move || reader.before(offset)).await;
    let found =
        joined.map_err(|error| internal(format!("identifying a record failed: {error}")))?;
    match found.map_err(|error| read_failed(what, &error))? {
        Some(actual) if actual.link != link => {
            Err(history_changed(what, offset, link, actual.link))
        }
        _ => Ok(()),
    }
}

/// Start and limit of a call as offsets. Looks times up on a blocking thread.
async fn positions(
    partition: &Partition,
    ticket: &ScanTicket,
    what: &str,
) -> Result<(u64, Limit), Status> {
    let reader = partition.reader();
    let high_watermark = reader.high_watermark();
    let (start, end) = (ticket.start, ticket.end);
    let (follow, waits) = (ticket.follow, ticket.wait_ms > 0);
    let work = move || -> Result<(u64, Limit), ReadError> {
        let first = range::resolve_start(&reader, start, high_watermark)?;
        let limit = match end {
            End::Open if follow => Limit::Offset(u64::MAX),
            End::Offset(offset) if follow => Limit::Offset(offset),
            End::Open | End::Latest if waits => Limit::AfterWait(u64::MAX),
            End::Offset(offset) if waits => Limit::AfterWait(offset),
            end => Limit::Offset(range::resolve_end(&reader, end, high_watermark)?),
        };
        Ok((first, limit))
    };
    let reads = matches!(start, Start::Time(_)) || matches!(end, End::Time(_));
    let outcome = if reads {
        let joined = tokio::task::spawn_blocking(work).await;
        joined.map_err(|error| internal(format!("looking up times failed: {error}")))?
    } else {
        work()
    };
    outcome.map_err(|error| read_failed(what, &error))
}
