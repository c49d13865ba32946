//! Whom the controller hears: the table of `replica::liveness`, fed by heartbeats and by what the state says of runs.
//!
//! It begins when the control plane has applied everything that was committed before this broker took the office, and ends with
//! the term. Outside of that nobody is answered, and nobody expires.
use super::heartbeat::{Answered, Heartbeat};
use bascule_replica::liveness::{Action, Event, Heartbeat as Heard, Liveness};
use bascule_replica::types::{BrokerId, Instant64};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The last registered run of a broker, as the state has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Number of the broker in the group of voters.
    pub broker: u64,
    /// Of the run, > 0.
    pub boot_epoch: u64,
    /// Whether the run is fenced.
    pub is_fenced: bool,
}

/// What the caller has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The run of this broker, with this boot epoch, was not heard in time: to be fenced.
    Expired(u64, u64),
    /// The run of this broker, with this boot epoch, has stopped every role that an entry up to this index has ended.
    Stopped(u64, u64, u64),
    /// A run expired long ago, and no entry has fenced it: another broker has to take the office.
    HandOver,
}

/// The office in which brokers are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Authority {
    /// The term that this broker leads.
    pub term: u64,
    /// When the last round began that a majority acknowledged.
    pub begun: Instant64,
}

/// The table. It is this broker's own, whether it is the controller or not.
#[derive(Debug, Default)]
pub(crate) struct Watch(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    term: Option<u64>,
    table: Liveness,
    runs: BTreeMap<u64, Run>,
    /// Runs that have stopped ended roles, since the last tick.
    stopped: Vec<Due>,
}

impl Watch {
    /// The state has this run.
    pub fn know(&self, run: Run, now: Instant64) {
        let mut state = self.0.lock();
        let known = state.runs.get(&run.broker);
        if known == Some(&run) || known.is_some_and(|known| known.boot_epoch > run.boot_epoch) {
            return;
        }
        state.runs.insert(run.broker, run);
        if state.term.is_some() {
            state.settle(run, now);
        }
    }

    /// Watches the brokers from now on, in this term; again from the beginning if it did so before.
    pub fn begin(&self, term: u64, now: Instant64) {
        let mut state = self.0.lock();
        state.table = Liveness::default();
        state.stopped.clear();
        state.term = Some(term);
        let runs: Vec<Run> = state.runs.values().copied().collect();
        for run in runs {
            state.settle(run, now);
        }
    }

    /// The control plane has applied entry `index` here, which changed roles of these brokers; with `true` it ended one that
    /// its broker may not know of.
    pub fn roles_changed(&self, index: u64, brokers: &[(u64, bool)], now: Instant64) {
        let mut state = self.0.lock();
        if state.term.is_none() {
            return;
        }
        for (broker, ends) in brokers.iter().copied() {
            let broker = BrokerId(broker);
            let event = Event::RolesApplied {
                broker,
                index,
                ends,
            };
            state.table.step(event, now);
        }
    }

    /// Takes a heartbeat of the broker with this number. `authority`: `None` = this broker is not the controller.
    pub fn heartbeat(
        &self,
        from: u64,
        heartbeat: &Heartbeat,
        authority: Option<Authority>,
        now: Instant64,
    ) -> Answered {
        let mut state = self.0.lock();
        if !state.has(authority, now) {
            return Answered::Later;
        }
        let heard = Heard {
            from: BrokerId(from),
            boot_epoch: heartbeat.boot_epoch,
            token: Instant64(heartbeat.token),
            answered: heartbeat.answered.map(Instant64),
            applied: heartbeat.applied,
        };
        let actions = state.table.step(Event::Heartbeat(heard), now);
        let stopped = actions.iter().filter_map(|action| match *action {
            Action::Stopped(broker, boot_epoch, index) => {
                Some(Due::Stopped(broker.0, boot_epoch, index))
            }
            _ => None,
        });
        state.stopped.extend(stopped);
        let answer = actions.into_iter().find_map(|action| match action {
            Action::Answer(_, answer) => Some(Answered::Heard {
                token: answer.token.0,
                lease: answer.lease,
                age_ms: answer.age_ms,
            }),
            Action::Refuse(_, boot_epoch) => Some(Answered::Over(boot_epoch)),
            Action::Expired(..) | Action::Stopped(..) | Action::HandOver => None,
        });
        answer.unwrap_or(Answered::Later)
    }

    /// Time has passed.
    pub fn tick(&self, authority: Option<Authority>, now: Instant64) -> Vec<Due> {
        let mut state = self.0.lock();
        if !state.has(authority, now) {
            return Vec::new();
        }
        let due = |action| match action {
            Action::Expired(broker, boot_epoch) => Some(Due::Expired(broker.0, boot_epoch)),
            Action::HandOver => Some(Due::HandOver),
            Action::Answer(..) | Action::Refuse(..) | Action::Stopped(..) => None,
        };
        let actions = state.table.step(Event::Tick, now);
        let stopped = std::mem::take(&mut state.stopped);
        let others = actions.into_iter().filter_map(due);
        stopped.into_iter().chain(others).collect()
    }

    /// Numbers of the brokers that are neither fenced nor silent; none while this broker does not watch.
    pub fn live(&self) -> Vec<u64> {
        let live = self.0.lock().table.live();
        live.into_iter().map(|broker| broker.0).collect()
    }
}

impl State {
    /// Whether brokers are watched in this office; ends the watch with the term, and passes on the authority.
    fn has(&mut self, authority: Option<Authority>, now: Instant64) -> bool {
        let present = authority.map(|authority| authority.term);
        if self.term.is_none() || self.term != present {
            if self.term.is_some() {
                self.term = None;
                self.stopped.clear();
                self.table.step(Event::OfficeLost, now);
            }
            return false;
        }
        if let Some(Authority { begun, .. }) = authority {
            self.table.step(Event::Authority { begun }, now);
        }
        true
    }

    fn settle(&mut self, run: Run, now: Instant64) {
        let event = Event::Settled {
            broker: BrokerId(run.broker),
            boot_epoch: run.boot_epoch,
            fenced: run.is_fenced,
        };
        self.table.step(event, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bascule_replica::lease::EXPIRY_MS;
    use bascule_replica::liveness::ROLES_BEHIND_MS;

    const BEGIN: Instant64 = Instant64(50_000);

    fn run(broker: u64, boot_epoch: u64, is_fenced: bool) -> Run {
        Run {
            broker,
            boot_epoch,
            is_fenced,
        }
    }

    fn office(term: u64, begun: Instant64) -> Authority {
        Authority { term, begun }
    }

    fn beat(boot_epoch: u64, now: Instant64) -> Heartbeat {
        Heartbeat {
            boot_epoch,
            token: now.0,
            answered: None,
            applied: 0,
        }
    }

    fn watching() -> Watch {
        let watch = Watch::default();
        watch.know(run(1, 10, false), BEGIN);
        watch.know(run(2, 11, false), BEGIN);
        watch.begin(3, BEGIN);
        watch
    }

    #[test]
    fn a_silent_run_expires_once_and_is_settled_by_its_fence() {
        let watch = watching();
        assert_eq!(watch.tick(Some(office(3, BEGIN)), BEGIN), []);
        let (between, late) = (BEGIN.plus(1_000), BEGIN.plus(EXPIRY_MS));
        let heard = watch.heartbeat(1, &beat(10, between), Some(office(3, between)), between);
        assert!(
            matches!(heard, Answered::Heard { lease: true, .. }),
            "{heard:?}"
        );
        assert_eq!(watch.tick(Some(office(3, late)), late), []);
        let later = late.plus(1);
        assert_eq!(
            watch.tick(Some(office(3, later)), later),
            [Due::Expired(2, 11)]
        );
        assert_eq!(watch.tick(Some(office(3, later)), later), []);
        assert_eq!(watch.live(), [1]);
        let unanswered = watch.heartbeat(2, &beat(11, later), Some(office(3, later)), later);
        assert_eq!(unanswered, Answered::Later);
        watch.know(run(2, 11, true), later);
        let refused = watch.heartbeat(2, &beat(11, later), Some(office(3, later)), later);
        assert_eq!(refused, Answered::Over(11));
        watch.know(run(2, 20, false), later);
        let returned = watch.heartbeat(2, &beat(20, later), Some(office(3, later)), later);
        assert!(
            matches!(returned, Answered::Heard { lease: true, .. }),
            "{returned:?}"
        );
        assert_eq!(watch.live(), [1, 2]);
    }

    #[test]
    fn a_controller_that_was_stopped_expires_nobody_before_a_round_of_its_own() {
        let watch = watching();
        let woken = BEGIN.plus(60_000);
        assert_eq!(watch.tick(Some(office(3, BEGIN)), woken), []);
        let answer = watch.heartbeat(2, &beat(11, woken), Some(office(3, BEGIN)), woken);
        assert_eq!(answer, Answered::Later);
        assert_eq!(watch.tick(Some(office(3, woken)), woken), []);
        let waited = woken.plus(EXPIRY_MS);
        assert_eq!(watch.tick(Some(office(3, waited)), waited), []);
    }

    #[test]
    fn a_run_that_has_stopped_an_ended_role_is_due_once() {
        let watch = watching();
        let office = Some(office(3, BEGIN));
        watch.roles_changed(20, &[(1, true), (2, false)], BEGIN);
        let beat = |broker, boot_epoch, applied| {
            let heartbeat = Heartbeat {
                applied,
                ..beat(boot_epoch, BEGIN)
            };
            watch.heartbeat(broker, &heartbeat, office, BEGIN);
            watch.tick(office, BEGIN)
        };
        assert_eq!(beat(1, 10, 19), []);
        assert_eq!(beat(2, 11, 20), []);
        assert_eq!(beat(1, 10, 21), [Due::Stopped(1, 10, 20)]);
        assert_eq!(beat(1, 10, 22), []);
    }

    #[test]
    fn a_run_that_takes_over_no_roles_for_long_is_silent() {
        let watch = Watch::default();
        for broker in 1..=3 {
            watch.know(run(broker, 10, false), BEGIN);
        }
        watch.begin(3, BEGIN);
        watch.roles_changed(20, &[(1, false), (2, false)], BEGIN);
        let mut expired = None;
        for millis in (0..=ROLES_BEHIND_MS + 2 * EXPIRY_MS).step_by(200) {
            let now = BEGIN.plus(millis);
            for broker in 1..=3 {
                let applied = if broker == 1 { 19 } else { 20 };
                let heartbeat = Heartbeat {
                    answered: Some(now.0.saturating_sub(200)),
                    applied,
                    ..beat(10, now)
                };
                watch.heartbeat(broker, &heartbeat, Some(office(3, now)), now);
            }
            let due = watch.tick(Some(office(3, now)), now);
            assert!(due.is_empty() || due == [Due::Expired(1, 10)], "{due:?}");
            expired = expired.or((!due.is_empty()).then_some(millis));
        }
        let expired = expired.expect("the run is not reported");
        assert!(expired > ROLES_BEHIND_MS + EXPIRY_MS - 400, "{expired}");
    }

    #[test]
    fn nobody_is_watched_outside_of_the_office() {
        let watch = watching();
        let late = BEGIN.plus(10 * EXPIRY_MS);
        assert_eq!(watch.tick(None, late), []);
        assert_eq!(watch.live(), Vec::<u64>::new());
        // Not before the control plane begins the next term.
        assert_eq!(watch.tick(Some(office(4, late)), late), []);
        let answer = watch.heartbeat(1, &beat(10, late), Some(office(4, late)), late);
        assert_eq!(answer, Answered::Later);
        watch.begin(4, late);
        let answer = watch.heartbeat(1, &beat(10, late), Some(office(4, late)), late);
        assert!(matches!(answer, Answered::Heard { .. }), "{answer:?}");
    }
}
