//! The header block of a NATS message, read from raw bytes: nothing that nats-server lets through can be too odd.
//!
//! | Part | Read as |
//! |---|---|
//! | `NATS/1.0`, a blank and a status, CRLF | the first line; with any other the block has no headers and counts as one unusable line |
//! | name, colon, blanks and tabs, value, CRLF | a header; name and value are the bytes as they came |
//! | CRLF | the end; what follows counts as one unusable line |
//!
//! Only CRLF ends a line; the last one may lack it. A line without colon, without a name, or with a name of more than
//! 65,535 bytes is unusable: it is counted and left out.
use bytes::Bytes;

const VERSION: &[u8] = b"NATS/1.0";
/// Longest name that a record can have.
const MAX_NAME_BYTES: usize = u16::MAX as usize;

/// The content of a header block.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    /// Names and values in order; slices of the block.
    pub(crate) headers: Vec<(Bytes, Bytes)>,
    /// Lines that cannot be stored as headers, the status among them.
    pub(crate) unusable: u32,
    /// Status of the first line, such as 503.
    pub(crate) status: Option<u16>,
}

/// Reads a block; never fails. Stops after `most` headers and returns `None` when there are more.
pub(crate) fn parse(block: &Bytes, most: usize) -> Option<Block> {
    let mut parsed = Block::default();
    let Some((first, mut rest)) = next_line(block) else {
        return Some(parsed);
    };
    let Some(status) = first.strip_prefix(VERSION) else {
        parsed.unusable = 1;
        return Some(parsed);
    };
    if !status.trim_ascii().is_empty() {
        parsed.unusable = 1;
        parsed.status = status_code(status);
        if !status.starts_with(b" ") {
            // Another version, such as NATS/1.01.
            return Some(parsed);
        }
    }
    while let Some((line, after)) = next_line(rest) {
        rest = after;
        if line.is_empty() {
            parsed.unusable += u32::from(!rest.is_empty());
            break;
        }
        match header(line) {
            Some(_) if parsed.headers.len() == most => return None,
            Some((name, value)) => parsed
                .headers
                .push((slice(block, name), slice(block, value))),
            None => parsed.unusable += 1,
        }
    }
    Some(parsed)
}

/// The first line without its CRLF, and what follows; `None` at the end.
fn next_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    if bytes.is_empty() {
        return None;
    }
    let end = bytes.windows(2).position(|pair| pair == b"\r\n");
    Some(match end {
        Some(end) => (
            bytes.get(..end).unwrap_or_default(),
            bytes.get(end + 2..).unwrap_or_default(),
        ),
        None => (bytes, &[]),
    })
}

fn header(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (line.get(..colon)?, line.get(colon + 1..)?);
    (1..=MAX_NAME_BYTES)
        .contains(&name.len())
        .then_some((name, without_blanks(value)))
}

/// A value without the blanks and tabs that it begins with: they belong to the line.
pub(crate) fn without_blanks(value: &[u8]) -> &[u8] {
    let blanks = value.iter().take_while(|byte| matches!(byte, b' ' | b'\t'));
    value.get(blanks.count()..).unwrap_or_default()
}

/// The three digits behind the version.
fn status_code(text: &[u8]) -> Option<u16> {
    let digits = text.trim_ascii_start().get(..3)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn slice(block: &Bytes, part: &[u8]) -> Bytes {
    if part.is_empty() {
        Bytes::new()
    } else {
        block.slice_ref(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(block: &'static [u8]) -> (Vec<(Bytes, Bytes)>, u32) {
        let parsed = parse(&Bytes::from_static(block), 4).unwrap();
        (parsed.headers, parsed.unusable)
    }

    fn owned(headers: &[(&'static [u8], &'static [u8])]) -> Vec<(Bytes, Bytes)> {
        let headers = headers.iter();
        headers
            .map(|(name, value)| (Bytes::from_static(name), Bytes::from_static(value)))
            .collect()
    }

    #[test]
    fn names_and_values_are_the_bytes_that_came() {
        for (block, name, value) in [
            (&b"NATS/1.0\r\nA: b\r\n\r\n"[..], &b"A"[..], &b"b"[..]),
            (b"NATS/1.0\r\nA:b", b"A", b"b"),
            (b"NATS/1.0\r\nA: \t b \r\n\r\n", b"A", b"b "),
            (b"NATS/1.0\r\nA: ol\xe9\r\n\r\n", b"A", b"ol\xe9"),
            (b"NATS/1.0\r\nA: \x00\xff\r\n\r\n", b"A", b"\x00\xff"),
            (b"NATS/1.0\r\nA: a\nb\rc\r\n\r\n", b"A", b"a\nb\rc"),
            (b"NATS/1.0\r\nA:\r\n\r\n", b"A", b""),
            (b"NATS/1.0\r\n\xff\xfe: x\r\n\r\n", b"\xff\xfe", b"x"),
            (b"NATS/1.0\r\nA b : x:y\r\n\r\n", b"A b ", b"x:y"),
            (b"NATS/1.0 \r\nA: b\r\n\r\n", b"A", b"b"),
        ] {
            assert_eq!(read(block), (owned(&[(name, value)]), 0), "{block:?}");
        }
    }

    #[test]
    fn order_and_repeats_are_kept() {
        let (headers, unusable) = read(b"NATS/1.0\r\nA: 1\r\nA: 2\r\na: 3\r\n\r\n");
        assert_eq!(headers, owned(&[(b"A", b"1"), (b"A", b"2"), (b"a", b"3")]));
        assert_eq!(unusable, 0);
    }

    #[test]
    fn unusable_lines_are_counted_and_cost_no_other() {
        let b: &[(&[u8], &[u8])] = &[(b"B", b"2")];
        for (block, headers, unusable) in [
            (&b""[..], &[][..], 0),
            (b"\r\n", &[], 1),
            (b"NATS/1.0\r\n\r\n", &[], 0),
            (b"NATS/1.0\r\nno colon\r\nB: 2\r\n\r\n", b, 1),
            (b"NATS/1.0\r\n: x\r\nB: 2\r\n\r\n", b, 1),
            (b"NATS/1.0\r\nB: 2\r\n\r\nA: 1\r\n\r\n", b, 1),
            (b"HTTP/1.1\r\nB: 2\r\n\r\n", &[], 1),
            (b"NATS/1.01\r\nB: 2\r\n\r\n", &[], 1),
            (b"NATS/1.0 404 No Messages\r\nB: 2\r\n\r\n", b, 1),
        ] {
            assert_eq!(read(block), (owned(headers), unusable), "{block:?}");
        }
    }

    #[test]
    fn a_status_is_read() {
        let status = |block: &'static [u8]| parse(&Bytes::from_static(block), 4).unwrap().status;
        assert_eq!(status(b"NATS/1.0 503\r\n\r\n"), Some(503));
        assert_eq!(status(b"NATS/1.0 404 No Messages\r\n\r\n"), Some(404));
        assert_eq!(status(b"NATS/1.0 x\r\n\r\n"), None);
        assert_eq!(status(b"NATS/1.0\r\n\r\n"), None);
    }

    #[test]
    fn a_name_is_as_long_as_a_record_can_store_and_headers_are_bounded() {
        let block =
            |name: usize| Bytes::from(format!("NATS/1.0\r\n{}: x\r\n\r\n", "a".repeat(name)));
        assert_eq!(parse(&block(65_535), 1).unwrap().headers.len(), 1);
        let long = parse(&block(65_536), 1).unwrap();
        assert_eq!((long.headers.len(), long.unusable), (0, 1));
        let five = Bytes::from(format!("NATS/1.0\r\n{}\r\n", "a: b\r\n".repeat(5)));
        assert!(parse(&five, 5).is_some());
        assert!(parse(&five, 4).is_none());
    }
}
