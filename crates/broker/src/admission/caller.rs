//! Whose a connection is, as far as places are shared out.
use super::connection::Closer;
use crate::tls::Peer;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Who shares places: the name of a client's certificate, or for a client without one the address it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    Name(Arc<str>),
    Network(IpAddr),
    /// Neither is known.
    Nobody,
}

/// What a connection gives each of its requests.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(super) peer: Peer,
    pub(super) identity: Identity,
    pub(super) closer: Arc<Closer>,
}

impl Caller {
    pub(super) fn of(peer: &Peer) -> Self {
        Self {
            peer: peer.clone(),
            identity: Identity::of(peer),
            closer: Arc::default(),
        }
    }
}

impl Identity {
    /// Of whoever comes from `address`; of IPv6 its network of 64 bits counts, since one host has all of that.
    pub(super) fn at(address: IpAddr) -> Self {
        Self::Network(match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
            v4 @ IpAddr::V4(_) => v4,
        })
    }

    pub(crate) fn of(peer: &Peer) -> Self {
        match (&peer.identity, peer.address) {
            (Some(name), _) => Self::Name(name.clone()),
            (None, Some(address)) => Self::at(address.ip()),
            (None, None) => Self::Nobody,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{:?}", name.chars().take(64).collect::<String>()),
            Self::Network(address) => write!(f, "{address}"),
            Self::Nobody => f.write_str("a client without a name"),
        }
    }
}
