//! State of the republisher and its queues during one NATS session.
use crate::ingest::nats::{IngestContext, Router};
use std::sync::Arc;

/// Where republished records go: to NATS and to this broker's own subscribers.
pub(crate) struct RepublishContext {
    pub(crate) ingest: Arc<IngestContext>,
    pub(crate) router: Arc<Router>,
    /// Prefix of the subjects on which the server answers probes.
    pub(crate) probe_inbox: String,
}
