//! The lines that a NATS server sends, read in place. Pure: no I/O; fuzzed.
//!
//! | Line | Operation |
//! |---|---|
//! | `MSG subject sid [reply] bytes` CRLF payload CRLF | a message |
//! | `HMSG subject sid [reply] header-bytes bytes` CRLF header block, payload CRLF | a message with headers; `bytes` counts both |
//! | `PING`, `PONG`, `+OK` | the same |
//! | `-ERR 'text'` | an error |
//! | `INFO {json}` | what the server is |
//!
//! Subject and reply are any bytes without blanks: the protocol does not restrict them further.
use memchr::memchr;
use std::ops::Range;

/// Longest message, headers included: the most that nats-server allows as `max_payload`.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// Longest line; INFO of a large cluster is the longest.
const MAX_LINE_BYTES: usize = 1 << 20;

/// A part of the bytes that were read.
pub(crate) type Span = Range<usize>;

/// One message: the positions of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Number of the subscription.
    pub(crate) sid: u64,
    pub(crate) subject: Span,
    /// Empty = none.
    pub(crate) reply: Span,
    /// Header block; empty = none.
    pub(crate) headers: Span,
    pub(crate) payload: Span,
}

/// An operation that a server sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Message(Frame),
    Ping,
    Pong,
    Ok,
    /// Text without quotes.
    Error(Span),
    /// JSON.
    Info(Span),
}

/// Outcome of [`next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// An operation, and where the next one begins.
    Complete(Operation, usize),
    /// The operation is not complete: it takes at least so many bytes in all.
    Incomplete(usize),
}

/// Why the bytes are not of the NATS protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("a line of more than {MAX_LINE_BYTES} bytes")]
    LongLine,
    #[error("a line that is not an operation of the NATS protocol")]
    UnknownOperation,
    #[error("a message line without subject, subscription and size")]
    MessageLine,
    #[error("a message of more than {MAX_MESSAGE_BYTES} bytes")]
    LargeMessage,
    #[error("a message that does not end where its line says")]
    MessageEnd,
}

/// Reads the operation that begins at `at`, at most the length of `bytes`.
///
/// # Errors
/// [`ProtocolError`]; the connection cannot be used any more.
pub(crate) fn next(bytes: &[u8], at: usize) -> Result<Step, ProtocolError> {
    let rest = bytes.get(at..).unwrap_or_default();
    let Some(length) = memchr(b'\n', rest) else {
        if rest.len() > MAX_LINE_BYTES {
            return Err(ProtocolError::LongLine);
        }
        return Ok(Step::Incomplete(rest.len() + 1));
    };
    let after = at + length + 1;
    let line = rest.get(..length).unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let end = at + line.len();
    if let Some(sizes) = match line {
        [b'M', b'S', b'G', b' ', ..] => Some((4, false)),
        [b'H', b'M', b'S', b'G', b' ', ..] => Some((5, true)),
        _ => None,
    } {
        let (prefix, has_headers) = sizes;
        return message(bytes, at, at + prefix..end, after, has_headers);
    }
    let operation = match line {
        b"PING" => Operation::Ping,
        b"PONG" => Operation::Pong,
        b"+OK" => Operation::Ok,
        [b'-', b'E', b'R', b'R', ..] => Operation::Error(unquoted(bytes, at + 4..end)),
        [b'I', b'N', b'F', b'O', b' ', ..] => Operation::Info(at + 5..end),
        _ => return Err(ProtocolError::UnknownOperation),
    };
    Ok(Step::Complete(operation, after))
}

fn message(
    bytes: &[u8],
    at: usize,
    arguments: Span,
    body: usize,
    has_headers: bool,
) -> Result<Step, ProtocolError> {
    let (tokens, count) = tokens(bytes, arguments)?;
    let [subject, sid, third, fourth, fifth] = tokens;
    let fixed = 3 + usize::from(has_headers);
    let reply = if count == fixed + 1 {
        third.clone()
    } else if count == fixed {
        body..body
    } else {
        return Err(ProtocolError::MessageLine);
    };
    // The sizes are the last one or two.
    let (header_bytes, total) = match (has_headers, count) {
        (false, 3) => (0, number(bytes, third)?),
        (false, _) => (0, number(bytes, fourth)?),
        (true, 4) => (number(bytes, third)?, number(bytes, fourth)?),
        (true, _) => (number(bytes, fourth)?, number(bytes, fifth)?),
    };
    if total > MAX_MESSAGE_BYTES as u64 {
        return Err(ProtocolError::LargeMessage);
    }
    if header_bytes > total {
        return Err(ProtocolError::MessageLine);
    }
    // Both fit: they are at most the bound above.
    let (header_bytes, total) = (header_bytes as usize, total as usize);
    let end = body + total;
    match bytes.get(end..end + 2) {
        Some(b"\r\n") => {}
        Some(_) => return Err(ProtocolError::MessageEnd),
        None => return Ok(Step::Incomplete(end + 2 - at)),
    }
    let frame = Frame {
        sid: number(bytes, sid)?,
        subject,
        reply,
        headers: body..body + header_bytes,
        payload: body + header_bytes..end,
    };
    Ok(Step::Complete(Operation::Message(frame), end + 2))
}

/// The parts between blanks, at most five, and how many there are.
fn tokens(bytes: &[u8], line: Span) -> Result<([Span; 5], usize), ProtocolError> {
    let mut tokens = [const { 0..0 }; 5];
    let (mut count, mut at) = (0, line.start);
    while at < line.end {
        let rest = bytes.get(at..line.end).unwrap_or_default();
        let length = memchr(b' ', rest).unwrap_or(rest.len());
        if length > 0 {
            *tokens.get_mut(count).ok_or(ProtocolError::MessageLine)? = at..at + length;
            count += 1;
        }
        at += length + 1;
    }
    Ok((tokens, count))
}

fn number(bytes: &[u8], span: Span) -> Result<u64, ProtocolError> {
    let digits = bytes.get(span).filter(|digits| !digits.is_empty());
    digits
        .and_then(|digits| {
            digits.iter().try_fold(0_u64, |number, byte| {
                let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
                number.checked_mul(10)?.checked_add(digit.into())
            })
        })
        .ok_or(ProtocolError::MessageLine)
}

/// The text of an error without blanks and quotes around it.
fn unquoted(bytes: &[u8], span: Span) -> Span {
    let is_frame = |byte: &u8| matches!(byte, b' ' | b'\'');
    let text = bytes.get(span.clone()).unwrap_or_default();
    let before = text.iter().take_while(|byte| is_frame(byte)).count();
    let inner = text.get(before..).unwrap_or_default();
    let behind = inner.iter().rev().take_while(|byte| is_frame(byte)).count();
    span.start + before..span.end - behind
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bytes: &[u8]) -> (Operation, usize) {
        match next(bytes, 0) {
            Ok(Step::Complete(operation, end)) => (operation, end),
            other => panic!("{other:?}"),
        }
    }

    fn parts<'a>(bytes: &'a [u8], frame: &Frame) -> [&'a [u8]; 4] {
        let parts = [&frame.subject, &frame.reply, &frame.headers, &frame.payload];
        parts.map(|part| &bytes[part.clone()])
    }

    #[test]
    fn messages_are_read_in_place() {
        for (bytes, sid, expected) in [
            (
                &b"MSG a.b 7 3\r\nabc\r\n"[..],
                7,
                [&b"a.b"[..], b"", b"", b"abc"],
            ),
            (b"MSG a 7 r.x 0\r\n\r\n", 7, [b"a", b"r.x", b"", b""]),
            (b"MSG a  7   r 1\r\n\n\r\n", 7, [b"a", b"r", b"", b"\n"]),
            (b"HMSG a 12 2 3\r\nhhp\r\n", 12, [b"a", b"", b"hh", b"p"]),
            (b"HMSG a 12 r 0 1\r\np\r\n", 12, [b"a", b"r", b"", b"p"]),
            (
                b"MSG \xff\x00 7 \xfe 1\r\np\r\n",
                7,
                [b"\xff\x00", b"\xfe", b"", b"p"],
            ),
        ] {
            let (Operation::Message(frame), end) = one(bytes) else {
                panic!("{bytes:?}")
            };
            assert_eq!(
                (frame.sid, parts(bytes, &frame)),
                (sid, expected),
                "{bytes:?}"
            );
            assert_eq!(end, bytes.len());
            for cut in 0..bytes.len() {
                let Ok(Step::Incomplete(needed)) = next(&bytes[..cut], 0) else {
                    panic!("{cut} of {bytes:?}")
                };
                assert!(needed > cut && needed <= bytes.len(), "{cut} of {bytes:?}");
            }
        }
    }

    #[test]
    fn other_operations_are_read() {
        assert_eq!(one(b"PING\r\n"), (Operation::Ping, 6));
        assert_eq!(one(b"PONG\nPING\r\n"), (Operation::Pong, 5));
        assert_eq!(one(b"+OK\r\n"), (Operation::Ok, 5));
        assert_eq!(one(b"-ERR 'No'\r\n"), (Operation::Error(6..8), 11));
        assert_eq!(one(b"-ERR\r\n"), (Operation::Error(4..4), 6));
        assert_eq!(one(b"INFO {}\r\n"), (Operation::Info(5..7), 9));
        assert_eq!(
            next(b"xxPING\r\n", 2),
            Ok(Step::Complete(Operation::Ping, 8))
        );
    }

    #[test]
    fn what_is_not_the_protocol_is_an_error() {
        use ProtocolError::*;
        for (bytes, error) in [
            (&b"HTTP/1.1 400\r\n"[..], UnknownOperation),
            (b"\r\n", UnknownOperation),
            (b"PINGX\r\n", UnknownOperation),
            (b"MSG a 7\r\n", MessageLine),
            (b"MSG a 7 r s 1\r\n", MessageLine),
            (b"MSG a b c d e f g\r\n", MessageLine),
            (b"MSG a x 1\r\np\r\n", MessageLine),
            (b"MSG a 7 -1\r\n", MessageLine),
            (b"MSG a 99999999999999999999 1\r\np\r\n", MessageLine),
            (b"HMSG a 7 2 1\r\np\r\n", MessageLine),
            (b"MSG a 7 67108865\r\n", LargeMessage),
            (b"MSG a 7 1\r\npp\r\n", MessageEnd),
        ] {
            assert_eq!(next(bytes, 0), Err(error), "{bytes:?}");
        }
        let long = vec![b'x'; MAX_LINE_BYTES + 1];
        assert_eq!(next(&long, 0), Err(LongLine));
    }
}
