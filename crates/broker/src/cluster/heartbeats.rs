//! Heartbeats of this broker to the controller, and what it does as the controller.
use super::shared::{Running, Shared};
use crate::clock::since_boot;
use crate::consensus::network::{Kind, Transport, decode, encode};
use crate::consensus::raft::Voter;
use crate::events::{Event, Level};
use crate::replication::health::{Disk, HealthWatch};
use crate::replication::heartbeat::{Answered, Heartbeat};
use crate::replication::liveness::{Authority, Due};
use bascule_replica::lease::LEASE_MS;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{io, thread};
use tokio::runtime::Handle;

/// Between two looks at the clock: heartbeats are due every 200 ms, and a broker is silent after 1.75 s.
const TICK: Duration = Duration::from_millis(50);
/// Ticks between two looks at disk calls and tasks.
const LOOK: u32 = 4;

/// Has heartbeats sent, the disk and tasks watched, and silent brokers reported. Dropping it ends that.
#[derive(Debug)]
pub(super) struct Beat(Arc<AtomicBool>);

/// What was seen so far, and how often.
#[derive(Debug, Default)]
struct Looks {
    health: HealthWatch,
    count: u32,
}

impl Beat {
    /// A thread of its own begins each tick: it wakes a thread of the runtime, also when the one that served the network last hangs
    /// in a call to the disk and no other one has noticed.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn start(shared: &Arc<Shared>, runtime: &Handle) -> io::Result<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        let (theirs, shared) = (stopped.clone(), Arc::downgrade(shared));
        let (runtime, looks) = (runtime.clone(), Arc::<Mutex<Looks>>::default());
        let begin = move || {
            while !theirs.load(Ordering::Relaxed) {
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                // One that waits is enough: all threads of the runtime may hang.
                if Arc::strong_count(&looks) == 1 {
                    let looks = looks.clone();
                    runtime.spawn(async move { shared.tick(&mut looks.lock()) });
                }
                thread::sleep(TICK);
            }
        };
        thread::Builder::new()
            .name("heartbeats".into())
            .spawn(begin)?;
        Ok(Self(stopped))
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
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
    fn tick(self: Arc<Self>, looks: &mut Looks) {
        let Some(Running { voter, brokers, .. }) = self.running.get() else {
            return;
        };
        let boot_epoch = brokers.own_boot_epoch();
        // A run that is not registered has nothing to keep.
        if boot_epoch > 0
            && let Some(heartbeat) = self
                .lease
                .due(boot_epoch, self.applied_roles(), since_boot())
        {
            tokio::spawn(send(self.clone(), heartbeat));
        }
        self.expire(voter);
        looks.count = (looks.count + 1) % LOOK;
        if looks.count == 0 {
            self.watch_health(&mut looks.health);
        }
    }

    /// Resigns for leaders whose tasks hang, and reports replicas that can lead again.
    fn watch_health(&self, health: &mut HealthWatch) {
        let (Some(partitions), Some(committer)) =
            (self.partitions.upgrade(), self.committer.upgrade())
        else {
            return;
        };
        let disk = Disk {
            progress: committer.progress(),
            has_failed: committer.failure().is_some(),
            is_full: partitions.disk_full.is_full(&self.data),
        };
        let reports = health.look(&partitions.replicas, disk, since_boot());
        if let Some(to_brokers) = partitions.replicas.to_brokers() {
            for (incarnation, report) in reports {
                to_brokers.report(incarnation, report);
            }
        }
    }

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
