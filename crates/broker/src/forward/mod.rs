//! Publishes of clients, handed to the broker that leads the partition (`docs/decisions/replication.md`, *Forwarded publishes*).
//!
//! * [`Forwarder`]: the broker that the client asked. [`Destination`]: a partition here or elsewhere. `lane`: the appends of one call to one partition, in order, again where that is
//!   safe. `link`: one connection to each leader. `item`: an append as it travels.
//! * [`server`]: the leader. It appends, and never forwards what was forwarded to it.
//! * `outcome`: what became of an append, as the leader answers it.
mod destination;
mod item;
mod lane;
mod link;
mod outcome;
pub(crate) mod server;
#[cfg(test)]
mod tests;

pub(crate) use destination::{Destination, Lanes};
pub(crate) use item::Target;

use crate::events::Events;
use crate::partition::Partition;
use crate::peer::{Brokers, Dialer, Way};
use crate::statistics::Statistics;
use crate::tls::PeerTls;
use crate::view::View;
use arc_swap::ArcSwap;
use bascule_wire::peer::Purpose;
use lane::{Lane, LaneEnd};
use link::Link;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// What a [`Forwarder`] is made of.
pub(crate) struct ForwarderParts {
    pub broker_id: String,
    pub view: Arc<ArcSwap<View>>,
    pub statistics: Arc<Statistics>,
    pub events: Arc<Events>,
    /// For everything that is forwarded and not answered, bytes.
    pub budget: usize,
}

/// Hands appends to leaders. Without a cluster it does nothing.
#[derive(Debug)]
pub(crate) struct Forwarder {
    broker_id: String,
    view: Arc<ArcSwap<View>>,
    statistics: Arc<Statistics>,
    events: Arc<Events>,
    budget: Arc<Semaphore>,
    most: u32,
    cluster: OnceLock<Cluster>,
    /// By number of the leader's broker.
    links: Mutex<HashMap<u64, Arc<Link>>>,
}

/// The way to the other brokers.
#[derive(Debug)]
struct Cluster {
    brokers: Arc<Brokers>,
    tls: Option<Arc<PeerTls>>,
    runtime: Handle,
    /// Connections for reads, dialled when there is one.
    reads: OnceLock<Dialer>,
}

/// Where a partition takes appends now.
#[derive(Debug)]
pub(crate) enum Place {
    /// On this broker.
    Here(Partition),
    /// On the broker with this number, under this leader epoch.
    There(u64, u64),
    /// Nowhere yet: the reason.
    Nowhere(String),
    /// Nowhere any more: it was deleted, or created again.
    Gone,
}

impl Place {
    /// Whether appends to both arrive in the order in which they are sent.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Here(one), Self::Here(other)) => one.is(other),
            (Self::There(one, epoch), Self::There(other, later)) => (one, epoch) == (other, later),
            _ => false,
        }
    }
}

impl Forwarder {
    /// Of a broker without a cluster, until [`Forwarder::connect`].
    pub fn new(parts: ForwarderParts) -> Self {
        let most = parts.budget.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            broker_id: parts.broker_id,
            view: parts.view,
            statistics: parts.statistics,
            events: parts.events,
            budget: Arc::new(Semaphore::new(most)),
            most: u32::try_from(most).unwrap_or(u32::MAX),
            cluster: OnceLock::new(),
            links: Mutex::default(),
        }
    }

    /// These are the other brokers. Only the first call counts. Call inside the runtime.
    pub fn connect(&self, brokers: Arc<Brokers>, tls: Option<Arc<PeerTls>>) {
        // A second cluster would be another run's.
        let _ = self.cluster.set(Cluster {
            brokers,
            tls,
            runtime: Handle::current(),
            reads: OnceLock::new(),
        });
    }

    /// Whether there are other brokers.
    pub fn is_connected(&self) -> bool {
        self.cluster.get().is_some()
    }

    /// The number of this broker; `None`: there are no others.
    pub fn own_number(&self) -> Option<u64> {
        self.cluster
            .get()
            .map(|cluster| cluster.brokers.own_number())
    }

    /// Where a partition takes appends now.
    pub fn place(&self, target: &Target) -> Place {
        let view = self.view.load();
        let Some(stream) = view.stream(&target.namespace, &target.stream) else {
            return Place::Gone;
        };
        let found = stream.partitions.get(target.number as usize);
        let Some(found) = found.filter(|found| found.incarnation == target.incarnation) else {
            return Place::Gone;
        };
        let (name, number) = (&target.stream, target.number);
        let what = || format!("partition {number} of stream {name:?}");
        if found.paused {
            return Place::Nowhere(format!("{} is paused", what()));
        }
        if found.leader == self.broker_id {
            return match found.handle.clone() {
                Some(handle) if handle.is_leading() => Place::Here(handle),
                _ => Place::Nowhere(format!("{} is not led by this broker yet", what())),
            };
        }
        if found.leader.is_empty() {
            return Place::Nowhere(format!("{} has no leader", what()));
        }
        let cluster = self.cluster.get();
        match cluster.and_then(|cluster| cluster.brokers.number(&found.leader)) {
            Some(leader) => Place::There(leader, found.leader_epoch),
            None => Place::Nowhere(format!(
                "{} is led by broker {:?}, which this broker does not know",
                what(),
                found.leader
            )),
        }
    }

    /// Connections to the other brokers for what their partitions are asked; `None`: there is no cluster.
    pub fn reads(&self) -> Option<&Dialer> {
        let cluster = self.cluster.get()?;
        Some(cluster.reads.get_or_init(|| {
            let _inside = cluster.runtime.enter();
            let tls = cluster.tls.as_ref();
            Dialer::start_for(Purpose::Reads, cluster.brokers.clone(), tls, &self.events)
        }))
    }

    /// The connection to a leader; `None`: there is no cluster.
    fn link(&self, leader: u64) -> Option<Arc<Link>> {
        let cluster = self.cluster.get()?;
        let mut links = self.links.lock();
        let link = links.entry(leader).or_insert_with(|| {
            let way = Way {
                brokers: cluster.brokers.clone(),
                tls: cluster.tls.clone(),
                events: self.events.clone(),
                to: leader,
            };
            Arc::new(Link::start(&cluster.runtime, way))
        });
        Some(link.clone())
    }
}
