//! Take-over, lease, liveness, pre-vote.
mod common;

use bascule_replica::follower::Batch;
use bascule_replica::lease::{EXPIRY_MS, HeartbeatAnswer, LEASE_MS, Lease};
use bascule_replica::liveness::{self, Heartbeat, Liveness};
use bascule_replica::prevote::{self, LogId, PreVote};
use bascule_replica::takeover::{Action, Event, TakeOver};
use bascule_replica::types::{BrokerId, Instant64, Position};
use common::{A, B, C, ListLog, at, config};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn position(log: &ListLog) -> Position {
    log.position()
}

fn range(log: &ListLog, from: u64) -> Vec<Batch> {
    (from..log.end())
        .map(|base| Batch {
            base,
            end: base + 1,
            epoch: log.0[base as usize],
            chain: log.link(base),
            link: log.link(base + 1),
        })
        .collect()
}

#[test]
fn a_take_over_fetches_what_the_most_complete_member_has() {
    let (own, theirs) = (ListLog(vec![1, 1]), ListLog(vec![1, 1, 2]));
    let (mut taking, asked) = TakeOver::begin(A, &config(&[A, B, C]), position(&own), at(0));
    assert_eq!(asked.to_vec(), [Action::Ask(B), Action::Ask(C)]);
    let answer = |from, log: &ListLog| Event::Position {
        from,
        leader_epoch: 10,
        position: position(log),
    };
    assert_eq!(taking.step(answer(B, &own), at(1)).len(), 0);
    let actions = taking.step(answer(C, &theirs), at(2));
    assert_eq!(
        actions.to_vec(),
        [Action::Fetch {
            from: C,
            attempt: 1,
            position: position(&own)
        }]
    );
    let actions = taking.step(
        Event::Range {
            from: C,
            attempt: 1,
            batches: range(&theirs, 2),
        },
        at(3),
    );
    assert_eq!(
        actions.to_vec(),
        [
            Action::Append { batches: 1 },
            Action::Open { epoch_start: 3 }
        ]
    );
}

#[test]
fn alone_a_take_over_takes_one_turn() {
    let (taking, actions) = TakeOver::begin(A, &config(&[A]), position(&ListLog(vec![1])), at(0));
    assert_eq!(actions.to_vec(), [Action::Open { epoch_start: 1 }]);
    assert!(taking.is_over());
}

#[test]
fn n15_an_answer_of_another_leader_epoch_is_not_used() {
    let own = position(&ListLog(vec![1]));
    let (mut taking, _) = TakeOver::begin(A, &config(&[A, B]), own, at(0));
    assert_eq!(
        taking
            .step(
                Event::Position {
                    from: B,
                    leader_epoch: 9,
                    position: own
                },
                at(1)
            )
            .len(),
        0
    );
    assert_eq!(
        taking.step(Event::Tick, at(500)).to_vec(),
        [Action::Open { epoch_start: 1 }]
    );
}

#[test]
fn n16_a_range_that_arrives_after_the_epoch_began_or_of_an_earlier_try_is_dropped() {
    let (own, theirs) = (ListLog(vec![1, 1]), ListLog(vec![1, 1, 2]));
    let (mut taking, _) = TakeOver::begin(A, &config(&[A, B]), position(&own), at(0));
    taking.step(
        Event::Position {
            from: B,
            leader_epoch: 10,
            position: position(&theirs),
        },
        at(1),
    );
    let late = || Event::Range {
        from: B,
        attempt: 1,
        batches: range(&theirs, 2),
    };
    assert_eq!(
        taking
            .step(
                Event::Range {
                    from: B,
                    attempt: 0,
                    batches: range(&theirs, 2)
                },
                at(2)
            )
            .len(),
        0
    );
    assert_eq!(
        taking.step(Event::Tick, at(101)).to_vec(),
        [Action::Open { epoch_start: 2 }]
    );
    assert_eq!(taking.step(late(), at(102)).len(), 0);
}

#[test]
fn a_range_of_another_history_is_not_appended() {
    let (own, theirs) = (ListLog(vec![1, 1]), ListLog(vec![1, 2, 2]));
    let (mut taking, _) = TakeOver::begin(A, &config(&[A, B]), position(&own), at(0));
    taking.step(
        Event::Position {
            from: B,
            leader_epoch: 10,
            position: position(&theirs),
        },
        at(1),
    );
    let actions = taking.step(
        Event::Range {
            from: B,
            attempt: 1,
            batches: range(&theirs, 2),
        },
        at(2),
    );
    assert_eq!(actions.to_vec(), [Action::Open { epoch_start: 2 }]);
}

fn office(begun: u64) -> Liveness {
    let mut table = Liveness::default();
    for broker in [A, B, C] {
        table.step(
            liveness::Event::Settled {
                broker,
                boot_epoch: broker.0,
                fenced: false,
            },
            at(begun),
        );
    }
    table.step(liveness::Event::Authority { begun: at(begun) }, at(begun));
    table
}

fn heartbeat(from: BrokerId, token: u64, answered: Option<u64>) -> liveness::Event {
    let answered = answered.map(Instant64);
    liveness::Event::Heartbeat(Heartbeat {
        from,
        boot_epoch: from.0,
        token: at(token),
        answered,
        applied: 0,
    })
}

fn lease_given(actions: &liveness::Actions) -> Option<bool> {
    actions.iter().find_map(|action| match action {
        liveness::Action::Answer(_, answer) => Some(answer.lease),
        _ => None,
    })
}

#[test]
fn n02_only_a_heartbeat_that_counts_as_heard_renews_the_lease() {
    let mut table = office(0);
    let authority = |table: &mut Liveness, now| {
        table.step(liveness::Event::Authority { begun: at(now) }, at(now))
    };
    assert_eq!(
        lease_given(&table.step(heartbeat(A, 0, None), at(10))),
        Some(true)
    );
    authority(&mut table, 1_200);
    assert_eq!(
        lease_given(&table.step(heartbeat(A, 1_700, None), at(1_700))),
        Some(true),
        "within the grace of office"
    );
    authority(&mut table, 2_300);
    assert_eq!(
        lease_given(&table.step(heartbeat(A, 2_300, None), at(2_300))),
        Some(false),
        "A hears nothing"
    );
    authority(&mut table, 3_400);
    let silent = table.step(liveness::Event::Tick, at(3_451));
    assert!(
        silent.contains(&liveness::Action::Expired(A, 1)),
        "{silent:?}"
    );
    assert_eq!(
        table
            .step(heartbeat(A, 3_460, Some(2_300)), at(3_460))
            .len(),
        0,
        "expiry is sticky"
    );
}

#[test]
fn n18_a_broker_that_is_heard_and_hears_nothing_counts_again_once_it_hears() {
    let mut table = office(0);
    table.step(liveness::Event::Authority { begun: at(1_200) }, at(1_200));
    table.step(heartbeat(A, 1_000, None), at(1_700));
    table.step(liveness::Event::Authority { begun: at(2_300) }, at(2_300));
    assert_eq!(
        lease_given(&table.step(heartbeat(A, 2_000, None), at(2_300))),
        Some(false)
    );
    assert_eq!(
        lease_given(&table.step(heartbeat(A, 2_200, Some(2_000)), at(2_400))),
        Some(true)
    );
}

#[test]
fn n03_a_controller_that_was_stopped_expires_nobody_before_a_new_round() {
    let mut table = office(0);
    assert_eq!(
        table.step(liveness::Event::Tick, at(5_000)).len(),
        0,
        "no authority, no expiry"
    );
    table.step(liveness::Event::Authority { begun: at(5_000) }, at(5_001));
    assert_eq!(table.step(liveness::Event::Tick, at(5_002)).len(), 0);
    table.step(liveness::Event::Authority { begun: at(6_300) }, at(6_300));
    assert_eq!(table.step(liveness::Event::Tick, at(6_751)).len(), 3);
}

#[test]
fn n09_an_expiry_that_no_entry_settles_hands_the_office_over() {
    let mut table = office(0);
    table.step(liveness::Event::Authority { begun: at(1_000) }, at(1_000));
    assert_eq!(table.step(liveness::Event::Tick, at(1_751)).len(), 3);
    for begun in [2_000, 3_000, 4_000] {
        table.step(liveness::Event::Authority { begun: at(begun) }, at(begun));
    }
    assert_eq!(
        table.step(liveness::Event::Tick, at(4_751)).to_vec(),
        [liveness::Action::HandOver]
    );
}

#[test]
fn n27_n51_one_broker_that_does_not_apply_its_roles_does_not_count() {
    for (slow, expected) in [(vec![A], Some(false)), (vec![A, B], Some(true))] {
        let mut table = office(0);
        for &broker in &slow {
            table.step(
                liveness::Event::RolesApplied {
                    broker,
                    index: 9,
                    ends: true,
                },
                at(100),
            );
        }
        table.step(liveness::Event::Authority { begun: at(5_200) }, at(5_200));
        assert_eq!(
            lease_given(&table.step(heartbeat(A, 5_200, None), at(5_200))),
            expected
        );
    }
}

#[test]
fn n41_ended_roles_are_stopped_when_the_heartbeat_says_so() {
    let mut table = office(0);
    table.step(
        liveness::Event::RolesApplied {
            broker: A,
            index: 9,
            ends: true,
        },
        at(1),
    );
    let beat = |applied| {
        let heartbeat = Heartbeat {
            from: A,
            boot_epoch: 1,
            token: at(2),
            answered: None,
            applied,
        };
        liveness::Event::Heartbeat(heartbeat)
    };
    assert_eq!(table.step(beat(8), at(2)).len(), 1);
    assert_eq!(
        table.step(beat(9), at(3))[0],
        liveness::Action::Stopped(A, 1, 9)
    );
    assert_eq!(table.step(beat(9), at(4)).len(), 1, "once");
}

fn group(others: &[BrokerId], index: u64) -> prevote::Event {
    let others = others.iter().copied().collect::<BTreeSet<_>>();
    prevote::Event::Group {
        others,
        votes: true,
        last: LogId { term: 1, index },
    }
}

#[test]
fn n50_a_voter_that_heard_a_leader_refuses() {
    let mut voter = PreVote::default();
    voter.step(group(&[A, B], 5), at(0));
    voter.step(prevote::Event::LeaderHeard, at(1_000));
    let asked = |index| prevote::Event::Asked {
        from: B,
        last: LogId { term: 1, index },
    };
    assert_eq!(
        voter.step(asked(9), at(1_299)).to_vec(),
        [prevote::Action::Answer(B, false)]
    );
    assert_eq!(
        voter.step(asked(9), at(1_300)).to_vec(),
        [prevote::Action::Answer(B, true)]
    );
    assert_eq!(
        voter.step(asked(4), at(1_300)).to_vec(),
        [prevote::Action::Answer(B, false)],
        "its log is behind"
    );
}

#[test]
fn a_round_wins_once_with_a_majority_and_answers_of_earlier_rounds_do_not_count() {
    let mut voter = PreVote::default();
    voter.step(group(&[B, C], 5), at(0));
    let tick = || prevote::Event::Tick { draw_ms: 300 };
    assert_eq!(
        voter.step(tick(), at(1)).to_vec(),
        [prevote::Action::Ask(B, 1), prevote::Action::Ask(C, 1)]
    );
    assert_eq!(voter.step(tick(), at(300)).len(), 0);
    voter.step(tick(), at(301));
    let granted = |round| prevote::Event::Answered {
        from: B,
        round,
        granted: true,
    };
    assert_eq!(voter.step(granted(1), at(302)).len(), 0);
    assert_eq!(
        voter.step(granted(2), at(302)).to_vec(),
        [prevote::Action::Elect]
    );
    assert_eq!(voter.step(granted(2), at(303)).len(), 0);
}

#[test]
fn a_sole_voter_elects_itself_at_once() {
    let mut voter = PreVote::default();
    voter.step(group(&[], 5), at(0));
    assert_eq!(
        voter
            .step(prevote::Event::Tick { draw_ms: 300 }, at(0))
            .to_vec(),
        [prevote::Action::Elect]
    );
}

proptest! {
    /// Clocks that differ by up to 25 %, frames that take any time: when the controller reports a broker as expired, the
    /// broker's lease is over. Times of the broker are `rate` thousandths of the controller's.
    #[test]
    fn a_lease_is_over_before_the_broker_is_expired(
        rate in 800..=1_250u64,
        beats in prop::collection::vec((0..900u64, 0..600u64, 0..600u64, any::<bool>()), 1..25),
        rounds in prop::collection::vec(20..700u64, 1..40),
    ) {
        let broker_time = |controller: u64| Instant64(1_000_000 + controller * rate / 1_000);
        let mut events: Vec<(u64, Option<(u64, u64)>)> = Vec::new();
        let mut time = 0;
        for (wait, there, back, lost) in beats {
            time += wait;
            events.push((time + there, Some((time, if lost { u64::MAX } else { back }))));
        }
        let mut begun = 0;
        for wait in rounds {
            begun += wait;
            events.push((begun, None));
        }
        events.sort_unstable();
        let mut table = Liveness::default();
        table.step(liveness::Event::Settled { broker: A, boot_epoch: 1, fenced: false }, at(0));
        table.step(liveness::Event::Authority { begun: at(0) }, at(0));
        let mut until = Instant64(0);
        let mut answered: Vec<(u64, Instant64)> = Vec::new();
        for (now, beat) in events {
            let actions = match beat {
                None => {
                    table.step(liveness::Event::Authority { begun: at(now) }, at(now));
                    table.step(liveness::Event::Tick, at(now))
                }
                Some((sent, back)) => {
                    let token = broker_time(sent);
                    let known = answered.iter().filter(|&&(arrived, _)| arrived <= sent).map(|&(_, token)| token).max();
                    let event = Heartbeat { from: A, boot_epoch: 1, token, answered: known, applied: 0 };
                    let actions = table.step(liveness::Event::Heartbeat(event), at(now));
                    for action in &actions {
                        if let (liveness::Action::Answer(_, answer), true) = (action, back != u64::MAX) {
                            answered.push((now + back, answer.token));
                            if answer.lease {
                                let mut lease = Lease::default();
                                prop_assert_eq!(lease.heartbeat(token), Some(token));
                                until = until.max(lease.answered(*answer));
                            }
                        }
                    }
                    actions
                }
            };
            if actions.contains(&liveness::Action::Expired(A, 1)) {
                prop_assert!(until <= broker_time(now), "lease until {until:?}, expired at {:?}", broker_time(now));
            }
        }
    }
}

#[test]
fn a_lease_counts_from_sending_less_the_age_of_authority() {
    let mut lease = Lease::default();
    assert_eq!(lease.heartbeat(at(100)), Some(at(100)));
    assert_eq!(lease.heartbeat(at(299)), None);
    let answer = |token, lease, age_ms| HeartbeatAnswer {
        token: at(token),
        lease,
        age_ms,
    };
    assert_eq!(lease.answered(answer(200, true, 0)), at(0), "never sent");
    assert_eq!(lease.answered(answer(100, false, 0)), at(0), "no lease");
    assert_eq!(lease.answered(answer(100, true, 50)), at(1_450));
    assert_eq!(lease.last_answered(), Some(at(100)));
    assert_eq!(LEASE_MS * 5 / 4, EXPIRY_MS);
}
