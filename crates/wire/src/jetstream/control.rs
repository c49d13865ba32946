//! Control headers of a message: what its publisher asks of the stream.
//!
//! Names are case-sensitive. Of several headers of one name the first counts; an empty value counts as absent.
use super::Refusal;
use bytes::Bytes;

/// Header with the id by which a repeated message is recognised.
pub const MESSAGE_ID: &[u8] = b"Nats-Msg-Id";
const EXPECTED_STREAM: &[u8] = b"Nats-Expected-Stream";
const EXPECTED_LAST_SEQUENCE: &[u8] = b"Nats-Expected-Last-Sequence";
const EXPECTED_LAST_ID: &[u8] = b"Nats-Expected-Last-Msg-Id";
/// What every control header begins with.
const PREFIX: &[u8] = b"Nats-";

/// Headers that describe a message, such as one that a JetStream stream republished. They ask for nothing.
const DESCRIPTIVE: [&[u8]; 12] = [
    b"Nats-Last-Sequence",
    b"Nats-Marker-Reason",
    b"Nats-Msg-Size",
    b"Nats-Num-Pending",
    b"Nats-Sequence",
    b"Nats-Service-Error",
    b"Nats-Service-Error-Code",
    b"Nats-Stream",
    b"Nats-Subject",
    b"Nats-Time-Stamp",
    b"Nats-Trace-Dest",
    b"Nats-Trace-Hop",
];

/// The conditions in the headers of a message; empty = none. Slices of the headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control<'a> {
    /// Id of the message.
    pub id: &'a [u8],
    /// Name that the stream must have.
    pub stream: &'a [u8],
    /// Sequence that the last record must have, as sent.
    pub last_sequence: &'a [u8],
    /// Id that the last record must have.
    pub last_id: &'a [u8],
}

impl<'a> Control<'a> {
    /// Reads names and values in order.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`]: a header that asks for something else. Ignoring it would do what its publisher did not
    /// ask for.
    pub fn read(headers: &'a [(Bytes, Bytes)]) -> Result<Self, Refusal> {
        let mut control = Self::default();
        let mut seen = [false; 4];
        for (name, value) in headers.iter().filter(|(name, _)| name.starts_with(PREFIX)) {
            let (field, seen) = match &name[..] {
                MESSAGE_ID => (&mut control.id, &mut seen[0]),
                EXPECTED_STREAM => (&mut control.stream, &mut seen[1]),
                EXPECTED_LAST_SEQUENCE => (&mut control.last_sequence, &mut seen[2]),
                EXPECTED_LAST_ID => (&mut control.last_id, &mut seen[3]),
                name if DESCRIPTIVE.contains(&name) => continue,
                _ => return Err(Refusal::Unsupported(name.clone())),
            };
            if !std::mem::replace(seen, true) {
                *field = value;
            }
        }
        Ok(control)
    }

    /// Checks what comes before the search for a duplicate: the stream's name, and the sequence of its last record
    /// (0 = there is none).
    ///
    /// # Errors
    /// [`Refusal::WrongStream`], [`Refusal::WrongLastSequence`].
    pub fn check_stream(&self, name: &str, last_sequence: u64) -> Result<(), Refusal> {
        if !self.stream.is_empty() && self.stream != name.as_bytes() {
            return Err(Refusal::WrongStream);
        }
        if !self.last_sequence.is_empty() && number(self.last_sequence) != Some(last_sequence) {
            return Err(Refusal::WrongLastSequence(last_sequence));
        }
        Ok(())
    }

    /// Checks what comes after it: the id of the last record (empty = it has none).
    ///
    /// # Errors
    /// [`Refusal::WrongLastId`].
    pub fn check_last_id(&self, last_id: &[u8]) -> Result<(), Refusal> {
        if !self.last_id.is_empty() && self.last_id != last_id {
            return Err(Refusal::WrongLastId(Bytes::copy_from_slice(last_id)));
        }
        Ok(())
    }
}

/// A number in decimal digits and nothing else.
fn number(text: &[u8]) -> Option<u64> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(pairs: &[(&str, &str)]) -> Vec<(Bytes, Bytes)> {
        let owned = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        pairs.iter().map(|(a, b)| (owned(a), owned(b))).collect()
    }

    #[test]
    fn the_first_of_equal_names_counts_and_names_are_case_sensitive() {
        let given = headers(&[
            ("nats-msg-id", "lower"),
            ("Nats-Msg-Id", "a"),
            ("Nats-Msg-Id", "b"),
            ("X-Nats-Rollup", "all"),
            ("Nats-Expected-Stream", "orders"),
            ("Nats-Expected-Last-Sequence", "7"),
            ("Nats-Expected-Last-Msg-Id", "z"),
            ("Nats-Stream", "republished"),
        ]);
        let control = Control::read(&given).unwrap();
        let expected = Control {
            id: b"a",
            stream: b"orders",
            last_sequence: b"7",
            last_id: b"z",
        };
        assert_eq!(control, expected);
        // An empty first value hides a second one, as in nats-server.
        let empty = headers(&[("Nats-Msg-Id", ""), ("Nats-Msg-Id", "b")]);
        assert_eq!(Control::read(&empty).unwrap().id, b"");
    }

    #[test]
    fn other_control_headers_are_refused_by_name() {
        for name in [
            "Nats-Expected-Last-Subject-Sequence",
            "Nats-Expected-Last-Subject-Sequence-Subject",
            "Nats-Rollup",
            "Nats-TTL",
            "Nats-Schedule",
            "Nats-Schedule-Target",
            "Nats-Scheduler",
            "Nats-Incr",
            "Nats-Batch-Id",
            "Nats-Fast-Batch-Id",
            "Nats-Required-Api-Level",
            "Nats-Stream-Source",
            "Nats-Of-A-Later-Version",
        ] {
            let given = headers(&[("A", "b"), (name, "x")]);
            let refusal = Refusal::Unsupported(Bytes::copy_from_slice(name.as_bytes()));
            assert_eq!(Control::read(&given), Err(refusal));
        }
    }

    #[test]
    fn conditions_hold_for_exactly_the_value_they_name() {
        let check = |name: &str, value: &str| {
            let given = headers(&[(name, value)]);
            let control = Control::read(&given).unwrap();
            control
                .check_stream("orders", 7)
                .and_then(|()| control.check_last_id(b"z"))
        };
        let sequence = "Nats-Expected-Last-Sequence";
        for right in ["7", "07", ""] {
            assert_eq!(check(sequence, right), Ok(()), "{right:?}");
        }
        for wrong in ["0", "6", "+7", "-7", "7 ", "x", "99999999999999999999"] {
            let refusal = Refusal::WrongLastSequence(7);
            assert_eq!(check(sequence, wrong), Err(refusal), "{wrong:?}");
        }
        let stream = "Nats-Expected-Stream";
        assert_eq!(check(stream, "orders"), Ok(()));
        assert_eq!(check(stream, ""), Ok(()));
        for wrong in ["order", "Orders", "orders "] {
            assert_eq!(check(stream, wrong), Err(Refusal::WrongStream), "{wrong:?}");
        }
        let id = "Nats-Expected-Last-Msg-Id";
        assert_eq!(check(id, "z"), Ok(()));
        let refusal = Refusal::WrongLastId(Bytes::from_static(b"z"));
        assert_eq!(check(id, "zz"), Err(refusal));
    }

    proptest! {
        #[test]
        fn any_headers_are_read_or_refused(
            given in proptest::collection::vec(
                ("(Nats-)?[A-Za-z-]{0,8}|Nats-Msg-Id", proptest::collection::vec(any::<u8>(), 0..9)), 0..6)
        ) {
            let given: Vec<_> = given
                .into_iter()
                .map(|(name, value)| (Bytes::from(name), Bytes::from(value)))
                .collect();
            let first = given.iter().find(|(name, _)| &name[..] == MESSAGE_ID);
            match Control::read(&given) {
                Ok(control) => {
                    prop_assert_eq!(control.id, first.map_or(&b""[..], |(_, value)| &value[..]));
                    let _ = control.check_stream("s", 3);
                    let _ = control.check_last_id(b"x");
                }
                Err(Refusal::Unsupported(name)) => prop_assert!(name.starts_with(PREFIX)),
                Err(other) => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
