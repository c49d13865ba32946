//! Why a command fails: the status of its reply.
use crate::events::Rejection;
use crate::partition::{AppendError, RejectReason};
use bascule_log::ReadError;
use bascule_wire::iggy::{Malformed, Status};
use tonic::Code;

/// A status on the wire; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused(pub(super) u32);

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self(status.code())
    }
}

impl From<Malformed> for Refused {
    fn from(_: Malformed) -> Self {
        Status::InvalidCommand.into()
    }
}

impl From<Rejection> for Refused {
    /// What the control plane says, else what comes nearest to the gRPC status.
    fn from(rejection: Rejection) -> Self {
        let usual = match Code::from(rejection.status) {
            Code::Unimplemented => Status::FeatureUnavailable,
            Code::PermissionDenied | Code::Unauthenticated => Status::Unauthorized,
            Code::InvalidArgument => Status::InvalidCommand,
            _ => Status::Error,
        };
        match rejection.iggy_status {
            Some(status) if status != 0 => Self(status),
            _ => usual.into(),
        }
    }
}

/// The status of an append that v2 can repeat: its client sends the same request again, for up to 30 s.
pub(super) fn repeatable(error: &AppendError) -> Status {
    match error {
        AppendError::Busy
        | AppendError::NoDescriptor
        | AppendError::TooFewReplicas { .. }
        | AppendError::Unreachable(_) => Status::TransientNotAccepted,
        AppendError::Closed
        | AppendError::NotLeader
        | AppendError::LeaderChanged
        | AppendError::Unknown(_)
        | AppendError::Storage(_) => Status::TransientNotCommitted,
        _ => Status::CannotAppendMessage,
    }
}

impl From<AppendError> for Refused {
    fn from(_: AppendError) -> Self {
        Status::CannotAppendMessage.into()
    }
}

impl From<&RejectReason> for Refused {
    fn from(reason: &RejectReason) -> Self {
        match reason {
            RejectReason::TooLarge => Status::TooBigMessagePayload.into(),
            _ => Status::CannotAppendMessage.into(),
        }
    }
}

impl From<ReadError> for Refused {
    fn from(_: ReadError) -> Self {
        Status::Error.into()
    }
}
