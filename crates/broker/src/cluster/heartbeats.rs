//! Heartbeats of this broker to the controller, and what it does as the controller.
use super::shared::{Running, Shared};
use crate::clock::since_boot;
use crate::consensus::network::{Kind, Transport, decode, encode};
use crate::consensus::raft::Voter;
use crate::events::{Event, Level};
use crate::replication::heartbeat::{Answered, Heartbeat};
use crate::replication::liveness::{Authority, Due};
use bascule_replica::lease::LEASE_MS;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at the clock: heartbeats are due every 200 ms, and a broker is silent after 1.75 s.
const TICK: Duration = Duration::from_millis(50);

/// Sends heartbeats, and reports who is silent, until it is dropped.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let Some(Running { voter, brokers, .. }) = shared.running.get() else {
            continue;
        };
        let boot_epoch = brokers.own_boot_epoch();
        // A run that is not registered has nothing to keep.
        if boot_epoch > 0
            && let Some(heartbeat) = shared.lease.due(boot_epoch, shared.applied_roles(), since_boot())
        {
            tokio::spawn(send(shared.clone(), heartbeat));
        }
        shared.expire(voter);
    }
}

async fn send(shared: Arc<Shared>, heartbeat: Heartbeat) {
    let Some(Running { voter, dialer, .. }) = shared.running.get() else {
        return;
    };
    if voter.office().is_some() {
        let answer = shared.heard(voter, shared.raft_id, &heartbeat);
        return shared.lease.answered(answer);
    }
    let Some(leader) = voter.leader().filter(|leader| *leader != shared.raft_id) else {
        return;
    };
    let Ok(body) = encode(&heartbeat) else {
        return;
    };
    let limit = Duration::from_millis(LEASE_MS);
    let asked = dialer.ask(leader, Kind::Heartbeat, body, limit);
    // Without an answer the lease ends: no further word is needed.
    if let Ok(Ok(body)) = tokio::time::timeout(limit, asked).await
        && let Ok(answer) = decode(&body)
    {
        shared.lease.answered(answer);
    }
}

impl Shared {
    fn applied_roles(&self) -> u64 {
        let partitions = self.partitions.upgrade();
        partitions.map_or(0, |partitions| partitions.replicas.applied())
    }

    /// Takes a heartbeat, as the controller or not.
    pub fn heard(&self, voter: &Voter, from: u64, heartbeat: &Heartbeat) -> Answered {
        let (authority, now) = (authority(voter), since_boot());
        self.watch.heartbeat(from, heartbeat, authority, now)
    }

    /// Reports the brokers that have become silent, and those that have stopped ended roles.
    fn expire(&self, voter: &Voter) {
        for due in self.watch.tick(authority(voter), since_boot()) {
            match due {
                Due::Expired(broker, boot_epoch) => {
                    self.events.push(Event::Expired { broker, boot_epoch });
                }
                Due::Stopped(broker, boot_epoch, index) => {
                    self.events.push(Event::Stopped {
                        broker,
                        boot_epoch,
                        index,
                    });
                }
                Due::HandOver => {
                    let text = "a silent broker was not fenced in time: another broker has to take the office";
                    let fields = serde_json::json!({"broker": self.name});
                    self.events
                        .log(Level::Warning, "cluster", text.to_owned(), fields);
                    voter.hand_over();
                }
            }
        }
    }
}

fn authority(voter: &Voter) -> Option<Authority> {
    let (term, begun) = voter.authority()?;
    Some(Authority { term, begun })
}
