//! How brokers that name each other in `cluster.peers` become a cluster (replication §4, *Join*).
//!
//! The broker whose name sorts first founds it, after every other one answered that it is of no cluster, with the directory that it
//! answered from. Whoever knows of a founding is followed instead. A founding names the directory of each first voter: another directory
//! under one of their names is refused, since a voter that forgot its votes could give a second one.
use super::connection::{PeerError, read_frame};
use super::handshake::{Proof, Refusal, VERSIONS, common_version, refuse, short};
use super::stream;
use crate::owner_only;
use crate::tls::PeerTls;
use bascule_record::crypt::{Entropy, SystemEntropy};
use bascule_wire::peer::frame::GREETING_BYTES;
use bascule_wire::peer::{Frame, FrameType, Join, JoinAnswer, RefusalCode};
use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// For one question to one broker.
const ASK: Duration = Duration::from_secs(2);
const CLUSTER_ID_BYTES: usize = 16;

/// A cluster as it was founded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Founded {
    /// Random, 32 hexadecimal digits.
    pub cluster_id: String,
    /// By their numbers.
    pub voters: Vec<FirstVoter>,
}

/// One of the first voters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirstVoter {
    /// Number in the group of voters, from 1.
    pub raft_id: u64,
    /// Name.
    pub broker_id: String,
    /// Of its data directory.
    pub directory_id: String,
}

/// Why there is no cluster yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoundingError {
    /// Ask again: it may be there later.
    #[error("{0}")]
    Waiting(String),
    /// This broker can never be part of it as it is.
    #[error("{0}")]
    InUse(String),
    /// The founding cannot be stored.
    #[error("the founding of the cluster cannot be stored: {0}")]
    Io(String),
}

/// This broker on its way into a cluster, and what it answers others about that.
#[derive(Debug)]
pub struct Founding {
    name: String,
    cluster: String,
    directory_id: String,
    peers: BTreeMap<String, String>,
    digest: Bytes,
    path: PathBuf,
    founded: Mutex<Option<Arc<Founded>>>,
}

impl Founding {
    /// Reads `<data>/metadata/founding`, if it is there. `peers`: addresses of all brokers by name, this one among them. Blocks.
    ///
    /// # Errors
    /// Those of the file system; `InvalidData`: the file is damaged, or is not of this broker, its directory and these peers.
    pub fn open(
        metadata: &Path,
        name: &str,
        cluster: &str,
        directory_id: &str,
        peers: BTreeMap<String, String>,
    ) -> io::Result<Self> {
        let path = metadata.join("founding");
        let founding = Self {
            name: name.to_owned(),
            cluster: cluster.to_owned(),
            directory_id: directory_id.to_owned(),
            digest: digest(&peers),
            peers,
            path,
            founded: Mutex::default(),
        };
        match fs::read(&founding.path) {
            Ok(bytes) => {
                let invalid = |text| {
                    let text = format!("{}: {text}", founding.path.display());
                    io::Error::new(io::ErrorKind::InvalidData, text)
                };
                let founded = founding.checked(&bytes).map_err(invalid)?;
                *founding.founded.lock() = Some(Arc::new(founded));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(founding)
    }

    /// The cluster, once it is known here.
    pub fn founded(&self) -> Option<Arc<Founded>> {
        self.founded.lock().clone()
    }

    /// Asks every other broker once. Returns the cluster, which is stored durably by then.
    ///
    /// # Errors
    /// [`FoundingError`].
    pub async fn find(&self, tls: Option<&PeerTls>) -> Result<Arc<Founded>, FoundingError> {
        let others = self.peers.iter().filter(|(name, _)| **name != self.name);
        let asked = others.map(|(name, address)| async move {
            let answer = tokio::time::timeout(ASK, self.ask(name, address, tls)).await;
            (name, answer.unwrap_or(Err(PeerError::Silent(ASK))))
        });
        let (mut directories, mut missing) = (BTreeMap::new(), Vec::new());
        for (name, answer) in join_all(asked).await {
            match answer {
                Ok((_, body)) if !body.is_empty() => {
                    let founded = self.checked(&body);
                    let wrong = |text| FoundingError::InUse(format!("broker {name:?}: {text}"));
                    return self.store(founded.map_err(wrong)?);
                }
                Ok((answer, _)) => {
                    directories.insert(name.clone(), answer.directory_id);
                }
                Err(PeerError::Refused { code, text })
                    if code == RefusalCode::BrokerIdInUse as u32 =>
                {
                    return Err(FoundingError::InUse(text));
                }
                Err(error) => missing.push(format!("{name} ({error})")),
            }
        }
        if !missing.is_empty() {
            let text = format!("not answered by {}", missing.join(", "));
            return Err(FoundingError::Waiting(text));
        }
        match self.peers.keys().next() {
            Some(first) if *first == self.name => self.found(directories),
            Some(first) => {
                let text = format!("broker {first:?} is to found the cluster");
                Err(FoundingError::Waiting(text))
            }
            None => Err(FoundingError::Waiting("cluster.peers is empty".into())),
        }
    }

    fn found(
        &self,
        mut directories: BTreeMap<String, String>,
    ) -> Result<Arc<Founded>, FoundingError> {
        let mut id = [0; CLUSTER_ID_BYTES];
        let drawn = SystemEntropy.fill(&mut id);
        drawn.map_err(|error| FoundingError::Io(error.to_string()))?;
        directories.insert(self.name.clone(), self.directory_id.clone());
        let voters = (1..).zip(directories);
        self.store(Founded {
            cluster_id: to_hex(&id),
            voters: voters
                .map(|(raft_id, (broker_id, directory_id))| FirstVoter {
                    raft_id,
                    broker_id,
                    directory_id,
                })
                .collect(),
        })
    }

    fn store(&self, founded: Founded) -> Result<Arc<Founded>, FoundingError> {
        let written = self.write(&founded);
        written.map_err(|error| FoundingError::Io(error.to_string()))?;
        let founded = Arc::new(founded);
        *self.founded.lock() = Some(founded.clone());
        Ok(founded)
    }

    fn write(&self, founded: &Founded) -> io::Result<()> {
        let temporary = self.path.with_extension("tmp");
        let mut file = owner_only::create(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(founded)?)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        let parent = self.path.parent().ok_or(io::ErrorKind::NotFound)?;
        File::open(parent)?.sync_all()
    }

    /// A founding that this broker is part of, with this directory, and with these peers.
    fn checked(&self, bytes: &[u8]) -> Result<Founded, String> {
        let founded: Founded = serde_json::from_slice(bytes)
            .map_err(|error| format!("the founding of the cluster is not readable: {error}"))?;
        let is_id = from_hex(&founded.cluster_id).is_some();
        let names = founded.voters.iter().map(|voter| &voter.broker_id);
        let numbers = founded.voters.iter().map(|voter| voter.raft_id);
        let count = founded.voters.len() as u64;
        if !is_id || !numbers.eq(1..=count) || !names.clone().eq(self.peers.keys()) {
            let names: Vec<_> = names.map(String::as_str).collect();
            let own: Vec<_> = self.peers.keys().map(String::as_str).collect();
            return Err(format!(
                "the cluster was founded by {}, and cluster.peers names {}: name those that founded it",
                names.join(", "),
                own.join(", ")
            ));
        }
        let own = founded
            .voters
            .iter()
            .find(|voter| voter.broker_id == self.name);
        match own {
            Some(voter) if voter.directory_id == self.directory_id => Ok(founded),
            _ => Err(format!(
                "broker {:?} of this cluster has another data directory than this one",
                self.name
            )),
        }
    }

    async fn ask(
        &self,
        name: &str,
        address: &str,
        tls: Option<&PeerTls>,
    ) -> Result<(JoinAnswer, Bytes), PeerError> {
        let (mut stream, proof) = stream::dialled(address, tls).await?;
        let join = Join {
            broker: self.name.clone(),
            receiver: name.to_owned(),
            cluster: self.cluster.clone(),
            directory_id: self.directory_id.clone(),
            peers: self.digest.clone(),
            oldest_version: VERSIONS.0,
            newest_version: VERSIONS.1,
        };
        let frame = Frame::write(FrameType::Join, &join, b"");
        stream.write_all(&frame).await?;
        stream.flush().await?;
        let frame = read_frame(&mut stream, GREETING_BYTES).await?;
        let frame = frame.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let answer = JoinAnswer::read(&frame)?;
        let refused = |refusal: Refusal| PeerError::Refused {
            code: refusal.code as u32,
            text: refusal.text,
        };
        proof.check(name).map_err(refused)?;
        if answer.code != 0 {
            return Err(PeerError::Refused {
                code: answer.code,
                text: answer.text,
            });
        }
        if answer.broker != name {
            let text = format!(
                "broker {:?} is at {address}, the address of broker {name:?}: correct it in cluster.peers",
                answer.broker
            );
            let code = RefusalCode::OtherReceiver;
            return Err(refused(Refusal { code, text }));
        }
        Ok((answer, frame.body))
    }

    /// What this broker answers one that asks: head and body.
    pub(super) fn answer(&self, join: &Join, proof: &Proof) -> (JoinAnswer, Bytes) {
        let answer = JoinAnswer {
            broker: self.name.clone(),
            directory_id: self.directory_id.clone(),
            ..JoinAnswer::default()
        };
        match self.judge(join, proof) {
            Ok(body) => (answer, body),
            Err(refusal) => {
                let (code, text) = (refusal.code as u32, short(&refusal.text));
                (
                    JoinAnswer {
                        code,
                        text,
                        ..answer
                    },
                    Bytes::new(),
                )
            }
        }
    }

    fn judge(&self, join: &Join, proof: &Proof) -> Result<Bytes, Refusal> {
        let (own, asks) = (&self.name, &join.broker);
        if join.cluster != self.cluster {
            let text = format!(
                "broker {asks:?} is of cluster {:?}, broker {own:?} of {:?}: check broker.cluster_id and cluster.peers",
                join.cluster, self.cluster
            );
            return refuse(RefusalCode::OtherCluster, text);
        }
        if asks == own {
            let text = format!(
                "broker {asks:?} was asked by a broker of the same name: an address in cluster.peers is its own, or two brokers \
                 have this name"
            );
            return refuse(RefusalCode::SameBroker, text);
        }
        if join.receiver != *own {
            let text = format!(
                "broker {asks:?} expects {:?} at the address of broker {own:?}: correct it in cluster.peers",
                join.receiver
            );
            return refuse(RefusalCode::OtherReceiver, text);
        }
        if join.peers != self.digest {
            let text = format!(
                "cluster.peers of broker {asks:?} differs from that of broker {own:?}: give every broker the same"
            );
            return refuse(RefusalCode::OtherPeers, text);
        }
        proof.check(asks)?;
        if common_version(join.oldest_version, join.newest_version).is_none() {
            let text = format!(
                "broker {asks:?} speaks versions {} to {}, broker {own:?} {} to {}: upgrade the older one",
                join.oldest_version, join.newest_version, VERSIONS.0, VERSIONS.1
            );
            return refuse(RefusalCode::Version, text);
        }
        let Some(founded) = self.founded() else {
            return Ok(Bytes::new());
        };
        let known = founded.voters.iter().find(|voter| voter.broker_id == *asks);
        if known.is_none_or(|voter| voter.directory_id != join.directory_id) {
            let text = format!(
                "broker {asks:?} of this cluster has another data directory than the one that asks: start it with that directory, \
                 or give the other broker an id of its own; an id whose directory is lost cannot join again yet"
            );
            return refuse(RefusalCode::BrokerIdInUse, text);
        }
        let body = serde_json::to_vec(&*founded).unwrap_or_default();
        Ok(body.into())
    }
}

impl Founded {
    /// The id of the cluster.
    pub fn id(&self) -> [u8; CLUSTER_ID_BYTES] {
        from_hex(&self.cluster_id).unwrap_or_default()
    }
}

fn digest(peers: &BTreeMap<String, String>) -> Bytes {
    let mut context = Context::new(&SHA256);
    for part in peers.iter().flat_map(|(name, address)| [name, address]) {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part.as_bytes());
    }
    Bytes::copy_from_slice(context.finish().as_ref())
}

/// Hexadecimal digits, two for a byte.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<[u8; CLUSTER_ID_BYTES]> {
    let mut bytes = [0; CLUSTER_ID_BYTES];
    if text.len() != 2 * CLUSTER_ID_BYTES || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    (bytes != [0; CLUSTER_ID_BYTES]).then_some(bytes)
}
