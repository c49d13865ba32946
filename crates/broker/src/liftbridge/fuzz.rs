//! Doors for the fuzz targets.
use super::frames::FrameReader;
use crate::grpc_timeout::parse_timeout;
use bytes::Bytes;
use std::time::Duration;

/// Largest message of the fuzz targets.
const MESSAGE_BYTES: usize = 1 << 16;

/// The messages of a request body that arrives in chunks of `chunk` bytes.
///
/// # Errors
/// The sentence of the frame error.
pub fn grpc_frames(body: &[u8], chunk: usize) -> Result<Vec<Bytes>, String> {
    let (mut frames, mut messages) = (FrameReader::new(MESSAGE_BYTES), Vec::new());
    for part in body.chunks(chunk.max(1)) {
        let mut part = Bytes::copy_from_slice(part);
        while let Some(message) = frames.next(&mut part).map_err(|error| error.to_string())? {
            messages.push(message);
        }
    }
    frames.end().map_err(|error| error.to_string())?;
    Ok(messages)
}

/// The header `grpc-timeout`.
pub fn grpc_timeout(value: &[u8]) -> Option<Duration> {
    parse_timeout(value)
}
