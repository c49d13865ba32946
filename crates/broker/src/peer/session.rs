//! Fetches of one follower over one connection (`specs/formats/peer.md`).
//!
//! One request at a time expects an answer. It is sent as soon as one slot has something to say, and after a while in any case; a
//! slot that waits for records holds up itself only, and is part of a later answer.
use super::connection::PeerError;
use crate::partition::PartitionContext;
use crate::partition::replica::{FetchMessage, FetchReply, ReplicaMessage, ReplyBody};
use bascule_log::{ReadMode, ReplicaCursor};
use bascule_replica::leader::{Fetch as Report, Outcome};
use bascule_replica::session::{Frame as SessionFrame, Server};
use bascule_replica::types::{BrokerId, Position};
use bascule_wire::peer::{Fetch, FetchAnswer, Frame, FrameType, Slot, SlotAnswer, SlotOutcome};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Batches of one slot in an answer, bytes; one batch is sent whatever its size.
const TURN_BYTES: usize = 1 << 20;
/// Slots of one session.
const SLOTS: usize = 1 << 16;

/// Sessions that were opened in this run.
static SESSIONS: AtomicU64 = AtomicU64::new(0);

/// The leader's end of the sessions of one connection.
pub(super) struct FetchSession {
    context: Arc<PartitionContext>,
    from: u64,
    server: Server<Slot>,
    replies: (
        mpsc::UnboundedSender<FetchReply>,
        mpsc::UnboundedReceiver<FetchReply>,
    ),
    ready: VecDeque<FetchReply>,
    asked: Option<Asked>,
    /// By slot: where the last answer ended.
    cursors: HashMap<u32, ReplicaCursor>,
}

/// A request without its answer.
struct Asked {
    request: u64,
    session: u64,
    due: Instant,
    max_bytes: usize,
}

impl FetchSession {
    /// For the follower with this number.
    pub fn new(context: Arc<PartitionContext>, from: u64) -> Self {
        Self {
            context,
            from,
            server: Server::default(),
            replies: mpsc::unbounded_channel(),
            ready: VecDeque::new(),
            asked: None,
            cursors: HashMap::new(),
        }
    }

    /// Takes requests until the connection ends; answers go to `answers`.
    ///
    /// # Errors
    /// A frame that breaks the protocol.
    pub async fn run(
        mut self,
        mut frames: mpsc::Receiver<Frame>,
        answers: mpsc::Sender<Vec<u8>>,
    ) -> Result<(), PeerError> {
        loop {
            let due = self.asked.as_ref().map(|asked| asked.due);
            tokio::select! {
                frame = frames.recv() => match frame {
                    Some(frame) => self.take(&Fetch::read(&frame)?)?,
                    None => return Ok(()),
                },
                Some(reply) = self.replies.1.recv() => self.ready.push_back(reply),
                () = wait_until(due) => {}
            }
            while let Ok(reply) = self.replies.1.try_recv() {
                self.ready.push_back(reply);
            }
            let is_due = |asked: &Asked| asked.due <= Instant::now();
            if self
                .asked
                .as_ref()
                .is_some_and(|asked| !self.ready.is_empty() || is_due(asked))
                && let Some(asked) = self.asked.take()
            {
                let frame = self.answer(&asked).await?;
                if answers.send(frame).await.is_err() {
                    return Ok(());
                }
            }
        }
    }

    fn take(&mut self, fetch: &Fetch) -> Result<(), PeerError> {
        let attempts: Vec<Option<u64>> = fetch
            .changed
            .iter()
            .map(|slot| Some(self.server.slots().get(&slot.slot)?.attempt))
            .collect();
        let frame = SessionFrame {
            session: fetch.session,
            sequence: fetch.sequence,
            changed: fetch
                .changed
                .iter()
                .map(|slot| (slot.slot, slot.clone()))
                .collect(),
            dropped: fetch.dropped.clone(),
        };
        let fresh = SESSIONS.fetch_add(1, Ordering::Relaxed) + 1;
        let session = self.server.receive(&frame, fresh);
        let opens = session == fresh;
        if session == 0 || opens {
            self.replies = mpsc::unbounded_channel();
            self.ready.clear();
            self.cursors.clear();
        }
        if self.server.slots().len() > SLOTS {
            let text = format!("a session with more than {SLOTS} partitions");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text).into());
        }
        for slot in &fetch.dropped {
            self.cursors.remove(slot);
        }
        if fetch.request > 0 {
            let wait = if session == 0 || opens {
                0
            } else {
                fetch.wait_ms
            };
            self.asked = Some(Asked {
                request: fetch.request,
                session,
                due: Instant::now() + Duration::from_millis(u64::from(wait)),
                max_bytes: fetch.max_bytes as usize,
            });
        }
        if session != 0 {
            for (slot, before) in fetch.changed.iter().zip(attempts) {
                let is_new = opens || before != Some(slot.attempt);
                self.hand_on(slot, fetch.boot_epoch, session, is_new);
            }
        }
        Ok(())
    }

    /// `is_new`: the slot asks; otherwise it only reports.
    fn hand_on(&self, slot: &Slot, boot_epoch: u64, session: u64, is_new: bool) {
        let message = FetchMessage {
            fetch: Report {
                from: BrokerId(self.from),
                boot_epoch,
                leader_epoch: slot.leader_epoch,
                session,
                position: Position {
                    epoch: slot.last_epoch,
                    end: slot.end,
                    link: slot.link,
                },
                durable: slot.durable,
                durable_link: slot.durable_link,
                damaged: None,
                has_pieces: true,
            },
            high_watermark: slot.high_watermark,
            slot: slot.slot,
            attempt: slot.attempt,
            reply: is_new.then(|| self.replies.0.clone()),
        };
        // Dropped, it is answered that nobody leads here.
        if let Some(partition) = self.context.replicas.find(slot.incarnation)
            && partition.identity().number == slot.partition
        {
            partition.send_replica(ReplicaMessage::Fetch(message));
        }
    }

    async fn answer(&mut self, asked: &Asked) -> Result<Vec<u8>, PeerError> {
        let (mut body, mut answers) = (Vec::new(), Vec::new());
        while body.len() < asked.max_bytes
            && let Some(reply) = self.ready.pop_front()
        {
            let mut answer = to_answer(&reply);
            if let ReplyBody::Start(start) = &reply.body {
                answer.bytes = u32::try_from(start.len()).unwrap_or(u32::MAX);
                body.extend_from_slice(start);
            }
            if let ReplyBody::Batches(reader, from) = reply.body {
                let known = self.cursors.remove(&reply.slot);
                let mut cursor = known
                    .filter(|cursor| cursor.offset() == from)
                    .unwrap_or_else(|| reader.replica_cursor(from));
                let read = tokio::task::spawn_blocking(move || {
                    let read = cursor.next(u64::MAX, TURN_BYTES, ReadMode::Blocking);
                    (read, cursor)
                });
                let (read, cursor) = read.await.map_err(io::Error::other)?;
                match read {
                    Ok(Some(bytes)) => {
                        answer.bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                        body.extend_from_slice(&bytes);
                        self.cursors.insert(reply.slot, cursor);
                    }
                    Ok(None) => {}
                    // Damaged or closed: the follower asks again.
                    Err(_) => answer.outcome = SlotOutcome::Busy as i32,
                }
            }
            answers.push(answer);
        }
        let head = FetchAnswer {
            request: asked.request,
            session: asked.session,
            answers,
        };
        Ok(Frame::write(FrameType::FetchAnswer, &head, &body))
    }
}

async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn to_answer(reply: &FetchReply) -> SlotAnswer {
    let mut answer = SlotAnswer {
        slot: reply.slot,
        attempt: reply.attempt,
        leader_epoch: reply.leader_epoch,
        ..SlotAnswer::default()
    };
    let outcome = match reply.outcome {
        Outcome::Ok {
            high_watermark,
            lease_ms,
            log_start,
            replicated_to,
            ..
        } => {
            (answer.high_watermark, answer.replicated_to) = (high_watermark, replicated_to);
            (answer.lease_ms, answer.log_start) = (lease_ms, log_start);
            SlotOutcome::Ok
        }
        Outcome::Invalid => SlotOutcome::Invalid,
        Outcome::WrongEpoch { current } => {
            answer.epoch = current;
            SlotOutcome::WrongEpoch
        }
        Outcome::Diverged { epoch, end } => {
            (answer.epoch, answer.end) = (epoch, end);
            SlotOutcome::Diverged
        }
        Outcome::StepBack => SlotOutcome::StepBack,
        Outcome::Reset { start } => {
            answer.start = start;
            SlotOutcome::Reset
        }
        Outcome::Damaged { start, end } => {
            (answer.start, answer.end) = (start, end);
            SlotOutcome::Damaged
        }
        Outcome::Busy { .. } => SlotOutcome::Busy,
    };
    answer.outcome = outcome as i32;
    answer
}

/// What an answer says.
pub(crate) fn outcome_of(answer: &SlotAnswer) -> Outcome {
    match answer.outcome() {
        SlotOutcome::Busy => Outcome::Busy { repair_below: None },
        SlotOutcome::Ok => Outcome::Ok {
            high_watermark: answer.high_watermark,
            lease_ms: answer.lease_ms,
            log_start: answer.log_start,
            replicated_to: answer.replicated_to,
            catching_up: false,
        },
        SlotOutcome::WrongEpoch => Outcome::WrongEpoch {
            current: answer.epoch,
        },
        SlotOutcome::Diverged => Outcome::Diverged {
            epoch: answer.epoch,
            end: answer.end,
        },
        SlotOutcome::StepBack => Outcome::StepBack,
        SlotOutcome::Reset => Outcome::Reset {
            start: answer.start,
        },
        SlotOutcome::Damaged => Outcome::Damaged {
            start: answer.start,
            end: answer.end,
        },
        SlotOutcome::Invalid => Outcome::Invalid,
    }
}
