//! Calls of one message over raw bodies: the request in, and the answer out, charged until the client has read it.
use super::body::ScanBody;
use super::context::FlightContext;
use super::refusal::{invalid, unimplemented};
use crate::admission::Identity;
use crate::tls::Peer;
use bytes::{BufMut, Bytes};
use http_body_util::{BodyExt, Limited};
use tokio::sync::mpsc;
use tonic::Status;
use tonic::body::Body;

/// The one message of a request body, without the five bytes of gRPC before it. `what`: how sentences call it.
///
/// # Errors
/// `INVALID_ARGUMENT`, UNIMPLEMENTED for a compressed one; what bounds the body.
pub async fn read(what: &str, body: Body, most: usize) -> Result<Bytes, Status> {
    let collected = Limited::new(body, most).collect().await;
    let collected = collected.map_err(|error| match error.downcast::<Status>() {
        Ok(status) => *status,
        Err(error) => invalid(format!("{what} could not be read: {error}")),
    });
    let bytes = collected?.to_bytes();
    let (Some(compressed), Some(length), Some(message)) =
        (bytes.first(), bytes.get(1..5), bytes.get(5..))
    else {
        return Err(invalid(format!("the call carries no {what}")));
    };
    if *compressed != 0 {
        return Err(unimplemented(&format!("compressed {what}s are not taken")));
    }
    if length != (message.len() as u32).to_be_bytes() {
        let text = format!("the call carries not exactly one {what}");
        return Err(invalid(text));
    }
    Ok(bytes.slice(5..))
}

/// Appends a message with the five bytes of gRPC before it.
pub fn frame(frames: &mut Vec<u8>, message: &[u8]) {
    frames.put_u8(0);
    frames.put_u32(message.len() as u32);
    frames.extend_from_slice(message);
}

/// The same bytes, charged to the client until it has read them.
///
/// # Errors
/// `RESOURCE_EXHAUSTED`.
pub fn charged(context: &FlightContext, peer: &Peer, frames: Vec<u8>) -> Result<Bytes, Status> {
    let answers = &context.admission.answers;
    let charge = answers.charge(&Identity::of(peer), frames.len());
    let charge = charge.inspect_err(|_| context.statistics.calls_refused.add(1))?;
    Ok(charge.hold(frames.into()))
}

/// An answer of one message.
///
/// # Errors
/// `RESOURCE_EXHAUSTED`.
pub fn reply(context: &FlightContext, peer: &Peer, message: &[u8]) -> Result<Body, Status> {
    let mut frames = Vec::with_capacity(5 + message.len());
    frame(&mut frames, message);
    // A channel without a sender: nothing follows.
    let (_, nothing) = mpsc::channel(1);
    Ok(Body::new(ScanBody::new(
        charged(context, peer, frames)?,
        nothing,
    )))
}
