//! Where a subscription starts and stops (liftbridge §3.5).
use crate::grpc_status::Coded;
use bascule_log::{LogReader, ReadError};
use bascule_wire::ErrorCode;
use bascule_wire::liftbridge::messages::{StartPosition, StopPosition, SubscribeRequest};
use tonic::Status;

/// Reason: nothing can be between start and stop.
const EMPTY_RANGE: &str = "empty_range";

/// The offsets of a log at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// First readable offset.
    pub(super) log_start: u64,
    /// End of committed records, exclusive.
    pub(super) high_watermark: u64,
    /// Next offset to be written.
    pub(super) log_end: u64,
}
impl Bounds {
    pub(super) fn of(reader: &LogReader) -> Self {
        Self {
            log_start: reader.log_start(),
            high_watermark: reader.high_watermark(),
            log_end: reader.log_end(),
        }
    }

    fn is_empty(self) -> bool {
        self.log_start >= self.log_end
    }

    /// Offset of the last record appended, −1 when there never was one.
    fn newest(self) -> i64 {
        self.log_end as i64 - 1
    }
}

/// The offsets to deliver: `[start, stop]`, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// First offset, where the log has it.
    pub(super) start: u64,
    /// Last offset, inclusive; `None` = until the end of the stream.
    pub(super) stop: Option<u64>,
}

/// Whether a start or a stop can only be found among committed records.
pub(super) fn needs_committed(request: &SubscribeRequest) -> bool {
    request.reverse
        || request.start_position == StartPosition::Timestamp as i32
        || request.stop_position == StopPosition::StopTimestamp as i32
}

/// Steps 6 to 8 and the rules for starts outside the log. May wait for the disk, off the runtime's threads.
///
/// # Errors
/// The statuses of those steps.
pub(super) async fn resolve(
    request: &SubscribeRequest,
    reader: &LogReader,
    readonly: bool,
) -> Result<Range, Status> {
    let bounds = Bounds::of(reader);
    let start = wanted_start(request, reader, bounds).await?.max(0);
    let stop = wanted_stop(request, reader, bounds, readonly).await?;
    if let Some(stop) = stop.filter(|stop| *stop < start) {
        return Err(Status::invalid_argument(format!(
            "Stop offset is before start offset: {stop} < {start}"
        ))
        .because(ErrorCode::InvalidArgument, EMPTY_RANGE));
    }
    Ok(Range {
        start: begin(start as u64, bounds),
        stop: stop.map(|stop| stop as u64),
    })
}

/// The same for reading towards lower offsets: from `start` down to `stop`, both inclusive; nothing is waited for.
///
/// # Errors
/// The statuses of those steps; a log without committed records has nothing to begin at.
pub(super) async fn resolve_reverse(
    request: &SubscribeRequest,
    reader: &LogReader,
) -> Result<Range, Status> {
    let bounds = Bounds::of(reader);
    let start = wanted_start(request, reader, bounds).await?.max(0);
    let stop = wanted_stop(request, reader, bounds, false).await?;
    if let Some(stop) = stop.filter(|stop| *stop > start) {
        return Err(Status::invalid_argument(format!(
            "Stop offset is after start offset: {stop} > {start}"
        ))
        .because(ErrorCode::InvalidArgument, EMPTY_RANGE));
    }
    let newest = bounds
        .high_watermark
        .checked_sub(1)
        .filter(|newest| *newest >= bounds.log_start)
        .ok_or_else(|| {
            Status::internal("Failed to create stream reader: segment not found")
                .because(ErrorCode::EndOfStream, EMPTY_RANGE)
        })?;
    Ok(Range {
        start: (start as u64).clamp(bounds.log_start, newest),
        stop: stop.map(|stop| stop.max(0) as u64),
    })
}

/// The offset delivery begins at: not below the log, and not beyond its end of now. What is appended and not committed yet
/// was published before the subscription, which waits for it.
pub(super) fn begin(start: u64, bounds: Bounds) -> u64 {
    start
        .max(bounds.log_start)
        .min(bounds.log_end.max(bounds.log_start))
}

async fn wanted_start(
    request: &SubscribeRequest,
    reader: &LogReader,
    bounds: Bounds,
) -> Result<i64, Status> {
    match StartPosition::try_from(request.start_position) {
        Ok(StartPosition::Offset) => Ok(request.start_offset),
        Ok(StartPosition::Earliest) => Ok(bounds.log_start as i64),
        Ok(StartPosition::Latest) => Ok(bounds.newest()),
        Ok(StartPosition::NewOnly) => Ok(bounds.newest() + 1),
        Ok(StartPosition::Timestamp) => {
            let timestamp = request.start_timestamp;
            let found = look_up(reader, move |reader| reader.offset_at_or_after(timestamp)).await?;
            Ok(found.map_or(bounds.newest() + 1, |offset| offset as i64))
        }
        Err(_) => Err(Status::invalid_argument(format!(
            "Unknown StartPosition {}",
            request.start_position
        ))),
    }
}

async fn wanted_stop(
    request: &SubscribeRequest,
    reader: &LogReader,
    bounds: Bounds,
    readonly: bool,
) -> Result<Option<i64>, Status> {
    let none_below_zero = |offset: i64| (offset != -1).then_some(offset);
    match StopPosition::try_from(request.stop_position) {
        // With nothing to read there is nothing to stop at: the end of the partition is met at once.
        Ok(StopPosition::StopOnCancel) if readonly && !bounds.is_empty() => {
            Ok(Some(bounds.newest()))
        }
        Ok(StopPosition::StopOnCancel) => Ok(None),
        Ok(StopPosition::StopOffset) => Ok(none_below_zero(request.stop_offset)),
        Ok(StopPosition::StopLatest) if bounds.is_empty() => {
            Err(Status::resource_exhausted("Stream is empty").coded(ErrorCode::EndOfStream))
        }
        Ok(StopPosition::StopLatest) => Ok(Some(bounds.newest())),
        Ok(StopPosition::StopTimestamp) => {
            if bounds.is_empty() {
                return Err(nothing_before("the log is empty"));
            }
            let timestamp = request.stop_timestamp;
            let found =
                look_up(reader, move |reader| reader.offset_at_or_before(timestamp)).await?;
            let found = found
                .ok_or_else(|| nothing_before("timestamp is before the beginning of the log"))?;
            Ok(Some(found as i64))
        }
        Err(_) => Err(Status::invalid_argument(format!(
            "Unknown StopPosition {}",
            request.stop_position
        ))),
    }
}

/// A look-up by time, on a thread that may wait for the disk.
async fn look_up<F>(reader: &LogReader, look: F) -> Result<Option<u64>, Status>
where
    F: FnOnce(&LogReader) -> Result<Option<u64>, ReadError> + Send + 'static,
{
    let reader = reader.clone();
    let found = tokio::task::spawn_blocking(move || look(&reader)).await;
    found
        .map_err(|error| lookup_failed(&error.to_string()))?
        .map_err(|error| match error {
            ReadError::Damaged(_) => Status::data_loss(lookup_text(&error.to_string())),
            error => lookup_failed(&error.to_string()),
        })
}

/// The range ends before the first record.
fn nothing_before(reason: &str) -> Status {
    Status::internal(lookup_text(reason)).because(ErrorCode::EndOfStream, EMPTY_RANGE)
}

fn lookup_failed(reason: &str) -> Status {
    Status::internal(lookup_text(reason)).coded(ErrorCode::StorageFailed)
}

fn lookup_text(reason: &str) -> String {
    format!("Failed to lookup offset for timestamp: {reason}")
}
