//! A follower of one partition: fetches, appends what fits, finds where its history branches, truncates.
//!
//! It never truncates below its high watermark without a recorded loss or a report (rule 2), and never by the high
//! watermark. It appends only a batch that begins at its log end with the link of its last batch (rule 3).
//! replication §3.3 has the steps as pseudo code.
use crate::leader::{Outcome, REPEAT_MS};
use crate::types::{BrokerId, Config, EpochEnd, Instant64, Position};
use bascule_record::planted_bug::{self, PlantedBug};
use smallvec::SmallVec;

/// The first wait before a fetch is sent again; it doubles up to [`RETRY_MAX_MS`].
pub const RETRY_MS: u64 = 50;
/// The longest wait before a fetch is sent again.
pub const RETRY_MAX_MS: u64 = 1_000;

/// The actions of one step, in the order in which they have to happen.
pub type Actions = SmallVec<[Action; 2]>;

/// What a follower does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Its next fetch is compared.
    Verifying,
    /// Its history was a prefix of the leader's; batches follow.
    Fetching,
    /// The log is being truncated or reset.
    Cutting,
    /// It reported the leader, and waits for a newer leader epoch or the refusal.
    ReportedLeader {
        /// Where it would have to truncate.
        to: u64,
    },
    /// It reported itself as unclean, and truncates once that is applied.
    ReportedSelf {
        /// Where it will truncate.
        to: u64,
    },
    /// The leader broke the protocol, or an entry ended the role.
    Ended,
}

/// A batch of an answer: its header. The caller has compared the checksum of header and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    /// First offset.
    pub base: u64,
    /// Offset after the last record; above `base`.
    pub end: u64,
    /// Leader epoch.
    pub epoch: u64,
    /// Link of the batch before.
    pub chain: u32,
    /// Its own link.
    pub link: u32,
}

/// What the follower's log holds, looked up in the same turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Own {
    /// Its end.
    pub position: Position,
    /// Base offset of its last batch; its end if it holds none.
    pub last_batch: u64,
    /// For [`Outcome::Diverged`]: the last own epoch ≤ the one named, and its end.
    pub epoch_end: Option<EpochEnd>,
}

/// An answer of the leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The leader epoch of the answer.
    pub leader_epoch: u64,
    /// The try that it answers. One fetch is outstanding, and a connection keeps the order: a try ends with its connection.
    pub attempt: u64,
    /// What the leader found.
    pub outcome: Outcome,
    /// The batches behind the answer.
    pub batches: Vec<Batch>,
}

/// What happens to a follower.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// An applied entry concerns the partition. An older one than that known is ignored.
    Role(Config),
    /// The broker's lease lasts until then (exclusive).
    Lease(Instant64),
    /// An answer arrived.
    Answered(Answer, Own),
    /// The connection to the leader ended.
    Disconnected,
    /// The truncation or the reset is complete and synced. The high watermark is at most this.
    Cut {
        /// The log end now.
        end: u64,
    },
    /// The log is synced up to a higher end.
    Durable,
    /// The controller refused the report of the leader.
    ReportRefused,
    /// Time passes.
    Tick,
}

/// What the caller has to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send a fetch of this try with the present position.
    Fetch {
        /// Names the try.
        attempt: u64,
    },
    /// Send the present ends without waiting for records; joined with one that is not sent yet.
    Progress,
    /// Append the first so many batches of the answer, as they are.
    Append {
        /// At least 1.
        batches: usize,
    },
    /// The high watermark is now this (exclusive).
    RaiseHighWatermark(u64),
    /// Follow the leader's log start; never past the high watermark.
    FollowStart(u64),
    /// Truncate, then report [`Event::Cut`].
    Truncate {
        /// A batch boundary.
        to: u64,
        /// Copy the tail first: it may hold committed records.
        keep: bool,
    },
    /// Empty the log and begin at the start, then report [`Event::Cut`].
    Reset {
        /// Where to begin.
        start: u64,
        /// Keep the old files: they may hold committed records.
        keep: bool,
    },
    /// Skip a range that is a recorded loss, then report [`Event::Cut`].
    Skip {
        /// The new log end.
        to: u64,
    },
    /// Send to the controller: this leader lacks what was committed.
    ReportLeader {
        /// The leader epoch reported.
        leader_epoch: u64,
        /// What this replica knows to be committed (exclusive).
        high_watermark: u64,
    },
    /// Send to the controller: this replica may lack what was counted of it.
    ReportSelfUnclean,
    /// End the connection: the leader broke the protocol.
    Disconnect,
}

/// A follower in one leader epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Follower {
    id: BrokerId,
    config: Config,
    phase: Phase,
    high_watermark: u64,
    /// The high watermark was learned from a leader in this run, not read from a checkpoint.
    learned: bool,
    lease: Instant64,
    attempt: u64,
    sent: Option<Instant64>,
    retry_at: Instant64,
    retries: u32,
    reads_until: Instant64,
    replicated_to: u64,
    reported: Option<Instant64>,
}

impl Follower {
    /// A follower that begins to verify. `high_watermark` is at most the log end. `learned`: it comes from a leader of this
    /// run of the broker.
    pub fn new(
        id: BrokerId,
        config: Config,
        high_watermark: u64,
        learned: bool,
        lease: Instant64,
    ) -> Self {
        Self {
            id,
            config,
            phase: Phase::Verifying,
            high_watermark,
            learned,
            lease,
            attempt: 1,
            sent: None,
            retry_at: Instant64::default(),
            retries: 0,
            reads_until: Instant64::default(),
            replicated_to: 0,
            reported: None,
        }
    }

    /// End (exclusive) of what every replica has durably, as the leader said in this leader epoch; 0 = not known.
    pub fn replicated_to(&self) -> u64 {
        self.replicated_to
    }

    /// What the follower does now.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The leader epoch that it follows.
    pub fn leader_epoch(&self) -> u64 {
        self.config.leader_epoch
    }

    /// What it knows to be committed (exclusive).
    pub fn high_watermark(&self) -> u64 {
        self.high_watermark
    }

    /// The try whose answers count.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Whether the high watermark was learned from a leader in this run.
    pub fn has_learned(&self) -> bool {
        self.learned
    }

    /// Whether it may serve reads below its high watermark: in the ISR, fetching, and within its leader's lease (N58).
    pub fn may_read(&self, now: Instant64) -> bool {
        now < self.reads_until()
    }

    /// Until when it may serve reads (exclusive), unless an event comes before; 0 = not now.
    pub fn reads_until(&self) -> Instant64 {
        let may = self.phase == Phase::Fetching && self.config.isr.contains(&self.id);
        if may {
            self.reads_until
        } else {
            Instant64::default()
        }
    }

    /// Takes one event.
    pub fn step(&mut self, event: Event, now: Instant64) -> Actions {
        let mut out = Actions::new();
        match event {
            Event::Role(config) => self.role(config, &mut out),
            Event::Lease(until) => self.lease = self.lease.max(until),
            Event::Answered(answer, own) => self.answered(&answer, &own, now, &mut out),
            Event::Disconnected => self.verify_again(),
            Event::Cut { end } if self.phase == Phase::Cutting => {
                self.high_watermark = self.high_watermark.min(end);
                self.phase = Phase::Verifying;
            }
            Event::Durable if self.fetches() && now < self.lease => out.push(Action::Progress),
            Event::ReportRefused => {
                if let Phase::ReportedLeader { to } = self.phase {
                    self.phase = Phase::ReportedSelf { to };
                    self.reported = None;
                }
            }
            Event::Cut { .. } | Event::Durable | Event::Tick => {}
        }
        self.report(now, &mut out);
        self.maybe_fetch(now, &mut out);
        out
    }

    fn fetches(&self) -> bool {
        matches!(self.phase, Phase::Verifying | Phase::Fetching)
    }

    fn maybe_fetch(&mut self, now: Instant64, out: &mut Actions) {
        if self.fetches() && self.sent.is_none() && now >= self.retry_at && now < self.lease {
            self.sent = Some(now);
            out.push(Action::Fetch {
                attempt: self.attempt,
            });
        }
    }

    fn role(&mut self, new: Config, out: &mut Actions) {
        let known = (self.config.leader_epoch, self.config.partition_epoch);
        if (new.leader_epoch, new.partition_epoch) <= known {
            return;
        }
        let same_leader =
            (new.leader, new.leader_epoch) == (self.config.leader, self.config.leader_epoch);
        self.config = new;
        if !same_leader {
            // A newer leader epoch needs a new follower or leader; this one takes no answer any more.
            (self.phase, self.sent) = (Phase::Ended, None);
        } else if let Phase::ReportedSelf { to } = self.phase
            && self.config.is_unclean(self.id)
        {
            self.cut_and_keep(to, out);
        }
    }

    fn verify_again(&mut self) {
        self.sent = None;
        self.attempt = self.attempt.saturating_add(1);
        if self.phase == Phase::Fetching {
            self.phase = Phase::Verifying;
        }
    }

    fn answered(&mut self, answer: &Answer, own: &Own, now: Instant64, out: &mut Actions) {
        let unchecked = planted_bug::is_active(PlantedBug::FetchEpochIgnored);
        let Some(sent) = self.sent.filter(|_| answer.attempt == self.attempt) else {
            return;
        };
        if answer.leader_epoch != self.config.leader_epoch && !unchecked {
            return;
        }
        self.sent = None;
        self.retries = if matches!(answer.outcome, Outcome::Ok { .. }) {
            0
        } else {
            self.retries
        };
        match answer.outcome {
            Outcome::Ok {
                high_watermark,
                lease_ms,
                log_start,
                replicated_to,
                ..
            } => {
                self.replicated_to = replicated_to;
                self.reads_until = sent.plus(lease_ms);
                if self.truncates_blindly(own) {
                    self.phase = Phase::Cutting;
                    out.push(Action::Truncate {
                        to: self.high_watermark,
                        keep: false,
                    });
                    return;
                }
                self.take(answer, own, high_watermark, out);
                if log_start > 0 {
                    out.push(Action::FollowStart(log_start.min(self.high_watermark)));
                }
            }
            Outcome::Diverged { end, .. } => {
                self.cut(own.epoch_end.map_or(0, |own| own.end).min(end), own, out);
            }
            Outcome::StepBack => self.cut(own.last_batch, own, out),
            Outcome::Reset { start } if start > own.position.end => {
                self.phase = Phase::Cutting;
                out.push(Action::Reset { start, keep: false });
            }
            Outcome::Damaged { start, end } if start == own.position.end && end > start => {
                self.skip(start, end, now, out);
            }
            Outcome::Reset { .. } | Outcome::Damaged { .. } | Outcome::Invalid => {
                self.wait(now);
                out.push(Action::Disconnect);
            }
            Outcome::WrongEpoch { .. } | Outcome::Busy { .. } => self.wait(now),
        }
    }

    fn wait(&mut self, now: Instant64) {
        self.retry_at = now.plus(
            RETRY_MS
                .checked_shl(self.retries)
                .unwrap_or(RETRY_MAX_MS)
                .min(RETRY_MAX_MS),
        );
        self.retries = self.retries.saturating_add(1).min(16);
    }

    /// Appends the batches that continue the own log, and follows the leader's high watermark.
    fn take(&mut self, answer: &Answer, own: &Own, high_watermark: u64, out: &mut Actions) {
        let (fitting, position) = fitting(&answer.batches, own.position, self.config.leader_epoch);
        self.phase = if fitting == answer.batches.len() {
            Phase::Fetching
        } else {
            Phase::Verifying
        };
        if fitting > 0 {
            out.push(Action::Append { batches: fitting });
        }
        let known = high_watermark.min(position.end);
        if known > self.high_watermark {
            self.high_watermark = known;
            out.push(Action::RaiseHighWatermark(known));
        }
        self.learned = true;
    }

    fn truncates_blindly(&self, own: &Own) -> bool {
        let planted = planted_bug::is_active(PlantedBug::TruncationToHighWatermark);
        planted && self.phase == Phase::Verifying && own.position.end > self.high_watermark
    }

    fn skip(&mut self, start: u64, end: u64, now: Instant64, out: &mut Actions) {
        if self.config.losses.iter().any(|loss| loss.start == start) {
            self.phase = Phase::Cutting;
            out.push(Action::Skip { to: end });
        } else {
            self.wait(now);
        }
    }

    /// Truncates to `to`, or finds why that must not be.
    fn cut(&mut self, to: u64, own: &Own, out: &mut Actions) {
        let recorded = |loss: &crate::types::Loss| {
            loss.epoch > own.position.epoch && loss.start <= self.high_watermark
        };
        let trusted = self.config.eligible.contains(&self.id) && !self.config.is_unclean(self.id);
        if to >= self.high_watermark {
            self.phase = Phase::Cutting;
            out.push(Action::Truncate { to, keep: false });
        } else if self.config.losses.iter().any(recorded) || self.config.is_unclean(self.id) {
            self.cut_and_keep(to, out);
        } else if self.learned && trusted {
            (self.phase, self.reported) = (Phase::ReportedLeader { to }, None);
        } else {
            (self.phase, self.reported) = (Phase::ReportedSelf { to }, None);
        }
    }

    /// Sends a report, and repeats it until an entry settles it (N37).
    fn report(&mut self, now: Instant64, out: &mut Actions) {
        if self
            .reported
            .is_some_and(|sent| now.since(sent) < REPEAT_MS)
        {
            return;
        }
        match self.phase {
            Phase::ReportedLeader { .. } => {
                let (leader_epoch, high_watermark) =
                    (self.config.leader_epoch, self.high_watermark);
                out.push(Action::ReportLeader {
                    leader_epoch,
                    high_watermark,
                });
            }
            Phase::ReportedSelf { .. } => out.push(Action::ReportSelfUnclean),
            _ => return,
        }
        self.reported = Some(now);
    }

    /// A stream that is or was compacted begins again: what it lacks below `to` may stand above it (W33).
    fn cut_and_keep(&mut self, to: u64, out: &mut Actions) {
        self.phase = Phase::Cutting;
        out.push(if self.config.compacted {
            Action::Reset {
                start: 0,
                keep: true,
            }
        } else {
            Action::Truncate { to, keep: true }
        });
    }
}

/// How many batches continue a log that ends at `position`, and where it ends then. Epochs never decrease, and none is
/// above `leader_epoch`.
pub fn fitting(batches: &[Batch], mut position: Position, leader_epoch: u64) -> (usize, Position) {
    for (index, batch) in batches.iter().enumerate() {
        let chained =
            batch.chain == position.link && (position.epoch..=leader_epoch).contains(&batch.epoch);
        let chained = chained || planted_bug::is_active(PlantedBug::FetchEpochIgnored);
        if batch.base != position.end || batch.end <= batch.base || !chained {
            return (index, position);
        }
        position = Position {
            epoch: batch.epoch,
            end: batch.end,
            link: batch.link,
        };
    }
    (batches.len(), position)
}
