//! The publish ack: JSON, as nats-server writes it.
use bytes::Bytes;
use std::fmt::Write as _;

/// Longest text of a publisher that a description repeats, bytes.
const SHOWN_BYTES: usize = 256;

/// Why a message was not stored, in JetStream's terms; the last one: why it is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The stream has another name than the publisher expects.
    WrongStream,
    /// The last record has this sequence, not the expected one.
    WrongLastSequence(u64),
    /// The last record has this id, not the expected one; empty = none.
    WrongLastId(Bytes),
    /// A control header of this name that is not supported.
    Unsupported(Bytes),
    /// As many ids are remembered as may be.
    WindowFull,
    /// Larger than a record of the stream may be.
    TooLarge,
    /// The stream takes no messages at present.
    ReadOnly,
    /// No space is left.
    DiskFull,
    /// Messages come faster than they can be stored.
    Busy,
    /// The partition is closing, not led here, or has too few replicas: the sentence.
    Unavailable(String),
    /// Nothing was stored, and the sentence says why.
    NotStored(String),
    /// The disk failed: whether the message is stored is unknown.
    Unknown(String),
}

impl Refusal {
    /// HTTP-like code and JetStream's error code.
    fn codes(&self) -> (u16, u16) {
        match self {
            Self::WrongStream => (400, 10060),
            Self::WrongLastSequence(_) => (400, 10071),
            Self::WrongLastId(_) => (400, 10070),
            Self::Unsupported(name) => unsupported(name).0,
            Self::WindowFull | Self::Busy => (503, 10023),
            Self::TooLarge => (400, 10054),
            Self::ReadOnly => (400, 10109),
            Self::DiskFull => (500, 10047),
            Self::Unavailable(_) => (503, 10008),
            Self::NotStored(_) | Self::Unknown(_) => (503, 10077),
        }
    }

    /// JetStream's sentence first, then what it does not say.
    fn description(&self) -> String {
        match self {
            Self::WrongStream => "expected stream does not match".to_owned(),
            Self::WrongLastSequence(last) => format!("wrong last sequence: {last}"),
            Self::WrongLastId(id) => format!("wrong last msg ID: {}", shown(id)),
            Self::Unsupported(name) => {
                let name = shown(name);
                let (_, reason) = unsupported(name.as_bytes());
                format!("{reason}: header {name} is not supported by this stream")
            }
            Self::WindowFull => {
                "insufficient resources: no more message ids can be remembered; try again when those of the last 2 \
                 minutes have expired, or publish without Nats-Msg-Id"
                    .to_owned()
            }
            Self::TooLarge => "message size exceeds maximum allowed".to_owned(),
            Self::ReadOnly => "invalid operation on sealed stream: it is read-only".to_owned(),
            Self::DiskFull => "insufficient storage resources available".to_owned(),
            Self::Busy => "insufficient resources: messages come faster than they can be stored; try again".to_owned(),
            Self::Unavailable(why) => format!("JetStream system temporarily unavailable: {why}"),
            Self::NotStored(why) => format!("not stored: {why}"),
            Self::Unknown(why) => format!("whether it is stored is unknown: {why}"),
        }
    }
}

/// Codes and sentence for a header that nats-server knows; those of a bad request for the others.
fn unsupported(name: &[u8]) -> ((u16, u16), &'static str) {
    match name {
        b"Nats-Rollup" => ((500, 10111), "rollup not permitted"),
        b"Nats-TTL" => ((400, 10166), "per-message TTL is disabled"),
        b"Nats-Incr" => ((400, 10168), "message counters is disabled"),
        name if name.starts_with(b"Nats-Batch-") => ((400, 10174), "atomic publish is disabled"),
        name if name.starts_with(b"Nats-Schedule") => {
            ((400, 10188), "message schedules is disabled")
        }
        _ => ((400, 10003), "bad request"),
    }
}

/// Text of a publisher, shortened.
fn shown(text: &[u8]) -> String {
    let start = text.get(..SHOWN_BYTES).unwrap_or(text);
    let more = if start.len() < text.len() { "…" } else { "" };
    format!("{}{more}", String::from_utf8_lossy(start))
}

/// Acks of one stream.
#[derive(Clone, Debug)]
pub struct AckTemplate {
    /// The name as a JSON string.
    stream: String,
}

impl AckTemplate {
    /// For the stream of this name.
    pub fn new(stream: &str) -> Self {
        Self {
            stream: quoted(stream),
        }
    }

    /// Appends the ack of a stored message. `sequence` is that of the original for a duplicate.
    pub fn put_stored(&self, out: &mut Vec<u8>, sequence: u64, is_duplicate: bool) {
        let duplicate = if is_duplicate {
            r#","duplicate": true"#
        } else {
            ""
        };
        let text = format!(
            r#"{{"stream":{},"seq":{sequence}{duplicate}}}"#,
            self.stream
        );
        out.extend_from_slice(text.as_bytes());
    }

    /// Appends the ack of a message that was refused.
    pub fn put_refused(&self, out: &mut Vec<u8>, refusal: &Refusal) {
        let (code, err_code) = refusal.codes();
        let description = quoted(&refusal.description());
        let text = format!(
            r#"{{"error":{{"code":{code},"err_code":{err_code},"description":{description}}},"stream":{},"seq":0}}"#,
            self.stream
        );
        out.extend_from_slice(text.as_bytes());
    }
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control < ' ' => {
                // Writing to a String does not fail.
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(refusal: &Refusal) -> String {
        let mut out = Vec::new();
        AckTemplate::new("s").put_refused(&mut out, refusal);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn acks_are_what_nats_server_writes() {
        let template = AckTemplate::new("s");
        let mut out = Vec::new();
        template.put_stored(&mut out, 1, false);
        assert_eq!(out, br#"{"stream":"s","seq":1}"#);
        out.clear();
        template.put_stored(&mut out, 2, true);
        assert_eq!(out, br#"{"stream":"s","seq":2,"duplicate": true}"#);
        for (refusal, text) in [
            (
                Refusal::WrongStream,
                r#"{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"},"stream":"s","seq":0}"#,
            ),
            (
                Refusal::WrongLastSequence(11),
                r#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 11"},"stream":"s","seq":0}"#,
            ),
            (
                Refusal::WrongLastId(Bytes::new()),
                r#"{"error":{"code":400,"err_code":10070,"description":"wrong last msg ID: "},"stream":"s","seq":0}"#,
            ),
            (
                Refusal::TooLarge,
                r#"{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"},"stream":"s","seq":0}"#,
            ),
        ] {
            assert_eq!(refused(&refusal), text);
        }
    }

    #[test]
    fn a_header_that_is_not_supported_is_named_with_the_code_of_nats_server() {
        for (name, code) in [
            ("Nats-Rollup", 10111),
            ("Nats-TTL", 10166),
            ("Nats-Schedule-Target", 10188),
            ("Nats-Scheduler", 10188),
            ("Nats-Incr", 10168),
            ("Nats-Batch-Id", 10174),
            ("Nats-Expected-Last-Subject-Sequence", 10003),
        ] {
            let text = refused(&Refusal::Unsupported(Bytes::from_static(name.as_bytes())));
            let codes = format!("\"err_code\":{code},");
            assert!(text.contains(&codes) && text.contains(name), "{text}");
        }
    }

    #[test]
    fn what_a_publisher_sent_is_shortened_and_escaped() {
        let long = Refusal::Unsupported(Bytes::from(vec![b'"'; 70_000]));
        assert!(refused(&long).len() < 1024);
        let odd = Refusal::WrongLastId(Bytes::from_static(b"a\"\\\r\n\xe9"));
        assert!(refused(&odd).contains(r#"wrong last msg ID: a\"\\\u000d\u000a"#));
    }

    proptest! {
        #[test]
        fn every_ack_is_json_that_says_what_was_given(
            stream in ".{1,20}", sequence: u64, is_duplicate: bool, id in proptest::collection::vec(any::<u8>(), 0..20)
        ) {
            let template = AckTemplate::new(&stream);
            let mut out = Vec::new();
            template.put_stored(&mut out, sequence, is_duplicate);
            let ack: serde_json::Value = serde_json::from_slice(&out).unwrap();
            prop_assert_eq!(&ack["stream"], &stream);
            prop_assert_eq!(&ack["seq"], sequence);
            prop_assert_eq!(ack["duplicate"].as_bool().unwrap_or_default(), is_duplicate);
            out.clear();
            template.put_refused(&mut out, &Refusal::WrongLastId(id.clone().into()));
            let ack: serde_json::Value = serde_json::from_slice(&out).unwrap();
            let description = format!("wrong last msg ID: {}", String::from_utf8_lossy(&id));
            prop_assert_eq!(&ack["error"]["description"], &description);
        }
    }
}
