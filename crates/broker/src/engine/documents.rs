//! The documents of `specs/formats/seam.md`.
use crate::encryption::EncryptionSettings;
use crate::partition::Partition;
use crate::shared::Limits;
use crate::view::{PartitionView, StreamView};
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
}

/// A consumer group that is new.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct GroupSpec {
    pub id: String,
    pub created: u64,
}

/// One stream of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct StreamSpec {
    pub namespace: String,
    pub name: String,
    pub id: u64,
    pub subject: String,
    pub created_ns: i64,
    #[serde(default)]
    pub partition_by_subject: bool,
    #[serde(default)]
    pub concurrency_control: bool,
    #[serde(default)]
    pub resume_all: bool,
    pub partitions: Vec<PlaceSpec>,
}

/// Who has a partition.
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
        StreamView {
            namespace: self.namespace,
            name: self.name,
            id: self.id,
            subject: self.subject,
            created_ns: self.created_ns,
            partition_by_subject: self.partition_by_subject,
            concurrency_control: self.concurrency_control,
            resume_all: self.resume_all,
            partitions: partitions.collect(),
        }
    }
}
