//! A connection that carries records: frames go out, frames come back.
use super::brokers::Brokers;
use super::connection::{PeerError, read_frame};
use super::dialer::dial;
use super::stream::ByteStream;
use crate::events::{Events, Level};
use crate::tls::PeerTls;
use bascule_wire::peer::frame::{CONTROL_BYTES, DATA_BYTES};
use bascule_wire::peer::{Frame, Purpose};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// For TCP, TLS and the handshake together.
pub(crate) const DIAL: Duration = Duration::from_secs(5);
/// A broker that takes no bytes for so long is given up.
const STALL: Duration = Duration::from_secs(5);
/// Bytes that are written at once, each time within [`STALL`].
const PIECE_BYTES: usize = 256 << 10;

/// The way to one other broker, for connections that carry records.
pub(crate) struct Way {
    pub brokers: Arc<Brokers>,
    pub tls: Option<Arc<PeerTls>>,
    pub events: Arc<Events>,
    /// Number of the broker.
    pub to: u64,
}

impl Way {
    /// The broker's name.
    pub fn name(&self) -> &str {
        self.brokers.name(self.to)
    }

    /// Dials the broker, within `limit`.
    ///
    /// # Errors
    /// It is not known, cannot be reached, or refused.
    pub async fn open(
        &self,
        purpose: Purpose,
        limit: Duration,
    ) -> Result<DataConnection, PeerError> {
        let Some(other) = self.brokers.others.get(&self.to) else {
            let text = format!("no broker with number {} is known", self.to);
            return Err(io::Error::other(text).into());
        };
        let dialled = dial(&self.brokers, self.to, other, purpose, self.tls.as_deref());
        let dialled = tokio::time::timeout(limit, dialled).await;
        let (stream, _) = dialled.unwrap_or(Err(PeerError::Silent(limit)))?;
        let (mut reading, writing) = tokio::io::split(stream);
        let (frames, incoming) = mpsc::channel(1);
        let most = match purpose {
            Purpose::Records | Purpose::Reads => DATA_BYTES,
            Purpose::Control | Purpose::Publishes => CONTROL_BYTES,
        };
        let reader = tokio::spawn(async move {
            loop {
                let read = match read_frame(&mut reading, most).await {
                    Ok(Some(frame)) => Ok(frame),
                    Ok(None) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                    Err(error) => Err(error),
                };
                let is_over = read.is_err();
                if frames.send(read).await.is_err() || is_over {
                    return;
                }
            }
        });
        Ok(DataConnection {
            writer: DataWriter(writing),
            reader: DataReader {
                incoming,
                task: reader.abort_handle(),
            },
        })
    }

    /// Logs a warning about the broker.
    pub fn warn(&self, target: &'static str, text: String) {
        let fields = serde_json::json!({"broker": self.name()});
        self.events.log(Level::Warning, target, text, fields);
    }
}

/// One connection. Dropping it ends it.
pub(crate) struct DataConnection {
    writer: DataWriter,
    reader: DataReader,
}

/// Its outgoing half.
pub(crate) struct DataWriter(WriteHalf<Box<dyn ByteStream>>);

/// Its incoming half. Dropping it ends the reading.
pub(crate) struct DataReader {
    incoming: mpsc::Receiver<Result<Frame, PeerError>>,
    task: AbortHandle,
}

impl DataConnection {
    /// Sends a frame. Not cancel-safe.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn send(&mut self, frame: &[u8]) -> Result<(), PeerError> {
        self.writer.send(frame).await
    }

    /// The next frame. Cancel-safe.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn receive(&mut self) -> Result<Frame, PeerError> {
        self.reader.receive().await
    }

    /// Both halves, for two users at a time.
    pub fn split(self) -> (DataWriter, DataReader) {
        (self.writer, self.reader)
    }
}

impl DataWriter {
    /// Sends a frame. Not cancel-safe.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn send(&mut self, frame: &[u8]) -> Result<(), PeerError> {
        for piece in frame.chunks(PIECE_BYTES) {
            let write = async {
                self.0.write_all(piece).await?;
                self.0.flush().await
            };
            match tokio::time::timeout(STALL, write).await {
                Ok(written) => written?,
                Err(_) => return Err(PeerError::Silent(STALL)),
            }
        }
        Ok(())
    }
}

impl DataReader {
    /// The next frame. Cancel-safe.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn receive(&mut self) -> Result<Frame, PeerError> {
        let ended = || Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        self.incoming.recv().await.unwrap_or_else(ended)
    }
}

impl Drop for DataReader {
    fn drop(&mut self) {
        self.task.abort();
    }
}
