//! A partition as one of several replicas: as the leader, as a follower, or idle until the metadata names its role.
//!
//! The step functions of `bascule_replica` decide. The code here looks up what they ask of the log, does what they say, and belongs
//! to the partition's task: nothing here waits for another broker.
//!
//! * [`RoleSpec`]: what the metadata says. [`Replicas`]: roles and open replicas of a broker, and its way to the others.
//! * [`FetchMessage`], [`AnswerMessage`]: what comes from other brokers. `leader`, `follower`: the roles. `links`: links of the last batches.
mod follower;
mod handle;
mod leader;
mod links;
mod messages;
mod role;
mod table;
mod turns;

pub(super) use follower::FollowerRole;
pub(super) use leader::LeaderRole;
pub(crate) use messages::{AnswerMessage, FetchMessage, FetchReply, ReplicaMessage, SlotState};
pub use role::RoleChanges;
pub(crate) use role::RoleSpec;
pub(crate) use table::{ReplicaReport, Replicas, ToBrokers, Truncation};

use super::Partition;
use bascule_log::Log;
use bascule_replica::types::Instant64;
use std::sync::OnceLock;
use std::time::Instant;

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

/// The clock of roles, in milliseconds.
pub(super) fn now() -> Instant64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let elapsed = BEGAN.get_or_init(Instant::now).elapsed();
    Instant64(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

/// Until when a broker may act. No controller ends the runs of others yet, so nobody else leads meanwhile.
pub(super) const LEASE: Instant64 = Instant64(u64::MAX);
