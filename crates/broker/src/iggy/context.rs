//! Dependencies of the listener.
use super::clients::Clients;
use super::groups::Members;
use super::producers::Producers;
use crate::access::Access;
use crate::admission::Listener;
use crate::client_requests::Requests;
use crate::events::{Level, LogLimiter};
use crate::limits::Limits;
use crate::run_state::RunState;
use crate::statistics::Statistics;
use crate::view::View;
use arc_swap::ArcSwap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// One for the broker; everything in it is safe to share.
#[derive(Debug)]
pub(crate) struct IggyContext {
    pub(crate) broker_id: String,
    pub(crate) limits: Limits,
    pub(crate) run_state: Arc<RunState>,
    /// The policy, which may deny what rights allow.
    pub(crate) access: Arc<Access>,
    /// Admission, TLS and events.
    pub(crate) listener: Listener,
    /// Load once per request.
    pub(crate) view: Arc<ArcSwap<View>>,
    pub(crate) statistics: Arc<Statistics>,
    /// Has reads and positions carried out by whoever leads; the way of sends too.
    pub(crate) requests: Arc<Requests>,
    pub(crate) turns: Turns,
    /// Of all groups, on this broker.
    pub(crate) members: Arc<Members>,
    pub(crate) clients: Arc<Clients>,
    /// Of sends of v2.
    pub(crate) producers: Producers,
    pub(crate) closures: LogLimiter,
}

impl IggyContext {
    /// A line about a client that was turned away, unless there was one a moment ago.
    pub(super) fn report(&self, peer: Option<SocketAddr>, text: String) {
        if let Some(others) = self.closures.take() {
            let peer = peer.map_or_else(String::new, |peer| peer.to_string());
            let fields = serde_json::json!({"peer": peer, "others": others});
            self.listener
                .events
                .log(Level::Warning, "iggy", text, fields);
        }
    }
}

/// Whose turn it is in balanced sends, by the topic's id: topics that share a place share turns.
#[derive(Debug)]
pub(crate) struct Turns([AtomicU32; 256]);

impl Default for Turns {
    fn default() -> Self {
        Self([const { AtomicU32::new(0) }; 256])
    }
}

impl Turns {
    /// A number that grows by one at each call.
    pub(super) fn next(&self, topic: u64) -> u32 {
        let place = topic as usize % self.0.len();
        self.0
            .get(place)
            .map_or(0, |turn| turn.fetch_add(1, Ordering::Relaxed))
    }
}
