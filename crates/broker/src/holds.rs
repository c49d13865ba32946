//! Records that queries keep from retention and compaction while they report that they need them (docs/decisions/queries.md).
//!
//! In memory only. Times are of the monotonic clock and handed in: a jump of the time of day neither keeps nor frees a record.
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A query and one of its streams.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueryStream {
    pub query: String,
    pub namespace: String,
    pub stream: String,
}

/// From which offset on a query needs a partition, and until when that counts.
#[derive(Clone, Copy, Debug)]
struct Hold {
    from: u64,
    until: Instant,
}

/// The holds of all queries.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By incarnation of the partition.
    partitions: HashMap<u64, HashMap<Arc<QueryStream>, Hold>>,
    /// The incarnations that each query holds.
    queries: HashMap<Arc<QueryStream>, Vec<u64>>,
    /// Partitions that were led in this run, by incarnation.
    led: HashMap<u64, Led>,
}

/// The last epoch in which a partition was led here.
#[derive(Clone, Copy, Debug)]
struct Led {
    epoch: u64,
    /// When that began, if the log had records then.
    unreported_since: Option<Instant>,
}

impl Holds {
    /// Replaces what a query holds in a stream: for each partition its incarnation and the first offset that is needed.
    ///
    /// `until`: the holds end then, unless they are replaced before.
    pub fn set(
        &self,
        query: &QueryStream,
        needed: impl IntoIterator<Item = (u64, u64)>,
        until: Instant,
    ) {
        let mut state = self.0.lock();
        state.release(query);
        let query = Arc::new(query.clone());
        let mut incarnations = Vec::new();
        for (incarnation, from) in needed {
            let holds = state.partitions.entry(incarnation).or_default();
            holds.insert(query.clone(), Hold { from, until });
            incarnations.push(incarnation);
        }
        if !incarnations.is_empty() {
            state.queries.insert(query, incarnations);
        }
    }

    /// Ends what a query holds in a stream.
    pub fn release(&self, query: &QueryStream) {
        self.0.lock().release(query);
    }

    /// Since when a log, which had records, has been led in an epoch, so that queries may not have reported yet; `None` = the log was
    /// empty then. A partition that is opened again in the same epoch, after a pause, has been led all the time.
    pub fn unreported_since(
        &self,
        incarnation: u64,
        epoch: u64,
        has_records: bool,
        now: Instant,
    ) -> Option<Instant> {
        let mut state = self.0.lock();
        if let Some(led) = state.led.get(&incarnation).filter(|led| led.epoch == epoch) {
            return led.unreported_since;
        }
        let unreported_since = has_records.then_some(now);
        let led = Led {
            epoch,
            unreported_since,
        };
        state.led.insert(incarnation, led);
        unreported_since
    }

    /// Forgets a partition that is deleted. Holds of queries end by themselves.
    pub fn forget(&self, incarnation: u64) {
        self.0.lock().led.remove(&incarnation);
    }

    /// The first offset of a partition that a query needs; `None` = no hold counts any more.
    pub fn from(&self, incarnation: u64, now: Instant) -> Option<u64> {
        let state = self.0.lock();
        let holds = state.partitions.get(&incarnation)?.values();
        let counting = holds.filter(|hold| hold.until > now);
        counting.map(|hold| hold.from).min()
    }

    /// How long the hold of a query in a partition still counts without another report, zero = not any more; `None` = it has none.
    pub fn left(&self, query: &QueryStream, incarnation: u64, now: Instant) -> Option<Duration> {
        let state = self.0.lock();
        let hold = state.partitions.get(&incarnation)?.get(query)?;
        Some(hold.until.saturating_duration_since(now))
    }
}

impl State {
    fn release(&mut self, query: &QueryStream) {
        for incarnation in self.queries.remove(query).unwrap_or_default() {
            if let Some(holds) = self.partitions.get_mut(&incarnation) {
                holds.remove(query);
                if holds.is_empty() {
                    self.partitions.remove(&incarnation);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn query(name: &str) -> QueryStream {
        QueryStream {
            query: name.to_owned(),
            namespace: "default".to_owned(),
            stream: "orders".to_owned(),
        }
    }

    #[test]
    fn the_slowest_query_decides_and_a_report_replaces_the_one_before() {
        let (holds, now) = (Holds::default(), Instant::now());
        holds.set(&query("slow"), [(1, 10), (2, 7)], now + MINUTE);
        holds.set(&query("fast"), [(1, 90)], now + MINUTE);
        assert_eq!(
            (holds.from(1, now), holds.from(2, now)),
            (Some(10), Some(7))
        );
        holds.set(&query("slow"), [(1, 95)], now + MINUTE);
        assert_eq!((holds.from(1, now), holds.from(2, now)), (Some(90), None));
        holds.release(&query("fast"));
        assert_eq!(holds.from(1, now), Some(95));
        holds.release(&query("slow"));
        let state = holds.0.lock();
        assert!(state.partitions.is_empty() && state.queries.is_empty());
    }

    #[test]
    fn a_hold_ends_at_its_time_and_a_report_renews_it() {
        let (holds, now) = (Holds::default(), Instant::now());
        holds.set(&query("q"), [(1, 10)], now + MINUTE);
        let last = now + Duration::from_nanos(59_999_999_999);
        assert_eq!(
            (holds.from(1, last), holds.from(1, now + MINUTE)),
            (Some(10), None)
        );
        assert_eq!(holds.left(&query("q"), 1, now), Some(MINUTE));
        assert_eq!(
            holds.left(&query("q"), 1, now + 2 * MINUTE),
            Some(Duration::ZERO)
        );
        assert_eq!(holds.left(&query("q"), 2, now), None);
        holds.set(&query("q"), [(1, 10)], last + MINUTE);
        assert_eq!(holds.from(1, now + MINUTE), Some(10));
    }

    #[test]
    fn a_log_is_unreported_since_the_first_time_it_was_led_in_an_epoch() {
        let (holds, now) = (Holds::default(), Instant::now());
        let since = |epoch, has_records, now| holds.unreported_since(1, epoch, has_records, now);
        assert_eq!(since(5, true, now), Some(now));
        assert_eq!(since(5, true, now + MINUTE), Some(now), "led again");
        assert_eq!(since(6, true, now + MINUTE), Some(now + MINUTE));
        assert_eq!(since(7, false, now), None);
        assert_eq!(
            since(7, true, now),
            None,
            "it was empty when the epoch began"
        );
        holds.forget(1);
        assert_eq!(since(7, true, now + MINUTE), Some(now + MINUTE));
    }

    #[test]
    fn a_hold_that_has_ended_does_not_hide_a_later_one() {
        let (holds, now) = (Holds::default(), Instant::now());
        holds.set(&query("dead"), [(1, 0)], now + MINUTE);
        holds.set(&query("alive"), [(1, 50)], now + 2 * MINUTE);
        assert_eq!(holds.from(1, now + MINUTE), Some(50));
    }
}
