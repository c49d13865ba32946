//! Cursors.
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
