//! The connections to NATS, each on a thread of its own, and what is reported of them.
mod connection;
mod context;
mod pair;
mod report;
mod state;
mod thread;

pub(crate) use connection::{Role, SYNC_LIMIT};
pub use context::NatsContext;
pub(crate) use pair::ConnectionPair;
pub(crate) use report::{Reporter, Unstored, partition_name};
pub use state::{ConnectionState, NatsState};
