//! The links of one partition: a turn of each epoch after the other, reports, pauses.
use super::super::{Partition, PartitionContext};
use super::attempt::{Attempt, Ended, Turn};
use crate::events::PartitionChange;
use crate::stage::Sink;
use crate::statistics::Statistics;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pauses of a link that waits: the first one, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Between two reports of one link.
const REPORTS: Duration = Duration::from_secs(2);

/// A published epoch: id of the sink's record, and the ordinal.
type Key = (u64, u32);

/// How far a link is.
enum State {
    Waiting(Waiting),
    Linked {
        base_offset: u64,
        reported: Option<Instant>,
    },
}

/// A link that is not done, counted as such until it is dropped.
struct Waiting {
    statistics: Arc<Statistics>,
    /// `None` = nothing is known of what is in the log.
    attempt: Option<Box<Attempt>>,
    pause: Duration,
    /// When its next turn is due.
    due: Instant,
    /// Why it waits, as reported.
    reason: String,
}

impl Waiting {
    fn new(statistics: &Arc<Statistics>) -> Self {
        statistics.links_waiting.add(1);
        Self {
            statistics: statistics.clone(),
            attempt: None,
            pause: FIRST_PAUSE,
            due: Instant::now(),
            reason: String::new(),
        }
    }

    /// Puts the next turn off.
    fn delay(&mut self) {
        self.due = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.statistics.links_waiting.sub(1);
    }
}

/// Links what the table has for the partition, and reports it until the table shows it. Returns when the table has nothing for
/// it any more, and when it closes.
pub(super) async fn follow(context: Arc<PartitionContext>, partition: Partition) {
    let incarnation = partition.identity().incarnation;
    let mut version = context.stage.watch();
    let mut states: HashMap<Key, State> = HashMap::new();
    // Version of the table that the log is held by.
    let mut held = None;
    loop {
        version.borrow_and_update();
        let table = context.stage.table();
        let sinks: Vec<(Arc<Sink>, u32)> = table
            .decided(incarnation)
            .map(|(sink, link, _)| (sink.clone(), link.ordinal))
            .collect();
        states.retain(|key, _| {
            sinks
                .iter()
                .any(|(sink, ordinal)| (sink.id, *ordinal) == *key)
        });
        if held.replace(table.version()) != Some(table.version()) {
            partition.release_linked();
        }
        if sinks.is_empty() {
            return;
        }
        for (sink, ordinal) in sinks {
            let state = states
                .entry((sink.id, ordinal))
                .or_insert_with(|| State::Waiting(Waiting::new(&context.statistics)));
            if !advance(&context, &partition, sink, ordinal, state).await {
                return;
            }
        }
        let next = states.values().map(State::due).min();
        let next = next.unwrap_or_else(|| Instant::now() + LONGEST_PAUSE);
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            // The context has the sender.
            _ = version.changed() => {}
            () = closed(&partition) => return,
        }
    }
}

/// When the partition has closed.
async fn closed(partition: &Partition) {
    let mut watch = partition.watch();
    while watch.changed().await.is_ok() {}
}

impl State {
    /// When it wants attention.
    fn due(&self) -> Instant {
        match self {
            Self::Waiting(waiting) => waiting.due,
            Self::Linked { reported, .. } => {
                reported.map_or_else(Instant::now, |reported| reported + REPORTS)
            }
        }
    }
}

/// Does what is due of one link; `false` = the partition has closed.
async fn advance(
    context: &Arc<PartitionContext>,
    partition: &Partition,
    sink: Arc<Sink>,
    ordinal: u32,
    state: &mut State,
) -> bool {
    if state.due() > Instant::now() {
        return true;
    }
    if let State::Waiting(waiting) = state {
        match turn(context, partition, sink.clone(), waiting).await {
            // More to link stays due: the next turn comes after one of each other link of the partition. After a change the table
            // is asked next.
            Ok(Turn::More) | Err(Ended::Changed) => return true,
            Ok(Turn::Linked(base_offset)) => {
                *state = State::Linked {
                    base_offset,
                    reported: None,
                };
            }
            Err(Ended::Closed) => return false,
            Err(Ended::Blocked(reason)) => {
                waiting.delay();
                if waiting.reason != reason {
                    let fields = json!({"sink": sink.id, "ordinal": ordinal});
                    partition.report_with(PartitionChange::LinkBlocked, &reason, fields);
                    waiting.reason = reason;
                }
            }
        }
    }
    if let State::Linked {
        base_offset,
        reported,
    } = state
    {
        let fields = json!({"sink": sink.id, "ordinal": ordinal, "base_offset": *base_offset});
        let text = format!("publish {ordinal} of sink {} is linked", sink.name);
        partition.report_with(PartitionChange::Linked, &text, fields);
        *reported = Some(Instant::now());
    }
    true
}

/// One turn, on a thread that may wait. Permits are given in the order in which they are asked for: a link of many turns asks for
/// each behind the other links that wait.
async fn turn(
    context: &Arc<PartitionContext>,
    partition: &Partition,
    sink: Arc<Sink>,
    waiting: &mut Waiting,
) -> Result<Turn, Ended> {
    // The semaphore is never closed.
    let _permit = context.links.permits.acquire().await;
    let known = waiting.attempt.take();
    let mut attempt =
        known.unwrap_or_else(|| Box::new(Attempt::new(context.clone(), partition.clone())));
    let done = tokio::task::spawn_blocking(move || {
        let outcome = attempt.turn(&sink);
        (outcome, attempt)
    });
    match done.await {
        Ok((outcome, attempt)) => {
            waiting.attempt = Some(attempt);
            outcome
        }
        // It panicked, or the runtime ends.
        Err(error) => Err(Ended::Blocked(format!("the link failed: {error}"))),
    }
}
