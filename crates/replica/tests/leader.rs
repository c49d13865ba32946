//! The leader: comparison, counts, high watermark, answers.
mod common;

use bascule_replica::leader::{
    AckPolicy, Action, Ends, Event, Leader, Outcome, Phase, Refusal, Stored, compare,
};
use bascule_replica::types::{Boundary, BrokerId, Class, Position};
use common::{A, B, C, ListLog, Served, answer, at, config, fetch};
use proptest::prelude::*;

#[test]
fn the_high_watermark_is_the_least_counted_end_of_the_isr() {
    let mut served = Served::new(config(&[A, B, C]), 5);
    served.append(5, at(1));
    assert_eq!(served.leader.high_watermark(), 5);
    served.fetch(B, 10, at(2));
    assert_eq!(served.leader.high_watermark(), 5, "C has not reported");
    served.fetch(C, 8, at(3));
    assert_eq!(served.leader.high_watermark(), 8);
}

#[test]
fn class_disk_counts_durable_ends_and_class_memory_log_ends() {
    for (class, expected) in [(Class::Disk, 6), (Class::Memory, 9)] {
        let mut served = Served::new(
            bascule_replica::types::Config {
                class,
                ..config(&[A, B])
            },
            5,
        );
        served.append(5, at(1));
        let mut reported = fetch(B, &ListLog(served.log.0[..9].to_vec()));
        (reported.durable, reported.durable_link) = (6, served.log.link(6));
        served.step(reported, at(2));
        assert_eq!(served.leader.high_watermark(), expected);
    }
}

#[test]
fn an_end_without_its_link_and_an_end_past_damage_are_not_counted() {
    let mut served = Served::new(config(&[A, B]), 5);
    served.append(5, at(1));
    served.fetch(B, 6, at(1));
    let mut reported = fetch(B, &ListLog(served.log.0[..9].to_vec()));
    reported.durable_link ^= 1;
    served.step(reported.clone(), at(2));
    assert_eq!(served.leader.high_watermark(), 6);
    reported.durable_link ^= 1;
    reported.damaged = Some(7);
    served.step(reported, at(3));
    assert_eq!(served.leader.high_watermark(), 7);
}

#[test]
fn below_min_in_sync_the_high_watermark_stands_still_and_all_is_refused() {
    let mut served = Served::new(config(&[A]), 5);
    served.append(5, at(1));
    assert_eq!(served.leader.high_watermark(), 5);
    assert_eq!(
        served.leader.admit(AckPolicy::All, at(1)),
        Err(Refusal::NotEnoughReplicas)
    );
    assert_eq!(served.leader.admit(AckPolicy::Leader, at(1)), Ok(()));
}

#[test]
fn answers_wait_for_their_end_and_for_the_lease() {
    let mut served = Served::new(config(&[A, B]), 0);
    served.leader.step(
        Event::Wait {
            ticket: 7,
            end: 2,
            policy: AckPolicy::All,
        },
        at(1),
    );
    served.leader.step(
        Event::Wait {
            ticket: 8,
            end: 1,
            policy: AckPolicy::Leader,
        },
        at(1),
    );
    assert!(served.append(2, at(1)).contains(&Action::Ack(8)));
    assert!(served.fetch(B, 2, at(2)).contains(&Action::Ack(7)));
    let ends = Ends {
        log: 0,
        ..Ends::default()
    };
    let mut leader = Leader::new(A, config(&[A, B]), ends, at(100), at(0));
    leader.step(Event::Opened { epoch_start: 0 }, at(0));
    leader.step(Event::Appended { end: 1 }, at(1));
    leader.step(
        Event::Wait {
            ticket: 9,
            end: 1,
            policy: AckPolicy::Leader,
        },
        at(1),
    );
    assert!(
        !leader
            .step(Event::Durable { end: 1 }, at(100))
            .contains(&Action::Ack(9))
    );
    assert_eq!(
        (leader.phase(), leader.admit(AckPolicy::Leader, at(100))),
        (Phase::Suspended, Err(Refusal::Suspended))
    );
    assert!(
        leader
            .step(Event::Lease(at(300)), at(200))
            .contains(&Action::Ack(9))
    );
}

#[test]
fn an_ended_leader_answers_what_waits_as_unknown_and_commits_nothing() {
    let mut served = Served::new(config(&[A, B]), 0);
    served.append(1, at(1));
    served.leader.step(
        Event::Wait {
            ticket: 1,
            end: 1,
            policy: AckPolicy::All,
        },
        at(1),
    );
    let mut newer = config(&[A, B]);
    (newer.leader, newer.leader_epoch, newer.partition_epoch) = (Some(B), 20, 20);
    let actions = served.leader.step(Event::Role(newer), at(2));
    assert_eq!(actions.to_vec(), [Action::Stop, Action::OutcomeUnknown(1)]);
    assert_eq!(
        answer(&served.fetch(B, 1, at(3))),
        Some(Outcome::WrongEpoch { current: 20 })
    );
    assert_eq!(served.leader.high_watermark(), 0);
}

#[test]
fn a_fetch_of_another_epoch_or_run_is_not_counted() {
    let mut served = Served::new(config(&[A, B]), 0);
    served.append(1, at(1));
    let right = fetch(B, &served.log.clone());
    let older = bascule_replica::leader::Fetch {
        leader_epoch: 10,
        boot_epoch: 1,
        ..right.clone()
    };
    assert_eq!(
        answer(&served.step(older, at(1))),
        Some(Outcome::WrongEpoch { current: 10 })
    );
    let newer = bascule_replica::leader::Fetch {
        leader_epoch: 11,
        ..right.clone()
    };
    assert_eq!(
        served.step(newer, at(1)).to_vec(),
        [Action::Park(B, at(501))]
    );
    let foreign = bascule_replica::leader::Fetch {
        from: BrokerId(9),
        ..right.clone()
    };
    assert_eq!(
        answer(&served.step(foreign, at(1))),
        Some(Outcome::WrongEpoch { current: 10 })
    );
    let zero = bascule_replica::leader::Fetch {
        boot_epoch: 0,
        ..right
    };
    assert_eq!(answer(&served.step(zero, at(1))), Some(Outcome::Invalid));
    assert_eq!(served.leader.high_watermark(), 0);
}

/// Leader's log: epochs 1, 1, 3, 3, 3. The rows name the follower's log and the answer.
#[test]
fn comparison_finds_where_histories_branch() {
    let log = ListLog(vec![1, 1, 3, 3, 3]);
    let rows: [(&[u64], Option<Outcome>); 7] = [
        (&[], None),
        (&[1, 1, 3], None),
        (&[1, 1, 3, 3, 3], None),
        (&[1, 1, 1], Some(Outcome::Diverged { epoch: 1, end: 2 })),
        (&[1, 1, 2, 2], Some(Outcome::Diverged { epoch: 1, end: 2 })),
        (
            &[1, 1, 3, 3, 3, 3],
            Some(Outcome::Diverged { epoch: 3, end: 5 }),
        ),
        (&[1, 2, 3], Some(Outcome::StepBack)),
    ];
    for (theirs, expected) in rows {
        let fetch = fetch(B, &ListLog(theirs.to_vec()));
        assert_eq!(
            compare(&fetch, &log.found(&fetch), Stored::default()),
            expected,
            "{theirs:?}"
        );
    }
}

#[test]
fn w09_an_end_inside_a_merged_batch_is_answered_with_the_boundary_below() {
    let log = ListLog(vec![1; 9]);
    let fetch = fetch(B, &ListLog(vec![1; 5]));
    let found = bascule_replica::leader::Found {
        at_end: Boundary::Inside { below: 3 },
        ..log.found(&fetch)
    };
    assert_eq!(
        compare(&fetch, &found, Stored::default()),
        Some(Outcome::Diverged { epoch: 1, end: 3 })
    );
}

#[test]
fn w26_an_empty_log_after_a_reset_is_compared_by_the_chain_of_its_start() {
    let stored = Stored {
        log_start: 100,
        first: 100,
    };
    let mut empty = fetch(B, &ListLog::default());
    empty.position = Position {
        epoch: 1,
        end: 100,
        link: 77,
    };
    let mut found = ListLog(vec![1]).found(&empty);
    found.at_end = Boundary::Link(77);
    found.epoch_end = Some(bascule_replica::types::EpochEnd { epoch: 1, end: 120 });
    assert_eq!(compare(&empty, &found, stored), None);
    found.at_end = Boundary::Link(78);
    assert_eq!(compare(&empty, &found, stored), Some(Outcome::StepBack));
}

#[test]
fn w29_a_batch_that_cannot_be_read_proves_nothing() {
    let log = ListLog(vec![5; 100]);
    let fetch = fetch(C, &ListLog(vec![5; 98]));
    let found = bascule_replica::leader::Found {
        at_end: Boundary::Damaged,
        ..log.found(&fetch)
    };
    assert_eq!(
        compare(&fetch, &found, Stored::default()),
        Some(Outcome::Busy { repair_below: None })
    );
}

#[test]
fn w30_a_reset_is_only_for_ends_below_the_log_start() {
    let fetch = fetch(B, &ListLog(vec![1; 9]));
    let found = ListLog(vec![1; 20]).found(&fetch);
    let damage = Stored {
        log_start: 0,
        first: 10,
    };
    assert_eq!(
        compare(&fetch, &found, damage),
        Some(Outcome::Busy {
            repair_below: Some(10)
        })
    );
    let trimmed = Stored {
        log_start: 12,
        first: 10,
    };
    assert_eq!(
        compare(&fetch, &found, trimmed),
        Some(Outcome::Reset { start: 10 })
    );
}

#[test]
fn n63_a_follower_whose_epochs_are_all_unknown_begins_at_the_first_stored_offset() {
    let fetch = fetch(C, &ListLog(vec![2; 9]));
    let found = ListLog(vec![7; 20]).found(&fetch);
    let stored = Stored {
        log_start: 4,
        first: 4,
    };
    assert_eq!(
        compare(&fetch, &found, stored),
        Some(Outcome::Diverged { epoch: 0, end: 4 })
    );
}

proptest! {
    /// Whatever members report, in whatever order: the high watermark never falls and never passes a member's own end.
    #[test]
    fn the_high_watermark_passes_no_member(reports in prop::collection::vec((0..3u64, 0..9usize, 0..9usize), 0..60)) {
        let mut served = Served::new(config(&[A, B, C]), 0);
        let mut reached = [0, 0];
        let mut before = 0;
        for (who, first, second) in reports {
            if who == 2 {
                served.append(first.min(2), at(1));
            } else {
                let member = if who == 0 { B } else { C };
                let end = first.max(second).max(reached[who as usize]).min(served.log.0.len());
                reached[who as usize] = end;
                served.fetch(member, end, at(1));
            }
            let high_watermark = served.leader.high_watermark();
            prop_assert!(high_watermark >= before);
            prop_assert!(high_watermark <= reached[0].min(reached[1]) as u64);
            prop_assert_eq!(high_watermark, reached[0].min(reached[1]) as u64);
            before = high_watermark;
        }
    }

    /// Two histories: an answer is `None` exactly if the follower's is a prefix; following the answers ends at the branch
    /// point, not below it, in a bounded number of steps.
    #[test]
    fn comparison_ends_at_the_branch_point(mut ours in prop::collection::vec(1..6u64, 0..12), mut theirs in prop::collection::vec(1..6u64, 0..12)) {
        ours.sort_unstable();
        theirs.sort_unstable();
        let log = ListLog(ours.clone());
        let shared = ours.iter().zip(&theirs).take_while(|(own, other)| own == other).count();
        for _ in 0..=theirs.len() + 1 {
            let theirs_log = ListLog(theirs.clone());
            let request = fetch(B, &theirs_log);
            match compare(&request, &log.found(&request), Stored::default()) {
                None => {
                    prop_assert!(ours.starts_with(&theirs));
                    break;
                }
                Some(Outcome::Diverged { epoch, end }) => {
                    let own = theirs_log.epoch_end(epoch).map_or(0, |own| own.end);
                    theirs.truncate(own.min(end) as usize);
                }
                Some(Outcome::StepBack) => { theirs.pop(); }
                other => prop_assert!(false, "{other:?}"),
            }
            prop_assert!(theirs.len() >= shared);
        }
        prop_assert!(ours.starts_with(&theirs));
    }
}

/// A registration changes no partition epoch: the role alone names it.
#[test]
fn a_member_that_registers_again_is_counted_by_its_new_run_in_the_same_partition_epoch() {
    let mut served = Served::new(config(&[A, B]), 5);
    served.fetch(B, 5, at(1));
    assert_eq!(served.leader.counted(B), Some(5));
    let mut registered = config(&[A, B]);
    if let Some(replica) = registered.replicas.get_mut(&B) {
        (replica.boot_epoch, replica.confirmed) = (20, false);
    }
    served.leader.step(Event::Role(registered.clone()), at(2));
    assert_eq!(served.leader.counted(B), None);
    let mut reported = fetch(B, &served.log);
    (reported.boot_epoch, reported.session) = (20, 2);
    let wrong = Action::Answer(B, Outcome::WrongEpoch { current: 10 });
    assert_eq!(served.step(reported.clone(), at(3)).to_vec(), [wrong]);
    if let Some(replica) = registered.replicas.get_mut(&B) {
        replica.confirmed = true;
    }
    served.leader.step(Event::Role(registered), at(4));
    served.step(reported, at(5));
    assert_eq!(served.leader.counted(B), Some(5));
}

#[test]
fn what_every_replica_has_durably_counts_those_outside_of_the_isr_and_waits_for_each() {
    let mut served = Served::new(config(&[A, B]), 5);
    served.append(5, at(1));
    served.fetch(B, 10, at(2));
    assert_eq!(served.leader.high_watermark(), 10);
    assert_eq!(served.leader.replicated_to(), 0, "C has not reported");
    served.fetch(C, 7, at(3));
    assert_eq!(served.leader.replicated_to(), 7);
    let mut reported = fetch(C, &ListLog(served.log.0[..9].to_vec()));
    (reported.durable, reported.durable_link) = (8, served.log.link(8));
    served.step(reported.clone(), at(4));
    assert_eq!(served.leader.replicated_to(), 8, "not what it may lose");
    reported.damaged = Some(6);
    let actions = served.step(reported, at(5));
    assert_eq!(served.leader.replicated_to(), 6);
    let said = answer(&actions).map(|outcome| match outcome {
        Outcome::Ok { replicated_to, .. } => replicated_to,
        other => panic!("{other:?}"),
    });
    assert_eq!(said, Some(6));
    let mut again = config(&[A, B]);
    again.partition_epoch += 1;
    again.replicas.get_mut(&C).unwrap().boot_epoch += 1;
    served.leader.step(Event::Role(again), at(6));
    assert_eq!(served.leader.replicated_to(), 0, "another run of C");
}
