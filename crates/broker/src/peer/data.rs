//! A connection that carries records: frames go out, frames come back.
use super::brokers::Brokers;
use super::connection::{PeerError, read_frame};
use super::dialer::dial;
use super::stream::ByteStream;
use crate::tls::PeerTls;
use bascule_wire::peer::frame::{CONTROL_BYTES, DATA_BYTES};
use bascule_wire::peer::{Frame, Purpose};
use std::io;
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
    /// Dials the broker with this number, within `limit`.
    ///
    /// # Errors
    /// It is not known, cannot be reached, or refused.
    pub async fn open(
        brokers: &Brokers,
        id: u64,
        purpose: Purpose,
        tls: Option<&PeerTls>,
        limit: Duration,
    ) -> Result<Self, PeerError> {
        let Some(other) = brokers.others.get(&id) else {
            return Err(io::Error::other(format!("no broker with number {id} is known")).into());
        };
        let dialled = tokio::time::timeout(limit, dial(brokers, id, other, purpose, tls)).await;
        let (stream, _) = dialled.unwrap_or(Err(PeerError::Silent(limit)))?;
        let (mut reading, writing) = tokio::io::split(stream);
        let (frames, incoming) = mpsc::channel(1);
        let most = match purpose {
            Purpose::Records => DATA_BYTES,
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
        Ok(Self {
            writer: DataWriter(writing),
            reader: DataReader {
                incoming,
                task: reader.abort_handle(),
            },
        })
    }

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
