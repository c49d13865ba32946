//! Outcomes of appends as `PublishResponse` frames of a PublishAsync call.
use super::refusal::Refusal;
use super::route::{AckContext, Destination};
use crate::partition::{AppendError, Committed};
use bascule_wire::liftbridge::acks::{AckFields, put_async_error_frame};
use bascule_wire::liftbridge::messages::AckPolicy;
use std::sync::Arc;

/// The outcome of one append: what the records' acks are written from.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) destination: Arc<Destination>,
    pub(super) acks: Vec<AckContext>,
    pub(super) outcome: Result<Committed, AppendError>,
}
impl Group {
    /// Appends the responses of all records, in order: acks for LEADER and ALL, errors for every policy.
    pub(super) fn put_responses(&self, out: &mut Vec<u8>, ack_inbox: &[u8]) {
        match &self.outcome {
            Ok(committed) => self.put_committed(out, ack_inbox, committed),
            Err(error) => {
                let number = self.destination.number;
                let refusal = Refusal::of(error.clone(), number);
                let (text, error) = (refusal.to_string(), refusal.document());
                for ack in &self.acks {
                    let id = &ack.correlation_id;
                    put_async_error_frame(out, id, refusal.async_code(), &text, &error);
                }
            }
        }
    }

    fn put_committed(&self, out: &mut Vec<u8>, ack_inbox: &[u8], committed: &Committed) {
        let mut rejected = committed.rejected.iter().peekable();
        let mut offset = committed.base_offset;
        for (index, ack) in self.acks.iter().enumerate() {
            if let Some(reject) = rejected.next_if(|reject| reject.index as usize == index) {
                put_refusal(
                    out,
                    &ack.correlation_id,
                    &Refusal::Rejected(reject.reason.clone()),
                );
                continue;
            }
            if ack.policy != AckPolicy::None as i32 {
                let fields = committed_fields(ack, committed, offset, ack_inbox);
                self.destination
                    .template
                    .put_response_frame(out, &fields, true);
            }
            offset += 1;
        }
    }
}

/// The fields of a success.
pub(super) fn committed_fields<'a>(
    ack: &'a AckContext,
    committed: &Committed,
    offset: u64,
    ack_inbox: &'a [u8],
) -> AckFields<'a> {
    AckFields {
        offset: offset as i64,
        ack_inbox,
        correlation_id: &ack.correlation_id,
        ack_policy: ack.policy,
        reception_timestamp: committed.timestamp,
        commit_timestamp: committed.commit_timestamp,
        ack_error: 0,
    }
}

/// One asynchronous error.
pub(super) fn put_refusal(out: &mut Vec<u8>, correlation_id: &[u8], refusal: &Refusal) {
    put_async_error_frame(
        out,
        correlation_id,
        refusal.async_code(),
        &refusal.to_string(),
        &refusal.document(),
    );
}
