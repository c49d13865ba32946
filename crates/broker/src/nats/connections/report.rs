//! Reports on NATS for the control plane: `nats` events, at most about one of each kind a second, and counters.
use crate::events::{Event, Events, NatsChange};
use crate::partition::Partition;
use crate::statistics::Statistics;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;

/// Names that one event of messages that are not stored has at most.
const NAMED: usize = 16;
/// Texts of errors that are remembered so that they are not reported again.
const REMEMBERED: usize = 64;

/// Why messages that arrived are not stored, as far as events tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unstored {
    /// They came faster than they could be appended.
    Overload,
    /// The partition does not take them now, or not this one.
    Partition,
    /// The message cannot be stored anywhere.
    Refused,
}

impl Unstored {
    const ALL: [Self; 3] = [Self::Overload, Self::Partition, Self::Refused];

    /// How long they are gathered before the next event reports them. A stream that is paused or full stays so.
    fn period(self) -> Duration {
        match self {
            Self::Overload | Self::Refused => Duration::from_secs(1),
            Self::Partition => Duration::from_mins(1),
        }
    }

    fn kind(self) -> NatsChange {
        match self {
            Self::Overload => NatsChange::SlowConsumer,
            Self::Partition | Self::Refused => NatsChange::Error,
        }
    }

    fn text(self, messages: u64, names: &str) -> String {
        match self {
            Self::Overload => format!(
                "{messages} messages from NATS were not stored: they came faster than they could be appended ({names})"
            ),
            Self::Partition => format!("{messages} messages from NATS were not stored: {names}"),
            Self::Refused => format!("{messages} messages from NATS were refused: {names}"),
        }
    }
}

/// Pushes the events of one session. `number` of an event is how many of its kind there were so far.
pub(crate) struct Reporter {
    pub(crate) statistics: Arc<Statistics>,
    events: Arc<Events>,
    runtime: Handle,
    counts: [AtomicU64; 4],
    unstored: Mutex<[Gathered; Unstored::ALL.len()]>,
    reported: Mutex<HashSet<String>>,
}

#[derive(Default)]
struct Gathered {
    unreported: u64,
    /// Of them, by name; those of more than [`NAMED`] names are counted alone.
    names: BTreeMap<String, u64>,
    gathering: bool,
}

/// The name of a partition for people.
pub(crate) fn partition_name(partition: &Partition) -> String {
    let identity = partition.identity();
    format!("{}/{}", identity.stream, identity.number)
}

impl Reporter {
    pub(crate) fn new(events: Arc<Events>, statistics: Arc<Statistics>, runtime: Handle) -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            statistics,
            events,
            runtime,
            counts,
            unstored: Mutex::default(),
            reported: Mutex::default(),
        }
    }

    /// Pushes an event. `detail` is a JSON object.
    pub(crate) fn event(&self, kind: NatsChange, text: String, detail: serde_json::Value) {
        let count = self
            .counts
            .get(kind as usize)
            .map_or(0, |count| count.fetch_add(1, Ordering::Relaxed) + 1);
        self.events.push(Event::Nats {
            change: kind,
            message: text,
            fields: detail,
            count,
        });
    }

    /// An error of one connection; the same text is reported once until both connections are up again.
    pub(crate) fn error(&self, connection: &str, text: String) {
        let mut reported = self.reported.lock();
        if reported.len() >= REMEMBERED {
            reported.clear();
        }
        if reported.insert(text.clone()) {
            drop(reported);
            self.event(NatsChange::Error, text, json!({ "connection": connection }));
        }
    }

    /// Forgets the errors so far, so that they are reported again when they come again.
    pub(crate) fn recovered(&self) {
        self.reported.lock().clear();
    }

    /// Reports `messages` that were received and are not stored; `name`: of the partition, or what is wrong with the message.
    /// The first is reported at once, those that follow within [`Unstored::period`] in one event at its end. Callable on
    /// any thread.
    pub(crate) fn unstored(self: &Arc<Self>, why: Unstored, messages: u64, name: String) {
        let mut all = self.unstored.lock();
        let Some(gathered) = all.get_mut(why as usize) else {
            return;
        };
        gathered.unreported += messages;
        if gathered.names.len() < NAMED || gathered.names.contains_key(&name) {
            *gathered.names.entry(name).or_default() += messages;
        }
        if !gathered.gathering {
            gathered.gathering = true;
            self.report_unstored(why, gathered);
            let reporter = self.clone();
            self.runtime
                .spawn(async move { reporter.gather(why).await });
        }
    }

    async fn gather(&self, why: Unstored) {
        loop {
            tokio::time::sleep(why.period()).await;
            let mut all = self.unstored.lock();
            let Some(gathered) = all.get_mut(why as usize) else {
                return;
            };
            if gathered.unreported == 0 {
                gathered.gathering = false;
                return;
            }
            self.report_unstored(why, gathered);
        }
    }

    fn report_unstored(&self, why: Unstored, gathered: &mut Gathered) {
        let messages = std::mem::take(&mut gathered.unreported);
        let names = std::mem::take(&mut gathered.names);
        let shown: Vec<_> = names.keys().map(String::as_str).collect();
        let text = why.text(messages, &shown.join(", "));
        let detail = match why {
            Unstored::Overload => json!({ "dropped": messages, "partitions": names }),
            Unstored::Partition => json!({ "not_stored": messages, "partitions": names }),
            Unstored::Refused => json!({ "refused": messages, "messages": names }),
        };
        self.event(why.kind(), text, detail);
    }
}
