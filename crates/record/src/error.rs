//! What can be wrong with a batch, or with a record that should go into one.

/// Stored bytes that are not a whole, undamaged batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DamageError {
    /// Fewer bytes than a header or than the header promises.
    #[error("batch is cut short: {have} of {need} bytes")]
    Short {
        /// Bytes needed.
        need: usize,
        /// Bytes present.
        have: usize,
    },
    // … one struct-like variant per cause; each names the value and the bound.
}

/// A record that cannot go into a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The batch is full: seal it and push the record into a new one.
    #[error("batch is full")]
    Full,
    /// One record alone is larger than a batch may be.
    #[error("record of {bytes} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// Size of the record.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
}
