//! Resuming a paused partition on behalf of whoever writes to it or reads it (liftbridge §3.3): the control plane decides and
//! answers when the partition is open again.
use crate::events::{Caller, Events, Rejection};
use bytes::Bytes;
use std::time::Duration;

/// How often a partition that is paused again at once is resumed.
pub(crate) const RESUMES: usize = 3;
/// How long a resume may take when the caller set no deadline.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Waits until partition `number` of a stream is open, and every other one that a publish to it resumes. The view is new
/// then: look the partition up again.
///
/// # Errors
/// The stream or the partition is gone, the metadata log did not answer, or `remaining` is over.
pub(crate) async fn resume(
    events: &Events,
    (namespace, stream): (&str, &str),
    number: i32,
    remaining: Option<Duration>,
) -> Result<(), Rejection> {
    let request =
        serde_json::json!({"namespace": namespace, "stream": stream, "partition": number});
    let left = Some(remaining.unwrap_or(TIMEOUT));
    let answer = events.request(
        "liftbridge/ResumePartition",
        Bytes::from(request.to_string()),
        Caller::default(),
        left,
    );
    answer.await.map(drop)
}
