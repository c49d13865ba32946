//! Shares of something that all clients draw from, counted by client.
use super::caller::Identity;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// How much each client has.
#[derive(Debug)]
pub(crate) struct Shares {
    taken: Mutex<HashMap<Identity, usize>>,
    most: usize,
}

/// One piece of a client's share, given back when dropped.
#[derive(Debug)]
pub(crate) struct Piece {
    shares: Arc<Shares>,
    identity: Identity,
}

impl Shares {
    /// At most `most` for each, inclusive.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            taken: Mutex::default(),
            most,
        })
    }

    /// One more for `identity`; `None` when it has its share.
    pub(crate) fn take(self: &Arc<Self>, identity: Identity) -> Option<Piece> {
        let mut taken = self.taken.lock();
        let count = taken.entry(identity.clone()).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Piece {
            shares: self.clone(),
            identity,
        })
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock();
        if let Some(count) = taken.get_mut(&self.identity) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.identity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn each_client_has_its_own_share_and_gets_it_back() {
        let shares = Shares::new(2);
        let (a, b) = (
            Identity::at([10, 0, 0, 1].into()),
            Identity::Name("b".into()),
        );
        let first = shares.take(a.clone());
        let second = shares.take(a.clone());
        assert!(first.is_some() && second.is_some());
        assert!(shares.take(a.clone()).is_none());
        assert!(shares.take(b).is_some());
        drop(first);
        assert!(shares.take(a).is_some());
        drop(second);
        assert!(shares.taken.lock().is_empty(), "nothing is kept");
    }

    #[test]
    fn hosts_of_one_network_have_one_share() {
        let shares = Shares::new(1);
        let take = |text: &str| shares.take(Identity::at(text.parse::<IpAddr>().unwrap()));
        let place = take("2001:db8::1");
        assert!(take("2001:db8::ffff").is_none());
        assert!(take("2001:db8:0:1::1").is_some());
        drop(place);
        let mapped = take("::ffff:10.0.0.1");
        assert!(take("10.0.0.1").is_none());
        drop(mapped);
    }
}
