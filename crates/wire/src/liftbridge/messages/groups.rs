//! Cursors and consumer groups.
use super::Consumer;

/// A position to be stored.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetCursorRequest {
    /// Stream name.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Partition number.
    #[prost(int32, tag = "2")]
    pub partition: i32,
    /// Name of the reader.
    #[prost(string, tag = "3")]
    pub cursor_id: String,
    /// By convention the last one processed.
    #[prost(int64, tag = "4")]
    pub offset: i64,
    /// Ours: the creation of the partition that the offset belongs to; 0 = the present one.
    #[prost(uint64, tag = "100")]
    pub incarnation: u64,
    /// Ours: the member of a group that stores it, fenced by its epoch; `None` = somebody else.
    #[prost(message, optional, tag = "101")]
    pub consumer: Option<Consumer>,
}

/// Done.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct SetCursorResponse {}

/// A position to be found.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FetchCursorRequest {
    /// Stream name.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Partition number.
    #[prost(int32, tag = "2")]
    pub partition: i32,
    /// Name of the reader.
    #[prost(string, tag = "3")]
    pub cursor_id: String,
}

/// The position found.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct FetchCursorResponse {
    /// -1 = none stored.
    #[prost(int64, tag = "1")]
    pub offset: i64,
    /// Ours: the present creation of the partition; 0 = it does not exist.
    #[prost(uint64, tag = "100")]
    pub incarnation: u64,
}

/// A member to be added.
#[derive(Clone, PartialEq, prost::Message)]
pub struct JoinConsumerGroupRequest {
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

/// Who coordinates the group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct JoinConsumerGroupResponse {
    /// Broker id.
    #[prost(string, tag = "1")]
    pub coordinator: String,
    /// Epoch of the group.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// Nanoseconds.
    #[prost(int64, tag = "3")]
    pub consumer_timeout: i64,
    /// Nanoseconds.
    #[prost(int64, tag = "4")]
    pub coordinator_timeout: i64,
}

/// A member to be removed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaveConsumerGroupRequest {
    /// Group.
    #[prost(string, tag = "1")]
    pub group_id: String,
    /// Member of the group.
    #[prost(string, tag = "2")]
    pub consumer_id: String,
}

/// Done.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct LeaveConsumerGroupResponse {}

/// A member that asks what it is to read.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FetchConsumerGroupAssignmentsRequest {
    /// Group.
    #[prost(string, tag = "1")]
    pub group_id: String,
    /// Member of the group.
    #[prost(string, tag = "2")]
    pub consumer_id: String,
    /// Epoch of the group.
    #[prost(uint64, tag = "3")]
    pub epoch: u64,
}

/// What a member is to read.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FetchConsumerGroupAssignmentsResponse {
    /// Epoch of the group.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    /// Partitions to read.
    #[prost(message, repeated, tag = "2")]
    pub assignments: Vec<PartitionAssignment>,
}

/// Partitions of one stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PartitionAssignment {
    /// Stream name.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Partition numbers.
    #[prost(int32, repeated, tag = "2")]
    pub partitions: Vec<i32>,
}

/// A coordinator that does not answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReportConsumerGroupCoordinatorRequest {
    /// Group.
    #[prost(string, tag = "1")]
    pub group_id: String,
    /// Member of the group.
    #[prost(string, tag = "2")]
    pub consumer_id: String,
    /// Broker id.
    #[prost(string, tag = "3")]
    pub coordinator: String,
    /// Epoch of the group.
    #[prost(uint64, tag = "4")]
    pub epoch: u64,
}

/// Done.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ReportConsumerGroupCoordinatorResponse {}
