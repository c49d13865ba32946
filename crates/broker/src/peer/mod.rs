//! Connections between the brokers of a cluster (replication §1, `specs/formats/peer.md`).
//!
//! Each broker dials each other one and asks over that connection; it answers over those that were dialled to it. Off loopback
//! both sides show certificates, and the name in it is the broker's. Whoever is not a known broker of this cluster is refused
//! by name, before anything it sends reaches the metadata group.
//!
//! * [`Founding`]: how brokers become a cluster. [`Brokers`]: who this broker is, and whom it knows; `handshake` decides by it, without I/O.
//! * `connection`: frames over a byte stream. [`PeerListener`]: the port. [`Dialer`]: connections to the others.
//! * `data`: a connection to a leader, of a follower or for publishes; `session`: how followers are answered, `publishes`: publishes.
mod brokers;
mod connection;
mod data;
mod dialer;
mod founding;
mod handshake;
mod link;
mod listener;
mod publishes;
mod session;
mod stream;

pub use brokers::{Broker, Brokers, Own};
pub use connection::PeerError;
#[cfg(test)]
pub(crate) use data::DataWriter;
pub(crate) use data::{DIAL, DataConnection, DataReader, Way};
pub use dialer::Dialer;
pub(crate) use founding::to_hex;
pub use founding::{FirstVoter, Founded, Founding, FoundingError};
pub(crate) use link::STALL;
pub use listener::{ListenError, PeerListener};
pub(crate) use session::outcome_of;

#[cfg(test)]
mod tests;
