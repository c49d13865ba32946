//! Connections by the address they come from.
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Counts per address; an IPv6 address counts as its network of 64 bits, since one host has all of that.
#[derive(Debug)]
pub(super) struct Addresses {
    open: Mutex<HashMap<IpAddr, usize>>,
    most: usize,
}

/// One connection of an address, until dropped.
#[derive(Debug)]
pub(super) struct FromAddress {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Addresses {
    /// At most `most` of each, inclusive.
    pub(super) fn new(most: usize) -> Self {
        Self {
            open: Mutex::default(),
            most,
        }
    }

    /// A place for one more connection from `address`; `None` when it has all of its own.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Option<FromAddress> {
        let address = network(address);
        let mut open = self.open.lock();
        let count = open.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(FromAddress {
            addresses: self.clone(),
            address,
        })
    }
}

impl Drop for FromAddress {
    fn drop(&mut self) {
        let mut open = self.addresses.open.lock();
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_places_and_gets_them_back() {
        let addresses = Arc::new(Addresses::new(2));
        let (a, b): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let first = addresses.take(a);
        let second = addresses.take(a);
        assert!(first.is_some() && second.is_some());
        assert!(addresses.take(a).is_none());
        assert!(addresses.take(b).is_some());
        drop(first);
        assert!(addresses.take(a).is_some());
        drop(second);
        assert!(addresses.open.lock().is_empty(), "nothing is kept");
    }

    #[test]
    fn hosts_of_one_network_share_their_places() {
        let addresses = Arc::new(Addresses::new(1));
        let place = addresses.take("2001:db8::1".parse().unwrap());
        assert!(addresses.take("2001:db8::ffff".parse().unwrap()).is_none());
        assert!(addresses.take("2001:db8:0:1::1".parse().unwrap()).is_some());
        drop(place);
        let mapped = addresses.take("::ffff:10.0.0.1".parse().unwrap());
        assert!(addresses.take([10, 0, 0, 1].into()).is_none());
        drop(mapped);
    }
}
