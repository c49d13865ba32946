//! The connection to one leader: frames go out in order, answers come back in any.
//!
//! It is dialled when there is something to send. Once it could not be, or has ended, what comes is answered at once while it is dialled
//! again, so that whoever waits looks for another leader meanwhile.
use super::Target;
use super::item::{Content, Publisher};
use super::outcome::of_answer;
use crate::partition::{AppendError, Committed};
use crate::peer::{DataConnection, DataReader, PeerError, Way};
use bascule_wire::peer::{ForwardAnswer, Purpose};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// For TCP, TLS and the handshake together.
const DIAL: Duration = Duration::from_secs(2);
/// Between two tries to connect.
const PAUSE: Duration = Duration::from_millis(50);
/// A leader that says nothing for so long is given up; it speaks every half second.
const SILENCE: Duration = Duration::from_secs(3);
/// Frames without an answer; further ones wait.
const IN_FLIGHT: usize = 4096;

/// What became of a frame.
#[derive(Debug)]
pub(super) enum Answer {
    /// The leader answered.
    Outcome(Result<Committed, AppendError>),
    /// It was surely not sent: why.
    NotSent(String),
    /// It may have arrived: why there is no answer.
    Lost(String),
}

/// A frame to be sent.
pub(super) struct Outgoing {
    pub content: Content,
    pub target: Arc<Target>,
    pub epoch: u64,
    pub publisher: Publisher,
    pub until: Instant,
    pub answer: oneshot::Sender<Answer>,
}

impl Outgoing {
    pub fn not_sent(self, why: &str) {
        // Whoever sent it may be gone.
        let _ = self.answer.send(Answer::NotSent(why.to_owned()));
    }
}

/// See the module. Dropping it ends the connection.
#[derive(Debug)]
pub(super) struct Link {
    frames: mpsc::UnboundedSender<Outgoing>,
    task: AbortHandle,
}

impl Link {
    pub fn start(runtime: &Handle, way: Way) -> Self {
        let (frames, outgoing) = mpsc::unbounded_channel();
        let run = Run { outgoing, way };
        let task = runtime.spawn(run.live()).abort_handle();
        Self { frames, task }
    }

    /// Hands frames to a test in place of a connection.
    #[cfg(test)]
    pub fn to(frames: mpsc::UnboundedSender<Outgoing>) -> Self {
        let task = tokio::spawn(async {}).abort_handle();
        Self { frames, task }
    }

    /// Sends behind what was sent before. Bounded by the budget that each frame has a share of.
    pub fn send(&self, frame: Outgoing) {
        if let Err(refused) = self.frames.send(frame) {
            refused.0.not_sent("the broker stops");
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Run {
    outgoing: mpsc::UnboundedReceiver<Outgoing>,
    way: Way,
}

impl Run {
    async fn live(mut self) {
        let (mut failed, mut said) = (None::<String>, String::new());
        while let Some(first) = self.outgoing.recv().await {
            let mut held = Some(first);
            if let Some(why) = &failed
                && let Some(item) = held.take()
            {
                item.not_sent(why);
            }
            let why = match self.dial(failed.as_deref()).await {
                Ok(connection) => {
                    said.clear();
                    let ended = self.exchange(connection, held.take()).await;
                    format!(
                        "the connection to broker {:?} ended: {ended}",
                        self.way.name()
                    )
                }
                Err(error) => {
                    let why = format!("broker {:?} cannot be reached: {error}", self.way.name());
                    if let Some(item) = held {
                        item.not_sent(&why);
                    }
                    why
                }
            };
            if why != said {
                let text = format!("publishes are not handed on: {why}");
                self.way.warn("forward", text);
                said.clone_from(&why);
            }
            self.refuse_for(PAUSE, &why).await;
            failed = Some(why);
        }
    }

    /// Dials; after a failure what comes meanwhile is answered by it.
    async fn dial(&mut self, failed: Option<&str>) -> Result<DataConnection, PeerError> {
        let opened = self.way.open(Purpose::Publishes, DIAL);
        let mut opened = std::pin::pin!(opened);
        loop {
            tokio::select! {
                opened = &mut opened => return opened,
                Some(item) = self.outgoing.recv(), if failed.is_some() => {
                    item.not_sent(failed.unwrap_or_default());
                }
            }
        }
    }

    async fn refuse_for(&mut self, time: Duration, why: &str) {
        let end = Instant::now() + time;
        while let Ok(Some(item)) = tokio::time::timeout_at(end, self.outgoing.recv()).await {
            item.not_sent(why);
        }
    }

    /// Until the connection ends: why it did.
    async fn exchange(&mut self, connection: DataConnection, first: Option<Outgoing>) -> PeerError {
        let (mut writer, mut reader) = connection.split();
        let (frames, mut written) = mpsc::channel::<Vec<u8>>(1);
        let write = async move {
            loop {
                match written.recv().await {
                    Some(frame) => writer.send(&frame).await?,
                    None => return Ok::<(), PeerError>(()),
                }
            }
        };
        let mut write = std::pin::pin!(write);
        let mut waiting = Waiting::default();
        let (mut next, mut due) = (first, Instant::now() + SILENCE);
        let ended = loop {
            if next
                .as_ref()
                .is_some_and(|next| next.until <= Instant::now())
                && let Some(late) = next.take()
            {
                late.not_sent("its time ran out before it was sent");
            }
            tokio::select! {
                failed = &mut write => break match failed {
                    Ok(()) => PeerError::Silent(SILENCE),
                    Err(error) => error,
                },
                answer = receive(&mut reader) => match answer {
                    Ok(answer) => {
                        due = Instant::now() + SILENCE;
                        waiting.take(answer);
                    }
                    Err(error) => break error,
                },
                () = tokio::time::sleep_until(due) => break PeerError::Silent(SILENCE),
                item = self.outgoing.recv(), if next.is_none() => match item {
                    Some(item) => next = Some(item),
                    None => break PeerError::Silent(SILENCE),
                },
                permit = frames.reserve(), if next.is_some() && waiting.answers.len() < IN_FLIGHT => {
                    if let (Ok(permit), Some(item)) = (permit, next.take()) {
                        permit.send(waiting.add(item));
                    }
                }
            }
        };
        let why = format!("broker {:?} did not answer: {ended}", self.way.name());
        if let Some(item) = next {
            item.not_sent(&why);
        }
        waiting.lose(&why);
        ended
    }
}

async fn receive(reader: &mut DataReader) -> Result<ForwardAnswer, PeerError> {
    Ok(ForwardAnswer::read(&reader.receive().await?)?)
}

/// Frames without an answer, by their numbers.
#[derive(Default)]
struct Waiting {
    last: u64,
    answers: HashMap<u64, oneshot::Sender<Answer>>,
}

impl Waiting {
    /// The frame of an item, under the next number.
    fn add(&mut self, item: Outgoing) -> Vec<u8> {
        self.last += 1;
        let Outgoing {
            content,
            target,
            epoch,
            publisher,
            until,
            answer,
        } = item;
        self.answers.insert(self.last, answer);
        content.to_frame(self.last, &target, epoch, &publisher, until)
    }

    /// An answer of number 0 only shows that the leader is there.
    fn take(&mut self, answer: ForwardAnswer) {
        if let Some(waiting) = self.answers.remove(&answer.request) {
            // Whoever sent it may be gone.
            let _ = waiting.send(Answer::Outcome(of_answer(answer)));
        }
    }

    fn lose(self, why: &str) {
        for waiting in self.answers.into_values() {
            let _ = waiting.send(Answer::Lost(why.to_owned()));
        }
    }
}
