//! `PublishRequest`, `PublishToSubjectRequest` and enveloped `Message` read in place.
use bytes::Bytes;

/// A `PublishRequest` (§2.2) as slices of the received bytes. Strings are checked UTF-8; unknown fields are skipped; the
/// last of a repeated field wins, as protobuf says.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct PublishView {
    pub key: Bytes,
    pub value: Bytes,
    pub stream: Bytes,
    pub partition: i32,
    /// In wire order; duplicates: the last wins.
    pub headers: Vec<(Bytes, Bytes)>,
    pub ack_inbox: Bytes,
    pub correlation_id: Bytes,
    /// 0 LEADER, 1 ALL, 2 NONE; others as sent.
    pub ack_policy: i32,
    pub expected_offset: i64,
}
impl PublishView {
    /// `None` when the bytes are no valid protobuf of this message. Never panics.
    pub fn read(_message: Bytes) -> Option<Self> {
        todo!()
    }
}
