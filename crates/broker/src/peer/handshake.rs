//! What a broker says of itself, and whether the other one believes it. No I/O.
use super::brokers::{Broker, Brokers};
use super::connection::PeerError;
use bascule_wire::peer::{Hello, HelloAnswer, Purpose, RefusalCode};
use bytes::Bytes;

/// Versions of the protocol that are spoken, inclusive.
pub(super) const VERSIONS: (u32, u32) = (1, 1);

/// Why a broker is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub code: RefusalCode,
    pub text: String,
}

/// Who a connection is with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// Plain text over loopback: whoever the hello names.
    Loopback,
    /// The common name in the certificate, which has been verified; `None` = it has none.
    Certificate(Option<String>),
}

impl Proof {
    pub(super) fn check(&self, name: &str) -> Result<(), Refusal> {
        match self {
            Self::Certificate(found) if found.as_deref() != Some(name) => {
                let found = found.as_deref().unwrap_or_default();
                refuse(
                    RefusalCode::Certificate,
                    format!(
                        "broker {name:?} shows the certificate of {found:?}: give it one whose common name is its own"
                    ),
                )
            }
            Self::Certificate(_) | Self::Loopback => Ok(()),
        }
    }
}

impl Brokers {
    /// What this broker says when it dials that one.
    pub(super) fn hello(
        &self,
        raft_id: u64,
        other: &Broker,
        purpose: Purpose,
        time_ns: i64,
    ) -> Hello {
        let own = &self.own;
        let (receiver_boot_epoch, receiver_nonce) = self.run_of(raft_id);
        Hello {
            broker: own.name.clone(),
            cluster_id: Bytes::copy_from_slice(&own.cluster_id),
            rescues: own.rescues,
            level: own.level,
            oldest_version: VERSIONS.0,
            newest_version: VERSIONS.1,
            raft_id: own.raft_id,
            nonce: self.own_nonce(),
            boot_epoch: self.own_boot_epoch(),
            receiver: other.name.clone(),
            receiver_boot_epoch,
            receiver_nonce,
            time_ns,
            purpose: purpose as i32,
        }
    }

    /// What this broker answers.
    pub(super) fn answer(&self, judged: &Result<u32, Refusal>, time_ns: i64) -> HelloAnswer {
        let own = &self.own;
        let (code, text, version) = match judged {
            Ok(version) => (0, String::new(), *version),
            Err(refusal) => (refusal.code as u32, short(&refusal.text), 0),
        };
        HelloAnswer {
            broker: own.name.clone(),
            code,
            text,
            version,
            raft_id: own.raft_id,
            nonce: self.own_nonce(),
            boot_epoch: self.own_boot_epoch(),
            time_ns,
        }
    }

    /// Whether the one that dials is let in: the version to speak. A hello that knows a later run of this broker ends its part
    /// in the cluster.
    pub(super) fn judge(&self, hello: &Hello, proof: &Proof) -> Result<u32, Refusal> {
        let own = &self.own;
        let dials = &hello.broker;
        if hello.cluster_id[..] != own.cluster_id {
            let text = format!(
                "broker {dials:?} is of another cluster than broker {:?}: check the addresses in cluster.peers",
                own.name
            );
            return refuse(RefusalCode::OtherCluster, text);
        }
        if *dials == own.name {
            let text = format!(
                "broker {dials:?} was dialled by a broker of the same name: an address in cluster.peers is its own, or two \
                 brokers have this name"
            );
            return refuse(RefusalCode::SameBroker, text);
        }
        if hello.receiver != own.name {
            let text = format!(
                "broker {dials:?} expects {:?} at the address of broker {:?}: correct it in cluster.peers",
                hello.receiver, own.name
            );
            return refuse(RefusalCode::OtherReceiver, text);
        }
        let known = self.others.get(&hello.raft_id);
        if known.is_none_or(|known| known.name != *dials) {
            let text = format!(
                "broker {:?} knows no broker {dials:?} with number {}: add it to cluster.peers of every broker",
                own.name, hello.raft_id
            );
            return refuse(RefusalCode::UnknownBroker, text);
        }
        proof.check(dials)?;
        if hello.rescues != own.rescues {
            let text = format!(
                "broker {dials:?} has gone through {} rescues of the cluster, broker {:?} through {}: the one with fewer stays out",
                hello.rescues, own.name, own.rescues
            );
            return refuse(RefusalCode::Rescued, text);
        }
        self.check_run(hello)?;
        common_version(hello.oldest_version, hello.newest_version).ok_or_else(|| Refusal {
            code: RefusalCode::Version,
            text: format!(
                "broker {dials:?} speaks versions {} to {}, broker {:?} {} to {}: upgrade the older one",
                hello.oldest_version, hello.newest_version, own.name, VERSIONS.0, VERSIONS.1
            ),
        })
    }

    /// A registration of this broker that it does not know of was another run's, unless it was made under one of its own nonces
    /// (W41, N49).
    fn check_run(&self, hello: &Hello) -> Result<(), Refusal> {
        let own = &self.own;
        let is_later = hello.receiver_boot_epoch > self.own_boot_epoch();
        if is_later && !self.is_own_nonce(hello.receiver_nonce) {
            self.supersede();
        }
        if self.is_superseded() {
            let text = format!(
                "broker {:?} was registered by a later run than this one (boot epoch {}): its directory is a copy or was put back",
                own.name, own.boot_epoch
            );
            return refuse(RefusalCode::Superseded, text);
        }
        Ok(())
    }

    /// Whether the one that was dialled is the one that was meant.
    pub(super) fn check_answer(
        raft_id: u64,
        other: &Broker,
        answer: &HelloAnswer,
        proof: &Proof,
    ) -> Result<(), PeerError> {
        let refused = |refusal: Refusal| PeerError::Refused {
            code: refusal.code as u32,
            text: refusal.text,
        };
        proof.check(&other.name).map_err(refused)?;
        if answer.code != 0 {
            return Err(PeerError::Refused {
                code: answer.code,
                text: answer.text.clone(),
            });
        }
        if (&answer.broker, answer.raft_id) != (&other.name, raft_id) {
            let text = format!(
                "broker {:?} with number {} is at {}, the address of broker {:?} with number {raft_id}: correct it in cluster.peers",
                answer.broker, answer.raft_id, other.address, other.name
            );
            return Err(refused(Refusal {
                code: RefusalCode::OtherReceiver,
                text,
            }));
        }
        if common_version(answer.version, answer.version).is_none() {
            let text = format!(
                "broker {:?} chose version {}, this one speaks {} to {}",
                other.name, answer.version, VERSIONS.0, VERSIONS.1
            );
            return Err(refused(Refusal {
                code: RefusalCode::Version,
                text,
            }));
        }
        Ok(())
    }
}

pub(super) fn refuse<T>(code: RefusalCode, text: String) -> Result<T, Refusal> {
    Err(Refusal { code, text })
}

/// The newest version that both speak.
pub(super) fn common_version(oldest: u32, newest: u32) -> Option<u32> {
    let common = newest.min(VERSIONS.1);
    (common >= oldest.max(VERSIONS.0)).then_some(common)
}

/// A text that fits a head. Names in it may be long.
pub(super) fn short(text: &str) -> String {
    let end = text.floor_char_boundary(bascule_wire::peer::heads::TEXT_BYTES);
    text.get(..end).unwrap_or_default().to_owned()
}
