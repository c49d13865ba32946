//! Little-endian fields at fixed places, and the checksum that ends every fixed-size structure on disk.

/// Four bytes at `at`, or `None` past the end.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(field.try_into().ok()?))
}

/// Eight bytes at `at`, or `None` past the end.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(field.try_into().ok()?))
}

/// Eight bytes at `at` as a signed number, or `None` past the end.
pub(crate) fn i64_at(bytes: &[u8], at: usize) -> Option<i64> {
    u64_at(bytes, at).map(|value| value as i64)
}

/// Appends the CRC-32C of everything before it.
pub(crate) fn seal(bytes: &mut Vec<u8>) {
    let crc = crc32c::crc32c(bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
}

/// The bytes before a trailing CRC-32C, or `None` when it does not match.
pub(crate) fn unseal(bytes: &[u8]) -> Option<&[u8]> {
    let (body, crc) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
    (u32_at(crc, 0)? == crc32c::crc32c(body)).then_some(body)
}
