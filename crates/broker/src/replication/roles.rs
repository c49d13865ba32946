//! What replicas ask for when their role begins, works and ends.
use super::fetcher::Fetcher;
use super::reports::{Propose, Reports};
use crate::events::Events;
use crate::nats::NatsLink;
use crate::partition::Partition;
use crate::partition::replica::{ReplicaReport, SlotState, ToBrokers};
use crate::peer::Brokers;
use crate::tls::PeerTls;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::runtime::Handle;

/// What a [`Hub`] is made of.
pub(crate) struct HubParts {
    pub brokers: Arc<Brokers>,
    pub tls: Option<Arc<PeerTls>>,
    pub nats: NatsLink,
    pub events: Arc<Events>,
    pub proposer: Arc<dyn Propose>,
}

/// The way from the replicas of a broker to the others.
#[derive(Debug)]
pub(crate) struct Hub {
    brokers: Arc<Brokers>,
    tls: Option<Arc<PeerTls>>,
    nats: NatsLink,
    events: Arc<Events>,
    reports: Reports,
    /// By number of the leader's broker.
    fetchers: Mutex<HashMap<u64, Fetcher>>,
    runtime: Handle,
}

impl Hub {
    /// Call inside the runtime.
    pub fn new(parts: HubParts) -> Self {
        let reports = Reports::start(parts.brokers.clone(), parts.proposer);
        Self {
            brokers: parts.brokers,
            tls: parts.tls,
            nats: parts.nats,
            events: parts.events,
            reports,
            fetchers: Mutex::default(),
            runtime: Handle::current(),
        }
    }
}

impl ToBrokers for Hub {
    fn fetch(&self, leader: u64, partition: &Partition, slot: SlotState) {
        let mut fetchers = self.fetchers.lock();
        let fetcher = fetchers.entry(leader).or_insert_with(|| {
            let (brokers, tls) = (self.brokers.clone(), self.tls.clone());
            Fetcher::start(&self.runtime, brokers, tls, self.events.clone(), leader)
        });
        fetcher.set(partition, slot);
    }

    fn end_fetch(&self, leader: u64, incarnation: u64) {
        if let Some(fetcher) = self.fetchers.lock().get(&leader) {
            fetcher.remove(incarnation);
        }
    }

    fn disconnect(&self, leader: u64) {
        if let Some(fetcher) = self.fetchers.lock().get(&leader) {
            fetcher.disconnect();
        }
    }

    fn report(&self, incarnation: u64, report: ReplicaReport) {
        self.reports.add(incarnation, report);
    }

    fn begin_leading(&self, partition: &Partition) {
        let (nats, partition) = (self.nats.clone(), partition.clone());
        self.runtime.spawn(async move {
            nats.lead(&partition).await;
            if !partition.is_leading() {
                nats.stop_feeding(partition.identity().incarnation);
            }
        });
    }

    fn end_leading(&self, incarnation: u64) {
        self.nats.stop_feeding(incarnation);
    }
}
