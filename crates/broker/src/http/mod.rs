//! The operator's listener: probes and metrics over HTTP/1.1, answered by the data plane alone, so that they are answered
//! while the control plane is busy.
//!
//! * [`listener`]: connections and their bounds. [`respond`]: paths and what they answer.
//!
//! Everything is read only. One request a connection; what a client sends beyond it is not read.
mod listener;
mod respond;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use listener::{bounded, listen};
pub(crate) use respond::{OPEN_METRICS, Reply, TEXT, reply};

use crate::metrics::MetricsContext;
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Answers of `/metrics` that exist at once: with many partitions each is megabytes.
const RENDERS: usize = 2;

/// `Engine.serve_http`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSettings {
    /// `/metrics` has the series of every partition.
    pub partitions: bool,
    /// `/metrics` has the lag of every consumer group in every stream.
    pub groups: bool,
}

/// The source of answers.
#[derive(Debug)]
struct Site {
    context: Arc<MetricsContext>,
    settings: HttpSettings,
    renders: Arc<Semaphore>,
}
