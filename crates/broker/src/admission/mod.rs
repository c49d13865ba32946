//! What the broker lets in: connections, calls, bytes of requests. Every bound is finite, counted, and refused with a
//! sentence that names it (`docs/reference/limits.md`; reliability specification P15, P16, §6 "before authentication").
//!
//! * [`accept`]: from the listening socket to connections that have sent a whole HTTP/2 preface. Until then a
//!   connection is a socket and a task of about a kilobyte, with a time limit; the oldest gives way to the newest.
//! * [`connection`]: a connection that holds its places. [`addresses`]: connections by address of the peer.
//! * [`calls`]: the layer over all services that counts calls and bounds what their unfinished messages hold
//!   ([`body`]).
mod accept;
mod addresses;
mod body;
mod calls;
mod connection;
mod descriptors;

pub(crate) use accept::accept;
pub(crate) use body::{PATIENCE, charge};
pub(crate) use calls::CallLayer;
pub(crate) use descriptors::for_segments;

use crate::shared::Limits;
use addresses::Addresses;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The places of one broker.
#[derive(Debug)]
pub struct Admission {
    connections: Arc<Semaphore>,
    addresses: Arc<Addresses>,
    calls: Arc<Semaphore>,
    request_bytes: Arc<Semaphore>,
    limits: Limits,
    /// Descriptors with this number and above are kept for files.
    descriptors: u64,
}

impl Admission {
    /// All places free. Raises the process's soft limit of descriptors to its hard one.
    pub fn new(limits: Limits) -> Self {
        let semaphore =
            |places: usize| Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        Self {
            connections: semaphore(limits.connections),
            addresses: Arc::new(Addresses::new(limits.connections_per_address)),
            calls: semaphore(limits.calls),
            request_bytes: semaphore(limits.request_bytes),
            descriptors: descriptors::usable(descriptors::reserve(
                limits.descriptor_reserve,
                limits.open_segments,
            )),
            limits,
        }
    }

    /// Connections that have greeted.
    pub fn connections_open(&self) -> usize {
        taken(&self.connections, self.limits.connections)
    }

    /// Calls that have begun and not ended, of all protocols on the port.
    pub fn calls_open(&self) -> usize {
        taken(&self.calls, self.limits.calls)
    }

    /// Bytes of request messages that have begun to arrive and are not taken in yet.
    pub fn request_bytes(&self) -> usize {
        taken(&self.request_bytes, self.limits.request_bytes)
    }
}

fn taken(places: &Semaphore, all: usize) -> usize {
    all.min(Semaphore::MAX_PERMITS)
        .saturating_sub(places.available_permits())
}
