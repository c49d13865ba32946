//! What became of an append, as the leader answers it.
use crate::access::{Action, Denied};
use crate::partition::{AppendError, Committed, RejectReason, Rejected};
use bascule_log::SequenceError;
use bascule_wire::jetstream::Refusal;
use bascule_wire::peer::forward::{ForwardRejected, RejectedFor};
use bascule_wire::peer::{ForwardAnswer, ForwardOutcome};

/// Longest text of an answer, bytes.
const TEXT_BYTES: usize = 1024;

/// The answer to a request.
pub(super) fn to_answer(request: u64, outcome: &Result<Committed, AppendError>) -> ForwardAnswer {
    let error = match outcome {
        Ok(committed) => return committed_answer(request, committed),
        Err(error) => error,
    };
    let (outcome, expected, found) = match error {
        AppendError::NotLeader | AppendError::Unreachable(_) => (ForwardOutcome::NotLeader, 0, 0),
        AppendError::Closed => (ForwardOutcome::Closed, 0, 0),
        AppendError::Busy => (ForwardOutcome::Busy, 0, 0),
        AppendError::Readonly => (ForwardOutcome::Readonly, 0, 0),
        AppendError::TooFewReplicas { in_sync, required } => {
            let numbers = (u64::from(*in_sync), u64::from(*required));
            (ForwardOutcome::TooFewReplicas, numbers.0, numbers.1)
        }
        AppendError::LeaderChanged => (ForwardOutcome::LeaderChanged, 0, 0),
        AppendError::Full => (ForwardOutcome::Full, 0, 0),
        AppendError::NoDescriptor => (ForwardOutcome::NoDescriptor, 0, 0),
        AppendError::Storage(_) | AppendError::Unknown(_) => (ForwardOutcome::Storage, 0, 0),
        AppendError::Encryption(_) => (ForwardOutcome::Encryption, 0, 0),
        AppendError::Sequence(SequenceError::Gap { expected, got }) => {
            (ForwardOutcome::Gap, u64::from(*expected), u64::from(*got))
        }
        AppendError::Sequence(SequenceError::Fenced { current, got }) => {
            (ForwardOutcome::Fenced, u64::from(*current), u64::from(*got))
        }
        AppendError::Sequence(SequenceError::TooMany { limit }) => {
            (ForwardOutcome::TooMany, *limit as u64, 0)
        }
        AppendError::Denied(Denied::Nameless) => (ForwardOutcome::Nameless, 0, 0),
        AppendError::Denied(Denied::NotAllowed { .. }) => (ForwardOutcome::Denied, 0, 0),
        AppendError::Invalid(_) | AppendError::Sequence(_) => (ForwardOutcome::Invalid, 0, 0),
    };
    let text = match error {
        AppendError::Storage(text)
        | AppendError::Unknown(text)
        | AppendError::Encryption(text)
        | AppendError::Invalid(text) => text,
        AppendError::Denied(Denied::NotAllowed { resource, .. }) => resource,
        _ => "",
    };
    ForwardAnswer {
        request,
        outcome: outcome as i32,
        text: text[..text.floor_char_boundary(TEXT_BYTES)].to_owned(),
        expected,
        found,
        ..ForwardAnswer::default()
    }
}

fn committed_answer(request: u64, committed: &Committed) -> ForwardAnswer {
    let rejected = committed.rejected.iter().map(|rejected| {
        let (reason, offset) = match &rejected.reason {
            RejectReason::TooLarge => (RejectedFor::TooLarge, 0),
            RejectReason::IncorrectOffset => (RejectedFor::IncorrectOffset, 0),
            RejectReason::Encryption => (RejectedFor::Encryption, 0),
            RejectReason::Batch => (RejectedFor::Batch, 0),
            RejectReason::Duplicate(offset) => (RejectedFor::Duplicate, *offset),
            RejectReason::Refused(_) => (RejectedFor::Condition, 0),
        };
        ForwardRejected {
            index: rejected.index,
            reason: reason as i32,
            offset,
        }
    });
    ForwardAnswer {
        request,
        outcome: ForwardOutcome::Committed as i32,
        base_offset: committed.base_offset,
        timestamp: committed.timestamp,
        commit_timestamp: committed.commit_timestamp,
        count: committed.count,
        duplicate: committed.duplicate,
        rejected: rejected.collect(),
        ..ForwardAnswer::default()
    }
}

/// What an answer says.
pub(super) fn of_answer(answer: ForwardAnswer) -> Result<Committed, AppendError> {
    let (expected, found) = (answer.expected as u32, answer.found as u32);
    let outcome = answer.outcome();
    let text = answer.text;
    Err(match outcome {
        ForwardOutcome::Committed => {
            return Ok(Committed {
                base_offset: answer.base_offset,
                timestamp: answer.timestamp,
                commit_timestamp: answer.commit_timestamp,
                count: answer.count,
                rejected: answer.rejected.iter().map(rejected).collect(),
                duplicate: answer.duplicate,
            });
        }
        ForwardOutcome::NotLeader => AppendError::NotLeader,
        ForwardOutcome::Closed => AppendError::Closed,
        ForwardOutcome::Busy => AppendError::Busy,
        ForwardOutcome::Readonly => AppendError::Readonly,
        ForwardOutcome::TooFewReplicas => AppendError::TooFewReplicas {
            in_sync: expected,
            required: found,
        },
        ForwardOutcome::LeaderChanged => AppendError::LeaderChanged,
        ForwardOutcome::Full => AppendError::Full,
        ForwardOutcome::NoDescriptor => AppendError::NoDescriptor,
        ForwardOutcome::Storage => AppendError::Storage(text),
        ForwardOutcome::Encryption => AppendError::Encryption(text),
        ForwardOutcome::Gap => AppendError::Sequence(SequenceError::Gap {
            expected,
            got: found,
        }),
        ForwardOutcome::Fenced => AppendError::Sequence(SequenceError::Fenced {
            current: expected,
            got: found,
        }),
        ForwardOutcome::TooMany => AppendError::Sequence(SequenceError::TooMany {
            limit: answer.expected as usize,
        }),
        ForwardOutcome::Denied => AppendError::Denied(Denied::NotAllowed {
            action: Action::Publish,
            resource: text,
        }),
        ForwardOutcome::Nameless => AppendError::Denied(Denied::Nameless),
        ForwardOutcome::Invalid => AppendError::Invalid(text),
        ForwardOutcome::None => {
            AppendError::Unknown("the leader's answer has no outcome".to_owned())
        }
    })
}

fn rejected(rejected: &ForwardRejected) -> Rejected {
    let reason = match rejected.reason() {
        RejectedFor::TooLarge => RejectReason::TooLarge,
        RejectedFor::IncorrectOffset => RejectReason::IncorrectOffset,
        RejectedFor::Encryption => RejectReason::Encryption,
        RejectedFor::Batch => RejectReason::Batch,
        RejectedFor::Duplicate => RejectReason::Duplicate(rejected.offset),
        RejectedFor::Condition | RejectedFor::None => {
            RejectReason::Refused(Refusal::NotStored(String::new()))
        }
    };
    Rejected {
        index: rejected.index,
        reason,
    }
}
