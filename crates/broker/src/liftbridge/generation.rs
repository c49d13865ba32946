//! Generations that members of consumer groups claim in Subscribe and `SetCursor` (liftbridge §3.5, §3.11).
//!
//! A member of an earlier group of the same id, and one that was expelled, is refused; so is a generation that the group
//! has not reached, because nobody could follow it.
use super::call::Call;
use super::subscribe::not_assigned;
use crate::grpc_status::Coded as _;
use crate::view::{GroupView, View};
use arc_swap::ArcSwap;
use bascule_wire::ErrorCode;
use bascule_wire::liftbridge::messages::Consumer;
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;

/// How long the view may take to reach a generation that the control plane has answered already.
const CATCHING_UP: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// The operation of a member that its generation is checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It reads a partition. A client that only knows epochs is accepted for what it claims, as in Liftbridge.
    Read,
    /// It stores a position: only members may.
    Store,
}

/// Why a claim is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// The consumer is not a member, or has joined since; the group may not exist.
    Stale,
    /// The group is at `present` and has not reached the generation.
    Ahead { claimed: u64, present: u64 },
}

/// The generation of a member, once the view has reached it.
///
/// # Errors
/// `FAILED_PRECONDITION` for a claim that is out of date, or above the present generation of the group.
pub(super) async fn settled(
    view: &ArcSwap<View>,
    call: &Call,
    consumer: &Consumer,
    purpose: Purpose,
) -> Result<u64, Status> {
    let limit = Instant::now() + call.remaining().unwrap_or(CATCHING_UP).min(CATCHING_UP);
    loop {
        match judge(&view.load(), consumer, purpose) {
            Ok(generation) => return Ok(generation),
            Err(Flaw::Ahead { .. }) if Instant::now() + PAUSE < limit => {}
            Err(flaw) => return Err(status(flaw, consumer)),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The generation of a member by the view of now.
///
/// # Errors
/// As [`settled`].
pub(super) fn present(
    view: &ArcSwap<View>,
    consumer: &Consumer,
    purpose: Purpose,
) -> Result<u64, Status> {
    judge(&view.load(), consumer, purpose).map_err(|flaw| status(flaw, consumer))
}

/// The generation of a stored position, as far as it fences anybody: 0 when it is not one of the present group.
pub(super) fn of_present_group(view: &View, group: &str, stored: u64) -> u64 {
    let group = view.groups.get(group);
    let is_present =
        group.is_some_and(|group| (group.created..=group.generation).contains(&stored));
    if is_present { stored } else { 0 }
}

fn judge(view: &View, consumer: &Consumer, purpose: Purpose) -> Result<u64, Flaw> {
    let knows_epochs_only = consumer.generation == 0 && purpose == Purpose::Read;
    let Some(group) = view.groups.get(&consumer.group_id) else {
        return if knows_epochs_only {
            Ok(consumer.group_epoch)
        } else {
            Err(Flaw::Stale)
        };
    };
    let claimed = claimed(group, consumer).ok_or(Flaw::Stale)?;
    if claimed > group.generation {
        let present = group.generation;
        return Err(Flaw::Ahead { claimed, present });
    }
    let joined = group.members.get(&consumer.consumer_id).copied();
    let first = if knows_epochs_only {
        Some(group.created)
    } else {
        joined
    };
    match first {
        Some(first) if first <= claimed => Ok(claimed),
        _ => Err(Flaw::Stale),
    }
}

/// Only the member that created the group has epoch 0.
fn claimed(group: &GroupView, consumer: &Consumer) -> Option<u64> {
    match (consumer.generation, consumer.group_epoch) {
        (0, 0) => {
            let joined = group.members.get(&consumer.consumer_id);
            joined.copied().filter(|joined| *joined == group.created)
        }
        (0, epoch) => Some(epoch),
        (generation, _) => Some(generation),
    }
}

fn status(flaw: Flaw, consumer: &Consumer) -> Status {
    match flaw {
        Flaw::Stale => not_assigned(),
        Flaw::Ahead { claimed, present } => {
            let text = format!(
                "generation {claimed} of consumer group {:?} is above its present one, {present}: join the group and use \
                 what JoinConsumerGroup answers",
                consumer.group_id
            );
            Status::failed_precondition(text)
                .because(ErrorCode::FailedPrecondition, "generation_ahead")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::Arc;

    /// Group `g` was created by `founder` at 10; `second` joined at 15.
    fn view() -> View {
        let members = HashMap::from([("founder".to_owned(), 10), ("second".to_owned(), 15)]);
        let group = GroupView {
            created: 10,
            generation: 15,
            members,
        };
        View {
            groups: Arc::new(HashMap::from([("g".to_owned(), Arc::new(group))])),
            ..View::default()
        }
    }

    fn judged(consumer: &str, epoch: u64, generation: u64, purpose: Purpose) -> Result<u64, Flaw> {
        let consumer = Consumer {
            group_id: "g".into(),
            consumer_id: consumer.into(),
            group_epoch: epoch,
            generation,
        };
        judge(&view(), &consumer, purpose)
    }

    #[test]
    fn a_member_is_accepted_from_the_generation_it_joined_with_to_the_present_one() {
        for purpose in [Purpose::Read, Purpose::Store] {
            for (consumer, accepted) in [("founder", 10..=15), ("second", 15..=15)] {
                for generation in 1..=15 {
                    let is_accepted = accepted.contains(&generation);
                    let expected = is_accepted.then_some(generation).ok_or(Flaw::Stale);
                    assert_eq!(judged(consumer, 0, generation, purpose), expected);
                }
            }
            assert_eq!(judged("stranger", 0, 15, purpose), Err(Flaw::Stale));
            for claimed in [16, u64::MAX] {
                let ahead = Err(Flaw::Ahead {
                    claimed,
                    present: 15,
                });
                assert_eq!(judged("founder", 0, claimed, purpose), ahead);
                assert_eq!(judged("founder", claimed, 0, purpose), ahead);
            }
        }
    }

    #[test]
    fn epoch_0_is_that_of_the_member_that_created_the_present_group() {
        for purpose in [Purpose::Read, Purpose::Store] {
            assert_eq!(judged("founder", 0, 0, purpose), Ok(10));
            assert_eq!(judged("second", 0, 0, purpose), Err(Flaw::Stale));
            assert_eq!(judged("former", 0, 0, purpose), Err(Flaw::Stale));
        }
    }

    #[test]
    fn a_client_that_knows_epochs_only_reads_under_any_epoch_of_the_present_group() {
        assert_eq!(judged("stranger", 9, 0, Purpose::Read), Err(Flaw::Stale));
        assert_eq!(judged("stranger", 12, 0, Purpose::Read), Ok(12));
        assert_eq!(judged("stranger", 12, 0, Purpose::Store), Err(Flaw::Stale));
        let mut consumer = Consumer {
            group_id: "none".into(),
            group_epoch: 7,
            ..Consumer::default()
        };
        assert_eq!(judge(&view(), &consumer, Purpose::Read), Ok(7));
        assert_eq!(judge(&view(), &consumer, Purpose::Store), Err(Flaw::Stale));
        consumer.generation = 7;
        assert_eq!(judge(&view(), &consumer, Purpose::Read), Err(Flaw::Stale));
    }

    #[test]
    fn a_stored_generation_counts_only_in_the_group_that_it_comes_from() {
        for (stored, counted) in [(9, 0), (10, 10), (15, 15), (16, 0), (u64::MAX, 0)] {
            assert_eq!(of_present_group(&view(), "g", stored), counted);
        }
        assert_eq!(of_present_group(&view(), "none", 12), 0);
    }
}
