//! No event panics or breaks what a step function promises, whatever its numbers are.
mod common;

use bascule_replica::follower::{self, Answer, Batch, Follower, Own};
use bascule_replica::leader::{AckPolicy, Event, Fetch, Found, Health, Outcome, Phase, Stored};
use bascule_replica::types::{Boundary, BrokerId, EpochEnd, Instant64, Position};
use common::{B, C, FOREVER, Served, at, config};
use proptest::prelude::*;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..12u64, Just(u64::MAX - 1), Just(u64::MAX), any::<u64>()]
}

fn boundary() -> impl Strategy<Value = Boundary> {
    prop_oneof![
        any::<u32>().prop_map(Boundary::Link),
        number().prop_map(|below| Boundary::Inside { below }),
        Just(Boundary::Damaged),
        Just(Boundary::Outside),
    ]
}

fn fetches() -> impl Strategy<Value = Event> {
    let ids = (0..5u64, number(), number(), number(), any::<bool>());
    let ends = (
        number(),
        number(),
        any::<u32>(),
        number(),
        prop::option::of(number()),
    );
    let found = (
        boundary(),
        boundary(),
        prop::option::of((number(), number())),
        prop::option::of((number(), number())),
    );
    (ids, ends, found).prop_map(
        |(
            (from, boot_epoch, leader_epoch, session, has_pieces),
            (epoch, end, link, durable, damaged),
            found,
        )| {
            let position = Position { epoch, end, link };
            let from = BrokerId(from);
            let fetch = Fetch {
                from,
                boot_epoch,
                leader_epoch,
                session,
                position,
                durable,
                durable_link: link,
                damaged,
                has_pieces,
            };
            let epoch_end = found.2.map(|(epoch, end)| EpochEnd { epoch, end });
            Event::Fetch(
                fetch,
                Found {
                    at_end: found.0,
                    at_durable: found.1,
                    epoch_end,
                    lost_range: found.3,
                },
            )
        },
    )
}

fn events() -> impl Strategy<Value = Event> {
    let role =
        (number(), number(), any::<bool>()).prop_map(|(leader_epoch, partition_epoch, other)| {
            let leader = Some(if other { B } else { common::A });
            Event::Role(bascule_replica::types::Config {
                leader,
                leader_epoch,
                partition_epoch,
                ..config(&[common::A, B, C])
            })
        });
    let health = (
        number(),
        any::<bool>(),
        any::<bool>(),
        prop::option::of(number()),
    )
        .prop_map(
            |(oldest_call_ms, directory_failed, disk_full, damaged_ms)| {
                Event::Tick(Health {
                    oldest_call_ms,
                    directory_failed,
                    disk_full,
                    damaged_ms,
                })
            },
        );
    prop_oneof![
        4 => fetches(),
        1 => role,
        1 => health,
        1 => number().prop_map(|end| Event::Appended { end }),
        1 => number().prop_map(|end| Event::Durable { end }),
        1 => number().prop_map(|end| Event::Wait { ticket: end, end, policy: AckPolicy::All }),
        1 => number().prop_map(|until| Event::Lease(Instant64(until))),
        1 => (number(), number()).prop_map(|(log_start, first)| Event::Stored(Stored { log_start, first })),
        1 => (0..5u64).prop_map(|member| Event::Leaving(BrokerId(member))),
        1 => Just(Event::SoloEnded),
        1 => number().prop_map(|partition_epoch| Event::Halted { partition_epoch }),
    ]
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        (number(), number(), number()).prop_map(|(high_watermark, lease_ms, log_start)| {
            Outcome::Ok {
                high_watermark,
                lease_ms,
                log_start,
                replicated_to: 0,
                catching_up: false,
            }
        }),
        (number(), number()).prop_map(|(epoch, end)| Outcome::Diverged { epoch, end }),
        (number(), number()).prop_map(|(start, end)| Outcome::Damaged { start, end }),
        number().prop_map(|start| Outcome::Reset { start }),
        Just(Outcome::StepBack),
        Just(Outcome::Busy { repair_below: None }),
    ]
}

proptest! {
    #[test]
    fn a_leader_takes_any_event(steps in prop::collection::vec((events(), number()), 0..40)) {
        let mut served = Served::new(config(&[common::A, B, C]), 3);
        let mut before = 3;
        for (event, now) in steps {
            let ended = served.leader.phase() == Phase::Ended;
            served.leader.step(event, at(now));
            prop_assert!(served.leader.high_watermark() >= before);
            prop_assert!(!ended || served.leader.high_watermark() == before, "an ended leader commits nothing");
            before = served.leader.high_watermark();
        }
    }

    #[test]
    fn a_follower_takes_any_answer(steps in prop::collection::vec((outcomes(), number(), number(), any::<u32>(), number(), number()), 0..40)) {
        let mut follower = Follower::new(C, config(&[B, C]), 3, true, FOREVER);
        for (outcome, base, end, link, epoch, now) in steps {
            follower.step(follower::Event::Tick, at(now));
            let batches = vec![Batch { base, end, epoch, chain: link, link }];
            let attempt = follower.attempt();
            let answer = Answer { leader_epoch: 10, attempt, outcome, batches };
            let own = Own { position: Position { epoch, end: base, link }, last_batch: end, epoch_end: None };
            let before = follower.high_watermark();
            for action in follower.step(follower::Event::Answered(answer, own), at(now)) {
                if let follower::Action::Truncate { to, keep: false } = action {
                    prop_assert!(to >= before, "never below the high watermark");
                }
            }
            follower.step(follower::Event::Disconnected, at(now));
        }
    }
}
