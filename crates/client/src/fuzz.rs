//! Entry point of the fuzz targets (`crates/fuzz`).
use crate::frames::Frames;
use bytes::Bytes;

/// The messages of a body that arrives in chunks of `chunk` bytes; `None` when it is refused.
pub fn frames(body: &[u8], chunk: usize) -> Option<Vec<Bytes>> {
    let (mut frames, mut messages) = (Frames::default(), Vec::new());
    for part in body.chunks(chunk.max(1)) {
        frames.push(part);
        while let Some(message) = frames.next().ok()? {
            messages.push(message);
        }
    }
    Some(messages)
}
