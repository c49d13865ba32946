//! NATS' answers to probes.
use crate::nats::client::{Inbox, Message, headers};
use bascule_wire::liftbridge::publish::MAX_HEADERS;
use bytes::Bytes;
use tokio::sync::mpsc;

/// Most answers that wait.
const ANSWER_QUEUE: usize = 4096;
/// Status of a message that nobody is subscribed to.
const NO_RESPONDERS: u16 = 503;

/// Passes on the subjects of probes that nobody received; their last part is the token.
pub(crate) struct ProbeAnswers(mpsc::Sender<Bytes>);

impl ProbeAnswers {
    /// An inbox, and where its answers arrive.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Bytes>) {
        let (sender, receiver) = mpsc::channel(ANSWER_QUEUE);
        (Self(sender), receiver)
    }
}

impl Inbox for ProbeAnswers {
    fn take(&self, messages: &mut Vec<Message>) {
        for message in messages.drain(..) {
            let block = headers::parse(&message.headers, MAX_HEADERS);
            let status = block.and_then(|block| block.status);
            if status == Some(NO_RESPONDERS) {
                // When the queue is full, some records are published without a subscriber.
                let _ = self.0.try_send(Bytes::copy_from_slice(&message.subject));
            }
        }
    }
}
