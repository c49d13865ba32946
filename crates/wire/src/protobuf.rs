//! Protobuf wire primitives: what the codecs written by hand share.
//!
//! Reading accepts what the protobuf wire format allows and `proto3` requires: varints of at most ten bytes, field numbers
//! from 1 to 2^29 − 1, known fields with their own wire type, UTF-8 in strings. Unknown fields are skipped, whatever their wire
//! type; groups, which `proto3` does not have, are refused. Nothing here panics on foreign bytes.
//!
//! Writing is for field numbers 1–15, whose keys are one byte, and with [`wide_key`] for 16–2047, whose keys are two.
use bytes::Bytes;
use std::ops::Range;

/// The bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The value of one field; ranges count from the start of the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Varint(u64),
    Fixed,
    Length(Range<usize>),
}

impl Value {
    /// An `int64`, `int32`, `enum` or `bool`, as sent.
    pub(crate) fn varint(self) -> Result<u64, Malformed> {
        if let Self::Varint(value) = self {
            Ok(value)
        } else {
            Err(Malformed)
        }
    }

    /// An `int64`.
    pub(crate) fn int64(self) -> Result<i64, Malformed> {
        self.varint().map(|value| value as i64)
    }

    /// An `int32` or an `enum`: the low 32 bits, as protobuf says.
    pub(crate) fn int32(self) -> Result<i32, Malformed> {
        self.varint().map(|value| value as i32)
    }

    /// The same where the number does not matter.
    pub(crate) fn any_varint(self) -> Result<(), Malformed> {
        self.varint().map(|_| ())
    }

    /// `bytes`, a message or a map entry.
    pub(crate) fn range(self) -> Result<Range<usize>, Malformed> {
        if let Self::Length(range) = self {
            Ok(range)
        } else {
            Err(Malformed)
        }
    }

    /// The same where the text does not matter.
    pub(crate) fn any_text(self, message: &[u8]) -> Result<(), Malformed> {
        self.text(message).map(|_| ())
    }

    /// A `string` inside `message`: checked UTF-8.
    pub(crate) fn text(self, message: &[u8]) -> Result<Range<usize>, Malformed> {
        let range = self.range()?;
        let bytes = message.get(range.clone()).ok_or(Malformed)?;
        std::str::from_utf8(bytes).map_err(|_| Malformed)?;
        Ok(range)
    }
}

/// Walks the fields of a message, or of a part of one.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// All of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// A nested message of `bytes`; ranges still count from the start of `bytes`.
    pub(crate) fn within(bytes: &'a [u8], range: Range<usize>) -> Result<Self, Malformed> {
        let bytes = bytes.get(..range.end).ok_or(Malformed)?;
        Ok(Self {
            bytes,
            at: range.start,
        })
    }

    /// Number and value of the next field; `None` at the end.
    #[inline]
    pub(crate) fn next_field(&mut self) -> Result<Option<(u32, Value)>, Malformed> {
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let key = u32::try_from(self.varint()?).map_err(|_| Malformed)?;
        let number = key >> 3;
        if number == 0 {
            return Err(Malformed);
        }
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.fixed(8)?,
            2 => self.length()?,
            5 => self.fixed(4)?,
            _ => return Err(Malformed),
        };
        Ok(Some((number, value)))
    }

    /// Where the next field begins.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let rest = self.bytes.get(self.at..).ok_or(Malformed)?;
        let mut value = 0;
        for (i, &byte) in rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * i);
            if byte < 0x80 {
                // The tenth byte holds bit 63 only.
                if i == 9 && byte > 1 {
                    return Err(Malformed);
                }
                self.at += i + 1;
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn fixed(&mut self, width: usize) -> Result<Value, Malformed> {
        self.advance(width)?;
        Ok(Value::Fixed)
    }

    fn length(&mut self) -> Result<Value, Malformed> {
        let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
        self.advance(length).map(Value::Length)
    }

    fn advance(&mut self, length: usize) -> Result<Range<usize>, Malformed> {
        let end = self.at.checked_add(length).ok_or(Malformed)?;
        if end > self.bytes.len() {
            return Err(Malformed);
        }
        let range = self.at..end;
        self.at = end;
        Ok(range)
    }
}

/// Name and value of a `map<string, bytes>` entry, as ranges of `message`.
pub(crate) fn header_entry(
    message: &[u8],
    value: Value,
) -> Result<(Range<usize>, Range<usize>), Malformed> {
    entry(message, value, |name| name.text(message))
}

/// Name and value of a `Header`, as ranges of `message`. Both are any bytes.
pub(crate) fn list_entry(
    message: &[u8],
    value: Value,
) -> Result<(Range<usize>, Range<usize>), Malformed> {
    entry(message, value, Value::range)
}

/// Fields 1 and 2 of the message in `value`; `read` takes each field 1.
fn entry(
    message: &[u8],
    value: Value,
    read: impl Fn(Value) -> Result<Range<usize>, Malformed>,
) -> Result<(Range<usize>, Range<usize>), Malformed> {
    let mut entry = Fields::within(message, value.range()?)?;
    let (mut name, mut content) = (0..0, 0..0);
    while let Some((number, value)) = entry.next_field()? {
        match number {
            1 => name = read(value)?,
            2 => content = value.range()?,
            _ => {}
        }
    }
    Ok((name, content))
}

/// A part of `message` without a copy. The range comes from [`Fields`] over the same bytes.
pub(crate) fn slice(message: &Bytes, range: Range<usize>) -> Bytes {
    if range.is_empty() {
        Bytes::new()
    } else {
        message.slice(range)
    }
}

/// Bytes of a varint.
pub(crate) fn varint_bytes(value: u64) -> usize {
    // 9/64 of a bit count is the count over seven, rounded as needed, for 1 to 64 bits.
    (((value | 1).ilog2() * 9 + 73) / 64) as usize
}

/// Bytes of a varint field; none for 0.
pub(crate) fn varint_field_bytes(value: u64) -> usize {
    if value == 0 {
        0
    } else {
        1 + varint_bytes(value)
    }
}

/// Bytes of a length-delimited field of `length` bytes, also when that is 0.
pub(crate) fn length_field_bytes(length: usize) -> usize {
    1 + varint_bytes(length as u64) + length
}

/// Bytes of a `string` or `bytes` field; none when empty.
pub(crate) fn bytes_field_bytes(value: &[u8]) -> usize {
    if value.is_empty() {
        0
    } else {
        length_field_bytes(value.len())
    }
}

/// Bytes of a `map<string, bytes>` entry, key and length included.
pub(crate) fn header_field_bytes(name: &[u8], value: &[u8]) -> usize {
    length_field_bytes(length_field_bytes(name.len()) + length_field_bytes(value.len()))
}

/// Appends a varint.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    let mut bytes = [0; 10];
    let mut length = 0;
    for byte in &mut bytes {
        length += 1;
        if value < 0x80 {
            *byte = value as u8;
            break;
        }
        *byte = value as u8 | 0x80;
        value >>= 7;
    }
    out.extend_from_slice(bytes.get(..length).unwrap_or(&bytes));
}

/// Appends a varint field; nothing for 0.
#[inline]
pub(crate) fn put_varint_field(out: &mut Vec<u8>, number: u8, value: u64) {
    if value != 0 {
        out.push(number << 3);
        put_varint(out, value);
    }
}

/// Appends key and length of a length-delimited field.
#[inline]
pub(crate) fn put_length(out: &mut Vec<u8>, number: u8, length: usize) {
    out.push(number << 3 | 2);
    put_varint(out, length as u64);
}

/// Appends a `string` or `bytes` field; nothing when empty.
#[inline]
pub(crate) fn put_bytes_field(out: &mut Vec<u8>, number: u8, value: &[u8]) {
    if !value.is_empty() {
        put_length(out, number, value.len());
        out.extend_from_slice(value);
    }
}

/// Appends a `map<string, bytes>` entry; name and value are written even when empty, as other implementations do.
pub(crate) fn put_header_field(out: &mut Vec<u8>, number: u8, name: &[u8], value: &[u8]) {
    put_length(
        out,
        number,
        length_field_bytes(name.len()) + length_field_bytes(value.len()),
    );
    put_length(out, 1, name.len());
    out.extend_from_slice(name);
    put_length(out, 2, value.len());
    out.extend_from_slice(value);
}

/// Key of a field with a number from 16 to 2047. `wire`: 0 varint, 2 length-delimited.
pub(crate) const fn wide_key(number: u16, wire: u8) -> [u8; 2] {
    let key = number << 3 | wire as u16;
    [key as u8 | 0x80, (key >> 7) as u8]
}

/// Appends the five bytes before a gRPC message: not compressed, length.
#[inline]
pub(crate) fn put_frame_prefix(out: &mut Vec<u8>, body: usize) {
    let [a, b, c, d] = (body as u32).to_be_bytes();
    out.extend_from_slice(&[0, a, b, c, d]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_varint_has_the_bytes_it_was_counted_to_have() {
        for bit in 0..64 {
            for value in [1u64 << bit, (1u64 << bit) - 1, (1u64 << bit) | 1] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_bytes(value), "{value}");
                assert_eq!(Fields::new(&out).varint(), Ok(value));
            }
        }
        assert_eq!(varint_bytes(u64::MAX), 10);
    }

    #[test]
    fn varints_beyond_64_bits_are_refused() {
        let mut eleven = vec![0x80; 10];
        eleven.push(0);
        assert_eq!(Fields::new(&eleven).varint(), Err(Malformed));
        let mut too_high = vec![0xFF; 9];
        too_high.push(2);
        assert_eq!(Fields::new(&too_high).varint(), Err(Malformed));
    }

    #[test]
    fn groups_field_zero_and_reserved_wire_types_are_refused() {
        for bytes in [
            &[0x0B, 0x0C][..],
            &[0x0C],
            &[0x02, 0x00],
            &[0x0E],
            &[0x0F],
            &[0x00, 0x00],
        ] {
            assert_eq!(Fields::new(bytes).next_field(), Err(Malformed), "{bytes:?}");
        }
    }
}
