//! Resuming a paused partition on behalf of a publisher or a subscriber (liftbridge §3.3), and how a failure is reported.
use super::refusal::Refusal;
use crate::events::Events;
use crate::grpc_status::Coded;
use crate::names::DEFAULT_NAMESPACE;
use bascule_wire::ErrorCode;
use std::time::Duration;
use tonic::Status;

/// What the texts of failed metadata writes begin with.
const PREFIX: &str = "Failed to resume stream: ";

/// Why a partition was not resumed: the status that a unary publish ends with.
#[derive(Clone, Debug)]
pub(super) struct NotResumed(Status);

/// Waits until partition `number` of `stream` (valid UTF-8) is open, and every other one that a publish to it resumes. The
/// view is new then: look the partition up again.
///
/// # Errors
/// The stream or the partition is gone, the metadata log did not answer, or `remaining` is over.
pub(super) async fn resume(
    events: &Events,
    stream: &[u8],
    number: i32,
    remaining: Option<Duration>,
) -> Result<(), NotResumed> {
    let stream = String::from_utf8_lossy(stream);
    let resumed = crate::resume::resume(events, (DEFAULT_NAMESPACE, &stream), number, remaining);
    resumed
        .await
        .map_err(|refused| NotResumed(refused.into_status()))
}

impl NotResumed {
    /// As a unary publish ends.
    pub(super) fn status(self) -> Status {
        self.0
    }

    /// As a subscription ends.
    pub(super) fn subscription(&self) -> Status {
        Status::internal(format!("{PREFIX}{}", self.reason())).coded(ErrorCode::Unavailable)
    }

    /// As a message of PublishAsync is answered.
    pub(super) fn refusal(&self) -> Refusal {
        Refusal::NotResumed(self.reason().to_owned())
    }

    fn reason(&self) -> &str {
        let message = self.0.message();
        message.strip_prefix(PREFIX).unwrap_or(message)
    }
}
