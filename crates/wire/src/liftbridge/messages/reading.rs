//! Subscriptions and deliveries.
use super::AckPolicy;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum StartPosition {
    /// `NEW_ONLY`.
    NewOnly = 0,
    /// `OFFSET`.
    Offset = 1,
    /// `EARLIEST`.
    Earliest = 2,
    /// `LATEST`.
    Latest = 3,
    /// `TIMESTAMP`.
    Timestamp = 4,
}

/// Where a subscription ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum StopPosition {
    /// `STOP_ON_CANCEL`.
    StopOnCancel = 0,
    /// `STOP_OFFSET`.
    StopOffset = 1,
    /// `STOP_LATEST`.
    StopLatest = 2,
    /// `STOP_TIMESTAMP`.
    StopTimestamp = 3,
}

/// A member of a group that subscribes to a partition assigned to it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Consumer {
    /// Group.
    #[prost(string, tag = "1")]
    pub group_id: String,
    /// Epoch of the group as the member knows it.
    #[prost(uint64, tag = "2")]
    pub group_epoch: u64,
    /// Member of the group.
    #[prost(string, tag = "3")]
    pub consumer_id: String,
    /// Ours: generation of the group as the member knows it; 0 = it only knows the epoch.
    #[prost(uint64, tag = "100")]
    pub generation: u64,
}

/// A subscription to one partition.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SubscribeRequest {
    /// Stream name.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Partition number.
    #[prost(int32, tag = "2")]
    pub partition: i32,
    /// A [`StartPosition`].
    #[prost(enumeration = "StartPosition", tag = "3")]
    pub start_position: i32,
    /// Inclusive; only with OFFSET.
    #[prost(int64, tag = "4")]
    pub start_offset: i64,
    /// Only with TIMESTAMP.
    #[prost(int64, tag = "5")]
    pub start_timestamp: i64,
    /// Read from a replica that does not lead.
    #[prost(bool, tag = "6")]
    pub read_isr_replica: bool,
    /// Wake the partition if it is paused.
    #[prost(bool, tag = "7")]
    pub resume: bool,
    /// A [`StopPosition`].
    #[prost(enumeration = "StopPosition", tag = "8")]
    pub stop_position: i32,
    /// Inclusive; only with `STOP_OFFSET`.
    #[prost(int64, tag = "9")]
    pub stop_offset: i64,
    /// Inclusive; only with `STOP_TIMESTAMP`.
    #[prost(int64, tag = "10")]
    pub stop_timestamp: i64,
    /// The group member that subscribes; none = a reader of its own.
    #[prost(message, optional, tag = "11")]
    pub consumer: Option<Consumer>,
    /// Towards older messages. The number is what the second version of the API is expected to use.
    #[prost(bool, tag = "12")]
    pub reverse: bool,
    /// Ours: the creation of the partition that is to be read; 0 = the present one.
    #[prost(uint64, tag = "100")]
    pub incarnation: u64,
    /// Ours: only records whose subject matches this filter, `*` and `>` as in NATS; empty = all.
    #[prost(string, tag = "101")]
    pub subject: String,
}

/// A delivery, and the payload of a Publish envelope on NATS. The comments say what counts where.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// Delivery: the offset. Publish: the offset expected.
    #[prost(int64, tag = "1")]
    pub offset: i64,
    /// Both.
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
    /// Value.
    #[prost(bytes = "bytes", tag = "3")]
    pub value: Bytes,
    /// Delivery only: when the broker received it, and where.
    #[prost(int64, tag = "4")]
    pub timestamp: i64,
    /// Stream name.
    #[prost(string, tag = "5")]
    pub stream: String,
    /// Partition number.
    #[prost(int32, tag = "6")]
    pub partition: i32,
    /// NATS subject.
    #[prost(string, tag = "7")]
    pub subject: String,
    /// NATS reply subject; empty = none.
    #[prost(string, tag = "8")]
    pub reply_subject: String,
    /// Both; deliveries have `subject` and `reply` besides the publisher's.
    #[prost(btree_map = "string, bytes", tag = "9")]
    pub headers: BTreeMap<String, Vec<u8>>,
    /// Publish only.
    #[prost(string, tag = "10")]
    pub ack_inbox: String,
    /// Echoed, so that the publisher finds what is answered.
    #[prost(string, tag = "11")]
    pub correlation_id: String,
    /// An [`AckPolicy`].
    #[prost(enumeration = "AckPolicy", tag = "12")]
    pub ack_policy: i32,
    /// Ours, both: whether an empty value is null, a tombstone.
    #[prost(bool, tag = "100")]
    pub null_value: bool,
    /// Ours, both: all headers in order, where the map cannot show everything; empty = `headers` are all.
    #[prost(message, repeated, tag = "101")]
    pub header_list: Vec<super::Header>,
    /// Ours, delivery only: time at the origin.
    #[prost(int64, optional, tag = "102")]
    pub origin_time: Option<i64>,
}
