//! Roles in the turns of the partition's task.
use super::follower::Before;
use super::links::position;
use super::role::RoleSpec;
use super::{FollowerRole, Found, LeaderRole, ReplicaMessage, Role, Site};
use crate::partition::commit::InFlight;
use crate::partition::writer::Writer;
use bascule_log::Error;
use bascule_replica::leader::Event;
use bascule_replica::types::{BrokerId, Config, Instant64};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Writer {
    /// Whether the log may drop records by settings of its own: a replica leaves that to its leader.
    pub fn may_remove(&self) -> bool {
        self.spec.replicas <= 1 || matches!(self.role, Role::Leader(_))
    }

    /// End (exclusive) of what every replica has on disk: more is not compacted. `u64::MAX` = there is no other replica.
    pub fn replicated_to(&self) -> u64 {
        match &self.role {
            _ if self.spec.replicas <= 1 => u64::MAX,
            Role::Leader(role) => role.replicated_to(),
            Role::Follower(role) => role.replicated_to(),
            Role::Idle => 0,
        }
    }

    /// Takes over what the metadata says. What is older than what is known is ignored.
    pub fn set_role(&mut self, own: u64, spec: &RoleSpec) {
        let config = spec.config();
        let mut site = Site {
            partition: &self.partition,
            log: &mut self.log,
        };
        match &mut self.role {
            Role::Leader(role) => {
                let (epoch, leads) = (role.epoch(), config.leader == Some(BrokerId(own)));
                role.step(Event::Role(config.clone()), &site);
                if config.leader_epoch < epoch || (config.leader_epoch == epoch && leads) {
                    return;
                }
            }
            Role::Follower(role) if config.leader_epoch < role.epoch() => return,
            Role::Follower(role)
                if config.leader_epoch == role.epoch()
                    && config.leader == Some(BrokerId(role.leader())) =>
            {
                return role.role(config, &mut site);
            }
            Role::Follower(_) | Role::Idle => {}
        }
        let before = match &self.role {
            Role::Follower(role) => role.before(),
            Role::Leader(role) => Before {
                has_learned: role.has_begun(),
                ..Before::default()
            },
            Role::Idle => Before::default(),
        };
        self.leave_role();
        self.begin_role(own, config, before);
    }

    fn begin_role(&mut self, own: u64, config: Config, before: Before) {
        let id = BrokerId(own);
        if !config.replicas.contains_key(&id) {
            return;
        }
        let mut site = Site {
            partition: &self.partition,
            log: &mut self.log,
        };
        match config.leader {
            Some(leader) if leader == id => {
                let role = LeaderRole::begin(own, config, &mut site);
                self.role = Role::Leader(Box::new(role));
                self.begin_epoch();
            }
            Some(_) => {
                let role = FollowerRole::begin(own, config, before, &mut site);
                self.role = Role::Follower(Box::new(role));
            }
            None => return,
        }
        self.learn_durable();
    }

    /// Takes appends from now on, if the leader's epoch has begun and it has not done so yet.
    fn begin_epoch(&mut self) {
        let Role::Leader(role) = &self.role else {
            return;
        };
        let epoch = role.epoch();
        if !role.has_begun() || self.epoch == Some(epoch) {
            return;
        }
        self.partition.begin_leading(epoch, role.epoch_start());
        self.epoch = Some(epoch);
        self.expect_reports(epoch, Instant::now());
        if let Some(to) = self.partition.to_brokers() {
            to.begin_leading(&self.partition);
        }
        self.learn_durable();
    }

    /// Ends the role: appends that wait are answered as unknown.
    pub fn leave_role(&mut self) {
        let incarnation = self.partition.identity().incarnation;
        let to = self.partition.to_brokers().cloned();
        match std::mem::take(&mut self.role) {
            Role::Idle => {}
            Role::Leader(_) => {
                self.epoch = None;
                self.partition.0.leading.store(false, Ordering::Release);
                if let Some(to) = to {
                    to.end_leading(incarnation);
                }
            }
            Role::Follower(role) => {
                self.partition.reads_until(Instant64::default());
                if let Some(to) = to {
                    to.end_fetch(role.leader(), incarnation);
                }
            }
        }
    }

    /// A message of another broker. One that does not fit the role is dropped, which answers it.
    pub fn take_replica_message(&mut self, message: ReplicaMessage) {
        let mut site = Site {
            partition: &self.partition,
            log: &mut self.log,
        };
        match (&mut self.role, message) {
            (role, ReplicaMessage::Asked(asked)) => {
                let leader_epoch = match role {
                    Role::Idle => 0,
                    Role::Leader(role) => role.epoch(),
                    Role::Follower(role) => role.epoch(),
                };
                // Whoever asked may have gone.
                let _ = asked.reply.send(Found {
                    leader_epoch,
                    position: position(site.log),
                    reader: site.log.reader(),
                });
            }
            (Role::Leader(role), ReplicaMessage::Fetch(fetch)) => role.fetch(fetch, &site),
            (Role::Leader(role), ReplicaMessage::TakeOver(message)) => {
                role.take_over(message, &mut site);
                self.begin_epoch();
            }
            (Role::Follower(role), ReplicaMessage::Answer(answer)) => {
                let bytes = answer.body.len() as u64;
                role.answered(answer, &mut site);
                self.appended_bytes += bytes;
            }
            (Role::Follower(role), ReplicaMessage::Disconnected(leader))
                if role.leader() == leader =>
            {
                role.disconnected(&mut site);
            }
            (
                _,
                ReplicaMessage::Fetch(_)
                | ReplicaMessage::Answer(_)
                | ReplicaMessage::Disconnected(_)
                | ReplicaMessage::TakeOver(_),
            ) => {}
        }
    }

    /// A sync has ended.
    pub fn take_durable(&mut self, outcome: Result<u64, Arc<Error>>) {
        let end = match outcome {
            Ok(end) => end,
            Err(error) => {
                self.partition.fail(&error.to_string());
                return self.fail_role();
            }
        };
        let mut site = Site {
            partition: &self.partition,
            log: &mut self.log,
        };
        match &mut self.role {
            Role::Leader(role) => role.step(Event::Durable { end }, &site),
            Role::Follower(role) => role.durable(end, &mut site),
            Role::Idle => {}
        }
    }

    /// The log has failed. A leader resigns, and shows what is committed for as long as nobody else can lead.
    fn fail_role(&mut self) {
        let health = self.health();
        let reason = self.partition.failure().unwrap_or_default().to_owned();
        let site = Site {
            partition: &self.partition,
            log: &mut self.log,
        };
        match &mut self.role {
            Role::Leader(role) => role.fail(&reason, health, &site),
            Role::Follower(_) | Role::Idle => self.leave_role(),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self) {
        let health = self.health();
        let mut site = Site {
            partition: &self.partition,
            log: &mut self.log,
        };
        match &mut self.role {
            Role::Leader(role) => role.tick(health, &mut site),
            Role::Follower(role) => role.tick(&mut site),
            Role::Idle => {}
        }
        self.begin_epoch();
    }

    /// Hands a group to the leader's role, which answers it; its followers get what was appended before it is synced here.
    pub fn finish_led(&mut self, group: Vec<InFlight>) {
        let Role::Leader(role) = &mut self.role else {
            return;
        };
        let site = Site {
            partition: &self.partition,
            log: &mut self.log,
        };
        let is_new = role.appended(&site);
        let waits = !group.is_empty();
        role.wait(group, &site);
        if is_new || waits {
            self.learn_durable();
        }
    }

    /// Asks for a sync; its end comes back as a message.
    fn learn_durable(&mut self) {
        let partition = self.partition.clone();
        partition.0.outstanding.fetch_add(1, Ordering::AcqRel);
        self.log.commit(Box::new(move |outcome| {
            partition.0.outstanding.fetch_sub(1, Ordering::AcqRel);
            partition.send_durable(outcome);
        }));
    }
}
