//! Unary Publish: callers that wait for each ack, and, when asked for, a ledger of what was acked.
use crate::arguments::Arguments;
use crate::grpc::{call, check_status, connect, request_frame};
use crate::report::{Clock, Failure, with_latencies};
use bascule_wire::liftbridge::acks::ResponseView;
use bytes::{Buf, Bytes};
use http_body_util::{BodyExt, Full};
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;
use tonic::body::Body;
use tonic::transport::Channel;

/// Bits of a value's number that count within one caller; those above are the caller.
const CALLER_SHIFT: u32 = 40;

/// What was acked, one entry of 16 bytes each, written the moment the ack came: the value's number and its offset, both
/// u64 little-endian. The value begins with its number.
struct Ledger(File);

impl Ledger {
    /// The file `acks`, when one is named.
    fn open(arguments: &Arguments) -> Result<Option<Arc<Self>>, Failure> {
        let path = arguments.text("acks", "");
        if path.is_empty() {
            return Ok(None);
        }
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Some(Arc::new(Self(file))))
    }

    fn acked(&self, number: u64, offset: u64) -> Result<(), Failure> {
        let mut entry = [0; 16];
        entry[..8].copy_from_slice(&number.to_le_bytes());
        entry[8..].copy_from_slice(&offset.to_le_bytes());
        Ok((&self.0).write_all(&entry)?)
    }
}

/// One caller: its number, its partition and what it sends.
struct Caller {
    number: u64,
    partition: u64,
    value: Vec<u8>,
    sent: u64,
}

impl Caller {
    /// The number of the next value, and its request.
    fn next(&mut self, arguments: &Arguments) -> (u64, Bytes) {
        let number = (self.number << CALLER_SHIFT) | self.sent;
        self.sent += 1;
        if let Some(start) = self.value.first_chunk_mut() {
            *start = number.to_le_bytes();
        }
        (
            number,
            request_frame(arguments, self.partition, &self.value).into(),
        )
    }
}

/// `in_flight` callers, each waiting for its ack before the next call; the `partitions` in turn.
pub async fn publish(arguments: &Arc<Arguments>) -> Result<serde_json::Value, Failure> {
    let channel = connect(arguments).await?;
    let ledger = Ledger::open(arguments)?;
    let clock = Clock::start();
    let end = Instant::now() + arguments.duration();
    let callers: Vec<_> = (0..arguments.number("in_flight", 1))
        .map(|number| {
            let (mut channel, ledger) = (channel.clone(), ledger.clone());
            let arguments = Arc::clone(arguments);
            let mut caller = Caller {
                number,
                partition: number % arguments.partitions(),
                value: arguments.value(),
                sent: 0,
            };
            tokio::spawn(async move {
                let mut micros = Vec::new();
                while Instant::now() < end {
                    let (value, frame) = caller.next(&arguments);
                    let start = Instant::now();
                    let offset = unary(&mut channel, frame).await?;
                    micros.push(start.elapsed().as_micros() as u32);
                    if let Some(ledger) = &ledger {
                        ledger.acked(value, offset)?;
                    }
                }
                Ok::<_, Failure>(micros)
            })
        })
        .collect();
    let mut all = Vec::new();
    for caller in callers {
        all.extend(caller.await??);
    }
    Ok(with_latencies(clock.report(all.len() as u64), all))
}

/// One call; the offset in its ack.
async fn unary(channel: &mut Channel, frame: Bytes) -> Result<u64, Failure> {
    let response = call(channel, "Publish", Body::new(Full::new(frame))).await?;
    check_status(Some(response.headers()))?;
    let collected = response.into_body().collect().await?;
    check_status(collected.trailers())?;
    let mut message = collected.to_bytes();
    if message.len() < 5 {
        return Err(Failure::new("an empty answer"));
    }
    message.advance(5);
    match ResponseView::read(message).and_then(|response| response.ack) {
        Some(ack) if ack.ack_error == 0 => Ok(ack.offset as u64),
        ack => Err(Failure::new(format!("no ack: {ack:?}"))),
    }
}
