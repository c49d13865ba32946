//! What is staged for the exactly-once sink: rows that no reader sees until their epoch is decided
//! (`docs/decisions/sink.md`).
//!
//! * [`SinkTable`]: the part of the metadata that decides; [`rules`] says what follows from it.
//! * [`Stage`]: the pieces of this broker. A piece is a file in `partitions/<incarnation>/stage/`
//!   (`specs/formats/stage.md`) that is never changed once it has its name. Only the table makes pieces void, and only void
//!   pieces are deleted.
//! * [`StageCall`]: one task attempt's rows for one stream, until they are sealed. [`StageStream`], [`StagePartition`]: where they
//!   are to go.
//!
//! A failure to write a piece fails its call, never a partition. Nothing of this is in the write-ahead log.
mod call;
mod confirm;
mod destination;
mod error;
mod file;
mod format;
mod index;
mod numbers;
mod piece;
pub mod rules;
mod store;
mod table;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod writer;

pub use call::{SealedPiece, StageCall, TakeError};
pub use confirm::{Claim, ConfirmRequest, Confirmation, Missing, StagedAttempt};
pub use destination::{StagePartition, StageStream};
pub use error::StageError;
pub use file::{PieceBatches, PieceFault, PieceFile};
pub use format::{Contents, FormatError};
pub use numbers::{Digest, NotHexadecimal, Token};
pub use piece::PieceId;
pub use store::Stage;
pub use table::{Attempt, Link, Sink, SinkChanges, SinkTable, StaleVersion, Target};
