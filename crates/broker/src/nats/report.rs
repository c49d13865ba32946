//! What the control plane hears of NATS: `nats` events, at most about one of a kind a second, and counters.
use crate::events::Event;
use crate::shared::SharedRef;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;

/// How long drops are gathered before the next event tells of them.
const GATHER: Duration = Duration::from_secs(1);

/// What an event is about; its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Connected,
    Disconnected,
    SlowConsumer,
    Error,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
            Self::SlowConsumer => "slow_consumer",
            Self::Error => "error",
        }
    }
}

/// Pushes the events of one session. `number` of an event is how many of its kind there were so far.
pub(super) struct Reporter {
    pub(super) shared: SharedRef,
    runtime: Handle,
    counts: [AtomicU64; 4],
    drops: Mutex<Drops>,
    last_error: Mutex<Option<String>>,
}

#[derive(Default)]
struct Drops {
    unreported: u64,
    gathering: bool,
}

impl Reporter {
    pub(super) fn new(shared: SharedRef, runtime: Handle) -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            shared,
            runtime,
            counts,
            drops: Mutex::default(),
            last_error: Mutex::default(),
        }
    }

    /// Pushes an event. `detail` is a JSON object.
    pub(super) fn event(&self, kind: Kind, text: String, detail: &serde_json::Value) {
        let count = self
            .counts
            .get(kind as usize)
            .map_or(0, |count| count.fetch_add(1, Ordering::Relaxed) + 1);
        self.shared.events.push(Event {
            kind: "nats",
            id: 0,
            name: kind.name().to_owned(),
            body: detail.to_string().into(),
            text,
            number: i64::try_from(count).unwrap_or(i64::MAX),
        });
    }

    /// An error of one connection; the same text twice in a row is told once.
    pub(super) fn error(&self, connection: &str, text: String) {
        let mut last = self.last_error.lock();
        if last.as_deref() != Some(text.as_str()) {
            *last = Some(text.clone());
            drop(last);
            self.event(Kind::Error, text, &json!({ "connection": connection }));
        }
    }

    /// Forgets the last error, so that it is told again when it comes again.
    pub(super) fn recovered(&self) {
        *self.last_error.lock() = None;
    }

    /// Counts `messages` that were received and not stored since we are too slow. The first is told at once, those that
    /// follow within a second in one event at its end. Callable on any thread.
    pub(super) fn dropped(self: &std::sync::Arc<Self>, messages: u64) {
        self.shared.statistics.nats_dropped.add(messages);
        let mut drops = self.drops.lock();
        drops.unreported += messages;
        if !drops.gathering {
            drops.gathering = true;
            self.tell_drops(&mut drops);
            let reporter = self.clone();
            self.runtime
                .spawn(async move { reporter.gather_drops().await });
        }
    }

    async fn gather_drops(&self) {
        loop {
            tokio::time::sleep(GATHER).await;
            let mut drops = self.drops.lock();
            if drops.unreported == 0 {
                drops.gathering = false;
                return;
            }
            self.tell_drops(&mut drops);
        }
    }

    fn tell_drops(&self, drops: &mut Drops) {
        let messages = std::mem::take(&mut drops.unreported);
        let text = format!(
            "{messages} messages from NATS were not stored: they came faster than they could be appended"
        );
        self.event(Kind::SlowConsumer, text, &json!({ "dropped": messages }));
    }
}
