//! The metadata that the data plane needs: one immutable value, replaced as a whole.
use crate::partition::Partition;
use crate::user_rights::UserRights;
use bascule_wire::subject::partition_subject;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// One version of the view.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Version given by the control plane; ascending.
    pub version: u64,
    /// Streams by namespace, then name.
    pub namespaces: HashMap<String, HashMap<String, Arc<StreamView>>>,
    /// Numbers of the namespaces.
    pub numbers: Arc<NamespaceNumbers>,
    /// Consumer groups by id.
    pub groups: Arc<HashMap<String, Arc<GroupView>>>,
    /// Users of Iggy's clients who may log in, by id.
    pub users: Arc<HashMap<u64, Arc<UserRights>>>,
    /// `host:port` that clients reach each broker at, by its id.
    pub brokers: Arc<HashMap<String, String>>,
}

/// The number of each namespace, both ways; also of those without streams.
#[derive(Clone, Debug, Default)]
pub struct NamespaceNumbers {
    names: HashMap<u64, String>,
    ids: HashMap<String, u64>,
}
impl NamespaceNumbers {
    /// A namespace that is new, or has another number than before.
    pub fn insert(&mut self, id: u64, name: String) {
        self.names.insert(id, name.clone());
        self.ids.insert(name, id);
    }

    /// Forgets the namespace of this number.
    pub fn remove(&mut self, id: u64) {
        if let Some(name) = self.names.remove(&id)
            && self.ids.get(&name) == Some(&id)
        {
            self.ids.remove(&name);
        }
    }

    /// Name of the namespace of this number.
    pub fn name(&self, id: u64) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }

    /// Number of the namespace of this name.
    pub fn id(&self, name: &str) -> Option<u64> {
        self.ids.get(name).copied()
    }
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
    /// Consumer groups of Iggy's clients, ascending by number.
    pub groups: Vec<TopicGroup>,
    /// Partitions by number.
    pub partitions: Vec<PartitionView>,
}

/// A consumer group of Iggy's clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicGroup {
    /// Number within the stream, 0-based.
    pub id: u64,
    /// Name, unique in the stream.
    pub name: String,
    /// Index of the metadata entry that created it.
    pub created: u64,
    /// Index of the entry that changed last which member reads what.
    pub changed: u64,
    /// In a cluster: the broker of each member and the number of its connection there, in the order of joining.
    pub members: Vec<(String, u32)>,
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

    /// `host:port` of a broker; empty = unknown.
    pub fn address(&self, broker_id: &str) -> &str {
        self.brokers.get(broker_id).map_or("", String::as_str)
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

    /// Subject that a partition listens on; empty = none.
    pub fn partition_subject(&self, number: u32) -> Cow<'_, str> {
        if self.partition_by_subject || self.subject.is_empty() {
            return Cow::Borrowed(&self.subject);
        }
        partition_subject(&self.subject, number)
    }

    /// A partition by number; negative numbers are none.
    pub fn partition(&self, number: i32) -> Option<&PartitionView> {
        usize::try_from(number)
            .ok()
            .and_then(|n| self.partitions.get(n))
    }
}
