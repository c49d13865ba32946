//! The format of a copy: on NATS, and for a listener of this broker.
use super::marks::origin::{ORIGIN_HEADER, SEAL_HEADER};
use super::marks::seal::Seal;
use crate::nats::client::headers::without_blanks;
use crate::partition::{IncomingRecord, NatsCopy, PartitionIdentity};
use bascule_wire::liftbridge::publish::{PublishFields, put_envelope_publish};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::Arc;

/// Ack policy NONE.
const POLICY_NONE: i32 = 2;
/// A copy has no expected offset.
const ANY_OFFSET: i64 = -1;
/// Header of bare values: the key in base64.
const KEY_HEADER: &str = "Bascule-Key";
/// Names that begin so, in any case, control NATS or brokers: no publisher puts one into a copy.
const CONTROL_PREFIXES: [&str; 2] = ["nats-", "bascule-"];

/// Writes the copies of one partition.
pub(crate) struct CopyWriter {
    stream: String,
    /// `cluster/incarnation/partition/`
    origin: String,
    /// Of partitions to which their own copies come back.
    seal: Option<Arc<Seal>>,
    /// Headers that were left out.
    left_out: u64,
}

impl CopyWriter {
    pub(crate) fn new(identity: &PartitionIdentity, cluster: &str, seal: &Arc<Seal>) -> Self {
        let comes_back = !identity.queue_group.is_empty();
        Self {
            stream: identity.stream.clone(),
            origin: format!("{cluster}/{}/{}/", identity.incarnation, identity.number),
            seal: comes_back.then(|| seal.clone()),
            left_out: 0,
        }
    }

    /// Headers left out since the last call.
    pub(crate) fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    /// Appends the header block and the payload of a record's copy; where the payload begins.
    pub(crate) fn put(
        &mut self,
        out: &mut Vec<u8>,
        mode: NatsCopy,
        subject: &str,
        offset: u64,
        record: &IncomingRecord,
    ) -> usize {
        let mut payload = Vec::new();
        let value = record.value.as_deref().unwrap_or_default();
        let (payload, headers) = if mode == NatsCopy::Value {
            let shown = shown_headers(record);
            self.left_out += (record.headers.len() - shown.len()) as u64;
            (value, shown)
        } else {
            put_envelope(&mut payload, &self.stream, subject, record);
            (&payload[..], Vec::new())
        };
        let origin = format!("{}{offset}", self.origin);
        out.extend_from_slice(b"NATS/1.0\r\n");
        put_header(out, ORIGIN_HEADER, origin.as_bytes());
        let mut content = headers;
        if mode == NatsCopy::Value && !record.key.is_empty() {
            let key = STANDARD.encode(&record.key);
            content.push((Cow::Borrowed(KEY_HEADER), Cow::Owned(key.into_bytes())));
        }
        if let Some(seal) = &self.seal {
            let pairs = content.iter();
            let tag = seal.tag(
                origin.as_bytes(),
                pairs.map(|(name, value)| (name.as_bytes(), &value[..])),
                payload,
            );
            put_header(out, SEAL_HEADER, tag.as_bytes());
        }
        for (name, value) in &content {
            put_header(out, name, value);
        }
        out.extend_from_slice(b"\r\n");
        let payload_at = out.len();
        out.extend_from_slice(payload);
        payload_at
    }
}

fn put_header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// The headers of a record that the copy of its bare value carries: those with a token for a name and a value of one line
/// that controls neither NATS nor a broker.
fn shown_headers(record: &IncomingRecord) -> Vec<(Cow<'_, str>, Cow<'_, [u8]>)> {
    let headers = record.headers.iter();
    let shown = headers.filter_map(|(name, value)| {
        let name = std::str::from_utf8(name).ok()?;
        let is_line = !value.iter().any(|byte| matches!(byte, b'\r' | b'\n'));
        (is_token(name) && !is_control(name) && is_line)
            .then(|| (Cow::Borrowed(name), Cow::Borrowed(&value[..])))
    });
    shown.collect()
}

/// Whether a text is a token of RFC 9110, as names of headers are.
fn is_token(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_allowed)
}

fn is_control(name: &str) -> bool {
    CONTROL_PREFIXES.iter().any(|prefix| {
        name.get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    })
}

fn put_envelope(out: &mut Vec<u8>, stream: &str, subject: &str, record: &IncomingRecord) {
    // An envelope can only name headers by text.
    let headers: Vec<_> = record
        .headers
        .iter()
        .map(|(name, value)| (name.as_ref(), value.as_ref()))
        .collect();
    let fields = PublishFields {
        key: &record.key,
        value: record.value.as_deref().unwrap_or_default(),
        is_null: record.value.is_none(),
        stream,
        headers: &headers,
        ack_policy: POLICY_NONE,
        expected_offset: ANY_OFFSET,
        ..PublishFields::default()
    };
    put_envelope_publish(out, subject, &fields);
}

/// The record that a listener would store for a copy that arrives through NATS.
pub(crate) fn as_received(
    record: &IncomingRecord,
    mode: NatsCopy,
    subject: &Bytes,
) -> IncomingRecord {
    let is_envelope = mode == NatsCopy::Envelope;
    let value = if is_envelope {
        record.value.clone()
    } else {
        Some(record.value.clone().unwrap_or_default())
    };
    let value_bytes = value.as_ref().map_or(0, Bytes::len);
    let headers = if is_envelope {
        record.headers.clone()
    } else {
        received_headers(record)
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
        received_bytes: u32::try_from(value_bytes + record.key.len() + header_bytes)
            .unwrap_or(u32::MAX),
        value,
        headers,
        subject: subject.clone(),
        reply: Bytes::new(),
        id: 0,
        origin_time: None,
        expected_offset: if is_envelope { ANY_OFFSET } else { 0 },
    }
}

/// Headers that arrive with a bare value.
fn received_headers(record: &IncomingRecord) -> Vec<(Bytes, Bytes)> {
    let shown = shown_headers(record).into_iter();
    let mut headers: Vec<_> = shown
        .map(|(name, value)| {
            (
                Bytes::copy_from_slice(name.as_bytes()),
                Bytes::copy_from_slice(without_blanks(&value)),
            )
        })
        .collect();
    if !record.key.is_empty() {
        let key = STANDARD.encode(&record.key);
        headers.push((Bytes::from_static(KEY_HEADER.as_bytes()), key.into()));
    }
    headers
}
