//! Payload compression.

/// How a payload is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// Stored as it is.
    #[default]
    None,
    /// LZ4 block.
    Lz4,
    /// Zstandard frame.
    Zstd,
}
