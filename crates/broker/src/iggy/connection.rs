//! One client: login, and its commands in order.
use super::clients::{self, Listed};
use super::context::IggyContext;
use super::frames::{Frames, Head, ReadFailure};
use super::groups::{self, Memberships};
use super::long::is_transient;
use super::refused::Refused;
use super::session::Session;
use super::{offsets, poll, send};
use crate::admission::{Identity, PATIENCE, Stream, opened};
use crate::events;
use crate::tls::Peer;
use crate::user_caller::UserCaller;
use crate::user_rights::{UserAction, UserRights};
use bascule_wire::iggy::v1::{self, Login, Transport};
use bascule_wire::iggy::{
    Generation, LOGIN_REQUEST_BYTES, MAX_REQUEST_BYTES, REPLY_HEAD_BYTES, Status, v2,
    write_reply_head,
};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// How long the control plane may take for a command.
const TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const PING: u32 = 1;
const STATS: u32 = 10;
pub(super) const LOGOUT: u32 = 39;
pub(super) const LOGIN_BY_TOKEN: u32 = 44;
/// What the caller of a command is named by: this and the id of the user.
const CALLER: &str = "iggy:";

/// Commands about the broker and its connections.
fn reads_servers(code: u32) -> bool {
    matches!(code, 10 | 11 | 20..=22)
}

/// A connection and its session.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) context: Arc<IggyContext>,
    pub(super) peer: Peer,
    /// Id of the user who has logged in. Each command looks up the user's rights, so a change applies to the next command.
    pub(super) user: Option<u64>,
    /// Of v2, while a user has logged in.
    pub(super) session: Option<Session>,
    /// The listener lets a connection be that has it set.
    is_known: Arc<AtomicBool>,
    /// Among `limits.connections`, from the first login on.
    place: Option<OwnedSemaphorePermit>,
    /// It leaves all of its groups when it ends.
    groups: Memberships,
    listed: Listed,
    /// Decided by the login; what comes before is the same in all.
    pub(super) generation: Generation,
    /// A login by token leaves it open: then later requests decide.
    is_stated: bool,
}

impl Connection {
    /// Serves a connection until it ends.
    pub(super) async fn serve(
        context: Arc<IggyContext>,
        stream: TcpStream,
        is_known: Arc<AtomicBool>,
    ) {
        // Fails only for a connection that is gone.
        let _ = stream.set_nodelay(true);
        let patience = Duration::from_millis(context.limits.handshake_ms);
        let Ok(Some((stream, peer))) = timeout(patience, opened(&context.listener, stream)).await
        else {
            context.statistics.handshakes_failed.add(1);
            return;
        };
        let connection = Self::new(context, peer, Transport::Tcp, is_known);
        connection.converse(stream).await;
    }

    /// A client that is connected and has not logged in. Nothing of it is left when this is dropped.
    pub(super) fn new(
        context: Arc<IggyContext>,
        peer: Peer,
        transport: Transport,
        is_known: Arc<AtomicBool>,
    ) -> Self {
        let groups = Memberships::new(&context);
        let listed = Listed::new(&context.clients, groups.client(), transport, peer.address);
        Self {
            context,
            groups,
            listed,
            generation: Generation::V1,
            is_stated: false,
            peer,
            user: None,
            session: None,
            is_known,
            place: None,
        }
    }

    /// Largest payload of the next request, bytes.
    pub(super) fn most_bytes(&self) -> usize {
        if self.user.is_some() {
            MAX_REQUEST_BYTES
        } else {
            LOGIN_REQUEST_BYTES
        }
    }

    /// The frame of the reply to a request, in two parts.
    pub(super) async fn answer_frame(&mut self, head: Head, payload: Bytes) -> (Bytes, Bytes) {
        match head {
            Head::Short(code) => (Bytes::new(), self.answer_short(code, payload).await),
            Head::Long(header) => self.answer_long(header, payload).await,
        }
    }

    async fn converse(mut self, mut stream: Stream) {
        let mut frames = Frames::new(self.context.listener.admission.clone());
        loop {
            let request = match frames.next(&mut stream, self.most_bytes()).await {
                Ok(request) => request,
                Err(ReadFailure::Gone(_)) => return,
                Err(failure) => {
                    let text = format!("a connection is closed: {failure}");
                    return self.context.report(self.peer.address, text);
                }
            };
            if !self.context.run_state.is_serving() {
                return;
            }
            let (head, reply) = self.answer_frame(request.head, request.payload).await;
            drop(request.share);
            // A client that does not read its reply is closed.
            let mut reply = head.chain(reply);
            let written = timeout(PATIENCE, stream.write_all_buf(&mut reply));
            if !matches!(written.await, Ok(Ok(()))) {
                return;
            }
        }
    }

    /// The frame of the reply to one request of v1 and v1b.
    async fn answer_short(&mut self, code: u32, payload: Bytes) -> Bytes {
        let answer = match code {
            Login::CODE | LOGIN_BY_TOKEN => self.log_in(code, payload).await,
            _ => {
                if !self.is_stated && self.user.is_some() {
                    self.generation = v1::generation_after(self.generation, code, &payload);
                }
                self.answer(code, 0, payload).await
            }
        };
        answer.unwrap_or_else(|Refused(status)| {
            // Clients of these generations do not know those.
            let known = if is_transient(status) {
                Status::Error.code()
            } else {
                status
            };
            Bytes::copy_from_slice(&write_reply_head(known, 0))
        })
    }

    async fn log_in(&mut self, code: u32, payload: Bytes) -> Result<Bytes, Refused> {
        self.found_user();
        match code {
            Login::CODE => self.login_by_name("LOGIN_USER", payload).await,
            _ => {
                self.login("LOGIN_WITH_PERSONAL_ACCESS_TOKEN", payload)
                    .await
            }
        }
    }

    /// The frame of the reply to a request other than a login. `request`: its number in its session, 0 = it has none.
    pub(super) async fn answer(
        &mut self,
        code: u32,
        request: u64,
        payload: Bytes,
    ) -> Result<Bytes, Refused> {
        let name = v1::command_name(code, self.generation).ok_or(Status::InvalidCommand)?;
        let found = self.found_user();
        if code == PING {
            return empty(&payload);
        }
        let (id, rights) = found.ok_or(Status::Unauthenticated)?;
        let (context, own) = (&self.context, &mut self.groups);
        let session = self.session.as_mut().map(|session| (session, request));
        let caller = UserCaller {
            user: id,
            rights: &rights,
            access: &context.access,
            peer: &self.peer,
        };
        if reads_servers(code) && !caller.may(UserAction::ReadServers, None) {
            return Err(Status::Unauthorized.into());
        }
        let generation = self.generation;
        let identity = Identity::of(&self.peer);
        match code {
            LOGOUT => {
                let done = empty(&payload)?;
                self.log_out();
                Ok(done)
            }
            v1::Send::CODE => send::send(context, caller, generation, session, &payload).await,
            v1::Poll::CODE => {
                poll::poll(context, caller, own, &identity, generation, &payload).await
            }
            v1::Flush::CODE if generation == Generation::V2 => {
                Err(Status::FeatureUnavailable.into())
            }
            v1::Flush::CODE => send::flush(context, caller, generation, &payload).await,
            v1::GetOffset::CODE => offsets::get(context, caller, own, generation, &payload).await,
            v1::StoreOffset::CODE => {
                offsets::store(context, caller, own, generation, &payload).await
            }
            v1::DeleteOffset::CODE => {
                offsets::delete(context, caller, own, generation, &payload).await
            }
            v1::Group::GET => groups::get(context, caller, generation, &payload),
            v1::Topic::LIST => groups::list(context, caller, generation, &payload),
            v1::Group::JOIN => groups::join(context, caller, own, generation, &payload).await,
            v1::Group::LEAVE => groups::leave(context, caller, own, generation, &payload).await,
            v2::SYNC_GROUP => groups::sync(caller, own, generation, &payload).await,
            v1::ClientsReply::ME => clients::me(context, own.client(), generation, &payload),
            v1::ClientsReply::GET => clients::get(context, generation, &payload),
            v1::ClientsReply::LIST => clients::list(context, generation, &payload),
            STATS => {
                let facts = statistics(context, generation, &payload)?;
                self.forward(name, facts, Some(format!("{CALLER}{id}")))
                    .await
            }
            _ => {
                self.forward(name, payload, Some(format!("{CALLER}{id}")))
                    .await
            }
        }
    }

    /// The user of the session, as it is now. The session of one who was deleted or deactivated ends.
    pub(super) fn found_user(&mut self) -> Option<(u64, Arc<UserRights>)> {
        let id = self.user?;
        let found = self.context.view.load().users.get(&id).cloned();
        if found.is_none() {
            self.log_out();
            self.groups.leave_all();
        }
        found.map(|user| (id, user))
    }

    /// Ends the session; groups stay until the connection ends.
    pub(super) fn log_out(&mut self) {
        (self.user, self.session) = (None, None);
        self.listed.set_user(0);
    }

    /// `LOGIN_USER`: its version decides the generation, the control plane about name and password.
    async fn login_by_name(&mut self, command: &str, payload: Bytes) -> Result<Bytes, Refused> {
        let login = Login::read(&payload)?;
        let Some(generation) = Generation::of_version(login.version) else {
            let version: String = login.version.chars().take(32).collect();
            let text = format!(
                "a login is refused: the client states version {version:?} of its SDK, and this broker speaks those up to 0.10"
            );
            self.context.report(self.peer.address, text);
            return Err(Status::FeatureUnavailable.into());
        };
        if self.user.is_none() && self.place.is_none() {
            (self.generation, self.is_stated) = (generation, true);
        } else if generation != self.generation {
            let text = format!(
                "a login is refused: the connection speaks {}, and its client states version {} now",
                self.generation, login.version
            );
            self.context.report(self.peer.address, text);
            return Err(Status::FeatureUnavailable.into());
        }
        self.login(command, payload).await
    }

    /// A login that the control plane decides; it answers with the number of the user.
    pub(super) async fn login(&mut self, command: &str, payload: Bytes) -> Result<Bytes, Refused> {
        let reply = self.forward(command, payload, None).await?;
        let number = reply.last_chunk().copied().map(u32::from_le_bytes);
        let first = self.generation.first_number();
        let id = number.and_then(|number| number.checked_sub(first));
        let id = id.ok_or(Status::Error)?;
        if self.place.is_none() {
            let place = self.context.listener.admission.take_connection();
            self.place = Some(place.ok_or(Status::Error)?);
        }
        self.is_known.store(true, Ordering::Release);
        self.user = Some(id.into());
        self.listed.set_user(id.saturating_add(1));
        Ok(reply)
    }

    /// Hands a command to the control plane.
    async fn forward(
        &self,
        command: &str,
        payload: Bytes,
        caller: Option<String>,
    ) -> Result<Bytes, Refused> {
        let context = &self.context;
        let admission = &context.listener.admission;
        let Some(_piece) = admission.admin_requests.take(Identity::of(&self.peer)) else {
            context.statistics.calls_refused.add(1);
            return Err(Status::Error.into());
        };
        let caller = events::Caller {
            name: caller,
            ..self.peer.to_caller()
        };
        let method = method(command, self.generation);
        let events = &context.listener.events;
        let answer = events
            .request(&method, payload, caller, Some(TIMEOUT))
            .await?;
        framed(&answer)
    }
}

/// What the control plane is asked by: commands of v2, and of clients that count from 0, have names of their own.
fn method(command: &str, generation: Generation) -> String {
    match (generation, generation.first_number()) {
        (Generation::V2, _) => format!("iggy2/{command}"),
        (_, 0) => format!("iggy0/{command}"),
        _ => format!("iggy/{command}"),
    }
}

/// `GET_STATS`: what the control plane does not know itself: how many clients are connected, and whether the client is one of
/// v1b, which is shown more.
fn statistics(
    context: &IggyContext,
    generation: Generation,
    payload: &[u8],
) -> Result<Bytes, Refused> {
    empty(payload)?;
    let mut facts = BytesMut::with_capacity(5);
    facts.put_u32_le(context.clients.count());
    facts.put_u8(u8::from(generation != Generation::V1));
    Ok(facts.freeze())
}

/// The reply to a command without fields and without a result.
fn empty(payload: &[u8]) -> Result<Bytes, Refused> {
    if payload.is_empty() {
        return Ok(done());
    }
    Err(Status::InvalidCommand.into())
}

/// A reply without a result.
pub(super) fn done() -> Bytes {
    Bytes::copy_from_slice(&write_reply_head(0, 0))
}

fn framed(payload: &[u8]) -> Result<Bytes, Refused> {
    let bytes = u32::try_from(payload.len()).map_err(|_| Status::Error)?;
    let mut out = BytesMut::with_capacity(REPLY_HEAD_BYTES + payload.len());
    out.put_slice(&write_reply_head(0, bytes));
    out.put_slice(payload);
    Ok(out.freeze())
}
