//! The Liftbridge API, package `proto` (liftbridge §2, `specs/proto/liftbridge.proto`).
//!
//! [`messages`] has the messages that Rust reads or writes as prost structs. The hot ones go by hand, straight from and to bytes: [`publish`] reads
//! requests as slices of the received bytes, [`acks`] writes `PublishResponse` frames, [`delivery`] writes `Message`
//! frames from batch columns. Each has the client's side too. A *frame* is a gRPC message with its 5-byte prefix.
//! [`headers`] has what they share about headers, [`cursors`] what is kept of cursors.
pub mod acks;
pub mod cursors;
pub mod delivery;
pub mod headers;
pub mod messages;
pub mod publish;

/// Trailer of a failed call, and field 100 of `PublishAsyncError`: a JSON object of `code`, a name of
/// [`ErrorCode`](crate::ErrorCode), and values of the sentence. Ours; other clients ignore it.
pub const ERROR_TRAILER: &str = "bascule-error-bin";
