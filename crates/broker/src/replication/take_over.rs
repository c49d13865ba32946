//! What a broker that begins to lead asks the other replicas, and what it is answered (frame types 6, 7, 27 and 28).
use crate::consensus::network::{Kind, Transport, decode, encode};
use crate::partition::Partition;
use crate::partition::replica::{
    AskedMessage, Found, Question, ReplicaMessage, Replicas, TakeOverMessage,
};
use bascule_log::ReadMode;
use bascule_replica::takeover::{TAKE_OVER_MS, TRY_MS};
use bascule_replica::types::{BrokerId, Position};
use bascule_wire::peer::frame::CONTROL_BYTES;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// A member that has not applied the leader epoch is asked again after this.
const AGAIN: Duration = Duration::from_millis(10);
/// After a time of the take-over has run out, so that its clock has too.
const LATER: Duration = Duration::from_millis(5);
/// Batches of one answer, bytes; one batch is sent whatever its size, up to the next limit.
const RANGE_BYTES: usize = 1 << 20;
/// Most batches of a frame, bytes; the rest of it is less than the difference.
const MOST_BYTES: usize = CONTROL_BYTES - 1_024;

/// Body of types 6 and 27.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Asked {
    incarnation: u64,
    partition: u32,
    leader_epoch: u64,
    /// Of type 27: the first offset that is wanted. Of type 6: 0.
    offset: u64,
}

/// Body of types 7 and 28.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answered {
    /// Epoch of the last batch, log end, link of the last batch.
    At(u64, u64, u32),
    /// Batches, whole; none = there are none from that offset on, or they cannot be read.
    Batches(Bytes),
    /// The replica has not applied this leader epoch.
    Later,
    /// The replica follows a newer leader epoch.
    Over(u64),
}

impl Asked {
    fn new(question: Question, offset: u64) -> Self {
        Self {
            incarnation: question.incarnation,
            partition: question.partition,
            leader_epoch: question.leader_epoch,
            offset,
        }
    }
}

/// Asks where the log of a member ends, until it says so or the take-over is due.
pub(super) async fn ask_position(
    dialer: Arc<dyn Transport>,
    member: BrokerId,
    question: Question,
    partition: Partition,
) {
    let due = Instant::now() + Duration::from_millis(TAKE_OVER_MS) + LATER;
    while Instant::now() < due {
        let asked = Asked::new(question, 0);
        match ask(&*dialer, member, Kind::Position, &asked, due).await {
            Some(Answered::At(epoch, end, link)) => {
                let position = Position { epoch, end, link };
                let message = TakeOverMessage::Position {
                    from: member,
                    leader_epoch: question.leader_epoch,
                    position,
                };
                return partition.send_replica(ReplicaMessage::TakeOver(message));
            }
            Some(Answered::Over(_)) => return,
            Some(Answered::Later | Answered::Batches(_)) | None => {}
        }
        tokio::time::sleep(AGAIN).await;
    }
    partition.send_replica(ReplicaMessage::TakeOver(TakeOverMessage::Tick));
}

/// Asks a member for batches, once. `fetch`: number of the try, first offset.
pub(super) async fn ask_range(
    dialer: Arc<dyn Transport>,
    member: BrokerId,
    question: Question,
    fetch: (u64, u64),
    partition: Partition,
) {
    let (attempt, offset) = fetch;
    let due = Instant::now() + Duration::from_millis(TRY_MS) + LATER;
    let asked = Asked::new(question, offset);
    let answer = ask(&*dialer, member, Kind::Range, &asked, due).await;
    let message = if let Some(Answered::Batches(batches)) = answer {
        TakeOverMessage::Range {
            from: member,
            leader_epoch: question.leader_epoch,
            attempt,
            batches,
        }
    } else {
        // The try is over by then, whatever was answered.
        tokio::time::sleep_until(due).await;
        TakeOverMessage::Tick
    };
    partition.send_replica(ReplicaMessage::TakeOver(message));
}

/// `None`: no answer until then.
async fn ask(
    dialer: &dyn Transport,
    member: BrokerId,
    kind: Kind,
    asked: &Asked,
    due: Instant,
) -> Option<Answered> {
    let body = encode(asked).ok()?;
    let limit = due.saturating_duration_since(Instant::now());
    let answer = timeout_at(due, dialer.ask(member.0, kind, body, limit)).await;
    decode(&answer.ok()?.ok()?).ok()
}

/// Answers a request of type 6 or 27.
///
/// # Errors
/// It cannot be read.
pub(crate) async fn answer(replicas: &Replicas, kind: Kind, request: &[u8]) -> io::Result<Bytes> {
    let asked: Asked = decode(request)?;
    encode(&find(replicas, kind, asked).await)
}

async fn find(replicas: &Replicas, kind: Kind, asked: Asked) -> Answered {
    let partition = replicas.find(asked.incarnation);
    let Some(partition) = partition.filter(|found| found.identity().number == asked.partition)
    else {
        return Answered::Later;
    };
    let (reply, found) = oneshot::channel();
    partition.send_replica(ReplicaMessage::Asked(AskedMessage { reply }));
    let Ok(found) = found.await else {
        return Answered::Later;
    };
    if found.leader_epoch < asked.leader_epoch {
        return Answered::Later;
    }
    if found.leader_epoch > asked.leader_epoch {
        return Answered::Over(found.leader_epoch);
    }
    if kind == Kind::Position {
        let Position { epoch, end, link } = found.position;
        return Answered::At(epoch, end, link);
    }
    Answered::Batches(batches(found, asked.offset).await)
}

/// Batches from an offset on, as many as one frame may have; none if the first cannot be read, or is longer.
async fn batches(found: Found, offset: u64) -> Bytes {
    let mut cursor = found.reader.replica_cursor(offset);
    let read = move || cursor.next(u64::MAX, RANGE_BYTES, ReadMode::Blocking);
    let read = tokio::task::spawn_blocking(read).await;
    match read {
        Ok(Ok(Some(batches))) if batches.len() <= MOST_BYTES => batches,
        _ => Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::golden_body;

    #[test]
    fn bodies_are_as_the_format_says() {
        let asked = |offset| Asked {
            incarnation: 40,
            partition: 1,
            leader_epoch: 41,
            offset,
        };
        let batches = Bytes::from_static(&[1, 2, 3, 4]);
        let bodies = [
            (encode(&asked(0)), "position"),
            (
                encode(&Answered::At(39, 1000, 0xdead_beef)),
                "position_answer",
            ),
            (encode(&asked(1000)), "range"),
            (encode(&Answered::Batches(batches)), "range_answer"),
        ];
        for (body, name) in bodies {
            assert_eq!(golden_body(name), body.unwrap(), "{name}");
        }
    }
}
