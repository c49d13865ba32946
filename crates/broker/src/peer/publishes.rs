//! A connection over which another broker hands on what its clients publish.
//!
//! Frames are taken in their order. They never wait for an answer, and answers never wait for frames: what a broker forwards to this one
//! does not depend on what this one forwards to it.
use super::brokers::Brokers;
use super::connection::{PeerError, read_payload, read_preamble};
use super::stream::ByteStream;
use crate::forward::server::ForwardServer;
use bascule_wire::peer::frame::FORWARD_BYTES;
use bascule_wire::peer::{Forward, ForwardAnswer, Frame, FrameType};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

/// The other broker is shown so often that this one is there.
const ALIVE: Duration = Duration::from_millis(500);
/// The rest of a frame has to arrive within this.
const PATIENCE: Duration = Duration::from_secs(30);

/// Takes publishes until the connection ends.
///
/// # Errors
/// A frame that breaks the protocol, or does not arrive.
pub(super) async fn serve(
    stream: Box<dyn ByteStream>,
    server: &Arc<ForwardServer>,
    brokers: &Brokers,
) -> Result<(), PeerError> {
    let (mut reading, mut writing) = tokio::io::split(stream);
    let (answers, mut outgoing) = mpsc::unbounded_channel::<Vec<u8>>();
    let session = server.session(answers);
    let write = async move {
        let mut alive = tokio::time::interval(ALIVE);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let is_there = Frame::write(FrameType::ForwardAnswer, &ForwardAnswer::default(), b"");
        loop {
            tokio::select! {
                answer = outgoing.recv() => match answer {
                    Some(answer) => writing.write_all(&answer).await?,
                    None => return Ok::<(), PeerError>(()),
                },
                _ = alive.tick() => writing.write_all(&is_there).await?,
            }
            writing.flush().await?;
        }
    };
    let read = async {
        while let Some(preamble) = read_preamble(&mut reading, FORWARD_BYTES).await? {
            if preamble.kind != FrameType::Forward || brokers.is_superseded() {
                return Err(PeerError::Unexpected(preamble.kind));
            }
            let charge = server.reserve(preamble.payload_bytes).await;
            let payload = tokio::time::timeout(PATIENCE, read_payload(&mut reading, preamble));
            let frame = payload.await.unwrap_or(Err(PeerError::Silent(PATIENCE)))?;
            let forward = Forward::read(&frame)?;
            session.take(forward, frame.body, charge).await?;
        }
        Ok(())
    };
    tokio::select! {
        read = read => read,
        written = write => written,
    }
}
