//! Subscribe with a client that decodes every message.
use crate::arguments::Arguments;
use crate::grpc::{call, check_status, connect, next_frame};
use crate::report::{Clock, Failure};
use bascule_wire::liftbridge::delivery::MessageView;
use bascule_wire::liftbridge::messages::SubscribeRequest;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use prost::Message;
use tonic::body::Body;

/// Reads offsets 0 to `count` − 1; each must be the next.
pub async fn run(arguments: &Arguments) -> Result<serde_json::Value, Failure> {
    let count = arguments.number("count", 1_000_000);
    let mut channel = connect(arguments).await?;
    let request = SubscribeRequest {
        stream: arguments.text("stream", "bench").into(),
        start_position: 2, // EARLIEST
        stop_position: 1,  // STOP_OFFSET
        stop_offset: count as i64 - 1,
        ..SubscribeRequest::default()
    };
    let mut frame = vec![0];
    frame.extend_from_slice(&(request.encoded_len() as u32).to_be_bytes());
    request.encode(&mut frame)?;
    let clock = Clock::start();
    let response = call(
        &mut channel,
        "Subscribe",
        Body::new(Full::new(Bytes::from(frame))),
    )
    .await?;
    check_status(Some(response.headers()))?;
    let (mut body, mut pending, mut next) = (response.into_body(), BytesMut::new(), 0_i64);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { break }; // the status that says "stop offset reached"
        pending.extend_from_slice(&data);
        while let Some(message) = next_frame(&mut pending) {
            let message = MessageView::read(message)
                .ok_or_else(|| Failure::new("the answer is not a valid Message"))?;
            if message.is_handshake() {
                continue;
            }
            if message.offset() != next || message.value().is_empty() {
                return Err(Failure::new(format!(
                    "offset {} came where {next} was due",
                    message.offset()
                )));
            }
            next += 1;
        }
    }
    if next != count as i64 {
        return Err(Failure::new(format!(
            "the stream ended after {next} of {count} messages"
        )));
    }
    Ok(clock.report(count))
}
