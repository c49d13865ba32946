//! What a copy looks like: on NATS, and to a listener of this broker.
use super::origin::ORIGIN_HEADER;
use super::settings::NatsCopy;
use crate::partition::IncomingRecord;
use async_nats::{Client, HeaderMap, Subject};
use bascule_wire::liftbridge::publish::{PublishFields, put_envelope_publish};
use bytes::Bytes;

/// Ack policy NONE.
const POLICY_NONE: i32 = 2;
/// Whoever stores a copy takes it at any offset.
const ANY_OFFSET: i64 = -1;

/// One copy, ready to go out.
pub(super) struct EncodedCopy {
    pub(super) subject: Subject,
    /// Value of the header that says where it came from.
    pub(super) origin: String,
    pub(super) payload: Bytes,
}

impl EncodedCopy {
    /// Hands it to the connection, waiting for room there; with a reply subject when it is a probe.
    pub(super) async fn send(
        self,
        client: &Client,
        reply: Option<&Subject>,
    ) -> Result<(), async_nats::PublishError> {
        let mut headers = HeaderMap::new();
        headers.insert(ORIGIN_HEADER, self.origin);
        match reply {
            Some(reply) => {
                client
                    .publish_with_reply_and_headers(
                        self.subject,
                        reply.clone(),
                        headers,
                        self.payload,
                    )
                    .await
            }
            None => {
                client
                    .publish_with_headers(self.subject, headers, self.payload)
                    .await
            }
        }
    }
}

/// Appends the payload of a record's copy.
pub(super) fn put_copy(
    out: &mut Vec<u8>,
    mode: NatsCopy,
    stream: &str,
    subject: &str,
    record: &IncomingRecord,
) {
    let value = record.value.as_deref().unwrap_or_default();
    if mode == NatsCopy::Value {
        out.extend_from_slice(value);
        return;
    }
    // An envelope can only name headers by text.
    let headers: Vec<_> = record
        .headers
        .iter()
        .filter_map(|(name, value)| Some((std::str::from_utf8(name).ok()?, value.as_ref())))
        .collect();
    let fields = PublishFields {
        key: &record.key,
        value,
        stream,
        headers: &headers,
        ack_policy: POLICY_NONE,
        expected_offset: ANY_OFFSET,
        ..PublishFields::default()
    };
    put_envelope_publish(out, subject, &fields);
}

/// What a listener would have stored of a record's copy, had it come through NATS.
pub(super) fn as_received(
    record: &IncomingRecord,
    mode: NatsCopy,
    subject: &Bytes,
) -> IncomingRecord {
    let value = record.value.clone().unwrap_or_default();
    let is_envelope = mode == NatsCopy::Envelope;
    let headers = if is_envelope {
        record.headers.clone()
    } else {
        Vec::new()
    };
    let header_bytes: usize = headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    IncomingRecord {
        is_plain_nats: false,
        key: if is_envelope {
            record.key.clone()
        } else {
            Bytes::new()
        },
        received_bytes: u32::try_from(value.len() + record.key.len() + header_bytes)
            .unwrap_or(u32::MAX),
        value: Some(value),
        headers,
        subject: subject.clone(),
        reply: Bytes::new(),
        id: 0,
        expected_offset: if is_envelope { ANY_OFFSET } else { 0 },
    }
}
