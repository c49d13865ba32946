//! Replication of records between brokers, and what brokers know of each other while they run (replication §3.5).
//!
//! Replicas decide in their partition's task (`partition::replica`). * `fetcher`: one connection to each broker that leads
//! something which is followed here. * `reports`: what replicas tell the controller, as entries of the metadata log. * `roles`: the
//! [`Hub`] that connects them. * [`heartbeat`]: what a broker says to the controller, and its lease. [`liveness`]: whom the
//! controller hears.
mod fetcher;
pub(crate) mod heartbeat;
pub(crate) mod liveness;
mod reports;
mod roles;

pub(crate) use reports::Propose;
pub(crate) use roles::{Hub, HubParts};
