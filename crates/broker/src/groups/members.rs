//! Members of consumer groups that read a partition (liftbridge §3.5): at most one of a group, the one with the highest
//! generation.
//!
//! In memory of the partition's leader: forgotten on restart, pause and failover, as subscriptions are.
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tokio::sync::watch;

/// A partition (its incarnation) and a group.
type Key = (u64, String);

/// The members of consumer groups that read partitions of this broker.
#[derive(Debug, Default)]
pub(crate) struct Members(Arc<Mutex<HashMap<Key, Present>>>);

#[derive(Debug)]
struct Present {
    generation: u64,
    /// Dropped to end the subscription.
    alive: watch::Sender<()>,
}

/// The right to read, until another member of the group takes it.
#[derive(Debug)]
pub(crate) struct Membership {
    members: Arc<Mutex<HashMap<Key, Present>>>,
    key: Key,
    alive: watch::Receiver<()>,
}

impl Members {
    /// Whether a member of `generation` may read now.
    pub(crate) fn admits(&self, incarnation: u64, group: &str, generation: u64) -> bool {
        let members = self.0.lock();
        members
            .get(&(incarnation, group.to_owned()))
            .is_none_or(|present| present.generation <= generation)
    }

    /// Takes the place of the group's present member, whose subscription ends; `None` when that one has a higher
    /// generation.
    pub(crate) fn join(
        &self,
        incarnation: u64,
        group: &str,
        generation: u64,
    ) -> Option<Membership> {
        let key = (incarnation, group.to_owned());
        let mut members = self.0.lock();
        if members
            .get(&key)
            .is_some_and(|present| present.generation > generation)
        {
            return None;
        }
        let (alive, watching) = watch::channel(());
        members.insert(key.clone(), Present { generation, alive });
        Some(Membership {
            members: self.0.clone(),
            key,
            alive: watching,
        })
    }

    /// Ends the subscriptions of a group's members whose generation is not in `present`, on all partitions: they belong to
    /// an earlier group of this id, or were never valid. `None` = the group is gone.
    pub(crate) fn keep(&self, group: &str, present: Option<&RangeInclusive<u64>>) {
        let is_present = |generation| present.is_some_and(|range| range.contains(&generation));
        let mut members = self.0.lock();
        members.retain(|(_, id), member| id != group || is_present(member.generation));
    }
}

impl Membership {
    /// Whether another member has taken the place.
    pub(crate) fn is_superseded(&self) -> bool {
        self.alive.has_changed().is_err()
    }

    /// Waits until another member takes the place.
    pub(crate) async fn superseded(&mut self) {
        // Nothing is ever sent: an error is the end of the sender.
        while self.alive.changed().await.is_ok() {}
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut members = self.members.lock();
        let own = |present: &Present| present.alive.subscribe().same_channel(&self.alive);
        if members.get(&self.key).is_some_and(own) {
            members.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_or_equal_generation_takes_the_place_and_an_older_one_is_refused() {
        let members = Members::default();
        let first = members.join(1, "g", 5).unwrap();
        assert!(!members.admits(1, "g", 4));
        assert!(members.join(1, "g", 4).is_none());
        assert!(!first.is_superseded());
        let second = members.join(1, "g", 5).unwrap();
        assert!(first.is_superseded());
        drop(first);
        assert!(
            !members.admits(1, "g", 4),
            "the end of the old one keeps the entry of the new one"
        );
        assert!(members.join(2, "g", 1).is_some(), "another partition");
        assert!(members.join(1, "h", 1).is_some(), "another group");
        drop(second);
        assert!(members.admits(1, "g", 0));
        assert!(members.0.lock().is_empty());
    }

    #[test]
    fn a_group_that_is_gone_leaves_nobody_behind() {
        let members = Members::default();
        let (old, also, other) = (
            members.join(1, "g", 5).unwrap(),
            members.join(2, "g", 9).unwrap(),
            members.join(1, "h", 5).unwrap(),
        );
        members.keep("g", Some(&(9..=12)));
        assert!(old.is_superseded());
        assert!(!also.is_superseded(), "a member of the group that is");
        members.keep("g", Some(&(12..=12)));
        assert!(also.is_superseded(), "a member of an earlier group");
        let ahead = members.join(1, "g", 13).unwrap();
        members.keep("g", Some(&(12..=12)));
        assert!(
            ahead.is_superseded(),
            "a generation that does not exist yet"
        );
        let last = members.join(1, "g", 12).unwrap();
        members.keep("g", None);
        assert!(last.is_superseded());
        assert!(!other.is_superseded(), "another group");
        let new = members.join(1, "g", 0).unwrap();
        drop((old, also, ahead, last));
        assert!(!new.is_superseded());
    }
}
