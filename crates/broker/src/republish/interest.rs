//! Detects whether anybody subscribes to the subject on which a partition publishes copies. Pure: no clock, no I/O.
//!
//! NATS answers a publisher that names a reply subject when nobody received the message (status 503), and on a connection
//! without echo our own subscription does not count. So the first of some copies is published with a reply subject, as a
//! *probe*. When the server answers "nobody", there was no subscriber after all queued records were committed, so the
//! other copies are not published. When there is no answer in time, there is a subscriber: from then on all copies are
//! published at once, and now and then one of them is a probe.
//!
//! ```text
//!          probe                 no answer in time
//!  Nobody ──────► Probing ──────────────────────► Heard ─┐ a probe every so often
//!     ▲             │ "nobody"                      │ ▲──┘
//!     └─────────────┴───────────────────────────────┘ "nobody"
//! ```
use std::time::{Duration, Instant};

/// At least so long between two probes while nobody listens; bounds what probing costs. Twice as long after each answer, up
/// to [`MAX_PAUSE`], by which the first copies for a new listener may then be late.
const PAUSE: Duration = Duration::from_millis(5);
/// See [`PAUSE`].
const MAX_PAUSE: Duration = Duration::from_millis(40);
/// Without an answer within this time there is a subscriber. A too short time only costs copies without a subscriber.
const ANSWER_LIMIT: Duration = Duration::from_millis(50);
/// While somebody listens, one copy in at least so many is a probe …
const SUBSCRIBED_COPIES: u64 = 1000;
/// … and at most one in so long.
const SUBSCRIBED_PAUSE: Duration = Duration::from_millis(250);

/// The next step for queued copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Publish them all; the first as a probe when there is a token.
    Publish(Option<u64>),
    /// Publish the first as a probe with this token, and keep the others until it is known.
    Probe(u64),
    /// Keep them and ask again then, or after the answer.
    Wait(Instant),
}

/// The meaning of the answer "nobody" for the queued copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Drop them: there is no subscriber.
    Skip,
    /// No effect: the answer is to an older probe, or to one whose copies were published meanwhile.
    Nothing,
}

/// State of the detection.
#[derive(Debug)]
pub(crate) struct SubscriberInterest {
    state: State,
    /// How long not to ask after the next "nobody".
    pause: Duration,
    next_token: u64,
}

#[derive(Debug)]
enum State {
    NoSubscriber {
        probe_from: Option<Instant>,
    },
    Probing {
        token: u64,
        until: Instant,
    },
    Subscribed {
        token: u64,
        probed: Instant,
        since: u64,
    },
}

impl SubscriberInterest {
    /// Nothing is known: the first copies are probed for.
    pub(crate) fn new() -> Self {
        Self {
            state: State::NoSubscriber { probe_from: None },
            pause: PAUSE,
            next_token: 1,
        }
    }

    /// Whether somebody listens, as far as is known.
    pub(crate) fn is_subscribed(&self) -> bool {
        matches!(self.state, State::Subscribed { .. })
    }

    /// The next step for `count` > 0 queued copies.
    pub(crate) fn step(&mut self, now: Instant, count: u64) -> Step {
        match &mut self.state {
            State::NoSubscriber {
                probe_from: Some(from),
            } if now < *from => Step::Wait(*from),
            State::NoSubscriber { .. } => {
                let token = self.token();
                self.state = State::Probing {
                    token,
                    until: now + ANSWER_LIMIT,
                };
                Step::Probe(token)
            }
            State::Probing { until, .. } if now < *until => Step::Wait(*until),
            State::Probing { token, .. } => {
                self.pause = PAUSE;
                self.state = State::Subscribed {
                    token: *token,
                    probed: now,
                    since: count,
                };
                Step::Publish(None)
            }
            State::Subscribed { since, probed, .. } => {
                *since += count;
                if *since < SUBSCRIBED_COPIES || now.duration_since(*probed) < SUBSCRIBED_PAUSE {
                    return Step::Publish(None);
                }
                let token = self.token();
                self.state = State::Subscribed {
                    token,
                    probed: now,
                    since: 0,
                };
                Step::Publish(Some(token))
            }
        }
    }

    /// The server said that nobody received the probe with this token.
    pub(crate) fn on_nobody(&mut self, now: Instant, token: u64) -> Answer {
        let probe_from = Some(now + self.pause);
        match self.state {
            State::Probing { token: asked, .. } if asked == token => {
                self.pause = (2 * self.pause).min(MAX_PAUSE);
                self.state = State::NoSubscriber { probe_from };
                Answer::Skip
            }
            State::Subscribed { token: asked, .. } if asked == token => {
                self.state = State::NoSubscriber { probe_from };
                Answer::Nothing
            }
            _ => Answer::Nothing,
        }
    }

    fn token(&mut self) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn nobody_is_asked_about_each_wave_of_copies_but_not_too_often() {
        let (mut interest, start) = (SubscriberInterest::new(), Instant::now());
        assert_eq!(interest.step(start, 5), Step::Probe(1));
        assert_eq!(
            interest.step(start + MS, 5),
            Step::Wait(start + ANSWER_LIMIT)
        );
        assert_eq!(interest.on_nobody(start + MS, 1), Answer::Skip);
        assert_eq!(interest.step(start + MS, 5), Step::Wait(start + MS + PAUSE));
        assert_eq!(interest.step(start + MS + PAUSE, 5), Step::Probe(2));
    }

    #[test]
    fn nobody_is_asked_less_and_less_often_until_somebody_listens() {
        let (mut interest, mut now) = (SubscriberInterest::new(), Instant::now());
        let ask = |interest: &mut SubscriberInterest, now: &mut Instant| {
            let Step::Probe(token) = interest.step(*now, 1) else {
                panic!("no probe");
            };
            interest.on_nobody(*now, token);
            let Step::Wait(until) = interest.step(*now, 1) else {
                panic!("no pause");
            };
            until.duration_since(std::mem::replace(now, until))
        };
        let pauses: Vec<_> = (0..5).map(|_| ask(&mut interest, &mut now)).collect();
        assert_eq!(pauses, [5 * MS, 10 * MS, 20 * MS, 40 * MS, 40 * MS]);
        let Step::Probe(token) = interest.step(now, 1) else {
            panic!("no probe");
        };
        now += ANSWER_LIMIT;
        assert_eq!(interest.step(now, 1), Step::Publish(None));
        interest.on_nobody(now, token);
        now += PAUSE;
        assert_eq!(ask(&mut interest, &mut now), 5 * MS);
    }

    #[test]
    fn silence_means_that_somebody_listens() {
        let (mut interest, start) = (SubscriberInterest::new(), Instant::now());
        assert_eq!(interest.step(start, 1), Step::Probe(1));
        assert_eq!(interest.step(start + ANSWER_LIMIT, 10), Step::Publish(None));
        assert_eq!(interest.step(start + ANSWER_LIMIT, 1), Step::Publish(None));
        // A late answer still describes the time of the probe: start probing again.
        assert_eq!(
            interest.on_nobody(start + ANSWER_LIMIT + MS, 1),
            Answer::Nothing
        );
        assert_eq!(
            interest.step(start + ANSWER_LIMIT + MS + PAUSE, 1),
            Step::Probe(2)
        );
    }

    #[test]
    fn while_somebody_listens_a_probe_needs_both_copies_and_time() {
        let (mut interest, start) = (SubscriberInterest::new(), Instant::now());
        interest.step(start, 1);
        let subscribed = start + ANSWER_LIMIT;
        assert_eq!(interest.step(subscribed, 1), Step::Publish(None));
        assert_eq!(
            interest.step(subscribed + SUBSCRIBED_PAUSE, 1),
            Step::Publish(None),
            "too few copies"
        );
        assert_eq!(
            interest.step(subscribed + SUBSCRIBED_PAUSE, SUBSCRIBED_COPIES),
            Step::Publish(Some(2))
        );
        assert_eq!(
            interest.step(subscribed + SUBSCRIBED_PAUSE + MS, SUBSCRIBED_COPIES),
            Step::Publish(None),
            "too soon"
        );
        assert_eq!(
            interest.on_nobody(subscribed + SUBSCRIBED_PAUSE + 2 * MS, 2),
            Answer::Nothing
        );
        assert_eq!(
            interest.step(subscribed + SUBSCRIBED_PAUSE + 2 * MS + PAUSE, 1),
            Step::Probe(3)
        );
    }

    #[test]
    fn an_answer_to_an_older_probe_says_nothing() {
        let (mut interest, start) = (SubscriberInterest::new(), Instant::now());
        interest.step(start, 1);
        interest.on_nobody(start, 1);
        assert_eq!(interest.step(start + PAUSE, 1), Step::Probe(2));
        assert_eq!(interest.on_nobody(start + PAUSE, 1), Answer::Nothing);
        assert_eq!(
            interest.step(start + PAUSE, 1),
            Step::Wait(start + PAUSE + ANSWER_LIMIT)
        );
    }
}
