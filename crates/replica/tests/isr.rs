//! Growth, shrinkage, standstill, reports.
mod common;

use bascule_replica::leader::{
    AckPolicy, Action, Actions, Ends, Event, Health, IsrChange, Leader, Phase, Reason, Resignation,
};
use bascule_replica::types::{BrokerId, Instant64};
use common::{A, B, C, FOREVER, Served, at, config};
use std::collections::BTreeSet;

fn proposal(isr: &[BrokerId], verified: &[(BrokerId, u64)]) -> Action {
    let isr = isr.iter().copied().collect();
    Action::ProposeIsr(IsrChange {
        leader_epoch: 10,
        partition_epoch: 10,
        isr,
        verified: verified.to_vec(),
    })
}

fn tick(served: &mut Served, now: Instant64) -> Actions {
    served.leader.step(Event::Tick(Health::default()), now)
}

fn resignation(reason: Reason, partition_epoch: u64, hw_moved: bool) -> Action {
    Action::Resign(Resignation {
        leader_epoch: 10,
        partition_epoch,
        reason,
        hw_moved,
    })
}

#[test]
fn a_member_joins_when_it_has_the_high_watermark_and_the_start_of_the_epoch() {
    let mut served = Served::new(config(&[A, B]), 5);
    served.append(3, at(1));
    served.fetch(B, 6, at(1));
    assert_eq!(
        served.fetch(C, 4, at(1)).len(),
        1,
        "below the start of the epoch"
    );
    assert_eq!(
        served.fetch(C, 5, at(1)).len(),
        1,
        "below the high watermark"
    );
    assert_eq!(
        served.fetch(C, 6, at(1))[0],
        proposal(&[A, B, C], &[(C, 3)])
    );
    served.fetch(B, 8, at(2));
    assert_eq!(
        served.leader.high_watermark(),
        6,
        "C counts from the proposal on"
    );
}

#[test]
fn n14_a_member_that_knows_less_than_the_start_of_the_epoch_does_not_join() {
    let mut served = Served::new(config(&[A, B]), 5);
    let ends = bascule_replica::leader::Ends {
        log: 5,
        durable: 5,
        high_watermark: 3,
        ..Default::default()
    };
    served.leader =
        bascule_replica::leader::Leader::new(A, config(&[A, B]), ends, common::FOREVER, at(0));
    served.leader.step(Event::Opened { epoch_start: 5 }, at(0));
    assert_eq!(served.fetch(C, 4, at(1)).len(), 1);
    assert_eq!(served.fetch(C, 5, at(1)).len(), 2);
}

#[test]
fn a_member_that_lags_leaves_and_is_counted_until_the_entry_is_applied() {
    let mut served = Served::new(config(&[A, B, C]), 5);
    served.append(1, at(100));
    served.fetch(B, 6, at(2_900));
    assert_eq!(tick(&mut served, at(2_999)).len(), 0);
    assert_eq!(
        tick(&mut served, at(3_000)).to_vec(),
        [proposal(&[A, B], &[])]
    );
    assert_eq!(served.leader.high_watermark(), 5);
    let mut applied = config(&[A, B]);
    (applied.partition_epoch, applied.eligible) = (11, applied.isr.clone());
    served.leader.step(Event::Role(applied), at(3_100));
    assert_eq!(served.leader.high_watermark(), 6);
}

#[test]
fn a_member_that_always_reaches_the_end_of_its_last_fetch_does_not_lag() {
    let mut served = Served::new(config(&[A, B, C]), 0);
    for round in 1..20 {
        served.append(2, at(round * 500));
        served.fetch(B, served.log.0.len(), at(round * 500));
        served.fetch(C, served.log.0.len() - 2, at(round * 500));
        assert_eq!(tick(&mut served, at(round * 500)).len(), 0, "{round}");
    }
}

#[test]
fn n05_an_unwanted_proposal_becomes_the_isr_under_the_same_epoch() {
    let mut served = Served::new(config(&[A]), 0);
    served.append(1, at(1));
    assert_eq!(served.fetch(B, 1, at(1))[0], proposal(&[A, B], &[(B, 2)]));
    assert_eq!(
        tick(&mut served, at(501)).to_vec(),
        [proposal(&[A, B], &[(B, 2)])],
        "the same again"
    );
    assert_eq!(
        tick(&mut served, at(3_100)).to_vec(),
        [proposal(&[A], &[])],
        "B is gone"
    );
    assert_eq!(
        served.leader.maximal_isr(),
        BTreeSet::from([A, B]),
        "until an entry settles it"
    );
}

#[test]
fn n29_growth_and_shrinkage_are_counted_together() {
    let mut served = Served::new(config(&[A, B]), 0);
    served.append(1, at(2_500));
    assert_eq!(tick(&mut served, at(3_000)).to_vec(), [proposal(&[A], &[])]);
    assert_eq!(
        served.fetch(C, 1, at(3_000))[0],
        proposal(&[A, B, C], &[(C, 3)])
    );
    assert_eq!(served.leader.maximal_isr(), BTreeSet::from([A, B, C]));
    assert_eq!(served.leader.high_watermark(), 0);
}

#[test]
fn n35_the_standstill_counts_from_when_the_high_watermark_fell_behind() {
    let mut served = Served::new(config(&[A, B]), 0);
    served.append(1, at(10));
    served.fetch(B, 1, at(20));
    served.fetch(B, 1, at(3_600_000));
    served.append(1, at(3_600_000));
    served.leader.step(Event::Leaving(C), at(3_600_000));
    assert!(
        tick(&mut served, at(3_604_999))
            .iter()
            .all(|action| matches!(action, Action::ProposeIsr(_)))
    );
    let actions = tick(&mut served, at(3_605_000));
    assert!(
        actions.contains(&resignation(Reason::Standstill, 10, true)),
        "{actions:?}"
    );
    assert_eq!(served.leader.phase(), Phase::Stopped);
}

#[test]
fn a_standstill_does_not_count_while_there_is_no_lease() {
    let ends = Ends {
        log: 1,
        durable: 1,
        ..Ends::default()
    };
    let mut leader = Leader::new(A, config(&[A, B]), ends, at(1_000), at(0));
    leader.step(Event::Opened { epoch_start: 0 }, at(0));
    let tick = |leader: &mut Leader, now| {
        let actions = leader.step(Event::Tick(Health::default()), now);
        actions
            .iter()
            .any(|action| matches!(action, Action::Resign(_)))
    };
    assert!(!tick(&mut leader, at(20_000)));
    leader.step(Event::Lease(FOREVER), at(20_000));
    assert_eq!(leader.phase(), Phase::Serving);
    assert!(!tick(&mut leader, at(24_999)));
    assert!(tick(&mut leader, at(25_000)));
}

#[test]
fn n43_a_leader_that_resigned_resumes_only_after_the_refusal_is_applied() {
    let mut served = Served::new(config(&[A, B]), 0);
    served.append(1, at(0));
    assert!(tick(&mut served, at(5_000)).contains(&resignation(Reason::Standstill, 10, false)));
    assert!(
        tick(&mut served, at(5_500)).contains(&resignation(Reason::Standstill, 10, false)),
        "repeated"
    );
    served.leader.step(Event::Role(config(&[A, B])), at(5_600));
    assert_eq!(served.leader.phase(), Phase::Stopped);
    let mut refused = config(&[A, B]);
    refused.partition_epoch = 12;
    served.leader.step(Event::Role(refused), at(5_700));
    assert_eq!(served.leader.phase(), Phase::Serving);
    assert!(
        served.leader.maximal_isr().iter().eq(&[A, B]),
        "N44: proposals ended with it"
    );
    assert!(
        !tick(&mut served, at(9_900))
            .iter()
            .any(|action| matches!(action, Action::Resign(_))),
        "5 s later"
    );
    assert!(tick(&mut served, at(10_000)).contains(&resignation(Reason::Standstill, 12, false)));
}

#[test]
fn n53_without_another_candidate_a_leader_does_not_stop() {
    let mut alone = config(&[A, B]);
    if let Some(replica) = alone.replicas.get_mut(&B) {
        replica.tried = true;
    }
    let mut served = Served::new(alone, 0);
    served.append(1, at(0));
    tick(&mut served, at(60_000));
    assert_eq!(served.leader.phase(), Phase::Serving);
}

#[test]
fn a_disk_call_that_does_not_end_resigns() {
    let mut served = Served::new(config(&[A, B]), 0);
    let stuck = Health {
        oldest_call_ms: 1_401,
        ..Health::default()
    };
    assert_eq!(
        served
            .leader
            .step(
                Event::Tick(Health {
                    oldest_call_ms: 1_400,
                    ..stuck
                }),
                at(1)
            )
            .len(),
        0
    );
    let actions = served.leader.step(Event::Tick(stuck), at(1));
    assert_eq!(
        actions.to_vec(),
        [Action::Stop, resignation(Reason::StuckCall, 10, false)]
    );
}

#[test]
fn n39_whoever_is_not_well_leads_on_while_nobody_else_can() {
    let ill = Health {
        oldest_call_ms: 60_000,
        directory_failed: true,
        disk_full: true,
        damaged_ms: Some(60_000),
    };
    let mut alone = config(&[A, B]);
    if let Some(replica) = alone.replicas.get_mut(&B) {
        replica.unable = true;
    }
    let mut served = Served::new(alone, 5);
    served.fetch(B, 5, at(1));
    assert_eq!(served.leader.step(Event::Tick(ill), at(2)).len(), 0);
    let mut able = config(&[A, B]);
    able.partition_epoch = 11;
    if let Some(replica) = able.replicas.get_mut(&B) {
        // It resigned for a standstill: whoever leads now can do less than it.
        replica.tried = true;
    }
    served.leader.step(Event::Role(able), at(3));
    let actions = served.leader.step(Event::Tick(ill), at(4));
    let expected = resignation(Reason::DirectoryFailed, 11, false);
    assert!(actions.contains(&expected), "{actions:?}");
}

#[test]
fn a_role_that_was_stopped_from_outside_resumes_when_its_resignation_is_void() {
    let mut served = Served::new(config(&[A, B]), 5);
    served.append(6, at(0));
    let wait = Event::Wait {
        ticket: 1,
        end: 6,
        policy: AckPolicy::Leader,
    };
    let halted = |partition_epoch| Event::Halted { partition_epoch };
    let actions = served.leader.step(halted(10), at(1));
    assert_eq!(actions.to_vec(), [Action::Stop]);
    assert_eq!(served.leader.phase(), Phase::Stopped);
    assert!(served.leader.admit(AckPolicy::Leader, at(1)).is_err());
    served.leader.step(Event::Durable { end: 6 }, at(2));
    assert_eq!(served.leader.step(wait, at(2)).len(), 0, "answers are held");
    // Another resignation follows, which names an entry that the task has not seen.
    served.leader.step(halted(12), at(3));
    let at_epoch = |partition_epoch| {
        let mut newer = config(&[A, B]);
        newer.partition_epoch = partition_epoch;
        Event::Role(newer)
    };
    assert_eq!(served.leader.step(at_epoch(12), at(4)).len(), 0);
    assert_eq!(served.leader.phase(), Phase::Stopped);
    let actions = served.leader.step(at_epoch(13), at(5));
    assert_eq!(actions.to_vec(), [Action::Ack(1)]);
    assert_eq!(served.leader.step(halted(12), at(6)).len(), 0, "it is void");
    assert_eq!(served.leader.phase(), Phase::Serving);
}

#[test]
fn n65_counts_of_an_earlier_run_hold_the_high_watermark_and_detect_the_loss() {
    let mut served = Served::new(config(&[A, B, C]), 0);
    served.append(4, at(1));
    served.fetch(C, 4, at(1));
    let mut restarted = config(&[A, B, C]);
    restarted.partition_epoch = 11;
    if let Some(replica) = restarted.replicas.get_mut(&C) {
        replica.boot_epoch = 30;
    }
    served.leader.step(Event::Role(restarted), at(2));
    served.fetch(B, 4, at(2));
    assert_eq!(
        served.leader.high_watermark(),
        0,
        "the count of C@3 moves nothing"
    );
    let mut fetch = common::fetch(C, &common::ListLog(served.log.0[..2].to_vec()));
    (fetch.boot_epoch, fetch.session) = (30, 2);
    let actions = served.step(fetch.clone(), at(3));
    assert_eq!(actions[0], Action::ReportUnclean(C, 30));
    assert_eq!(served.leader.high_watermark(), 0);
    assert_eq!(
        tick(&mut served, at(503)).to_vec(),
        [Action::ReportUnclean(C, 30)],
        "until it is applied"
    );
}

#[test]
fn w38_a_member_that_ends_below_the_high_watermark_is_unclean() {
    let mut served = Served::new(config(&[A, C]), 5);
    assert_eq!(served.fetch(C, 3, at(1))[0], Action::ReportUnclean(C, 3));
}

#[test]
fn w16_a_member_that_is_cut_is_verified_and_named_again() {
    let mut flagged = config(&[A, B]);
    if let Some(replica) = flagged.replicas.get_mut(&B) {
        replica.cut = true;
    }
    let mut served = Served::new(flagged, 5);
    assert_eq!(served.fetch(B, 5, at(1))[0], proposal(&[A, B], &[(B, 2)]));
}

#[test]
fn w20_a_leader_alone_waits_for_a_round_of_group_commit_before_it_grows() {
    let mut alone = config(&[A]);
    alone.min_isr = 1;
    let mut served = Served::new(alone, 0);
    served.append(2, at(1));
    assert_eq!(served.fetch(B, 2, at(1))[0], Action::EndSolo(2));
    assert_eq!(served.fetch(B, 2, at(1)).len(), 1);
    served.leader.step(Event::SoloEnded, at(2));
    assert_eq!(served.fetch(B, 2, at(2))[0], proposal(&[A, B], &[(B, 2)]));
}
