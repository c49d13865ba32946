//! The listener over real sockets; the control plane is a thread that knows one user.
use super::refused::Refused;
use crate::engine::Engine;
use crate::events::{Event, Rejection};
use bascule_wire::iggy::Status;
use bytes::Bytes;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// More than an answer may take.
pub(super) const LIMIT: Duration = Duration::from_secs(30);
pub(super) const OK: u32 = 0;

pub(super) struct Served {
    pub(super) engine: Arc<Engine>,
    port: u16,
    stop: Arc<AtomicBool>,
    control: Option<JoinHandle<()>>,
    _data: tempfile::TempDir,
}

impl Served {
    pub(super) fn start(limits: &serde_json::Value) -> Self {
        let data = tempfile::tempdir().unwrap();
        let settings = json!({
            "data_dir": data.path(), "cluster_id": "c", "broker_id": "b", "runtime_threads": 1, "namespace": "n",
            "limits": limits,
        });
        let engine = Engine::new(&serde_json::from_value(settings).unwrap()).unwrap();
        let engine = Arc::new(engine);
        engine.set_serving(true);
        let changes = json!({"users": [user(0, "iggy", 15), user(1, "ada", 0)]});
        let changes = serde_json::from_value(changes).unwrap();
        engine.publish_view(1, changes).unwrap();
        let port = engine.serve_iggy("127.0.0.1", 0).unwrap();
        let stop = Arc::<AtomicBool>::default();
        let (answering, stopped) = (engine.clone(), stop.clone());
        let control = std::thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                for event in answering.events().poll(16) {
                    if let Event::Request(request) = event {
                        let answer = control(&request.method, &request.body, request.caller.name);
                        answering.events().respond(request.id, answer);
                    }
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self {
            engine,
            port,
            stop,
            control: Some(control),
            _data: data,
        }
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    pub(super) fn logged_in(&self) -> TcpStream {
        let mut stream = self.connect();
        assert_eq!(
            ask(&mut stream, 38, &login("secret")),
            (OK, vec![1, 0, 0, 0])
        );
        stream
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(control) = self.control.take() {
            control.join().unwrap();
        }
        self.engine.close(Duration::ZERO);
    }
}

fn user(id: u64, name: &str, everywhere: u8) -> serde_json::Value {
    json!({"id": id, "name": name, "everywhere": everywhere, "streams": [], "topics": []})
}

fn control(method: &str, body: &[u8], caller: Option<String>) -> Result<Bytes, Rejection> {
    match method {
        "iggy/LOGIN_USER" if body == login("secret") => Ok(Bytes::from_static(&[1, 0, 0, 0])),
        "iggy/LOGIN_USER" => Err(rejection(16, Some(42))),
        "iggy/LOGIN_WITH_PERSONAL_ACCESS_TOKEN" if body == b"\x03ada" => {
            Ok(Bytes::from_static(&[2, 0, 0, 0]))
        }
        "iggy/LOGIN_WITH_PERSONAL_ACCESS_TOKEN" => Err(rejection(16, Some(20))),
        "iggy/GET_STREAMS" => Ok(Bytes::from(caller.unwrap_or_default())),
        _ => Err(rejection(12, None)),
    }
}

fn rejection(status: i32, iggy_status: Option<u32>) -> Rejection {
    Rejection {
        status,
        message: String::new(),
        code: None,
        details: json!({}),
        iggy_status,
    }
}

pub(super) fn login(password: &str) -> Vec<u8> {
    let mut payload = b"\x04iggy".to_vec();
    payload.push(password.len() as u8);
    payload.extend_from_slice(password.as_bytes());
    payload.extend_from_slice(b"\x07\0\0\x000.6.202\0\0\0\0");
    payload
}

pub(super) fn frame(code: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32 + 4).to_le_bytes().to_vec();
    frame.extend_from_slice(&code.to_le_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Status and payload of the next reply.
fn reply(stream: &mut TcpStream) -> (u32, Vec<u8>) {
    let mut head = [0; 8];
    stream.read_exact(&mut head).unwrap();
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
    let mut payload = vec![0; number(4) as usize];
    stream.read_exact(&mut payload).unwrap();
    (number(0), payload)
}

pub(super) fn ask(stream: &mut TcpStream, code: u32, payload: &[u8]) -> (u32, Vec<u8>) {
    stream.write_all(&frame(code, payload)).unwrap();
    reply(stream)
}

pub(super) fn refused(status: Status) -> (u32, Vec<u8>) {
    (status.code(), Vec::new())
}

/// What comes before the listener closes the connection; a reset is a close too.
fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    rest
}

#[test]
fn only_ping_and_login_are_answered_before_a_login() {
    let served = Served::start(&json!({}));
    let mut stream = served.connect();
    assert_eq!(ask(&mut stream, 1, &[]), (OK, vec![]));
    for code in [10, 20, 31, 39, 100, 101, 121, 200, 201, 302, 605] {
        let outcome = ask(&mut stream, code, &[]);
        assert_eq!(outcome, refused(Status::Unauthenticated), "{code}");
    }
    assert_eq!(ask(&mut stream, 44, b"\x01t"), (20, vec![]));
    assert_eq!(
        ask(&mut stream, 60_000, &[]),
        refused(Status::InvalidCommand)
    );
    assert_eq!(ask(&mut stream, 1, &[0]), refused(Status::InvalidCommand));
    assert_eq!(ask(&mut stream, 38, &login("wrong")), (42, vec![]));
    assert_eq!(ask(&mut stream, 201, &[]), refused(Status::Unauthenticated));
    assert_eq!(ask(&mut stream, 38, &login("secret")).0, OK);
    assert_eq!(ask(&mut stream, 201, &[]), (OK, b"iggy:0".to_vec()));
    assert_eq!(ask(&mut stream, 38, &login("wrong")), (42, vec![]));
    assert_eq!(ask(&mut stream, 201, &[]).0, OK, "the session before stays");
    assert_eq!(
        ask(&mut stream, 10, &[]),
        refused(Status::FeatureUnavailable)
    );
    assert_eq!(ask(&mut stream, 39, &[]), (OK, vec![]));
    assert_eq!(ask(&mut stream, 201, &[]), refused(Status::Unauthenticated));
}

#[test]
fn a_session_may_do_what_its_user_may_now_and_ends_with_the_user() {
    let served = Served::start(&json!({}));
    let mut stream = served.connect();
    assert_eq!(ask(&mut stream, 44, b"\x03ada"), (OK, vec![2, 0, 0, 0]));
    assert_eq!(ask(&mut stream, 201, &[]), (OK, b"iggy:1".to_vec()));
    let poll = b"\x01\x01\x04\x01\0\0\0\x02\x01s\x02\x01t\0\0\0\0\x03\0\0\0\0\0\0\0\0\x01\0\0\0\0";
    assert_eq!(ask(&mut stream, 100, poll), refused(Status::Unauthorized));
    assert_eq!(ask(&mut stream, 10, &[]), refused(Status::Unauthorized));
    let publish = |version, changes| {
        let changes = serde_json::from_value(changes).unwrap();
        served.engine.publish_view(version, changes).unwrap();
    };
    publish(2, json!({"users": [user(1, "eve", 1)]}));
    assert_eq!(
        ask(&mut stream, 100, poll),
        refused(Status::StreamNameNotFound)
    );
    publish(3, json!({"removed_users": [1]}));
    assert_eq!(ask(&mut stream, 201, &[]), refused(Status::Unauthenticated));
    assert_eq!(ask(&mut stream, 1, &[]), (OK, vec![]));
    publish(4, json!({"users": [user(1, "eve", 1)]}));
    assert_eq!(
        ask(&mut stream, 201, &[]),
        refused(Status::Unauthenticated),
        "the session has ended"
    );
}

#[test]
fn pipelined_requests_are_answered_in_order_and_may_be_cut_anywhere() {
    let served = Served::start(&json!({}));
    let mut stream = served.logged_in();
    let mut bytes = Vec::new();
    for code in [1, 201, 60_000, 1] {
        bytes.extend_from_slice(&frame(code, &[]));
    }
    stream.write_all(&bytes).unwrap();
    let statuses = [0, 1, 2, 3].map(|_| reply(&mut stream).0);
    assert_eq!(statuses, [OK, OK, Status::InvalidCommand.code(), OK]);
    for byte in bytes.chunks(1) {
        stream.write_all(byte).unwrap();
    }
    let statuses = [0, 1, 2, 3].map(|_| reply(&mut stream).0);
    assert_eq!(statuses, [OK, OK, Status::InvalidCommand.code(), OK]);
}

#[test]
fn a_connection_whose_bytes_cannot_be_framed_is_closed() {
    let served = Served::start(&json!({}));
    let too_long = (65_u32 << 10).to_le_bytes();
    for first in [[3, 0, 0, 0], [255; 4], too_long] {
        let mut stream = served.connect();
        stream.write_all(&first).unwrap();
        stream.write_all(&[38, 0, 0, 0]).unwrap();
        assert_eq!(until_closed(&mut stream), b"", "{first:?}");
    }
    // After the login more is accepted; the bytes are not waited for before the length is checked.
    let mut stream = served.logged_in();
    assert_eq!(ask(&mut stream, 201, &vec![0; 1 << 20]).0, OK);
    stream.write_all(&[1, 0, 0, 5, 101, 0, 0, 0]).unwrap();
    assert_eq!(until_closed(&mut stream), b"");
    assert_eq!(ask(&mut served.connect(), 1, &[]), (OK, vec![]));
}

#[test]
fn every_payload_of_a_command_that_moves_records_has_an_answer() {
    let served = Served::start(&json!({}));
    let mut stream = served.logged_in();
    let whole =
        b"\x01\x04\x01\0\0\0\x02\x01s\x02\x01t\0\0\0\0\x01\0\0\0\0\0\0\0\0\x01\0\0\0\x01".to_vec();
    for code in [100, 101, 102, 120, 121, 122] {
        for length in 0..=whole.len() {
            let (status, payload) = ask(&mut stream, code, &whole[..length]);
            let is_absent = code == 120 && status == OK && payload.is_empty();
            assert!(is_absent || status != OK, "{code} {length}");
            assert!(payload.is_empty());
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0xff;
            ask(&mut stream, code, &flipped);
        }
    }
    assert_eq!(ask(&mut stream, 1, &[]), (OK, vec![]));
}

#[test]
fn the_oldest_connection_without_a_login_gives_way() {
    let served = Served::start(&json!({"handshakes": 2}));
    let mut known = served.logged_in();
    let mut first = served.connect();
    assert_eq!(ask(&mut first, 1, &[]).0, OK);
    let mut others = [served.connect(), served.connect()];
    for other in &mut others {
        assert_eq!(ask(other, 1, &[]).0, OK);
    }
    assert_eq!(until_closed(&mut first), b"");
    assert_eq!(ask(&mut known, 201, &[]).0, OK);
    assert_eq!(ask(&mut others[1], 1, &[]).0, OK);
}

#[test]
fn a_login_beyond_the_bound_of_connections_is_refused() {
    let served = Served::start(&json!({"connections": 1}));
    let mut known = served.logged_in();
    let mut second = served.connect();
    assert_eq!(
        ask(&mut second, 38, &login("secret")),
        refused(Status::Error)
    );
    assert_eq!(ask(&mut second, 201, &[]), refused(Status::Unauthenticated));
    assert_eq!(
        ask(&mut known, 38, &login("secret")).0,
        OK,
        "it has its place"
    );
}

#[test]
fn a_rejection_without_a_status_of_iggy_has_the_usual_one() {
    let status = |grpc, iggy| Refused::from(rejection(grpc, iggy)).0;
    assert_eq!(status(12, None), Status::FeatureUnavailable.code());
    assert_eq!(status(7, None), Status::Unauthorized.code());
    assert_eq!(status(13, None), Status::Error.code());
    assert_eq!(
        status(13, Some(0)),
        Status::Error.code(),
        "0 would say that it is done"
    );
    assert_eq!(status(13, Some(2013)), 2013);
}
