//! Where the appends of calls go: to a partition of this broker, or to whoever leads it.
use super::item::Publisher;
use super::{Forwarder, Lane, LaneEnd, Target};
use crate::partition::{Append, AppendError, Partition};
use crate::tls::Peer;
use crate::view::{PartitionView, StreamView};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::time::Instant;

/// From so many lanes on those that are idle are dropped.
const LANES: usize = 256;

/// A partition that takes appends, as one version of the metadata shows it.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    /// The partition as this broker leads it.
    local: Option<Partition>,
    /// The partition wherever it is led; `None`: there are no other brokers.
    target: Option<Target>,
}

impl Destination {
    /// `None`: it is not led here, and is not forwarded to: it is paused, or there are no other brokers.
    pub fn find(
        forwarder: &Forwarder,
        stream: &StreamView,
        partition: &PartitionView,
    ) -> Option<Self> {
        if partition.paused {
            return None;
        }
        let is_led_here = partition.leader == forwarder.broker_id;
        let local = partition.handle.clone().filter(|_| is_led_here);
        let target = forwarder.is_connected().then(|| Target {
            namespace: stream.namespace.clone(),
            stream: stream.name.clone(),
            number: partition.number,
            incarnation: partition.incarnation,
        });
        (local.is_some() || target.is_some()).then_some(Self { local, target })
    }

    /// The partition wherever it is led; `None`: there are no other brokers.
    pub fn target(&self) -> Option<&Target> {
        self.target.as_ref()
    }

    /// The partition when it takes appends on this broker now.
    pub fn here(&self) -> Option<&Partition> {
        let local = self.local.as_ref()?;
        (self.target.is_none() || local.is_leading()).then_some(local)
    }
}

impl From<Partition> for Destination {
    /// On a broker without others.
    fn from(partition: Partition) -> Self {
        Self {
            local: Some(partition),
            target: None,
        }
    }
}

/// The appends of one call of one client.
#[derive(Debug)]
pub(crate) struct Lanes {
    forwarder: Arc<Forwarder>,
    publisher: Publisher,
    end: Arc<LaneEnd>,
    /// By incarnation of their partitions.
    open: HashMap<u64, Lane>,
}

impl Lanes {
    pub fn new(forwarder: &Arc<Forwarder>, peer: &Peer) -> Self {
        let peer = peer.clone();
        Self::of(forwarder, Publisher { peer, user: None })
    }

    /// Those of a call that the rights of this user allow.
    pub fn of_user(forwarder: &Arc<Forwarder>, peer: &Peer, user: u64) -> Self {
        let (peer, user) = (peer.clone(), Some(user));
        Self::of(forwarder, Publisher { peer, user })
    }

    fn of(forwarder: &Arc<Forwarder>, publisher: Publisher) -> Self {
        Self {
            forwarder: forwarder.clone(),
            publisher,
            end: Arc::default(),
            open: HashMap::new(),
        }
    }

    /// Appends behind what the call appended to the same partition before; what is handed on waits until `deadline`, 10 s without one.
    /// Returns whether it was appended here.
    pub async fn append(
        &mut self,
        destination: &Destination,
        append: Append,
        deadline: Option<Instant>,
    ) -> bool {
        let here = destination.here();
        let Some(target) = &destination.target else {
            match here {
                Some(here) => here.append(append).await,
                None => (append.done)(Err(AppendError::NotLeader)),
            }
            return true;
        };
        let lane = self.open.get(&target.incarnation);
        if let Some(here) = here
            && lane.is_none_or(Lane::is_idle)
        {
            here.append(append).await;
            return true;
        }
        if self.open.len() >= LANES {
            self.open.retain(|_, lane| !lane.is_idle());
        }
        let new = || Lane::start(&self.forwarder, target, &self.publisher, &self.end);
        let lane = self.open.entry(target.incarnation).or_insert_with(new);
        lane.append(append, deadline).await;
        false
    }

    /// Waits until the outcome of a record that was handed on is unknown.
    pub async fn unknown(&self) {
        self.end.unknown().await;
    }
}
