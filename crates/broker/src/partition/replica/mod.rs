//! A partition as one of several replicas: as the leader, as a follower, or idle until the metadata names its role.
//!
//! The step functions of `bascule_replica` decide. The code here looks up what they ask of the log, does what they say, and belongs
//! to the partition's task: nothing here waits for another broker.
//!
//! * [`RoleSpec`]: what the metadata says. [`Replicas`]: roles and open replicas of a broker, and its way to the others.
//! * [`FetchMessage`], [`AnswerMessage`], [`TakeOverMessage`]: what comes from other brokers; `received`: batches among it.
//! * `applied`: up to which entry roles were taken over. `leader`, `take_over`, `follower`: the roles. `gate`: stops a
//!   role at once. `health`: of a leader's disk and log. `links`: links of the last batches.
mod applied;
mod follower;
mod gate;
mod handle;
mod health;
mod leader;
mod links;
mod messages;
mod received;
mod role;
mod table;
mod take_over;
mod turns;

pub(crate) use applied::RoleTicket;
pub(super) use follower::FollowerRole;
pub(super) use handle::ReadRole;
pub(super) use health::Turns;
pub(super) use leader::LeaderRole;
pub(crate) use messages::{
    AnswerMessage, AskedMessage, FetchMessage, FetchReply, Found, Question, ReplicaMessage,
    ReplyBody, SlotState, TakeOverMessage,
};
pub use role::RoleChanges;
pub(crate) use role::RoleSpec;
pub(crate) use table::{LogChange, ReplicaReport, Replicas, ToBrokers, WantedLog};

use super::Partition;
use crate::clock::since_boot;
use bascule_log::{Log, LogId};
use bascule_replica::types::Instant64;

/// Between two ticks of a replica: an answer that waits for a while, a follower that lags.
pub(super) const TICK_MS: u64 = 200;

/// What a replica of several does now.
#[derive(Debug, Default)]
pub(super) enum Role {
    /// It is the only replica, or its role is not known, or nobody leads.
    #[default]
    Idle,
    Leader(Box<LeaderRole>),
    Follower(Box<FollowerRole>),
}

/// What a role works on.
pub(super) struct Site<'a> {
    pub partition: &'a Partition,
    pub log: &'a mut Log,
}

impl Site<'_> {
    fn log_id(&self) -> LogId {
        let identity = self.partition.identity();
        LogId {
            incarnation: identity.incarnation,
            partition: identity.number,
        }
    }
}

/// The clock of roles: that of leases, which continues while the machine sleeps.
pub(super) fn now() -> Instant64 {
    since_boot()
}

/// Until when this broker may act as the leader, and report as a follower (exclusive).
fn lease(site: &Site<'_>) -> Instant64 {
    let to_brokers = site.partition.to_brokers();
    to_brokers.map_or_else(Instant64::default, |to| to.lease())
}
