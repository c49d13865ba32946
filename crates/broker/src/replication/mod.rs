//! Replication of records between brokers, and what brokers know of each other while they run (replication §3.5).
//!
//! Replicas decide in their partition's task (`partition::replica`). * `fetcher`: one connection to each broker that leads
//! something which is followed here. * `reports`: what replicas tell the controller, as entries of the metadata log. * `roles`: the
//! [`Hub`] that connects them. * [`take_over`]: what a broker that begins to lead asks. * [`heartbeat`]: what a broker says to the controller, and its lease. [`liveness`]: whom the
//! controller hears. [`health`]: disk calls and tasks that hang.
mod fetcher;
pub(crate) mod health;
pub(crate) mod heartbeat;
pub(crate) mod liveness;
mod reports;
mod roles;
pub(crate) mod take_over;

pub(crate) use reports::Propose;
pub(crate) use roles::{Hub, HubParts};

/// Body of a golden frame.
#[cfg(test)]
fn golden_body(name: &str) -> Vec<u8> {
    let vectors = include_str!("../../../../specs/vectors/peer/frames.json");
    let vectors: serde_json::Value = serde_json::from_str(vectors).unwrap();
    let mut frames = vectors.as_array().unwrap().iter();
    let golden = frames.find(|frame| frame["name"] == name).unwrap();
    let digits = golden["body"].as_str().unwrap().as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}
