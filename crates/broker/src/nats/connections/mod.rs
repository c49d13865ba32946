//! The connections to NATS, each on a thread of its own, and what is reported of them.
pub(crate) mod connection;
pub(crate) mod report;
pub(crate) mod state;
pub(crate) mod thread;
