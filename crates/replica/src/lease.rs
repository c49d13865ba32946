//! The lease of a broker: until when it may act as leader, and report as follower (rule 12).
//!
//! It ends 1.4 s after the *sending* of the last heartbeat that was answered with a lease, less the age of the controller's
//! authority. The controller counts 1.75 s from receipt, so clocks may differ by 25 % (R8).
use crate::types::Instant64;

/// How long a lease lasts.
pub const LEASE_MS: u64 = 1_400;
/// How long the controller waits before it names another leader: the lease and 25 %.
pub const EXPIRY_MS: u64 = 1_750;
/// How often a broker sends a heartbeat.
pub const HEARTBEAT_MS: u64 = 200;

/// The answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeartbeatAnswer {
    /// The broker's own time at which it sent the heartbeat.
    pub token: Instant64,
    /// Whether the heartbeat counted as heard. Only such an answer renews the lease (N2).
    pub lease: bool,
    /// Age of the controller's authority when it answered.
    pub age_ms: u64,
}

/// A broker's lease. It belongs to one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lease {
    until: Instant64,
    sent: Option<Instant64>,
    answered: Option<Instant64>,
}

impl Lease {
    /// The token of the next heartbeat, when one is due.
    pub fn heartbeat(&mut self, now: Instant64) -> Option<Instant64> {
        if self.sent.is_some_and(|sent| now.since(sent) < HEARTBEAT_MS) {
            return None;
        }
        self.sent = Some(now);
        Some(now)
    }

    /// Takes an answer and returns until when the lease lasts (exclusive). An answer to a token that was never sent, from the
    /// future, changes nothing.
    pub fn answered(&mut self, answer: HeartbeatAnswer) -> Instant64 {
        if self.sent.is_some_and(|sent| answer.token <= sent) {
            self.answered = self.answered.max(Some(answer.token));
            if answer.lease {
                self.until = self
                    .until
                    .max(answer.token.plus(LEASE_MS.saturating_sub(answer.age_ms)));
            }
        }
        self.until
    }

    /// The last token that was answered: part of the next heartbeat, so that a broker that is heard and hears nothing stops
    /// to count (N18).
    pub fn last_answered(&self) -> Option<Instant64> {
        self.answered
    }

    /// Until when the lease lasts (exclusive).
    pub fn until(&self) -> Instant64 {
        self.until
    }
}
