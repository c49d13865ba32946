//! Notices when the control plane's event loop does not run, and does what cannot wait for it.
//!
//! The loop beats about once a second. A thread of this side looks at it: after `limit_ms` without a beat it writes a line
//! to standard error by itself, with the stack that the interpreter was asked for, and the health of `bascule.admin` is
//! `NOT_SERVING` until the next beat. Data is served all the while. A signal that asks to stop is handled here when the
//! loop does not run: partitions and metadata are closed cleanly, and the process ends.
mod line;
mod thread;

pub use thread::{Descriptors, Stop, Watchdog};

use serde::Deserialize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What `Engine.watch` takes (`specs/formats/seam.md`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchSettings {
    /// Without a beat for so long the loop counts as blocked.
    pub limit_ms: u64,
    /// How lines on standard error look; none = they wait for the control plane, as all others.
    pub log: Option<LogStyle>,
    /// The process is the broker's: its signals are, too, and the interpreter answers SIGUSR2 with a stack.
    pub owns_process: bool,
    /// How long calls may end by themselves when this side stops the broker.
    pub drain_ms: u64,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum LogStyle {
    /// One JSON object.
    Json,
    /// For people.
    Text,
}

/// The state of the control plane's event loop, as this side sees it.
#[derive(Debug)]
pub struct EventLoop {
    origin: Instant,
    beat_ms: AtomicU64,
    blocked: AtomicBool,
}

impl Default for EventLoop {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            beat_ms: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
        }
    }
}

impl EventLoop {
    /// The loop runs.
    pub fn beat(&self) {
        let now = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.beat_ms.store(now, Ordering::Release);
    }

    /// Whether it has not run for longer than the limit.
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire)
    }

    fn set_blocked(&self, blocked: bool) {
        self.blocked.store(blocked, Ordering::Release);
    }

    fn last_beat(&self) -> Instant {
        self.origin + Duration::from_millis(self.beat_ms.load(Ordering::Acquire))
    }
}
