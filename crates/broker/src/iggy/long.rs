//! Requests of v2: a header of 256 bytes, a session, and a number for whatever changes something.
use super::connection::{Connection, LOGIN_BY_TOKEN, LOGOUT};
use super::refused::Refused;
use super::session::{Session, Turn};
use bascule_wire::iggy::v1::Login;
use bascule_wire::iggy::v2::{
    Credentials, Eviction, Operation, PROTOCOL, Register, RequestHeader, body_checksum,
    register_reply, write_eviction, write_reply,
};
use bascule_wire::iggy::{Generation, REPLY_HEAD_BYTES, Status};
use bytes::{BufMut, Bytes, BytesMut};
use ring::rand::{SecureRandom, SystemRandom};

/// Of this server, as clients see it.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The section for results of a request that succeeded: no entry.
const NO_RESULTS: [u8; 4] = [0; 4];
/// Statuses of tokens that nobody may log in with.
const BAD_TOKENS: [u32; 3] = [20, 53, 54];

/// Why a request is not answered with its result.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// With this status instead.
    Status(u32),
    /// The session ends.
    Evicted(Eviction),
}

impl From<Refused> for Failure {
    fn from(Refused(status): Refused) -> Self {
        Self::Status(status)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(status.code())
    }
}

impl Connection {
    /// Header and body of the reply to one request.
    pub(super) async fn answer_long(
        &mut self,
        header: RequestHeader,
        body: Bytes,
    ) -> (Bytes, Bytes) {
        self.generation = Generation::V2;
        match self.carry_out(&header, body).await {
            Ok((operation, answer)) => {
                let results: &[u8] = if operation.has_results() {
                    &NO_RESULTS
                } else {
                    &[]
                };
                reply(&header, 0, results, answer)
            }
            Err(Failure::Status(status)) => reply(&header, status, &[], Bytes::new()),
            Err(Failure::Evicted(reason)) => {
                self.log_out();
                let frame = write_eviction(header.client, reason);
                (Bytes::copy_from_slice(&frame), Bytes::new())
            }
        }
    }

    /// The operation, and the body of its reply without the section for results.
    async fn carry_out(
        &mut self,
        header: &RequestHeader,
        body: Bytes,
    ) -> Result<(Operation, Bytes), Failure> {
        let operation = Operation::of(header.operation, header.code);
        let operation = operation.ok_or_else(|| unknown(header))?;
        if header.checksum != 0 && header.checksum != u128::from(body_checksum(&body)) {
            return Err(Status::InvalidCommand.into());
        }
        let (code, request) = match operation {
            Operation::Register => {
                return Ok((operation, self.register(header.client, &body).await?));
            }
            Operation::Read(code) => (code, 0),
            Operation::Logout => (LOGOUT, header.request),
            Operation::Change(code) => (code, header.request),
        };
        if let Some(session) = &self.session
            && !session.has(header)
            && code != super::connection::PING
        {
            return Err(Failure::Evicted(Eviction::NoSession));
        }
        if !operation.takes_number() {
            return Ok((operation, content(self.answer(code, request, body).await?)));
        }
        self.change(header, code, body)
            .await
            .map(|body| (operation, body))
    }

    /// Carries out a request with a number of its own, once.
    async fn change(
        &mut self,
        header: &RequestHeader,
        code: u32,
        body: Bytes,
    ) -> Result<Bytes, Failure> {
        self.found_user();
        let session = self.session.as_ref().ok_or(Status::Unauthenticated)?;
        match session.turn(header, &body) {
            Turn::New => {}
            Turn::Repeated(0, answer) => return Ok(answer),
            Turn::Repeated(status, _) => return Err(Failure::Status(status)),
            Turn::Used => return Err(Status::RequestAlreadyApplied.into()),
        }
        let outcome = self.answer(code, header.request, body.clone()).await;
        let (status, answer) = match outcome {
            Ok(answer) => (0, content(answer)),
            Err(Refused(status)) => (status, Bytes::new()),
        };
        // One that may be sent again has no answer yet; a logout has ended the session.
        if !is_transient(status)
            && let Some(session) = &mut self.session
        {
            session.answered(header, &body, status, &answer);
        }
        match status {
            0 => Ok(answer),
            status => Err(Failure::Status(status)),
        }
    }

    /// A login: begins a session, which replaces the one before.
    async fn register(&mut self, client: u128, body: &[u8]) -> Result<Bytes, Failure> {
        let malformed = |_| Failure::Evicted(Eviction::Malformed);
        let protocol = Register::protocol(body).map_err(malformed)?;
        if !Register::is_spoken(protocol) {
            let (major, minor, patch) = (protocol >> 20, protocol >> 10 & 1023, protocol & 1023);
            let text = format!(
                "a login is refused: the client speaks protocol {major}.{minor}.{patch} of Iggy, and this broker 0.{}: use a client of Iggy's servers 0.9 or older",
                PROTOCOL >> 10
            );
            self.context.report(self.peer.address, text);
            return Err(Failure::Evicted(Eviction::Version));
        }
        let register = Register::read(body).map_err(malformed)?;
        let mut payload = BytesMut::new();
        let mut put = |text: &str| {
            payload.put_u8(text.len() as u8);
            payload.put_slice(text.as_bytes());
        };
        let command = match register.credentials {
            Credentials::Password { name, password } => {
                put(name);
                put(password);
                "LOGIN_USER"
            }
            Credentials::Token(token) => {
                put(token);
                "LOGIN_WITH_PERSONAL_ACCESS_TOKEN"
            }
        };
        let is_token = matches!(register.credentials, Credentials::Token(_));
        if let Err(Refused(status)) = self.login(command, payload.freeze()).await {
            return Err(if is_token && BAD_TOKENS.contains(&status) {
                Failure::Evicted(Eviction::BadToken)
            } else {
                Failure::Status(status)
            });
        }
        let number = random()?;
        self.session = Some(Session::new(client, number));
        let user = self.user.and_then(|id| u32::try_from(id).ok());
        let user = user.ok_or(Status::Error)?.saturating_add(1);
        Ok(content(register_reply(user, number, VERSION)))
    }
}

/// A header that asks for nothing. Logins of older generations are not spoken with these headers.
fn unknown(header: &RequestHeader) -> Failure {
    let is_read = header.operation == 2;
    if is_read && [Login::CODE, LOGIN_BY_TOKEN].contains(&header.code) {
        return Failure::Evicted(Eviction::Malformed);
    }
    Status::InvalidCommand.into()
}

/// Whether the client sends the same request again.
pub(super) fn is_transient(status: u32) -> bool {
    [Status::TransientNotCommitted, Status::TransientNotAccepted]
        .iter()
        .any(|transient| transient.code() == status)
}

/// A reply of the other generations without its head.
fn content(mut frame: Bytes) -> Bytes {
    if frame.len() < REPLY_HEAD_BYTES {
        return Bytes::new();
    }
    frame.split_off(REPLY_HEAD_BYTES)
}

fn reply(to: &RequestHeader, status: u32, results: &[u8], body: Bytes) -> (Bytes, Bytes) {
    let bytes = u32::try_from(results.len() + body.len()).unwrap_or(u32::MAX);
    let head = [&write_reply(to, status, bytes)[..], results].concat();
    (head.into(), body)
}

/// The number of a session: nobody else can find it out.
fn random() -> Result<u64, Status> {
    let mut bytes = [0; 8];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Status::Error)?;
    Ok(u64::from_le_bytes(bytes).max(1))
}
