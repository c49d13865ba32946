//! Fetches from one broker all partitions that it leads and that are followed here.
use crate::partition::Partition;
use crate::partition::replica::{AnswerMessage, ReplicaMessage, SlotState};
use crate::peer::{DIAL, DataConnection, PeerError, Way, outcome_of};
use bascule_replica::session::{Client, Frame as SessionFrame};
use bascule_wire::peer::fetch::WAIT_MS;
use bascule_wire::peer::frame::FETCH_BYTES;
use bascule_wire::peer::{Fetch, FetchAnswer, Frame, FrameType, Purpose, Slot};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// A leader that does not answer for so long is given up: its answers wait for at most half a second.
const SILENCE: Duration = Duration::from_secs(5);
/// Between two tries to connect: doubled after each that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// One connection to one broker, as long as something is fetched. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Fetcher {
    shared: Arc<Shared>,
    task: AbortHandle,
}

#[derive(Debug, Default)]
struct Shared {
    slots: Mutex<Slots>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Slots {
    last: u32,
    numbers: HashMap<u64, u32>,
    states: BTreeMap<u32, SlotState>,
    partitions: HashMap<u32, Partition>,
    /// The leader broke the protocol.
    disconnects: bool,
}

impl Fetcher {
    /// Begins to fetch from the broker with this number.
    pub fn start(runtime: &Handle, way: Way) -> Self {
        let shared = Arc::<Shared>::default();
        let run = Run {
            shared: shared.clone(),
            way,
        };
        let task = runtime.spawn(run.live()).abort_handle();
        Self { shared, task }
    }

    /// Fetches a partition with these values from now on.
    pub fn set(&self, partition: &Partition, state: SlotState) {
        let mut slots = self.shared.slots.lock();
        let number = if let Some(number) = slots.numbers.get(&state.incarnation) {
            *number
        } else {
            slots.last = slots.last.wrapping_add(1);
            let number = slots.last;
            slots.numbers.insert(state.incarnation, number);
            number
        };
        slots.states.insert(number, state);
        slots.partitions.insert(number, partition.clone());
        drop(slots);
        self.shared.changed.notify_one();
    }

    /// Fetches a partition no more.
    pub fn remove(&self, incarnation: u64) {
        let mut slots = self.shared.slots.lock();
        if let Some(number) = slots.numbers.remove(&incarnation) {
            slots.states.remove(&number);
            slots.partitions.remove(&number);
        }
        drop(slots);
        self.shared.changed.notify_one();
    }

    /// Ends the connection; another one follows.
    pub fn disconnect(&self) {
        self.shared.slots.lock().disconnects = true;
        self.shared.changed.notify_one();
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Run {
    shared: Arc<Shared>,
    way: Way,
}

impl Run {
    async fn live(self) {
        let (mut pause, mut said) = (FIRST_PAUSE, String::new());
        loop {
            while self.shared.slots.lock().states.is_empty() {
                self.shared.changed.notified().await;
            }
            let failed = match self.way.open(Purpose::Records, DIAL).await {
                Ok(connection) => {
                    pause = FIRST_PAUSE;
                    let failed = self.exchange(connection).await;
                    self.disconnected();
                    failed
                }
                Err(failed) => failed,
            };
            let text = failed.to_string();
            if text != said {
                let name = self.way.name();
                let line = format!("records of broker {name:?} are not fetched: {text}");
                self.way.warn("replication", line);
                said = text;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Until the connection ends: why it did.
    async fn exchange(&self, mut connection: DataConnection) -> PeerError {
        let (mut client, mut request) = (Client::default(), 0);
        loop {
            request += 1;
            // None is outstanding, so there is one.
            if let Some(frame) = client.frame(&self.states())
                && let Err(failed) = connection.send(&self.to_frame(frame, request)).await
            {
                return failed;
            }
            let due = Instant::now() + SILENCE;
            let answer = loop {
                tokio::select! {
                    frame = connection.receive() => break frame,
                    () = self.shared.changed.notified() => {}
                    () = tokio::time::sleep_until(due) => return PeerError::Silent(SILENCE),
                }
                if std::mem::take(&mut self.shared.slots.lock().disconnects) {
                    let text = "the leader sent what does not fit its own answers";
                    return io::Error::new(io::ErrorKind::InvalidData, text).into();
                }
                // Reports, and further fetches, need no answer of their own.
                if let Some(frame) = client.frame(&self.states())
                    && let Err(failed) = connection.send(&self.to_frame(frame, 0)).await
                {
                    return failed;
                }
            };
            let outcome = answer.and_then(|frame| {
                let answer = FetchAnswer::read(&frame)?;
                if answer.request != request {
                    return Err(PeerError::Unexpected(frame.kind));
                }
                Ok((answer, frame))
            });
            match outcome {
                Ok((answer, frame)) if client.answered(answer.session) => {
                    self.hand_on(&answer, &frame);
                }
                Ok(_) => self.disconnected(),
                Err(failed) => return failed,
            }
        }
    }

    fn states(&self) -> BTreeMap<u32, SlotState> {
        self.shared.slots.lock().states.clone()
    }

    fn to_frame(&self, frame: SessionFrame<SlotState>, request: u64) -> Vec<u8> {
        let slot = |(slot, state): (u32, SlotState)| Slot {
            slot,
            incarnation: state.incarnation,
            partition: state.partition,
            leader_epoch: state.leader_epoch,
            end: state.end,
            last_epoch: state.last_epoch,
            link: state.link,
            durable: state.durable,
            durable_link: state.durable_link,
            high_watermark: state.high_watermark,
            attempt: state.attempt,
        };
        let head = Fetch {
            request,
            boot_epoch: self.way.brokers.own_boot_epoch(),
            session: frame.session,
            sequence: frame.sequence,
            max_bytes: FETCH_BYTES as u32,
            wait_ms: WAIT_MS,
            changed: frame.changed.into_iter().map(slot).collect(),
            dropped: frame.dropped,
        };
        Frame::write(FrameType::Fetch, &head, b"")
    }

    fn hand_on(&self, answer: &FetchAnswer, frame: &Frame) {
        let mut body = frame.body.clone();
        for slot in &answer.answers {
            // As many as the head was checked to have.
            let own = body.split_to((slot.bytes as usize).min(body.len()));
            let partition = self.shared.slots.lock().partitions.get(&slot.slot).cloned();
            if let Some(partition) = partition {
                partition.send_replica(ReplicaMessage::Answer(AnswerMessage {
                    from: self.way.to,
                    attempt: slot.attempt,
                    leader_epoch: slot.leader_epoch,
                    outcome: outcome_of(slot),
                    body: own,
                }));
            }
        }
    }

    /// Every fetch is to be sent again, in a new session.
    fn disconnected(&self) {
        let partitions: Vec<Partition> = {
            let slots = self.shared.slots.lock();
            slots.partitions.values().cloned().collect()
        };
        for partition in partitions {
            partition.send_replica(ReplicaMessage::Disconnected(self.way.to));
        }
    }
}
