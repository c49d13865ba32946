//! Places of open calls: a bound for all, a share for each client, and calls whose request has not arrived give way.
//!
//! A call that is *waiting* has not sent its request: nothing of it could be answered yet. When a call finds no place, the
//! oldest waiting one loses its own, so that those who say nothing cannot keep out those who do. A client at its share takes
//! from its own waiting calls only.
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use super::caller::Identity;
use futures_util::task::AtomicWaker;

/// What bounds a kind of calls, and the settings that say so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) all: usize,
    pub(super) all_setting: &'static str,
    /// Of one client.
    pub(super) share: usize,
    pub(super) share_setting: &'static str,
}

/// Why there is no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Full {
    #[error("{0} ({1}) calls are open: end some, try again later, or raise it")]
    All(&'static str, usize),
    #[error("{0} ({1}) calls of {2} are open: end some, try again later, or raise it")]
    Share(&'static str, usize, Identity),
}

/// The places of one kind of calls.
#[derive(Debug)]
pub(super) struct Places {
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: usize,
    /// Calls whose request has not arrived, the oldest first.
    waiting: BTreeMap<u64, (Identity, Arc<Signal>)>,
    shares: HashMap<Identity, Share>,
}

#[derive(Debug, Default)]
struct Share {
    open: usize,
    waiting: BTreeSet<u64>,
}

/// Notifies a waiting call that it lost its place.
#[derive(Debug, Default)]
struct Signal {
    lost: AtomicBool,
    waker: AtomicWaker,
}

/// The place of one call, given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    id: u64,
    identity: Identity,
    signal: Arc<Signal>,
}

/// The request of a call on its way in. Dropped when it has arrived: from then on its place is safe.
#[derive(Debug)]
pub(super) struct Arrival {
    places: Arc<Places>,
    id: u64,
    identity: Identity,
    signal: Arc<Signal>,
}

impl Places {
    pub(super) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            state: Mutex::default(),
        })
    }

    /// Calls that hold a place.
    pub(super) fn open(&self) -> usize {
        self.state.lock().open
    }

    /// A place for a call of `identity`.
    ///
    /// # Errors
    /// [`Full`]: there is none, and no waiting call that could give way.
    pub(super) fn take(self: &Arc<Self>, identity: &Identity) -> Result<(Place, Arrival), Full> {
        let mut state = self.state.lock();
        self.make_room(&mut state, identity)?;
        let id = state.next;
        state.next += 1;
        state.open += 1;
        let signal = Arc::<Signal>::default();
        state.waiting.insert(id, (identity.clone(), signal.clone()));
        let share = state.shares.entry(identity.clone()).or_default();
        share.open += 1;
        share.waiting.insert(id);
        let arrival = Arrival {
            places: self.clone(),
            id,
            identity: identity.clone(),
            signal: signal.clone(),
        };
        let place = Place {
            places: self.clone(),
            id,
            identity: identity.clone(),
            signal,
        };
        Ok((place, arrival))
    }

    fn make_room(&self, state: &mut State, identity: &Identity) -> Result<(), Full> {
        let Bounds {
            all,
            all_setting,
            share,
            share_setting,
        } = self.bounds;
        let own = state.shares.get(identity);
        if own.is_some_and(|own| own.open >= share) {
            let oldest = own.and_then(|own| own.waiting.first().copied());
            let oldest =
                oldest.ok_or_else(|| Full::Share(share_setting, share, identity.clone()))?;
            state.take_from(oldest);
        } else if state.open >= all {
            let oldest = state.waiting.keys().next().copied();
            state.take_from(oldest.ok_or(Full::All(all_setting, all))?);
        }
        Ok(())
    }
}

impl State {
    /// A waiting call loses its place.
    fn take_from(&mut self, id: u64) {
        let Some((identity, signal)) = self.waiting.remove(&id) else {
            return;
        };
        self.give_back(id, &identity);
        signal.lost.store(true, Ordering::Release);
        signal.waker.wake();
    }

    fn give_back(&mut self, id: u64, identity: &Identity) {
        self.open = self.open.saturating_sub(1);
        if let Some(share) = self.shares.get_mut(identity) {
            share.open = share.open.saturating_sub(1);
            share.waiting.remove(&id);
            if share.open == 0 {
                self.shares.remove(identity);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.state.lock();
        // Under the lock: who lost it has nothing to give back.
        if !self.signal.lost.load(Ordering::Acquire) {
            state.waiting.remove(&self.id);
            state.give_back(self.id, &self.identity);
        }
    }
}

impl Arrival {
    /// Whether the call lost its place.
    pub(super) fn is_lost(&self) -> bool {
        self.signal.lost.load(Ordering::Acquire)
    }

    /// Has `waker` woken when the call loses its place; ask [`Self::is_lost`] afterwards.
    pub(super) fn register(&self, waker: &Waker) {
        self.signal.waker.register(waker);
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let mut state = self.places.state.lock();
        if state.waiting.remove(&self.id).is_some()
            && let Some(share) = state.shares.get_mut(&self.identity)
        {
            share.waiting.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(all: usize, share: usize) -> Arc<Places> {
        Places::new(Bounds {
            all,
            all_setting: "limits.calls",
            share,
            share_setting: "limits.calls_per_identity",
        })
    }

    fn named(name: &str) -> Identity {
        Identity::Name(name.into())
    }

    #[test]
    fn the_oldest_waiting_call_gives_way_and_one_that_has_arrived_does_not() {
        let places = places(2, 2);
        let (first, arriving) = places.take(&named("a")).unwrap();
        let (second, arrived) = places.take(&named("b")).unwrap();
        drop(arrived);
        let (third, also_arrived) = places.take(&named("c")).unwrap();
        assert!(arriving.is_lost());
        drop(also_arrived);
        assert_eq!(
            places.take(&named("d")).unwrap_err(),
            Full::All("limits.calls", 2)
        );
        drop(first);
        assert_eq!(places.open(), 2, "it had lost its place before");
        drop((second, third, arriving));
        assert_eq!(places.open(), 0);
        assert!(places.state.lock().shares.is_empty(), "nothing is kept");
    }

    #[test]
    fn a_client_at_its_share_takes_from_its_own_waiting_calls_only() {
        let places = places(10, 2);
        let (_other, waiting) = places.take(&named("b")).unwrap();
        let (_first, arriving) = places.take(&named("a")).unwrap();
        let (_second, arrived) = places.take(&named("a")).unwrap();
        drop(arrived);
        let (_third, arrived) = places.take(&named("a")).unwrap();
        assert!(arriving.is_lost() && !waiting.is_lost());
        drop(arrived);
        let full = places.take(&named("a")).unwrap_err();
        assert_eq!(
            full.to_string(),
            "limits.calls_per_identity (2) calls of \"a\" are open: end some, try again later, or raise it"
        );
        assert!(places.take(&named("c")).is_ok(), "others have theirs");
    }
}
