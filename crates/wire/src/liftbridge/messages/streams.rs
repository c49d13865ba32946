//! Creating, deleting, pausing streams; options that may be left to the server.

/// An integer that may be absent.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct NullableInt64 {
    /// Value.
    #[prost(int64, tag = "1")]
    pub value: i64,
}

/// An integer that may be absent.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct NullableInt32 {
    /// Value.
    #[prost(int32, tag = "1")]
    pub value: i32,
}

/// A flag that may be absent.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct NullableBool {
    /// Value.
    #[prost(bool, tag = "1")]
    pub value: bool,
}

/// A stream to be created.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateStreamRequest {
    /// NATS subject to attach to; wildcards are allowed.
    #[prost(string, tag = "1")]
    pub subject: String,
    /// Unique in the cluster.
    #[prost(string, tag = "2")]
    pub name: String,
    /// NATS queue group; empty = none.
    #[prost(string, tag = "3")]
    pub group: String,
    /// 0 = 1; -1 = all brokers.
    #[prost(int32, tag = "4")]
    pub replication_factor: i32,
    /// 0 = 1.
    #[prost(int32, tag = "5")]
    pub partitions: i32,
    /// Bytes; 0 = no limit.
    #[prost(message, optional, tag = "6")]
    pub retention_max_bytes: Option<NullableInt64>,
    /// Messages; 0 = no limit.
    #[prost(message, optional, tag = "7")]
    pub retention_max_messages: Option<NullableInt64>,
    /// Milliseconds; 0 = no limit.
    #[prost(message, optional, tag = "8")]
    pub retention_max_age: Option<NullableInt64>,
    /// Milliseconds between retention runs; 0 = five minutes.
    #[prost(message, optional, tag = "9")]
    pub cleaner_interval: Option<NullableInt64>,
    /// Bytes; 0 = 1 GiB.
    #[prost(message, optional, tag = "10")]
    pub segment_max_bytes: Option<NullableInt64>,
    /// Milliseconds; 0 = segments do not roll by age.
    #[prost(message, optional, tag = "11")]
    pub segment_max_age: Option<NullableInt64>,
    /// 0 = 10.
    #[prost(message, optional, tag = "12")]
    pub compact_max_goroutines: Option<NullableInt32>,
    /// Keep the last message of every key.
    #[prost(message, optional, tag = "13")]
    pub compact_enabled: Option<NullableBool>,
    /// Milliseconds without messages after which a partition pauses; 0 = never.
    #[prost(message, optional, tag = "14")]
    pub auto_pause_time: Option<NullableInt64>,
    /// A subscriber keeps the partition awake.
    #[prost(message, optional, tag = "15")]
    pub auto_pause_disable_if_subscribers: Option<NullableBool>,
    /// In-sync replicas needed to commit.
    #[prost(message, optional, tag = "16")]
    pub min_isr: Option<NullableInt32>,
    /// Check the offset that publishers expect.
    #[prost(message, optional, tag = "17")]
    pub optimistic_concurrency_control: Option<NullableBool>,
    /// Encrypt values at rest.
    #[prost(message, optional, tag = "18")]
    pub encryption: Option<NullableBool>,
    /// Ours: partitions share the subject, each taking what hashes to it.
    #[prost(message, optional, tag = "100")]
    pub partition_by_subject: Option<NullableBool>,
}

/// Done.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct CreateStreamResponse {}

/// A stream to be deleted.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteStreamRequest {
    /// Stream name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Done.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct DeleteStreamResponse {}

/// Partitions to be paused.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PauseStreamRequest {
    /// Stream name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// None = all.
    #[prost(int32, repeated, tag = "2")]
    pub partitions: Vec<i32>,
    /// A publish to one partition wakes them all.
    #[prost(bool, tag = "3")]
    pub resume_all: bool,
}

/// Done.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct PauseStreamResponse {}

/// Partitions to refuse writes or accept them.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetStreamReadonlyRequest {
    /// Stream name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// None = all.
    #[prost(int32, repeated, tag = "2")]
    pub partitions: Vec<i32>,
    /// Whether writes are refused.
    #[prost(bool, tag = "3")]
    pub readonly: bool,
}

/// Done.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct SetStreamReadonlyResponse {}
