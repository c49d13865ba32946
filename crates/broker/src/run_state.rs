//! Where the broker is in its run, for probes.
use crate::clock::now_ns;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where the broker is in its run.
#[derive(Debug)]
pub(crate) struct RunState {
    /// When the data plane was started, ns since 1970.
    pub(crate) began_ns: i64,
    /// Whether the metadata log is open.
    metadata: AtomicBool,
    /// Whether health checks succeed; `false` = draining or not ready yet.
    serving: AtomicBool,
    /// Set when it served for the first time: a broker that does not serve after that is stopping.
    served: AtomicBool,
    /// The current step of the start.
    stage: ArcSwap<String>,
    /// Whether the broker is not ready without NATS.
    needs_nats: AtomicBool,
}

impl Default for RunState {
    fn default() -> Self {
        Self {
            began_ns: now_ns(),
            metadata: AtomicBool::new(false),
            serving: AtomicBool::new(false),
            served: AtomicBool::new(false),
            stage: ArcSwap::from_pointee("opening the data directory".to_owned()),
            needs_nats: AtomicBool::new(false),
        }
    }
}

impl RunState {
    /// Says what the start is doing from now on.
    pub(crate) fn set_stage(&self, stage: &str) {
        self.stage.store(Arc::new(stage.to_owned()));
    }

    /// The metadata log is open from now on.
    pub(crate) fn set_metadata_open(&self) {
        self.metadata.store(true, Ordering::Relaxed);
    }

    /// Calls are accepted from now on, or refused. The first time that they are accepted ends the start.
    pub(crate) fn set_serving(&self, serving: bool) {
        self.serving.store(serving, Ordering::Release);
        if serving {
            self.served.store(true, Ordering::Release);
        }
    }

    /// Whether calls are accepted.
    pub(crate) fn is_serving(&self) -> bool {
        self.serving.load(Ordering::Acquire)
    }

    /// From now on the broker is ready only while NATS is connected.
    pub(crate) fn set_needs_nats(&self) {
        self.needs_nats.store(true, Ordering::Relaxed);
    }

    /// Whether the start is over.
    pub(crate) fn has_served(&self) -> bool {
        self.served.load(Ordering::Acquire)
    }

    /// The current step of the start.
    pub(crate) fn stage(&self) -> String {
        self.stage.load().to_string()
    }

    /// Whether the metadata log is open.
    pub(crate) fn is_metadata_open(&self) -> bool {
        self.metadata.load(Ordering::Relaxed)
    }

    /// Whether the broker is not ready without NATS.
    pub(crate) fn needs_nats(&self) -> bool {
        self.needs_nats.load(Ordering::Relaxed)
    }
}
