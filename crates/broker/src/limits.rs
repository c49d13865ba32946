//! Bounds on what the broker holds at once.
use serde::Deserialize;

/// Bounds, all finite (`specs/formats/seam.md`).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct Limits {
    pub queue_bytes: usize,
    pub queue_records: usize,
    pub inflight_bytes: usize,
    pub subscription_bytes: usize,
    pub delivery_bytes: usize,
    pub connections: usize,
    pub connections_per_address: usize,
    pub handshakes: usize,
    pub handshake_ms: u64,
    pub streams_per_connection: u32,
    pub connection_window_bytes: u32,
    pub calls: usize,
    pub calls_per_identity: usize,
    pub first_message_ms: u64,
    pub health_checks: usize,
    pub health_watches: usize,
    pub request_bytes: usize,
    pub answer_bytes: usize,
    pub cursors: usize,
    pub admin_requests: usize,
    pub admin_requests_per_identity: usize,
    pub admin_request_bytes: usize,
    pub descriptor_reserve: usize,
    pub subscriptions: usize,
    pub message_bytes: usize,
    pub nats_pending_bytes: usize,
    /// Memory for message ids of streams that acknowledge JetStream publishers.
    pub nats_message_id_bytes: usize,
    pub grace_ms: u64,
    /// Dirty segments in one round of syncs from which on the journal is synced in their place; 0 = never.
    pub journal_from_dirty_files: usize,
    /// Segments kept open.
    pub open_segments: usize,
}
impl Default for Limits {
    fn default() -> Self {
        Self {
            queue_bytes: 32 << 20,
            queue_records: 65_536,
            inflight_bytes: 128 << 20,
            subscription_bytes: 1 << 20,
            delivery_bytes: 256 << 20,
            connections: 4096,
            connections_per_address: 1024,
            handshakes: 1024,
            handshake_ms: 5000,
            streams_per_connection: 1024,
            connection_window_bytes: 4 << 20,
            calls: 16_384,
            calls_per_identity: 8192,
            first_message_ms: 10_000,
            health_checks: 256,
            health_watches: 4096,
            request_bytes: 128 << 20,
            answer_bytes: 128 << 20,
            cursors: 100_000,
            admin_requests: 1024,
            admin_requests_per_identity: 512,
            admin_request_bytes: 64 << 20,
            descriptor_reserve: 256,
            subscriptions: 4096,
            message_bytes: 4 << 20,
            nats_pending_bytes: 128 << 20,
            nats_message_id_bytes: 256 << 20,
            grace_ms: 60_000,
            journal_from_dirty_files: 4,
            open_segments: 512,
        }
    }
}
