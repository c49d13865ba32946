//! Brokers, streams, partitions and groups, as `FetchMetadata` shows them.
use super::NullableInt64;
use std::collections::BTreeMap;

/// Which streams and groups to show.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FetchMetadataRequest {
    /// None = all.
    #[prost(string, repeated, tag = "1")]
    pub streams: Vec<String>,
    /// None = none.
    #[prost(string, repeated, tag = "2")]
    pub groups: Vec<String>,
}

/// Brokers, streams and groups.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FetchMetadataResponse {
    /// The answering broker first.
    #[prost(message, repeated, tag = "1")]
    pub brokers: Vec<Broker>,
    /// The streams asked for.
    #[prost(message, repeated, tag = "2")]
    pub stream_metadata: Vec<StreamMetadata>,
    /// The groups asked for.
    #[prost(message, repeated, tag = "3")]
    pub group_metadata: Vec<ConsumerGroupMetadata>,
}

/// Which partition to show.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FetchPartitionMetadataRequest {
    /// Stream name.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Partition number.
    #[prost(int32, tag = "2")]
    pub partition: i32,
}

/// One partition, by its leader.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FetchPartitionMetadataResponse {
    /// The partition.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<PartitionMetadata>,
}

/// A broker that clients can dial.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Broker {
    /// Identifier.
    #[prost(string, tag = "1")]
    pub id: String,
    /// What clients dial.
    #[prost(string, tag = "2")]
    pub host: String,
    /// TCP port.
    #[prost(int32, tag = "3")]
    pub port: i32,
    /// Partitions it is a replica of.
    #[prost(int32, tag = "4")]
    pub partition_count: i32,
    /// Partitions it leads.
    #[prost(int32, tag = "5")]
    pub leader_count: i32,
}

/// One stream, or that it is unknown.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StreamMetadata {
    /// Stream name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// NATS subject.
    #[prost(string, tag = "2")]
    pub subject: String,
    /// OK, or that it is not known.
    #[prost(enumeration = "StreamMetadataError", tag = "3")]
    pub error: i32,
    /// Partition numbers.
    #[prost(btree_map = "int32, message", tag = "4")]
    pub partitions: BTreeMap<i32, PartitionMetadata>,
    /// When it was created, ns since 1970.
    #[prost(int64, tag = "5")]
    pub creation_timestamp: i64,
}

/// `StreamMetadata.Error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum StreamMetadataError {
    /// `OK`.
    Ok = 0,
    /// `UNKNOWN_STREAM`.
    UnknownStream = 1,
}

/// One group, or that it is unknown.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConsumerGroupMetadata {
    /// Group.
    #[prost(string, tag = "1")]
    pub group_id: String,
    /// OK, or that it is not known.
    #[prost(enumeration = "ConsumerGroupMetadataError", tag = "2")]
    pub error: i32,
    /// Broker id.
    #[prost(string, tag = "3")]
    pub coordinator: String,
    /// Epoch of the group.
    #[prost(uint64, tag = "4")]
    pub epoch: u64,
}

/// `ConsumerGroupMetadata.Error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ConsumerGroupMetadataError {
    /// `OK`.
    Ok = 0,
    /// `UNKNOWN_GROUP`.
    UnknownGroup = 1,
}

/// 0 = never.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct PartitionEventTimestamps {
    /// The first time, ns since 1970.
    #[prost(int64, tag = "1")]
    pub first_timestamp: i64,
    /// The latest time, ns since 1970.
    #[prost(int64, tag = "2")]
    pub latest_timestamp: i64,
}

/// One partition.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PartitionMetadata {
    /// Identifier.
    #[prost(int32, tag = "1")]
    pub id: i32,
    /// Broker id.
    #[prost(string, tag = "2")]
    pub leader: String,
    /// Broker ids.
    #[prost(string, repeated, tag = "3")]
    pub replicas: Vec<String>,
    /// Broker ids of the replicas in sync.
    #[prost(string, repeated, tag = "4")]
    pub isr: Vec<String>,
    /// Last committed; -1 = none.
    #[prost(int64, tag = "5")]
    pub high_watermark: i64,
    /// Last appended; -1 = none.
    #[prost(int64, tag = "6")]
    pub newest_offset: i64,
    /// Whether it is paused.
    #[prost(bool, tag = "7")]
    pub paused: bool,
    /// Whether writes are refused.
    #[prost(bool, tag = "8")]
    pub readonly: bool,
    /// When messages arrived.
    #[prost(message, optional, tag = "9")]
    pub messages_received_timestamps: Option<PartitionEventTimestamps>,
    /// When it was paused or resumed.
    #[prost(message, optional, tag = "10")]
    pub pause_timestamps: Option<PartitionEventTimestamps>,
    /// When writes were refused or allowed.
    #[prost(message, optional, tag = "11")]
    pub readonly_timestamps: Option<PartitionEventTimestamps>,
    /// Ours: the first offset that can be read; missing when the partition is not open on the broker that answers.
    #[prost(message, optional, tag = "100")]
    pub log_start_offset: Option<NullableInt64>,
}
