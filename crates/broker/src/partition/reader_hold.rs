//! What retention and compaction keep for queries.
use super::PartitionSpec;
use super::writer::Writer;
use crate::holds::Holds;
use bascule_log::ReaderHold;
use std::time::{Duration, Instant};

impl Writer {
    /// What queries need of the log at a monotonic time; `None` = nothing, or the stream lets them hold nothing.
    pub(super) fn reader_hold(&self, now: Instant) -> Option<ReaderHold> {
        reader_hold(
            &self.spec,
            &self.partition.0.context.holds,
            self.unreported_since,
            now,
        )
    }

    /// The log is led in `epoch`. Holds are not stored, so all of its records count as held until queries had time to report.
    pub(super) fn expect_reports(&mut self, epoch: u64, now: Instant) {
        let has_records = self.partition.0.reader.log_end() > 0;
        let holds = &self.partition.0.context.holds;
        let incarnation = self.spec.incarnation;
        self.unreported_since = holds.unreported_since(incarnation, epoch, has_records, now);
    }
}

/// `unreported_since`: when the log, which had records, began to be led.
fn reader_hold(
    spec: &PartitionSpec,
    holds: &Holds,
    unreported_since: Option<Instant>,
    now: Instant,
) -> Option<ReaderHold> {
    if spec.hold_bytes == 0 {
        return None;
    }
    let reported = holds.from(spec.incarnation, now);
    let expiry = Duration::from_millis(spec.hold_ms.into());
    let is_awaited =
        unreported_since.is_some_and(|since| now.saturating_duration_since(since) < expiry);
    let from = if is_awaited { Some(0) } else { reported };
    from.map(|from| ReaderHold {
        from,
        unread_from: reported.unwrap_or(u64::MAX),
        max_bytes: spec.hold_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holds::QueryStream;
    use crate::partition::tests::spec;

    const MINUTE: Duration = Duration::from_mins(1);

    fn holding(hold_bytes: u64) -> PartitionSpec {
        PartitionSpec {
            hold_bytes,
            hold_ms: 60_000,
            ..spec()
        }
    }

    fn held(from: u64, unread_from: u64) -> ReaderHold {
        ReaderHold {
            from,
            unread_from,
            max_bytes: 1000,
        }
    }

    fn query() -> QueryStream {
        QueryStream {
            query: "q".to_owned(),
            namespace: "default".to_owned(),
            stream: "orders".to_owned(),
        }
    }

    #[test]
    fn a_hold_counts_until_it_expires_and_only_where_the_stream_lets_it() {
        let (spec, holds, now) = (holding(1000), Holds::default(), Instant::now());
        assert_eq!(reader_hold(&spec, &holds, None, now), None);
        holds.set(&query(), [(spec.incarnation, 7)], now + MINUTE);
        assert_eq!(reader_hold(&spec, &holds, None, now), Some(held(7, 7)));
        assert_eq!(reader_hold(&holding(0), &holds, None, now), None);
        assert_eq!(reader_hold(&spec, &holds, None, now + MINUTE), None);
    }

    #[test]
    fn a_log_that_begins_to_be_led_is_held_until_queries_had_time_to_report() {
        let (spec, holds, now) = (holding(1000), Holds::default(), Instant::now());
        assert_eq!(
            reader_hold(&spec, &holds, Some(now), now),
            Some(held(0, u64::MAX))
        );
        holds.set(&query(), [(spec.incarnation, 7)], now + 2 * MINUTE);
        let last = now + Duration::from_nanos(59_999_999_999);
        assert_eq!(
            reader_hold(&spec, &holds, Some(now), last),
            Some(held(0, 7))
        );
        assert_eq!(
            reader_hold(&spec, &holds, Some(now), now + MINUTE),
            Some(held(7, 7))
        );
        assert_eq!(reader_hold(&holding(0), &holds, Some(now), now), None);
    }
}
