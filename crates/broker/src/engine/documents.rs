//! The documents of `specs/formats/seam.md`.
use crate::cluster::ClusterSettings;
use crate::encryption::EncryptionSettings;
use crate::limits::Limits;
use crate::nats::PausedPartition;
use crate::partition::Partition;
use crate::user_rights::UserRights;
use crate::view::{PartitionView, StreamView, TopicGroup};
use bascule_wire::subject::partition_subject;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::PathBuf;

/// `Engine.__new__`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct EngineSettings {
    pub data_dir: PathBuf,
    pub cluster_id: String,
    pub broker_id: String,
    pub runtime_threads: usize,
    pub namespace: String,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub encryption: EncryptionSettings,
    /// `None` = a broker alone.
    #[serde(default)]
    pub cluster: Option<ClusterSettings>,
}

/// `Engine.publish_view`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct ViewChanges {
    pub streams: Vec<StreamSpec>,
    /// (namespace, name).
    pub removed: Vec<(String, String)>,
    pub groups: Vec<GroupSpec>,
    pub removed_groups: Vec<String>,
    /// (number, name) of namespaces that are new.
    pub namespaces: Vec<(u64, String)>,
    /// Numbers.
    pub removed_namespaces: Vec<u64>,
    /// Users who may log in.
    pub users: Vec<UserSpec>,
    /// Ids.
    pub removed_users: Vec<u64>,
    /// (id, `host:port` for clients) of brokers that are new or have moved.
    pub brokers: Vec<(String, String)>,
}

/// A user of Iggy's clients who is new or has changed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct UserSpec {
    pub id: u64,
    pub name: String,
    pub everywhere: u8,
    /// (namespace, mask).
    pub streams: Vec<(u64, u8)>,
    /// (namespace, stream, mask).
    pub topics: Vec<(u64, u64, u8)>,
}

impl From<UserSpec> for UserRights {
    fn from(spec: UserSpec) -> Self {
        let topics = spec.topics.into_iter();
        Self {
            principal: format!("iggy:{}", spec.name).into(),
            everywhere: spec.everywhere,
            streams: spec.streams.into_iter().collect(),
            topics: topics
                .map(|(stream, topic, mask)| ((stream, topic), mask))
                .collect(),
        }
    }
}

/// A consumer group that is new or has changed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct GroupSpec {
    pub id: String,
    pub created: u64,
    pub generation: u64,
    /// Member id → generation that it joined with.
    pub members: HashMap<String, u64>,
}

/// Id, name, index of the entry that created it, index of the last change of its members, and each member's broker and connection.
type TopicGroupDocument = (u64, String, u64, u64, Vec<(String, u32)>);

/// One stream of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, clippy::struct_excessive_bools)] // the flags of a stream, as the document has them
pub struct StreamSpec {
    pub namespace: String,
    pub name: String,
    pub id: u64,
    pub subject: String,
    pub created_ns: i64,
    #[serde(default)]
    pub partition_by_subject: bool,
    /// Whether what arrives for a partition that is paused is counted.
    #[serde(default)]
    pub counts_while_paused: bool,
    #[serde(default)]
    pub concurrency_control: bool,
    #[serde(default)]
    pub resume_all: bool,
    #[serde(default)]
    pub topic_groups: Vec<TopicGroupDocument>,
    pub partitions: Vec<PlaceSpec>,
}

/// The replicas of a partition.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct PlaceSpec {
    pub number: u32,
    pub incarnation: u64,
    pub leader: String,
    pub leader_epoch: u64,
    #[serde(default)]
    pub isr: Vec<String>,
    #[serde(default)]
    pub readonly: bool,
    #[serde(default)]
    pub paused: bool,
}

impl StreamSpec {
    /// Where the partitions of `broker` that are paused would listen.
    pub(super) fn paused_partitions(&self, broker: &str) -> Vec<PausedPartition> {
        let places = self.partitions.iter();
        let counts = self.counts_while_paused;
        let paused = places.filter(|place| counts && place.paused && place.leader == broker);
        let (count, by_subject) = (self.partitions.len(), self.partition_by_subject);
        paused
            .map(|place| PausedPartition {
                incarnation: place.incarnation,
                name: format!("{}/{}", self.name, place.number),
                subject: if by_subject || self.subject.is_empty() {
                    self.subject.clone()
                } else {
                    partition_subject(&self.subject, place.number).into_owned()
                },
                counts,
                number: place.number,
                subject_partitions: if by_subject { count as u32 } else { 0 },
            })
            .collect()
    }

    /// The stream as requests see it; partitions that are open here get their handle.
    pub(super) fn view(self, open: &HashMap<u64, Partition>) -> StreamView {
        let partitions = self.partitions.into_iter().map(|place| PartitionView {
            number: place.number,
            incarnation: place.incarnation,
            leader: place.leader,
            leader_epoch: place.leader_epoch,
            isr: place.isr,
            readonly: place.readonly,
            paused: place.paused,
            handle: open.get(&place.incarnation).cloned(),
        });
        let groups = self.topic_groups.into_iter();
        let groups = groups.map(|(id, name, created, changed, members)| TopicGroup {
            id,
            name,
            created,
            changed,
            members,
        });
        StreamView {
            namespace: self.namespace,
            name: self.name,
            id: self.id,
            subject: self.subject,
            created_ns: self.created_ns,
            partition_by_subject: self.partition_by_subject,
            concurrency_control: self.concurrency_control,
            resume_all: self.resume_all,
            groups: groups.collect(),
            partitions: partitions.collect(),
        }
    }
}
