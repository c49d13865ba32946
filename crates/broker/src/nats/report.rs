//! What the control plane hears of NATS: `nats` events, at most about one of a kind a second, and counters.
use crate::events::Event;
use crate::partition::Partition;
use crate::shared::SharedRef;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;

/// How long drops are gathered before the next event tells of them.
const GATHER: Duration = Duration::from_secs(1);
/// Partitions that one event of drops names at most.
const NAMED: usize = 16;
/// Texts of errors that are remembered so that they are not told again.
const TOLD: usize = 64;

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
    told: Mutex<HashSet<String>>,
}

#[derive(Default)]
struct Drops {
    unreported: u64,
    /// Of them, by partition; those of more than [`NAMED`] partitions are not told apart.
    partitions: BTreeMap<String, u64>,
    gathering: bool,
}

/// What people call a partition.
pub(super) fn partition_name(partition: &Partition) -> String {
    let identity = partition.identity();
    format!("{}/{}", identity.stream, identity.number)
}

impl Reporter {
    pub(super) fn new(shared: SharedRef, runtime: Handle) -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            shared,
            runtime,
            counts,
            drops: Mutex::default(),
            told: Mutex::default(),
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

    /// An error of one connection; the same text is told once until both connections are up again.
    pub(super) fn error(&self, connection: &str, text: String) {
        let mut told = self.told.lock();
        if told.len() >= TOLD {
            told.clear();
        }
        if told.insert(text.clone()) {
            drop(told);
            self.event(Kind::Error, text, &json!({ "connection": connection }));
        }
    }

    /// Forgets the errors so far, so that they are told again when they come again.
    pub(super) fn recovered(&self) {
        self.told.lock().clear();
    }

    /// Counts `messages` that were received and not stored since we are too slow, of a partition when it is known. The first is told at once, those that
    /// follow within a second in one event at its end. Callable on any thread.
    pub(super) fn dropped(
        self: &std::sync::Arc<Self>,
        messages: u64,
        partition: Option<&Partition>,
    ) {
        self.shared.statistics.nats_dropped.add(messages);
        let mut drops = self.drops.lock();
        drops.unreported += messages;
        if let Some(partition) = partition {
            partition.count_nats_dropped(messages);
            let name = partition_name(partition);
            if drops.partitions.len() < NAMED || drops.partitions.contains_key(&name) {
                *drops.partitions.entry(name).or_default() += messages;
            }
        }
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
        let partitions = std::mem::take(&mut drops.partitions);
        let names: Vec<_> = partitions.keys().map(String::as_str).collect();
        let text = format!(
            "{messages} messages from NATS were not stored: they came faster than they could be appended ({})",
            if names.is_empty() {
                "of which stream is not known".to_owned()
            } else {
                names.join(", ")
            }
        );
        let detail = json!({ "dropped": messages, "partitions": partitions });
        self.event(Kind::SlowConsumer, text, &detail);
    }
}
