//! What the binding crate drives: the data directory, the runtime, partitions, the view, the servers.
//!
//! All methods of [`Engine`] are synchronous and may be called from any thread that is not the runtime's own. Order of
//! locks: `admin` (one change of partitions at a time) before `state`, which is never held while anything blocks.
//!
//! After a fork the child has the memory but not the threads: it may drop an engine, and must do nothing else with it.
mod cluster;
pub(crate) mod created;
pub(crate) mod directory;
mod documents;
pub(crate) mod error;
mod iggy;
mod lifecycle;
mod manifest;
mod observe;
mod partitions;
pub(crate) mod parts;
mod records;
mod replicas;
mod scrub;
mod security;
pub(crate) mod serve;
mod sinks;
#[cfg(test)]
mod tests;

pub use directory::{DataDirectory, DirectoryError};
pub use documents::{EngineSettings, PlaceSpec, StreamSpec, ViewChanges};
pub use error::EngineError;
pub use lifecycle::Engine;
pub use security::{Question, access_allows};
