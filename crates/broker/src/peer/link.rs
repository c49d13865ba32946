//! One connection that was dialled: requests go out, answers come back in any order.
use super::connection::{PeerError, read_frame};
use super::stream::ByteStream;
use crate::consensus::network::Kind;
use bascule_wire::peer::frame::CONTROL_BYTES;
use bascule_wire::peer::{Frame, FrameType, RaftHead};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};

/// Requests without an answer; a leader has a few on their way to each follower.
const OUTSTANDING: usize = 256;
/// Of the length itself, bytes.
const LENGTH_BYTES: usize = 4;
/// A connection over which nothing came for so long although something was asked is given up.
pub(crate) const STALL: Duration = Duration::from_secs(5);

/// Asks over a connection, as long as it lasts.
#[derive(Debug)]
pub(super) struct Link {
    frames: mpsc::Sender<Vec<u8>>,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    answers: HashMap<u64, (FrameType, oneshot::Sender<io::Result<Bytes>>)>,
    /// When the oldest request went out since something last came in.
    asked: Option<Instant>,
    is_closed: bool,
}

impl Waiting {
    fn is_stalled(&self) -> bool {
        self.asked.is_some_and(|asked| asked.elapsed() >= STALL)
    }
}

/// The frame type of a request.
pub(super) fn type_of(kind: Kind) -> FrameType {
    match kind {
        Kind::Position => FrameType::Position,
        Kind::Propagate => FrameType::Propagate,
        Kind::Append => FrameType::Append,
        Kind::Vote => FrameType::Vote,
        Kind::PreVote => FrameType::PreVote,
        Kind::Snapshot => FrameType::Snapshot,
        Kind::Heartbeat => FrameType::Heartbeat,
        Kind::Range => FrameType::Range,
        Kind::ClientRequest => FrameType::ClientRequest,
    }
}

impl Link {
    /// A link over a stream behind its handshake, whose answers have at most `most` bytes, and what runs it until the connection ends.
    pub fn new(
        stream: Box<dyn ByteStream>,
        most: usize,
    ) -> (Self, impl Future<Output = PeerError> + Send + 'static) {
        let (frames, outgoing) = mpsc::channel(OUTSTANDING);
        let waiting = Arc::<Mutex<Waiting>>::default();
        let link = Self {
            frames,
            waiting: waiting.clone(),
        };
        let (reading, writing) = tokio::io::split(stream);
        let run = async move {
            let ended = tokio::select! {
                ended = read(reading, most, &waiting) => ended,
                ended = write(writing, outgoing) => ended,
            };
            let mut waiting = waiting.lock();
            waiting.is_closed = true;
            // Whoever waits is woken by the end of its channel.
            waiting.answers.clear();
            ended
        };
        (link, run)
    }

    /// Asks. `NotConnected`: nothing was sent. A caller that gives up is forgotten when the answer comes, or the connection ends.
    pub async fn ask(&self, kind: Kind, request: &[u8]) -> io::Result<Bytes> {
        let kind = type_of(kind);
        let (sender, answer) = oneshot::channel();
        let frame = {
            let mut waiting = self.waiting.lock();
            if waiting.answers.len() >= OUTSTANDING {
                waiting.answers.retain(|_, (_, sender)| !sender.is_closed());
            }
            if waiting.is_closed || waiting.answers.len() >= OUTSTANDING {
                return Err(ended());
            }
            waiting.last += 1;
            let head = RaftHead {
                request: waiting.last,
                error: String::new(),
            };
            let frame = Frame::write(kind, &head, request);
            if frame.len() > LENGTH_BYTES + CONTROL_BYTES {
                let text = format!(
                    "a request of {} bytes is over the {CONTROL_BYTES} that a frame may have",
                    frame.len()
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            waiting.answers.insert(head.request, (kind, sender));
            waiting.asked.get_or_insert_with(Instant::now);
            frame
        };
        self.frames.send(frame).await.map_err(|_| ended())?;
        answer.await.map_err(|_| {
            let text = "the connection ended before the answer came";
            io::Error::new(io::ErrorKind::ConnectionReset, text)
        })?
    }
}

fn ended() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotConnected,
        "the connection to the broker ended",
    )
}

async fn write(
    mut stream: WriteHalf<Box<dyn ByteStream>>,
    mut outgoing: mpsc::Receiver<Vec<u8>>,
) -> PeerError {
    while let Some(frame) = outgoing.recv().await {
        if let Err(error) = stream.write_all(&frame).await {
            return error.into();
        }
        // TLS keeps what it has not sent.
        if let Err(error) = stream.flush().await {
            return error.into();
        }
    }
    ended().into()
}

async fn read(
    mut stream: ReadHalf<Box<dyn ByteStream>>,
    most: usize,
    waiting: &Mutex<Waiting>,
) -> PeerError {
    loop {
        let mut frame = std::pin::pin!(read_frame(&mut stream, most));
        let read = loop {
            match tokio::time::timeout(STALL, &mut frame).await {
                Ok(read) => break read,
                Err(_) if waiting.lock().is_stalled() => return PeerError::Silent(STALL),
                Err(_) => {}
            }
        };
        let outcome = match read {
            Ok(Some(frame)) => take_answer(&frame, waiting),
            Ok(None) => Err(ended().into()),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            return error;
        }
    }
}

fn take_answer(frame: &Frame, waiting: &Mutex<Waiting>) -> Result<(), PeerError> {
    let head = RaftHead::read(frame)?;
    let mut waiting = waiting.lock();
    waiting.asked = None;
    let Some((asked, sender)) = waiting.answers.remove(&head.request) else {
        return Ok(());
    };
    if !waiting.answers.is_empty() {
        waiting.asked = Some(Instant::now());
    }
    if asked.answer() != Some(frame.kind) {
        return Err(PeerError::Unexpected(frame.kind));
    }
    let answer = if head.error.is_empty() {
        Ok(frame.body.clone())
    } else {
        Err(io::Error::other(head.error))
    };
    // Whoever asked may have given up.
    let _ = sender.send(answer);
    Ok(())
}
