//! The identity of a connection, for limits of one client.
use super::connection::Closer;
use crate::tls::Peer;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The client that a limit applies to: the name of its certificate, or without a certificate its address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    Name(Arc<str>),
    Network(IpAddr),
    /// Neither is known.
    Nobody,
}

/// Properties of a connection that each of its requests gets.
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
    /// The identity of clients at `address`. For IPv6 it is the /64 network, since one host may use all of its addresses.
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
