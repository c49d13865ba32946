//! NATS: one router per broker feeds local partitions from one subscription per subject; acks and copies go out.
//!
//! * [`NatsLink`]: the facade everyone else holds; cheap to clone, works (and refuses) while disconnected.
//! * `client`: a NATS client of our own. `session`, `connection`, `thread`, `state`: two connections from one `connect` to the next. *ingest* has
//!   the subscriptions without queue group and publishes copies with `no_echo`, so NATS never sends us our own copies there;
//!   *streams* has the subscriptions with a queue group, so NATS keeps choosing the member, and everything else that is published.
//! * `router`, `ingest` (`headers`, `origin`), `feed` (`detach`, `losses`): from a subscription through groups of records into the partitions that
//!   listen on it; `absent`: those that are paused.
//! * `acks`: after commit, to the ack inbox of enveloped publishes.
//! * `publish_acks`: to the reply subject of plain messages, where a stream acknowledges JetStream publishers.
//! * `presence`: whether other brokers of the namespace are there.
//! * `copies`, `channel`, `interest` (and `copy_job`, `copy_format`, `seal`): after commit of direct publishes, to whoever listens on the subject.
//!
//! Nothing here blocks a committer: every queue is bounded, and what does not fit is dropped and counted.
mod absent;
mod acks;
mod budget;
mod channel;
pub(crate) mod client;
mod connection;
mod copies;
mod copy_format;
mod copy_job;
mod detach;
mod feed;
pub(crate) mod headers;
mod ingest;
mod interest;
mod link;
mod losses;
pub(crate) mod origin;
mod presence;
mod publish_acks;
mod report;
mod router;
mod seal;
mod session;
mod settings;
mod state;
mod thread;

pub use absent::Place;
pub use link::NatsLink;
pub use settings::{NatsAcks, NatsCopy, NatsSettings, NatsTls};
pub use state::{ConnectionState, NatsState, Reason};
