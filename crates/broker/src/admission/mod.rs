//! Admission of connections, calls and bytes of requests. Every limit is finite; a refusal is counted, and its error names
//! the limit (`docs/reference/limits.md`; reliability P15, P16, §6 "before authentication").
//!
//! * [`mod@accept`]: from the listening socket to connections that have sent a whole HTTP/2 preface. Until then a
//!   connection is a socket and a task of about a kilobyte, with a time limit; the oldest gives way to the newest.
//! * [`connection`]: a connection that holds its permits.
//! * [`caller`]: the identity of a connection. [`call_limiter`]: permits of calls, and which calls are evicted. [`shares`]: the
//!   limit of one client in a limit of all.
//! * [`calls`]: the layer over all services. It acquires the permits of calls, reduces their heads ([`heads`]), counts how
//!   calls end ([`ending`]), and bounds the time until a request arrives ([`request`]), the bytes of unfinished messages
//!   ([`body`]) and the bytes of unread answers ([`answers`]).
mod accept;
mod answers;
mod body;
mod call_limiter;
mod caller;
mod calls;
mod connection;
mod descriptors;
mod ending;
mod heads;
mod request;
mod shares;

pub(crate) use accept::{Listener, accept, opened};
pub(crate) use body::{PATIENCE, charge};
pub(crate) use caller::Identity;
pub(crate) use calls::CallLayer;
pub(crate) use connection::Stream;
pub(crate) use descriptors::for_segments;
pub(crate) use shares::{Piece, Shares};

use crate::limits::Limits;
use crate::statistics::Statistics;
use answers::Answers;
use call_limiter::{Bounds, CallLimiter};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The limits of one broker.
#[derive(Debug)]
pub struct Admission {
    connections: Arc<Semaphore>,
    /// Connections, by where they come from.
    addresses: Arc<Shares>,
    calls: Arc<CallLimiter>,
    health_checks: Arc<CallLimiter>,
    health_watches: Arc<CallLimiter>,
    /// Requests that the control plane answers, by client.
    pub(crate) admin_requests: Arc<Shares>,
    request_bytes: Arc<Semaphore>,
    /// Answers that wait for their clients.
    pub(crate) answers: Arc<Answers>,
    limits: Limits,
    statistics: Arc<Statistics>,
    /// Descriptors with this number and above are kept for files.
    descriptors: u64,
}

impl Admission {
    /// Without any open call or connection. Raises the process's soft limit of descriptors to its hard one.
    pub fn new(limits: Limits, statistics: Arc<Statistics>) -> Self {
        let semaphore =
            |places: usize| Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        Self {
            connections: semaphore(limits.connections),
            addresses: Shares::new(limits.connections_per_address),
            calls: CallLimiter::new(Bounds {
                all: limits.calls,
                all_setting: "limits.calls",
                share: limits.calls_per_identity,
                share_setting: "limits.calls_per_identity",
            }),
            health_checks: health("limits.health_checks", limits.health_checks),
            health_watches: health("limits.health_watches", limits.health_watches),
            admin_requests: Shares::new(limits.admin_requests_per_identity),
            request_bytes: semaphore(limits.request_bytes),
            answers: Answers::new(limits.answer_bytes),
            descriptors: descriptors::usable(descriptors::reserve(
                limits.descriptor_reserve,
                limits.open_segments,
            )),
            limits,
            statistics,
        }
    }

    /// The place of a new connection from `address` whose descriptor is `descriptor`; `None` = it is refused, and counted.
    pub(crate) fn take_address(&self, address: IpAddr, descriptor: u64) -> Option<Piece> {
        let place = (descriptor < self.descriptors)
            .then(|| self.addresses.take(Identity::at(address)))
            .flatten();
        if place.is_none() {
            self.statistics.connections_refused.add(1);
        }
        place
    }

    /// The place of a connection that has shown who it is; `None` = `limits.connections` are open, and it is counted.
    pub(crate) fn take_connection(&self) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.connections).try_acquire_owned().ok();
        if place.is_none() {
            self.statistics.connections_refused.add(1);
        }
        place
    }

    /// A share of `limits.request_bytes` for what another broker sends: waits until there is so much left, or all of it.
    pub(crate) async fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let most = self.limits.request_bytes.min(Semaphore::MAX_PERMITS);
        let count = u32::try_from(bytes.min(most)).unwrap_or(u32::MAX);
        let budget = Arc::clone(&self.request_bytes);
        budget.acquire_many_owned(count).await.ok()
    }

    /// Connections that completed the preface handshake, or their login.
    pub fn connections_open(&self) -> usize {
        taken(&self.connections, self.limits.connections)
    }

    /// Calls that have begun and not ended, of all protocols on the port.
    pub fn calls_open(&self) -> usize {
        self.calls.open()
    }

    /// Bytes of request messages that have begun to arrive and are not processed yet.
    pub fn request_bytes(&self) -> usize {
        taken(&self.request_bytes, self.limits.request_bytes)
    }

    /// Bytes of answers that their clients have not read yet.
    pub fn answer_bytes(&self) -> usize {
        self.answers.bytes()
    }
}

/// One client may have half of them.
fn health(setting: &'static str, all: usize) -> Arc<CallLimiter> {
    CallLimiter::new(Bounds {
        all,
        all_setting: setting,
        share: all.div_ceil(2),
        share_setting: setting,
    })
}

fn taken(places: &Semaphore, all: usize) -> usize {
    all.min(Semaphore::MAX_PERMITS)
        .saturating_sub(places.available_permits())
}
