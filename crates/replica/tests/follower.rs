//! The follower and its sessions.
mod common;

use bascule_replica::follower::{Action, Answer, Batch, Event, Follower, Own, Phase, fitting};
use bascule_replica::leader::Outcome;
use bascule_replica::session::{Client, Server};
use bascule_replica::types::{Config, Loss, Position};
use common::{B, C, FOREVER, ListLog, at, config};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn follower(config: Config, high_watermark: u64, learned: bool) -> Follower {
    let mut follower = Follower::new(C, config, high_watermark, learned, FOREVER);
    assert_eq!(
        follower.step(Event::Tick, at(0)).to_vec(),
        [Action::Fetch { attempt: 1 }]
    );
    follower
}

fn answer(outcome: Outcome, batches: Vec<Batch>) -> Answer {
    Answer {
        leader_epoch: 10,
        attempt: 1,
        outcome,
        batches,
    }
}

fn own(log: &ListLog, epoch: u64) -> Own {
    Own {
        position: log.position(),
        last_batch: log.end().saturating_sub(1),
        epoch_end: log.epoch_end(epoch),
    }
}

fn batches(log: &ListLog, from: u64) -> Vec<Batch> {
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

fn ok(high_watermark: u64) -> Outcome {
    Outcome::Ok {
        high_watermark,
        lease_ms: 100,
        log_start: 0,
        replicated_to: 0,
        catching_up: false,
    }
}

#[test]
fn only_batches_that_continue_the_log_are_appended() {
    let theirs = ListLog(vec![1, 1, 10, 10]);
    let log = ListLog(vec![1]);
    let mut taken = follower(config(&[B, C]), 0, false);
    let actions = taken.step(
        Event::Answered(answer(ok(3), batches(&theirs, 1)), own(&log, 10)),
        at(1),
    );
    assert_eq!(
        actions[..2],
        [Action::Append { batches: 3 }, Action::RaiseHighWatermark(3)]
    );
    assert_eq!(taken.phase(), Phase::Fetching);
    for spoil in [
        |batch: &mut Batch| batch.chain ^= 1,
        |batch: &mut Batch| batch.base += 1,
        |batch: &mut Batch| batch.epoch = 11,
        |batch: &mut Batch| batch.epoch = 0,
    ] {
        let mut spoilt = batches(&theirs, 1);
        spoil(&mut spoilt[1]);
        let mut dropped = follower(config(&[B, C]), 0, false);
        let actions = dropped.step(Event::Answered(answer(ok(4), spoilt), own(&log, 10)), at(1));
        assert_eq!(
            actions[..2],
            [Action::Append { batches: 1 }, Action::RaiseHighWatermark(2)]
        );
        assert_eq!(dropped.phase(), Phase::Verifying);
    }
}

#[test]
fn an_answer_of_another_epoch_or_try_is_dropped() {
    let log = ListLog(vec![1]);
    for spoil in [
        |answer: &mut Answer| answer.leader_epoch = 9,
        |answer: &mut Answer| answer.attempt = 2,
    ] {
        let mut late = answer(Outcome::StepBack, Vec::new());
        spoil(&mut late);
        let mut dropped = follower(config(&[B, C]), 0, false);
        assert_eq!(
            dropped
                .step(Event::Answered(late, own(&log, 10)), at(1))
                .len(),
            0
        );
        assert_eq!(dropped.phase(), Phase::Verifying);
    }
}

#[test]
fn a_diverged_tail_is_truncated_to_the_smaller_end_of_the_shared_epoch() {
    let log = ListLog(vec![1, 1, 1, 2, 2]);
    let mut diverged = follower(config(&[B, C]), 2, true);
    let outcome = Outcome::Diverged { epoch: 1, end: 2 };
    let actions = diverged.step(
        Event::Answered(answer(outcome, Vec::new()), own(&log, 1)),
        at(1),
    );
    assert_eq!(actions.to_vec(), [Action::Truncate { to: 2, keep: false }]);
    assert_eq!(
        diverged.step(Event::Cut { end: 2 }, at(2)).to_vec(),
        [Action::Fetch { attempt: 1 }]
    );
}

#[test]
fn n63_without_a_shared_epoch_everything_goes() {
    let log = ListLog(vec![1, 1]);
    let mut diverged = follower(config(&[B, C]), 0, false);
    let outcome = Outcome::Diverged { epoch: 0, end: 5 };
    let actions = diverged.step(
        Event::Answered(answer(outcome, Vec::new()), own(&log, 0)),
        at(1),
    );
    assert_eq!(actions.to_vec(), [Action::Truncate { to: 0, keep: false }]);
}

#[test]
fn below_a_learned_high_watermark_an_eligible_follower_reports_the_leader() {
    let log = ListLog(vec![1; 5]);
    let mut stopped = follower(config(&[B, C]), 4, true);
    let back = Outcome::Diverged { epoch: 1, end: 3 };
    let actions = stopped.step(
        Event::Answered(answer(back, Vec::new()), own(&log, 1)),
        at(1),
    );
    assert_eq!(
        actions.to_vec(),
        [Action::ReportLeader {
            leader_epoch: 10,
            high_watermark: 4
        }]
    );
    assert_eq!(stopped.step(Event::Tick, at(400)).len(), 0);
    assert_eq!(
        stopped.step(Event::Tick, at(501)).len(),
        1,
        "repeated until an entry settles it"
    );
    // N32: a refused report of the leader becomes a report of the replica itself.
    assert_eq!(
        stopped.step(Event::ReportRefused, at(502)).to_vec(),
        [Action::ReportSelfUnclean]
    );
    assert_eq!(stopped.phase(), Phase::ReportedSelf { to: 3 });
}

#[test]
fn w10_a_follower_that_cuts_below_its_high_watermark_keeps_a_copy_and_is_flagged_first() {
    let log = ListLog(vec![1; 5]);
    let back = Outcome::Diverged { epoch: 1, end: 3 };
    let mut flagged = follower(config(&[B]), 4, true);
    let actions = flagged.step(
        Event::Answered(answer(back, Vec::new()), own(&log, 1)),
        at(1),
    );
    assert_eq!(actions.to_vec(), [Action::ReportSelfUnclean]);
    let mut applied = config(&[B]);
    applied.partition_epoch = 11;
    if let Some(replica) = applied.replicas.get_mut(&C) {
        replica.unclean = true;
    }
    assert_eq!(
        flagged.step(Event::Role(applied), at(2)).to_vec(),
        [Action::Truncate { to: 3, keep: true }]
    );
}

#[test]
fn w33_below_a_recorded_loss_a_compacted_stream_begins_again() {
    let log = ListLog(vec![1; 5]);
    for (compacted, expected) in [
        (false, Action::Truncate { to: 3, keep: true }),
        (
            true,
            Action::Reset {
                start: 0,
                keep: true,
            },
        ),
    ] {
        let lost = Config {
            losses: vec![Loss {
                epoch: 10,
                start: 3,
            }],
            compacted,
            ..config(&[B, C])
        };
        let mut cut = follower(lost, 5, true);
        let back = Outcome::Diverged { epoch: 1, end: 3 };
        assert_eq!(
            cut.step(
                Event::Answered(answer(back, Vec::new()), own(&log, 1)),
                at(1)
            )
            .to_vec(),
            [expected]
        );
        cut.step(Event::Cut { end: 3 }, at(2));
        assert_eq!(cut.high_watermark(), 3);
    }
}

#[test]
fn w30_a_reset_below_the_own_end_breaks_the_protocol() {
    let log = ListLog(vec![1; 5]);
    let mut refused = follower(config(&[B, C]), 0, false);
    let actions = refused.step(
        Event::Answered(
            answer(Outcome::Reset { start: 5 }, Vec::new()),
            own(&log, 1),
        ),
        at(1),
    );
    assert_eq!(actions.to_vec(), [Action::Disconnect]);
}

#[test]
fn without_a_lease_nothing_is_sent() {
    let mut silent = Follower::new(C, config(&[B, C]), 0, false, at(100));
    assert_eq!(silent.step(Event::Durable, at(100)).len(), 0);
    assert_eq!(
        silent.step(Event::Lease(at(300)), at(200)).to_vec(),
        [Action::Fetch { attempt: 1 }]
    );
}

#[test]
fn n58_reads_end_with_the_lease_of_the_leader_from_sending_on() {
    let mut reading = follower(config(&[B, C]), 0, false);
    reading.step(
        Event::Answered(answer(ok(0), Vec::new()), own(&ListLog::default(), 1)),
        at(90),
    );
    assert!(reading.may_read(at(99)));
    assert!(!reading.may_read(at(100)), "sent at 0, 100 ms of lease");
}

#[test]
fn n17_a_frame_that_does_not_continue_the_session_is_not_used() {
    let values = |value: u64| BTreeMap::from([(1, value), (2, 7)]);
    let (mut client, mut server) = (Client::default(), Server::default());
    let first = client.frame(&values(1)).expect("opens");
    assert_eq!(
        client.frame(&values(2)),
        None,
        "the answer that opens is outstanding"
    );
    assert!(client.answered(server.receive(&first, 5)));
    let second = client.frame(&values(2)).expect("continues");
    assert_eq!((second.session, &second.changed), (5, &vec![(1, 2)]));
    assert_eq!(server.receive(&second, 6), 5);
    assert_eq!(server.slots(), &values(2));
    assert_eq!(server.receive(&second, 7), 0, "repeated");
    assert!(!client.answered(0));
    assert_eq!(
        client.frame(&values(3)).expect("opens again").changed.len(),
        2
    );
    assert_eq!(
        Server::default().receive(&second, 8),
        0,
        "another connection"
    );
}

proptest! {
    /// Whatever batches arrive: those taken continue the log without a gap and with epochs that never decrease.
    #[test]
    fn what_fits_continues_the_log(raw in prop::collection::vec((0..4u64, 0..4u64, 0..4u64, 0..3u32, 0..3u32), 0..8)) {
        let batches: Vec<_> = raw.into_iter().map(|(base, end, epoch, chain, link)| Batch { base, end, epoch, chain, link }).collect();
        let start = Position { epoch: 1, end: 1, link: 1 };
        let (count, end) = fitting(&batches, start, 2);
        let mut position = start;
        for batch in &batches[..count] {
            prop_assert_eq!((batch.base, batch.chain), (position.end, position.link));
            prop_assert!(batch.epoch >= position.epoch && batch.epoch <= 2 && batch.end > batch.base);
            position = Position { epoch: batch.epoch, end: batch.end, link: batch.link };
        }
        prop_assert_eq!(end, position);
    }

    /// Changes, drops, lost and repeated frames: if the server answers with a session, it has the client's values.
    #[test]
    fn a_session_has_the_values_of_the_client(rounds in prop::collection::vec((prop::collection::btree_map(0..4u32, 0..3u64, 0..4), 0..4u8), 1..30)) {
        let (mut client, mut server) = (Client::default(), Server::default());
        for (fresh, (values, fault)) in (1..).zip(rounds) {
            let Some(frame) = client.frame(&values) else { continue };
            if fault == 0 {
                // The frame is lost, and with it the connection.
                (client, server) = (Client::default(), Server::default());
                continue;
            }
            if fault == 1 {
                server.receive(&frame, fresh + 1_000);
            }
            let session = server.receive(&frame, fresh);
            if session != 0 {
                prop_assert_eq!(server.slots(), &values);
            }
            client.answered(session);
        }
    }
}
