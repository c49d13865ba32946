//! A broker's heartbeats to the controller, and the lease that their answers give it (frame types 23 and 24).
use bascule_replica::lease::{HeartbeatAnswer, Lease};
use bascule_replica::types::Instant64;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// Body of a heartbeat (type 23). Times are those of the one that sends, ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Heartbeat {
    /// Of the run that sends.
    pub boot_epoch: u64,
    /// When it was sent.
    pub token: u64,
    /// The last token that was answered.
    pub answered: Option<u64>,
    /// Index of the last entry (inclusive) whose roles were taken over, and those of all entries before it.
    pub applied: u64,
}

/// Body of its answer (type 24).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answered {
    /// Heard by the controller.
    Heard {
        /// Of the heartbeat.
        token: u64,
        /// Whether it counts, so that it renews the lease.
        lease: bool,
        /// Age of the controller's authority, ms.
        age_ms: u64,
    },
    /// That run is over: fenced, or replaced by the run with this boot epoch.
    Over(u64),
    /// Nothing was noted: this broker is not the controller, or has no authority.
    Later,
}

/// The lease of the present run.
#[derive(Debug, Default)]
pub(crate) struct OwnLease {
    lease: Mutex<Lease>,
    /// Until when it lasts; read for every record.
    until: AtomicU64,
}

impl OwnLease {
    /// A run begins: nothing of an earlier one counts.
    pub fn begin(&self) {
        let mut lease = self.lease.lock();
        *lease = Lease::default();
        self.until.store(0, Ordering::Release);
    }

    /// The next heartbeat of this run, when one is due; `applied`: up to which entry its roles were taken over.
    pub fn due(&self, boot_epoch: u64, applied: u64, now: Instant64) -> Option<Heartbeat> {
        let mut lease = self.lease.lock();
        let token = lease.heartbeat(now)?;
        Some(Heartbeat {
            boot_epoch,
            token: token.0,
            answered: lease.last_answered().map(|token| token.0),
            applied,
        })
    }

    /// Takes an answer.
    pub fn answered(&self, answer: Answered) {
        let Answered::Heard {
            token,
            lease,
            age_ms,
        } = answer
        else {
            return;
        };
        let token = Instant64(token);
        let mut own = self.lease.lock();
        let until = own.answered(HeartbeatAnswer {
            token,
            lease,
            age_ms,
        });
        self.until.store(until.0, Ordering::Release);
    }

    /// Until when it lasts (exclusive).
    pub fn until(&self) -> Instant64 {
        Instant64(self.until.load(Ordering::Acquire))
    }

    /// What is left of it, ms; 0 = it is over.
    pub fn rest_ms(&self, now: Instant64) -> u64 {
        self.until().since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consensus::network::encode;
    use crate::replication::golden_body;

    const SENT: Instant64 = Instant64(10_000);

    fn heard(token: u64, lease: bool) -> Answered {
        let age_ms = 100;
        Answered::Heard {
            token,
            lease,
            age_ms,
        }
    }

    #[test]
    fn a_lease_lasts_from_the_sending_and_ends_with_its_run() {
        let lease = OwnLease::default();
        let first = lease.due(7, 40, SENT).unwrap();
        assert_eq!(
            (first.boot_epoch, first.token, first.answered, first.applied),
            (7, SENT.0, None, 40)
        );
        assert_eq!(lease.due(7, 40, SENT.plus(199)), None);
        lease.answered(heard(SENT.0, true));
        assert_eq!(lease.rest_ms(SENT.plus(300)), 1_000);
        let next = lease.due(7, 41, SENT.plus(300)).unwrap();
        assert_eq!(next.answered, Some(SENT.0));
        lease.begin();
        assert_eq!(lease.rest_ms(SENT.plus(300)), 0);
    }

    /// Of the golden frames.
    #[test]
    fn bodies_are_as_the_format_says() {
        let heartbeat = Heartbeat {
            boot_epoch: 7,
            token: 10_000,
            answered: Some(9_800),
            applied: 11,
        };
        let bodies = [
            (encode(&heartbeat), "heartbeat"),
            (encode(&heard(10_000, true)), "heartbeat_answer"),
        ];
        for (body, name) in bodies {
            assert_eq!(golden_body(name), body.unwrap(), "{name}");
        }
    }

    #[test]
    fn what_does_not_count_renews_nothing() {
        let lease = OwnLease::default();
        lease.due(7, 0, SENT).unwrap();
        for answer in [
            heard(SENT.0, false),
            heard(SENT.0 + 1, true),
            Answered::Over(9),
            Answered::Later,
        ] {
            lease.answered(answer);
            assert_eq!(lease.rest_ms(SENT), 0, "{answer:?}");
        }
    }
}
