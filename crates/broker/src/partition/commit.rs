//! From appended to answered.
use super::{
    AckLevel, AppendError, Committed, Done, IncomingRecord, NatsCopy, Partition, Rejected,
    append_budget::AppendReservation, observer::CommittedAppend,
};
use crate::clock::now_ns;
use bascule_log::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An append whose caller waits. Answers exactly once, always: also when it is dropped, by a caller that gave up, a queue
/// that ended or a task that died.
pub(super) struct AppendReply {
    done: Option<Done>,
    reservation: Option<AppendReservation>,
    /// What a drop means.
    otherwise: AppendError,
    began: Instant,
}

impl AppendReply {
    /// Before it has a reservation. Dropped, it was never taken.
    pub fn new(done: Done) -> Self {
        Self {
            done: Some(done),
            reservation: None,
            otherwise: AppendError::Busy,
            began: Instant::now(),
        }
    }

    /// With its reservation, queued for the task, which may have ended.
    pub fn admitted(mut self, reservation: AppendReservation) -> Self {
        self.reservation = Some(reservation);
        self.otherwise = AppendError::Closed;
        self
    }

    /// How long it has waited at `now`.
    pub fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// From now on a drop means `otherwise`.
    pub fn otherwise(&mut self, otherwise: AppendError) {
        self.otherwise = otherwise;
    }

    pub fn answer(mut self, outcome: Result<Committed, AppendError>) {
        self.answer_first(outcome);
    }

    /// Whether it was answered.
    pub fn is_answered(&self) -> bool {
        self.done.is_none()
    }

    /// Answers. Only the first answer counts.
    pub fn answer_first(&mut self, outcome: Result<Committed, AppendError>) {
        // The reservation first: the caller may append again at once.
        drop(self.reservation.take());
        if let Some(done) = self.done.take() {
            done(outcome);
        }
    }
}

impl Drop for AppendReply {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(Err(self.otherwise.clone()));
        }
    }
}

/// An append that lies in the log and waits for the sync.
pub(super) struct InFlight {
    pub reply: AppendReply,
    /// When it is answered, with several replicas.
    pub ack: AckLevel,
    pub base_offset: u64,
    pub timestamp: i64,
    pub count: u32,
    /// Kept to be republished; empty when they are read from the log, or not republished.
    pub records: Vec<IncomingRecord>,
    pub rejected: Vec<Rejected>,
    pub duplicate: bool,
    /// End of what its answers refer to beyond its own records: originals of duplicates, the last record.
    pub refers_to: u64,
    /// How it is republished.
    pub mode: NatsCopy,
}

impl InFlight {
    /// First offset after it.
    pub fn end(&self) -> u64 {
        self.base_offset + u64::from(self.count)
    }

    /// First offset after everything that has to be in the log before it may be answered.
    pub fn rests_on(&self) -> u64 {
        if self.count == 0 {
            return self.refers_to;
        }
        self.end().max(self.refers_to)
    }

    fn commit(mut self, commit_timestamp: i64) {
        let rejected = std::mem::take(&mut self.rejected);
        self.reply.answer(Ok(Committed {
            base_offset: self.base_offset,
            timestamp: self.timestamp,
            commit_timestamp,
            count: self.count,
            rejected,
            duplicate: self.duplicate,
        }));
    }

    /// Answers that it is committed, as far as its caller waits for it; it is republished later.
    pub fn acknowledge(&mut self, commit_timestamp: i64) {
        self.reply.answer_first(Ok(Committed {
            base_offset: self.base_offset,
            timestamp: self.timestamp,
            commit_timestamp,
            count: self.count,
            rejected: self.rejected.clone(),
            duplicate: self.duplicate,
        }));
    }
}

impl std::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InFlight")
            .field("base_offset", &self.base_offset)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// Answers a group once the log said how its sync went. Runs on the committer's thread.
pub(super) fn settle(
    partition: &Partition,
    outcome: Result<u64, Arc<Error>>,
    group: Vec<InFlight>,
) {
    match outcome {
        Ok(durable_end) => {
            partition.raise_high_watermark(durable_end);
            let mut republished = group.iter().filter_map(CommittedAppend::of);
            partition
                .0
                .context
                .observer
                .on_commit(partition, &mut republished);
            let (now, instant) = (now_ns(), Instant::now());
            let durations = &partition.0.context.statistics.append_duration;
            for append in group {
                durations.record(append.reply.waited(instant));
                append.commit(now);
            }
        }
        Err(error) => {
            partition.fail(&error.to_string());
            for append in group {
                append
                    .reply
                    .answer(Err(AppendError::Storage(error.to_string())));
            }
        }
    }
}
