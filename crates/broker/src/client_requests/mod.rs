//! Reads of clients and the positions that they store, carried out by the broker that leads (`specs/formats/peer.md`, types 29 and 30).
//!
//! * [`Requests`]: the broker that the client asked: it finds the leader, and asks again while there is none.
//! * [`RequestServer`]: the leader. It checks the user's rights again, and never sends on what came from another broker.
//! * [`Positions`]: stored positions of consumers in the partitions of `__cursors`; `pending`: those that are not committed yet.
//! * `message`: what is asked and answered. `reading`: batches out of a log.
//!
//! Everything that is asked may be asked again: after a lost answer the next leader is asked the same.
mod message;
mod pending;
mod positions;
mod reading;
mod server;
#[cfg(test)]
mod tests;

pub(crate) use message::{Answered, Asked, Question, Start};
pub(crate) use positions::Positions;
pub(crate) use reading::first_offset;
pub(crate) use server::RequestServer;

use crate::consensus::network::{Kind, Transport, decode, encode};
use crate::forward::{Forwarder, Place, Target};
use bytes::Bytes;
use message::{ATTEMPT, READS};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// How long a request waits for a leader.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Before it is asked again: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Why nobody has carried out a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The partition was deleted, or created again.
    Gone,
    /// No leader carried it out in time.
    Late,
}

/// Has requests carried out by whoever leads.
#[derive(Debug)]
pub(crate) struct Requests {
    forwarder: Arc<Forwarder>,
    server: Arc<RequestServer>,
    /// Room for the answers of reads.
    reads: Arc<Semaphore>,
}

impl Requests {
    pub fn new(forwarder: Arc<Forwarder>, server: Arc<RequestServer>) -> Self {
        Self {
            forwarder,
            server,
            reads: Arc::new(Semaphore::new(READS)),
        }
    }

    /// The way to the leaders.
    pub fn forwarder(&self) -> &Arc<Forwarder> {
        &self.forwarder
    }

    /// Carries out requests on this broker.
    pub fn server(&self) -> &RequestServer {
        &self.server
    }

    /// Has a request carried out by the leader of `led`, once there is one.
    ///
    /// # Errors
    /// [`Unanswered`]; when late, it may have been carried out.
    pub async fn ask(
        &self,
        led: &Target,
        mut asked: Asked,
        until: Instant,
    ) -> Result<Answered, Unanswered> {
        let (mut pause, mut is_unsure) = (FIRST_PAUSE, false);
        loop {
            let answered = match self.forwarder.place(led) {
                Place::Here(partition) if partition.may_read() => {
                    let left = until.saturating_duration_since(Instant::now());
                    let limit = left.min(ATTEMPT);
                    Ok(self.server.attempt(&partition, &asked, limit).await)
                }
                Place::There(leader, epoch) => {
                    asked.leader_epoch = epoch;
                    self.there(leader, &mut asked, until).await
                }
                Place::Here(_) | Place::Nowhere(_) => Ok(Answered::Later),
                Place::Gone => return Err(Unanswered::Gone),
            };
            match answered {
                Ok(Answered::Later) => {}
                Ok(Answered::Unknown) => is_unsure = true,
                // An attempt whose outcome nobody knew has deleted it.
                Ok(Answered::Deleted(false)) if is_unsure => return Ok(Answered::Deleted(true)),
                Ok(answered) => return Ok(answered),
                Err(error) => is_unsure |= error.kind() != io::ErrorKind::NotConnected,
            }
            if Instant::now() + pause >= until {
                return Err(Unanswered::Late);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Asks another broker. The answer of a read has a share of this broker's room for them until its batches are dropped.
    ///
    /// # Errors
    /// There is no answer; `NotConnected`: nothing was sent.
    async fn there(&self, leader: u64, asked: &mut Asked, until: Instant) -> io::Result<Answered> {
        let Some(dialer) = self.forwarder.reads() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let share = if asked.question.has_batches() {
            match acquire(&self.reads, until).await {
                Some(share) => Some(share),
                None => return Ok(Answered::Later),
            }
        } else {
            None
        };
        let left = until.saturating_duration_since(Instant::now());
        asked.deadline_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
        let answer = dialer.ask(leader, Kind::ClientRequest, encode(asked)?, left);
        let answer = timeout_at(until, answer).await;
        let mut answered = decode(&answer.map_err(io::Error::from)??)?;
        if let Answered::Read { batches, .. } = &mut answered {
            *batches = hold(std::mem::take(batches), share);
        }
        Ok(answered)
    }
}

/// A share; `None`: there was none until then.
async fn acquire(shares: &Arc<Semaphore>, until: Instant) -> Option<OwnedSemaphorePermit> {
    let share = timeout_at(until, shares.clone().acquire_owned());
    // Never closed.
    share.await.ok()?.ok()
}

struct Held<T> {
    bytes: Bytes,
    _shares: T,
}

impl<T> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The same bytes; `shares` are dropped with the last slice of them.
fn hold<T: Send + 'static>(bytes: Bytes, shares: T) -> Bytes {
    Bytes::from_owner(Held {
        bytes,
        _shares: shares,
    })
}
