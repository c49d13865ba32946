//! What replicas ask for when their role begins, works and ends.
use super::fetcher::Fetcher;
use super::heartbeat::OwnLease;
use super::reports::{Propose, Reports};
use super::take_over::{ask_position, ask_range};
use crate::consensus::network::Transport;
use crate::events::Events;
use crate::nats::NatsLink;
use crate::partition::Partition;
use crate::partition::replica::{Question, ReplicaReport, SlotState, ToBrokers};
use crate::peer::{Brokers, Way};
use crate::tls::PeerTls;
use bascule_replica::types::{BrokerId, Instant64};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::runtime::Handle;

/// What a [`Hub`] is made of.
pub(crate) struct HubParts {
    pub brokers: Arc<Brokers>,
    pub tls: Option<Arc<PeerTls>>,
    pub dialer: Arc<dyn Transport>,
    pub lease: Arc<OwnLease>,
    pub nats: NatsLink,
    pub events: Arc<Events>,
    pub proposer: Arc<dyn Propose>,
}

/// The way from the replicas of a broker to the others.
#[derive(Debug)]
pub(crate) struct Hub {
    brokers: Arc<Brokers>,
    tls: Option<Arc<PeerTls>>,
    dialer: Arc<dyn Transport>,
    lease: Arc<OwnLease>,
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
            dialer: parts.dialer,
            lease: parts.lease,
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
            let way = Way {
                brokers: self.brokers.clone(),
                tls: self.tls.clone(),
                events: self.events.clone(),
                to: leader,
            };
            Fetcher::start(&self.runtime, way)
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

    fn ask_position(&self, member: BrokerId, question: Question, partition: &Partition) {
        let (dialer, partition) = (self.dialer.clone(), partition.clone());
        self.runtime
            .spawn(ask_position(dialer, member, question, partition));
    }

    fn ask_range(
        &self,
        member: BrokerId,
        question: Question,
        attempt: u64,
        offset: u64,
        partition: &Partition,
    ) {
        let (dialer, partition) = (self.dialer.clone(), partition.clone());
        let asked = ask_range(dialer, member, question, (attempt, offset), partition);
        self.runtime.spawn(asked);
    }

    fn lease(&self) -> Instant64 {
        self.lease.until()
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
