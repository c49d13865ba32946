//! Events of the activity stream.

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ActivityStreamOp {
    /// `CREATE_STREAM`.
    CreateStream = 0,
    /// `DELETE_STREAM`.
    DeleteStream = 1,
    /// `PAUSE_STREAM`.
    PauseStream = 2,
    /// `RESUME_STREAM`.
    ResumeStream = 3,
    /// `SET_STREAM_READONLY`.
    SetStreamReadonly = 4,
    /// `JOIN_CONSUMER_GROUP`.
    JoinConsumerGroup = 5,
    /// `LEAVE_CONSUMER_GROUP`.
    LeaveConsumerGroup = 6,
}

/// Something that happened to a stream or a group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ActivityStreamEvent {
    /// Identifier.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Says which of the following is set.
    #[prost(enumeration = "ActivityStreamOp", tag = "2")]
    pub op: i32,
    /// Set with the `op` of this name.
    #[prost(message, optional, tag = "3")]
    pub create_stream_op: Option<CreateStreamOp>,
    /// Set with the `op` of this name.
    #[prost(message, optional, tag = "4")]
    pub delete_stream_op: Option<DeleteStreamOp>,
    /// Set with the `op` of this name.
    #[prost(message, optional, tag = "5")]
    pub pause_stream_op: Option<PauseStreamOp>,
    /// Set with the `op` of this name.
    #[prost(message, optional, tag = "6")]
    pub resume_stream_op: Option<ResumeStreamOp>,
    /// Set with the `op` of this name.
    #[prost(message, optional, tag = "7")]
    pub set_stream_readonly_op: Option<SetStreamReadonlyOp>,
    /// Set with the `op` of this name.
    #[prost(message, optional, tag = "8")]
    pub join_consumer_group_op: Option<JoinConsumerGroupOp>,
    /// Set with the `op` of this name.
    #[prost(message, optional, tag = "9")]
    pub leave_consumer_group_op: Option<LeaveConsumerGroupOp>,
}

/// A stream was created.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateStreamOp {
    /// Stream name.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Partition numbers.
    #[prost(int32, repeated, tag = "2")]
    pub partitions: Vec<i32>,
}

/// A stream was deleted.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteStreamOp {
    /// Stream name.
    #[prost(string, tag = "1")]
    pub stream: String,
}

/// Partitions were paused.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PauseStreamOp {
    /// Stream name.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Partition numbers.
    #[prost(int32, repeated, tag = "2")]
    pub partitions: Vec<i32>,
    /// A publish to one partition wakes them all.
    #[prost(bool, tag = "3")]
    pub resume_all: bool,
}

/// Partitions were resumed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResumeStreamOp {
    /// Stream name.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Partition numbers.
    #[prost(int32, repeated, tag = "2")]
    pub partitions: Vec<i32>,
}

/// Partitions were made to refuse writes, or to accept them.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetStreamReadonlyOp {
    /// Stream name.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Partition numbers.
    #[prost(int32, repeated, tag = "2")]
    pub partitions: Vec<i32>,
    /// Whether writes are refused.
    #[prost(bool, tag = "3")]
    pub readonly: bool,
}

/// A member joined.
#[derive(Clone, PartialEq, prost::Message)]
pub struct JoinConsumerGroupOp {
    /// Group.
    #[prost(string, tag = "1")]
    pub group_id: String,
    /// Member of the group.
    #[prost(string, tag = "2")]
    pub consumer_id: String,
    /// Stream names.
    #[prost(string, repeated, tag = "3")]
    pub streams: Vec<String>,
}

/// A member left.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaveConsumerGroupOp {
    /// Group.
    #[prost(string, tag = "1")]
    pub group_id: String,
    /// Member of the group.
    #[prost(string, tag = "2")]
    pub consumer_id: String,
    /// The broker expired it; it did not leave by itself.
    #[prost(bool, tag = "3")]
    pub expired: bool,
}
