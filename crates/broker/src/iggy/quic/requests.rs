//! The requests of a connection.
//!
//! They are carried out one at a time, in the order in which the client opened their streams, so a session meets what it
//! would meet over TCP. A stream is read when those before it are answered; until then its bytes wait within the connection's
//! windows. What cannot be read ends its own stream only, with a status: the next request begins on another one.
use super::listener::CLOSED;
use crate::admission::PATIENCE;
use crate::iggy::connection::Connection;
use crate::iggy::frames::{Frames, Head, ReadFailure, Request};
use bascule_wire::iggy::v2::{RequestHeader, write_reply};
use bascule_wire::iggy::{Family, Status, write_reply_head};
use bytes::Bytes;
use quinn::{RecvStream, SendStream};
use std::io::ErrorKind;
use tokio::time::timeout;

/// Why the connection is closed: a request did not arrive, or a reply was not read in time.
struct Stalled(String);

impl Connection {
    /// Answers requests until the connection ends.
    pub(super) async fn answer_streams(mut self, streams: &quinn::Connection) {
        let mut family = None;
        // Fails when the connection has ended.
        while let Ok((send, receive)) = streams.accept_bi().await {
            if !self.context.run_state.is_serving() {
                return;
            }
            if let Err(Stalled(why)) = self.answer_stream(send, receive, &mut family).await {
                let text = format!("a connection is closed: {why}");
                return self.context.report(self.peer.address, text);
            }
        }
    }

    /// `family`: of the requests before; `None` = this is the first.
    async fn answer_stream(
        &mut self,
        mut send: SendStream,
        mut receive: RecvStream,
        family: &mut Option<Family>,
    ) -> Result<(), Stalled> {
        let mut frames = Frames::new(self.context.listener.admission.clone());
        let read = frames.only(&mut receive, self.most_bytes()).await;
        let read = read.and_then(|request| in_family(request, family));
        let reply = match read {
            Ok(Request {
                head,
                payload,
                share,
            }) => {
                let reply = self.answer_frame(head, payload).await;
                drop(share);
                reply
            }
            Err(ReadFailure::Late) => return Err(Stalled(ReadFailure::Late.to_string())),
            Err(ReadFailure::Gone(error)) if error.kind() != ErrorKind::UnexpectedEof => {
                // The client has given the request up. Fails only for a connection that is gone.
                let _ = send.reset(CLOSED);
                return Ok(());
            }
            Err(failure) => {
                let text = format!("a request is refused: {failure}");
                self.context.report(self.peer.address, text);
                let _ = receive.stop(CLOSED);
                let status = match failure {
                    ReadFailure::Budget(_) => no_room(*family),
                    _ => Status::InvalidCommand,
                };
                refusal(frames.family().or(*family), status)
            }
        };
        write(&mut send, reply).await
    }
}

/// A request of a connection whose requests before are framed like this.
fn in_family(request: Request, family: &mut Option<Family>) -> Result<Request, ReadFailure> {
    let own = match request.head {
        Head::Short(_) => Family::Short,
        Head::Long(_) => Family::Long,
    };
    if *family.get_or_insert(own) == own {
        return Ok(request);
    }
    Err(ReadFailure::Family)
}

/// Nothing of the request was carried out; clients of v2 send it again.
fn no_room(family: Option<Family>) -> Status {
    match family {
        Some(Family::Long) => Status::TransientNotAccepted,
        _ => Status::Error,
    }
}

/// The reply to what is not a request.
fn refusal(family: Option<Family>, status: Status) -> (Bytes, Bytes) {
    let head = match family {
        Some(Family::Long) => {
            let unknown = RequestHeader::default();
            Bytes::copy_from_slice(&write_reply(&unknown, status.code(), 0))
        }
        _ => Bytes::copy_from_slice(&write_reply_head(status.code(), 0)),
    };
    (head, Bytes::new())
}

/// A client that does not read its reply is closed; one that does not want it any more, or is gone, is not.
async fn write(send: &mut SendStream, (head, body): (Bytes, Bytes)) -> Result<(), Stalled> {
    let parts = [head, body].into_iter();
    let mut parts: Vec<Bytes> = parts.filter(|part| !part.is_empty()).collect();
    match timeout(PATIENCE, send.write_all_chunks(&mut parts)).await {
        Ok(Ok(())) => {
            // Fails only when the client does not want it any more.
            let _ = send.finish();
            Ok(())
        }
        Ok(Err(_)) => Ok(()),
        Err(_) => {
            let seconds = PATIENCE.as_secs();
            Err(Stalled(format!("a reply was not read within {seconds} s")))
        }
    }
}
