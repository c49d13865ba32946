//! Limits the number of open calls, in total and for each client.
//!
//! A call *awaits its request* from its start until its request has arrived; it holds a permit during that time too. When no
//! permit is left, a new call evicts the oldest call that awaits its request, so idle callers cannot keep out active ones. A
//! client at its own limit evicts only its own calls.
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use super::caller::Identity;
use futures_util::task::AtomicWaker;

/// Limits of one kind of calls, and the settings that define them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) all: usize,
    pub(super) all_setting: &'static str,
    /// Limit of one client.
    pub(super) share: usize,
    pub(super) share_setting: &'static str,
}

/// Why a call gets no permit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallLimitReached {
    #[error("{0} ({1}) calls are open: end some, try again later, or raise it")]
    All(&'static str, usize),
    #[error("{0} ({1}) calls of {2} are open: end some, try again later, or raise it")]
    Share(&'static str, usize, Identity),
}

/// Limits one kind of calls.
#[derive(Debug)]
pub(super) struct CallLimiter {
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: usize,
    /// Calls that await their request, the oldest first.
    awaiting_request: BTreeMap<u64, (Identity, Arc<Signal>)>,
    shares: HashMap<Identity, Share>,
}

#[derive(Debug, Default)]
struct Share {
    open: usize,
    awaiting_request: BTreeSet<u64>,
}

/// Notifies a call that awaits its request of its eviction.
#[derive(Debug, Default)]
struct Signal {
    evicted: AtomicBool,
    waker: AtomicWaker,
}

/// The permit of one call, released when dropped.
#[derive(Debug)]
pub(super) struct CallPermit {
    limiter: Arc<CallLimiter>,
    id: u64,
    identity: Identity,
    signal: Arc<Signal>,
}

/// A request that has not arrived yet. Drop it when the request has arrived: from then on the call is not evicted.
#[derive(Debug)]
pub(super) struct PendingRequest {
    limiter: Arc<CallLimiter>,
    id: u64,
    identity: Identity,
    signal: Arc<Signal>,
}

impl CallLimiter {
    pub(super) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            state: Mutex::default(),
        })
    }

    /// Number of calls that hold a permit.
    pub(super) fn open(&self) -> usize {
        self.state.lock().open
    }

    /// Acquires a permit for a call of `identity`, which may evict another call.
    ///
    /// # Errors
    /// [`CallLimitReached`]: no permit is left, and no call awaits its request.
    pub(super) fn acquire(
        self: &Arc<Self>,
        identity: &Identity,
    ) -> Result<(CallPermit, PendingRequest), CallLimitReached> {
        let mut state = self.state.lock();
        self.make_room(&mut state, identity)?;
        let id = state.next;
        state.next += 1;
        state.open += 1;
        let signal = Arc::<Signal>::default();
        state
            .awaiting_request
            .insert(id, (identity.clone(), signal.clone()));
        let share = state.shares.entry(identity.clone()).or_default();
        share.open += 1;
        share.awaiting_request.insert(id);
        let pending = PendingRequest {
            limiter: self.clone(),
            id,
            identity: identity.clone(),
            signal: signal.clone(),
        };
        let permit = CallPermit {
            limiter: self.clone(),
            id,
            identity: identity.clone(),
            signal,
        };
        Ok((permit, pending))
    }

    fn make_room(&self, state: &mut State, identity: &Identity) -> Result<(), CallLimitReached> {
        let Bounds {
            all,
            all_setting,
            share,
            share_setting,
        } = self.bounds;
        let own = state.shares.get(identity);
        if own.is_some_and(|own| own.open >= share) {
            let oldest = own.and_then(|own| own.awaiting_request.first().copied());
            let oldest = oldest
                .ok_or_else(|| CallLimitReached::Share(share_setting, share, identity.clone()))?;
            state.evict(oldest);
        } else if state.open >= all {
            let oldest = state.awaiting_request.keys().next().copied();
            state.evict(oldest.ok_or(CallLimitReached::All(all_setting, all))?);
        }
        Ok(())
    }
}

impl State {
    /// Takes the permit of a call that awaits its request.
    fn evict(&mut self, id: u64) {
        let Some((identity, signal)) = self.awaiting_request.remove(&id) else {
            return;
        };
        self.release(id, &identity);
        signal.evicted.store(true, Ordering::Release);
        signal.waker.wake();
    }

    fn release(&mut self, id: u64, identity: &Identity) {
        self.open = self.open.saturating_sub(1);
        if let Some(share) = self.shares.get_mut(identity) {
            share.open = share.open.saturating_sub(1);
            share.awaiting_request.remove(&id);
            if share.open == 0 {
                self.shares.remove(identity);
            }
        }
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let mut state = self.limiter.state.lock();
        // Checked under the lock: the permit of an evicted call is released already.
        if !self.signal.evicted.load(Ordering::Acquire) {
            state.awaiting_request.remove(&self.id);
            state.release(self.id, &self.identity);
        }
    }
}

impl PendingRequest {
    /// Returns whether the call was evicted.
    pub(super) fn is_evicted(&self) -> bool {
        self.signal.evicted.load(Ordering::Acquire)
    }

    /// Registers `waker`, which is woken when the call is evicted; check [`Self::is_evicted`] afterwards.
    pub(super) fn register(&self, waker: &Waker) {
        self.signal.waker.register(waker);
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        let mut state = self.limiter.state.lock();
        if state.awaiting_request.remove(&self.id).is_some()
            && let Some(share) = state.shares.get_mut(&self.identity)
        {
            share.awaiting_request.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(all: usize, share: usize) -> Arc<CallLimiter> {
        CallLimiter::new(Bounds {
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
    fn the_oldest_call_that_awaits_its_request_is_evicted_and_one_that_has_arrived_is_not() {
        let limiter = limiter(2, 2);
        let (first, arriving) = limiter.acquire(&named("a")).unwrap();
        let (second, arrived) = limiter.acquire(&named("b")).unwrap();
        drop(arrived);
        let (third, also_arrived) = limiter.acquire(&named("c")).unwrap();
        assert!(arriving.is_evicted());
        drop(also_arrived);
        assert_eq!(
            limiter.acquire(&named("d")).unwrap_err(),
            CallLimitReached::All("limits.calls", 2)
        );
        drop(first);
        assert_eq!(limiter.open(), 2, "it had lost its permit before");
        drop((second, third, arriving));
        assert_eq!(limiter.open(), 0);
        assert!(limiter.state.lock().shares.is_empty(), "nothing is kept");
    }

    #[test]
    fn a_client_at_its_limit_evicts_its_own_calls_only() {
        let limiter = limiter(10, 2);
        let (_other, other_pending) = limiter.acquire(&named("b")).unwrap();
        let (_first, arriving) = limiter.acquire(&named("a")).unwrap();
        let (_second, arrived) = limiter.acquire(&named("a")).unwrap();
        drop(arrived);
        let (_third, arrived) = limiter.acquire(&named("a")).unwrap();
        assert!(arriving.is_evicted() && !other_pending.is_evicted());
        drop(arrived);
        let full = limiter.acquire(&named("a")).unwrap_err();
        assert_eq!(
            full.to_string(),
            "limits.calls_per_identity (2) calls of \"a\" are open: end some, try again later, or raise it"
        );
        assert!(limiter.acquire(&named("c")).is_ok(), "others have theirs");
    }
}
