//! The batch layout of the log: build, check, view, compress. No I/O.
//!
//! A *record batch* is 128 bytes of header and a payload of columns. It is written once and passed on as it is:
//! segment, follower, cache, reader. Source of the layout: `specs/formats/batch.md`.
//!
//! * [`BatchBuilder`] gathers records into columns and seals them into a [`SealedBatch`].
//! * [`SealedBatch::stamp`] gives a sealed batch its place in a partition by rewriting the header only.
//! * [`Header`] reads and checks the first 128 bytes; [`Batch`] checks the whole and offers views of the columns.
mod batch;
mod batches;
mod builder;
mod codec;
mod columns;
pub mod crypt;
mod error;
mod gather;
mod header;
mod layout;
pub mod planted_bug;
mod restore;
mod rewrite;
mod seal;
mod subjects;

pub use batch::{Batch, HeaderEntries, HeaderEntry};
pub use batches::Batches;
pub use builder::{BatchBuilder, BatchLimits, RecordRef};
pub use codec::Codec;
pub use columns::Ends;
pub use error::{BuildError, DamageError};
pub use header::{
    Columns, Flags, HEADER_BYTES, Header, MAGIC, MAX_RAW_BYTES, MAX_RECORDS, Producer, VERSION,
};
pub use restore::RestoreError;
pub use rewrite::merge_empty;
pub use seal::{SealedBatch, Stamp};
