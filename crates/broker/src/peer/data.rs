//! A connection that carries records: fetches go out, answers come back, in order.
use super::brokers::Brokers;
use super::connection::{PeerError, read_frame};
use super::dialer::dial;
use super::stream::ByteStream;
use crate::tls::PeerTls;
use bascule_wire::peer::Frame;
use bascule_wire::peer::frame::DATA_BYTES;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// For TCP, TLS and the handshake together.
const DIAL: Duration = Duration::from_secs(5);
/// A broker that takes no bytes for so long is given up.
const STALL: Duration = Duration::from_secs(5);

/// One connection. Dropping it ends it.
pub(crate) struct DataConnection {
    writing: WriteHalf<Box<dyn ByteStream>>,
    incoming: mpsc::Receiver<Result<Frame, PeerError>>,
    reader: AbortHandle,
}

impl DataConnection {
    /// Dials the broker with this number.
    ///
    /// # Errors
    /// It is not known, cannot be reached, or refused.
    pub async fn open(
        brokers: &Brokers,
        id: u64,
        tls: Option<&PeerTls>,
    ) -> Result<Self, PeerError> {
        let Some(other) = brokers.others.get(&id) else {
            return Err(io::Error::other(format!("no broker with number {id} is known")).into());
        };
        let dialled = tokio::time::timeout(DIAL, dial(brokers, id, other, tls)).await;
        let (stream, _) = dialled.unwrap_or(Err(PeerError::Silent(DIAL)))?;
        let (mut reading, writing) = tokio::io::split(stream);
        let (frames, incoming) = mpsc::channel(1);
        let reader = tokio::spawn(async move {
            loop {
                let read = match read_frame(&mut reading, DATA_BYTES).await {
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
            writing,
            incoming,
            reader: reader.abort_handle(),
        })
    }

    /// Sends a frame. Not cancel-safe.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn send(&mut self, frame: &[u8]) -> Result<(), PeerError> {
        let write = async {
            self.writing.write_all(frame).await?;
            self.writing.flush().await
        };
        match tokio::time::timeout(STALL, write).await {
            Ok(written) => Ok(written?),
            Err(_) => Err(PeerError::Silent(STALL)),
        }
    }

    /// The next frame. Cancel-safe.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn receive(&mut self) -> Result<Frame, PeerError> {
        let ended = || Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        self.incoming.recv().await.unwrap_or_else(ended)
    }
}

impl Drop for DataConnection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
