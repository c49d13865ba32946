//! A client of one connection: its requests, from their heads to their answers.
use super::Site;
use super::cors;
use super::forward::{self, AUTHENTICATE, Authenticated, Head, REQUEST};
use super::payload::segments;
use super::problem::{Problem, Reply, TEXT, empty, reply};
use super::routes::{Answering, Route};
use super::tokens::{Bearer, Known};
use crate::admission::{Identity, PATIENCE, charge};
use crate::events;
use crate::tls::Peer;
use crate::user_caller::UserCaller;
use bascule_wire::iggy::Status;
use bytes::{Bytes, BytesMut};
use http::header::{ALLOW, AUTHORIZATION, CONNECTION, HeaderMap, HeaderValue, ORIGIN};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// How long the control plane may take for a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Largest token, bytes.
const MOST_TOKEN_BYTES: usize = 4 << 10;
/// Largest body of a request without a token, bytes.
const MOST_LOGIN_BYTES: usize = 8 << 10;
/// What the control plane knows users by: this and the number.
const CALLER: &str = "iggy:";
/// Statuses of Iggy for a token that is missing, and for one that is not valid.
const TOKEN_MISSING: u32 = 77;
const TOKEN_INVALID: u32 = 78;
const METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];

/// Who has sent a request.
pub(super) type Session = Bearer;

/// A request that has arrived.
pub(super) struct Asked {
    method: Method,
    path: Vec<String>,
    pub(super) query: String,
    token: String,
    pub(super) body: Bytes,
    /// Among `limits.request_bytes`.
    _share: Option<OwnedSemaphorePermit>,
}

pub(super) struct Client {
    site: Arc<Site>,
    peer: Peer,
    identity: Identity,
    /// The listener lets a connection be that has it set.
    is_known: Arc<AtomicBool>,
    /// Among `limits.connections`, from the first valid token on.
    place: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Client {
    pub(super) fn new(site: Arc<Site>, peer: Peer, is_known: Arc<AtomicBool>) -> Self {
        Self {
            site,
            identity: Identity::of(&peer),
            peer,
            is_known,
            place: Mutex::new(None),
        }
    }

    /// The answer to a request, whatever it is.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Reply {
        self.site.requests.fetch_add(1, Ordering::Relaxed);
        let origins = &self.site.settings.cors_origins;
        let origin = request.headers().get(ORIGIN).cloned();
        let mut reply = if cors::is_preflight(request.method(), request.headers()) {
            cors::preflight(origins)
        } else {
            let answered = self.carry_out(request).await;
            answered.unwrap_or_else(Problem::into_reply)
        };
        if let Some(origin) = origin {
            cors::allow(&mut reply, origins, &origin);
        }
        reply
    }

    async fn carry_out(&self, request: Request<Incoming>) -> Result<Reply, Problem> {
        let context = &self.site.context;
        if !context.run_state.is_serving() {
            let text = "the broker is starting or stopping";
            return Err(Problem::of_http(StatusCode::SERVICE_UNAVAILABLE, text));
        }
        let (head, body) = request.into_parts();
        if !METHODS.contains(&head.method.as_str()) {
            let mut reply = empty(StatusCode::METHOD_NOT_ALLOWED);
            let methods = HeaderValue::from_static("GET, POST, PUT, DELETE");
            reply.headers_mut().insert(ALLOW, methods);
            return Ok(self.before_body(reply, body).await);
        }
        let path = segments(head.uri.path())?;
        let parts: Vec<&str> = path.iter().map(String::as_str).collect();
        if head.method == Method::GET && parts == ["ping"] {
            return Ok(reply(StatusCode::OK, TEXT, "pong"));
        }
        let (token, session) = match self.identify(&head, &parts).await {
            Ok(found) => found,
            Err(problem) => return Ok(self.before_body(problem.into_reply(), body).await),
        };
        let most = match session {
            Some(_) => self.site.settings.max_request_bytes,
            None => MOST_LOGIN_BYTES,
        };
        let (body, share) = self.read(body, most).await?;
        let asked = Asked {
            method: head.method,
            query: head.uri.query().unwrap_or_default().to_owned(),
            token,
            body,
            _share: share,
            path: path.clone(),
        };
        if let Some(session) = session
            && let Some(route) = Route::of(&asked.method, &parts)
        {
            let user = context.view.load().users.get(&session.user).cloned();
            let rights = user.ok_or(Status::Unauthenticated)?;
            let answering = Answering {
                context,
                identity: &self.identity,
                caller: UserCaller {
                    user: session.user,
                    rights: &rights,
                    access: &context.access,
                    peer: &self.peer,
                },
                session,
            };
            return answering.answer(route, &asked).await;
        }
        self.forward(session, &asked).await
    }

    /// The token of a request, and who has sent it; `None` = nobody has to be known.
    async fn identify(
        &self,
        head: &Parts,
        path: &[&str],
    ) -> Result<(String, Option<Session>), Problem> {
        let token = token(&head.headers)?.to_owned();
        if is_open(&head.method, path) {
            return Ok((token, None));
        }
        let session = self.authenticate(&token).await?;
        Ok((token, Some(session)))
    }

    /// An answer that does not wait for the body of its request: the connection stays if that is small.
    async fn before_body(&self, mut reply: Reply, body: Incoming) -> Reply {
        if self.read(body, MOST_LOGIN_BYTES).await.is_err() {
            let close = HeaderValue::from_static("close");
            reply.headers_mut().insert(CONNECTION, close);
        }
        reply
    }

    /// Who has sent a token: a user who exists and is active.
    async fn authenticate(&self, token: &str) -> Result<Session, Problem> {
        if token.is_empty() {
            return Err(Problem::of_iggy(TOKEN_MISSING, None));
        }
        let invalid = || Problem::of_iggy(TOKEN_INVALID, None);
        let context = &self.site.context;
        let bearer = match self.site.tokens.find(token) {
            Known::Valid(bearer) => bearer,
            Known::Revoked => return Err(invalid()),
            Known::Unknown => {
                let asked = Bytes::copy_from_slice(token.as_bytes());
                let answer = self.ask(AUTHENTICATE, asked, None).await?;
                let (bearer, keep) = Authenticated::read(&answer)?;
                if !keep.is_zero() {
                    self.site.tokens.keep(token, bearer, keep);
                }
                bearer
            }
        };
        if !context.view.load().users.contains_key(&bearer.user) {
            return Err(invalid());
        }
        self.admit()?;
        Ok(bearer)
    }

    /// The connection takes its place among those whose client is known.
    fn admit(&self) -> Result<(), Problem> {
        let mut place = self.place.lock();
        if place.is_none() {
            let taken = self.site.context.listener.admission.take_connection();
            *place = Some(taken.ok_or_else(|| {
                let text = "limits.connections are open: close some, or raise it";
                Problem::of_http(StatusCode::SERVICE_UNAVAILABLE, text)
            })?);
            self.is_known.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// The body of a request. It is charged as it arrives, not by the length that is announced.
    async fn read(
        &self,
        body: Incoming,
        most: usize,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Problem> {
        let too_large = || {
            let text = format!(
                "the body has more than {most} bytes: send fewer messages at once, or raise iggy.http_max_request_bytes"
            );
            Problem::of_http(StatusCode::PAYLOAD_TOO_LARGE, text)
        };
        if body.size_hint().lower() > most as u64 {
            return Err(too_large());
        }
        let arrive = async {
            let (mut body, mut read) = (body, BytesMut::new());
            let mut share: Option<OwnedSemaphorePermit> = None;
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|_| Problem::malformed("the body ends early"))?;
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                if read.len() + data.len() > most {
                    return Err(too_large());
                }
                let more = charge(&self.site.context.listener.admission, data.len());
                let more = more.map_err(|full| {
                    Problem::of_http(StatusCode::SERVICE_UNAVAILABLE, full.message())
                })?;
                match &mut share {
                    Some(share) => share.merge(more),
                    None => share = Some(more),
                }
                read.extend_from_slice(&data);
            }
            Ok((read.freeze(), share))
        };
        timeout(PATIENCE, arrive).await.unwrap_or_else(|_| {
            let text = format!("the body did not arrive within {} s", PATIENCE.as_secs());
            Err(Problem::of_http(StatusCode::REQUEST_TIMEOUT, text))
        })
    }

    /// What the control plane answers to a request.
    async fn forward(&self, session: Option<Session>, asked: &Asked) -> Result<Reply, Problem> {
        let path: Vec<&str> = asked.path.iter().map(String::as_str).collect();
        let head = Head {
            method: asked.method.as_str(),
            path: &path,
            query: &asked.query,
            generation: session.map_or("", |session| forward::generation_name(session.generation)),
            token: session.map_or("", |_| &asked.token),
            clients: self.site.context.clients.count(),
            requests: self.site.requests.load(Ordering::Relaxed),
        };
        let payload = forward::payload(&head, &asked.body)?;
        let caller = session.map(|session| format!("{CALLER}{}", session.user));
        let answer = self.ask(REQUEST, payload, caller).await?;
        let (reply, revoked) = forward::answered(&answer)?;
        for (token, rest_s) in revoked {
            self.site.tokens.revoke(&token, Duration::from_secs(rest_s));
        }
        Ok(reply)
    }

    async fn ask(
        &self,
        method: &str,
        payload: Bytes,
        caller: Option<String>,
    ) -> Result<Bytes, Problem> {
        let context = &self.site.context;
        let admission = &context.listener.admission;
        let Some(_piece) = admission.admin_requests.take(self.identity.clone()) else {
            context.statistics.calls_refused.add(1);
            let text = "limits.admin_requests_per_identity of this client wait for an answer: wait for them, or raise it";
            return Err(Problem::of_http(StatusCode::TOO_MANY_REQUESTS, text));
        };
        let caller = events::Caller {
            name: caller,
            ..self.peer.to_caller()
        };
        let events = &context.listener.events;
        Ok(events
            .request(method, payload, caller, Some(TIMEOUT))
            .await?)
    }
}

/// Whether a request needs no token.
fn is_open(method: &Method, path: &[&str]) -> bool {
    match path {
        ["users", "login" | "refresh-token"] | ["personal-access-tokens", "login"] => {
            method == Method::POST
        }
        ["" | "openapi.json"] => method == Method::GET,
        _ => false,
    }
}

/// The token of a request; empty = it has none.
///
/// # Errors
/// Status 78 for what cannot be a token.
fn token(headers: &HeaderMap) -> Result<&str, Problem> {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return Ok("");
    };
    let invalid = || Problem::of_iggy(TOKEN_INVALID, None);
    let text = value.to_str().map_err(|_| invalid())?.trim();
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    let token = token.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || token.len() > MOST_TOKEN_BYTES {
        return Err(invalid());
    }
    Ok(token)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_token_is_what_follows_bearer() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            token(&headers).map(str::to_owned)
        };
        assert_eq!(token(&HeaderMap::new()).unwrap(), "");
        assert_eq!(of("Bearer").unwrap(), "");
        assert_eq!(of("bearer  a.b.c ").unwrap(), "a.b.c");
        assert_eq!(of("Basic YTpi").unwrap_err().id, TOKEN_INVALID);
        let long = format!("Bearer {}", "a".repeat(MOST_TOKEN_BYTES + 1));
        assert_eq!(of(&long).unwrap_err().id, TOKEN_INVALID);
    }
}
