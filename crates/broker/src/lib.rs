//! The running whole of the data plane: partitions, protocol servers, NATS, the metadata log. Decides no policy.
//!
//! * [`engine::Engine`]: what the binding crate drives; owns the runtime, and hands each part a context of its own.
//! * `admission`: which connections, calls and bytes are let in.
//! * [`partition::Partition`]: the handle of one partition; its task owns the log's tail.
//! * `liftbridge`, `flight`: protocol servers on one gRPC port.
//! * [`stage`]: rows of exactly-once sinks that wait for their epoch to be decided.
//! * [`nats`]: the connections to NATS; `ingest`: what comes in by them, and acks; `republish`: copies of what was published here.
//! * `iggy`: Iggy's clients on a port of their own.
//! * [`http`]: probes and metrics on a port of their own; [`checks`]: what they report; `metrics`: what is counted.
//! * [`consensus`]: the metadata log, by one voter so far; `metadata`: its snapshots; [`tools`]: a data directory that no broker uses.
//! * [`peer`]: connections between brokers of a cluster.
//! * `forward`: publishes of clients, handed to the broker that leads. `client_requests`: their reads and positions, asked of it.
//! * `replication`: followers fetch from leaders, and leaders report to the controller.
//! * [`lag`]: how far consumer groups and queries are behind.
//! * `clock`: the time of day.
//! * [`encryption`]: the master keys of this broker. [`tls`]: its certificate, and who its clients are.
//! * [`access`]: what clients may do. [`names`]: what names may not have.
pub mod access;
mod admission;
mod budget;
pub mod checks;
mod client_requests;
mod clock;
pub mod cluster;
pub mod consensus;
mod cursor_index;
mod disk_full;
pub mod encryption;
pub mod engine;
pub mod events;
mod flight;
mod forward;
#[doc(hidden)]
pub mod fuzz;
pub mod groups;
mod grpc_status;
mod grpc_timeout;
mod holds;
pub mod http;
pub mod iggy;
mod ingest;
pub mod lag;
mod liftbridge;
pub mod limits;
mod metadata;
mod metrics;
pub mod names;
pub mod nats;
mod owner_only;
pub mod partition;
pub mod peer;
mod replication;
mod republish;
mod resume;
mod run_state;
mod slots;
pub mod stage;
pub mod statistics;
mod subscriptions;
pub mod tls;
pub mod tools;
mod user_caller;
mod user_rights;
pub mod view;
pub mod watchdog;
