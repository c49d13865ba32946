//! The metadata that the data plane needs: one immutable value, replaced as a whole.
use crate::partition::Partition;
use std::collections::HashMap;
use std::sync::Arc;

/// One version of the view.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Version given by the control plane; ascending.
    pub version: u64,
    /// Streams by namespace, then name.
    pub namespaces: HashMap<String, HashMap<String, Arc<StreamView>>>,
    /// Consumer groups by id.
    pub groups: Arc<HashMap<String, Arc<GroupView>>>,
}

/// One consumer group as requests see it.
///
/// A generation is the index of a metadata entry, so it is unique among all groups of this id, earlier ones included. It is
/// the group's epoch, except that a new group has epoch 0 and the generation of its creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupView {
    /// Generation that the group began with.
    pub created: u64,
    /// Present generation; every change of the group raises it.
    pub generation: u64,
    /// Members by id: the generation that each one joined with.
    pub members: HashMap<String, u64>,
}

/// One stream as requests see it.
#[derive(Clone, Debug)]
pub struct StreamView {
    /// Namespace.
    pub namespace: String,
    /// Name, unique in the namespace.
    pub name: String,
    /// Numeric id.
    pub id: u64,
    /// NATS subject; empty = none.
    pub subject: String,
    /// Creation time, ns since 1970.
    pub created_ns: i64,
    /// Whether records are spread over partitions by their subject.
    pub partition_by_subject: bool,
    /// Whether expected offsets are checked.
    pub concurrency_control: bool,
    /// Whether a publish to any partition resumes all that are paused.
    pub resume_all: bool,
    /// Partitions by number.
    pub partitions: Vec<PartitionView>,
}

/// One partition as requests see it.
#[derive(Clone, Debug)]
pub struct PartitionView {
    /// Number.
    pub number: u32,
    /// Incarnation.
    pub incarnation: u64,
    /// Broker id of the leader; empty = none.
    pub leader: String,
    /// Leader epoch.
    pub leader_epoch: u64,
    /// Broker ids of the replicas that are close enough to lead.
    pub isr: Vec<String>,
    /// Publishes are refused.
    pub readonly: bool,
    /// Closed until resumed.
    pub paused: bool,
    /// The open partition, when this broker has it.
    pub handle: Option<Partition>,
}

impl View {
    /// A stream by name.
    pub fn stream(&self, namespace: &str, name: &str) -> Option<&Arc<StreamView>> {
        self.namespaces.get(namespace)?.get(name)
    }

    /// Every stream, in no order.
    pub fn streams(&self) -> impl Iterator<Item = &Arc<StreamView>> {
        self.namespaces.values().flat_map(HashMap::values)
    }
}

impl StreamView {
    /// Whether a publish to any partition resumes others first.
    pub fn wakes_on_publish(&self) -> bool {
        self.resume_all && self.partitions.iter().any(|partition| partition.paused)
    }

    /// A partition by number; negative numbers are none.
    pub fn partition(&self, number: i32) -> Option<&PartitionView> {
        usize::try_from(number)
            .ok()
            .and_then(|n| self.partitions.get(n))
    }
}
