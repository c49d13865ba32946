//! The listener over real sockets.
use super::*;
use crate::engine::Engine;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// More than a connection may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A broker without a control plane, and a port on which it serves HTTP.
pub(crate) struct Served {
    pub(crate) engine: Engine,
    pub(crate) port: u16,
    _data: tempfile::TempDir,
}

fn serve(partitions: bool) -> Served {
    let settings = HttpSettings {
        partitions,
        groups: true,
    };
    Served::start(&json!({}), |engine| {
        engine.serve_http("127.0.0.1", 0, settings).unwrap()
    })
}

impl Served {
    /// `listen` returns the port.
    pub(crate) fn start(limits: &serde_json::Value, listen: impl FnOnce(&Engine) -> u16) -> Self {
        let data = tempfile::tempdir().unwrap();
        let settings = json!({
            "data_dir": data.path(), "cluster_id": "c", "broker_id": "b", "runtime_threads": 1, "namespace": "n",
            "limits": limits,
        });
        let engine = Engine::new(&serde_json::from_value(settings).unwrap()).unwrap();
        let port = listen(&engine);
        Self {
            engine,
            port,
            _data: data,
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// What the listener says to `request` until it closes; empty when it says nothing.
    fn say(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        to_end(stream)
    }

    /// Status and body.
    fn get(&self, path: &str) -> (u16, String) {
        let answer = self.say(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }
}

/// What comes until the connection is closed.
pub(crate) fn to_end(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    // A reset after the answer is a close too.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[test]
fn probes_follow_the_run_of_a_broker() {
    let served = serve(false);
    served.engine.set_stage("replaying the metadata log");
    let (status, text) = served.get("/startupz");
    assert_eq!(
        (status, text.as_str()),
        (
            503,
            "[-] startup: replaying the metadata log\nstartupz failed\n"
        )
    );
    assert_eq!(served.get("/readyz").0, 503);
    assert_eq!(served.get("/livez"), (200, "livez ok\n".into()));

    served.engine.metadata_open().unwrap();
    served.engine.set_serving(true);
    assert_eq!(served.get("/startupz"), (200, "startupz ok\n".into()));
    let (status, text) = served.get("/readyz?verbose");
    assert_eq!(status, 200, "{text}");
    for part in [
        "[+] metadata log: ",
        "[+] data directory: ",
        "[+] disk space: ",
        "[!] nats: ",
        "[+] clock: ",
        "[+] isr: ",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(text.ends_with("readyz ok\n"));
    // What is well is not listed without verbose, what is not well is.
    let (_, text) = served.get("/readyz");
    assert!(
        text.starts_with("[!] nats: ") && text.lines().count() == 2,
        "{text}"
    );

    served.engine.require_nats();
    let (status, text) = served.get("/readyz");
    assert!(status == 503 && text.contains("[-] nats: "), "{text}");

    served.engine.set_serving(false);
    let (status, text) = served.get("/readyz");
    assert!(
        status == 503 && text.contains("the broker is stopping"),
        "{text}"
    );
    assert_eq!(served.get("/startupz").0, 200);
    assert_eq!(served.get("/livez").0, 200);
    served.engine.close(Duration::ZERO);
    assert!(TcpStream::connect(("127.0.0.1", served.port)).is_err());
}

#[test]
fn requests_that_are_not_answered_are_refused_with_the_reason() {
    let served = serve(false);
    let (status, text) = served.get("/");
    assert!(status == 404 && text.contains("/metrics"), "{text}");
    let answer = served.say("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 405 ") && answer.contains("allow: GET, HEAD"),
        "{answer}"
    );
    let answer = served.say("HEAD /livez HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n"),
        "{answer}"
    );
    let answer = served.say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
    let many = "A: b\r\n".repeat(1000);
    let answer = served.say(&format!("GET /livez HTTP/1.1\r\n{many}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let long = "a".repeat(64 << 10);
    let answer = served.say(&format!("GET /livez HTTP/1.1\r\nA: {long}\r\n\r\n"));
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431 "),
        "{answer}"
    );
}

#[test]
fn clients_that_send_nothing_are_closed_and_keep_nobody_out() {
    let served = serve(false);
    let began = Instant::now();
    let mut silent: Vec<TcpStream> = (0..200).map(|_| served.connect()).collect();
    assert_eq!(served.get("/livez").0, 200);
    // The oldest was closed for a newer one, at once; the newest when its time was over.
    let mut byte = [0];
    for index in [0, 199] {
        assert!(matches!(silent[index].read(&mut byte), Ok(0) | Err(_)));
        let waited = began.elapsed();
        assert!(
            if index == 0 {
                waited < Duration::from_secs(4)
            } else {
                waited < LIMIT
            },
            "{waited:?}"
        );
    }
    assert_eq!(served.get("/livez").0, 200);
}

#[test]
fn a_scrape_of_a_thousand_partitions_takes_at_most_fifty_milliseconds() {
    let served = serve(true);
    let numbers = 0..1000_u64;
    let specs: Vec<_> = numbers.clone().map(|number| json!({
        "namespace": "default", "stream": "s", "number": number, "incarnation": number + 1,
        "subject": "s", "base_subject": "s", "durability": "memory", "codec": "none", "nats_copy": "none",
        "max_record_bytes": 1000, "batch_records": 1024, "batch_bytes": 1 << 20,
        "retention_age_ms": 0, "retention_bytes": 0, "retention_messages": 0, "cleaner_interval_ms": 0,
        "segment_bytes": 4096, "segment_age_ms": 0,
    })).collect();
    let opened = served
        .engine
        .open(serde_json::from_value(json!(specs)).unwrap());
    assert_eq!(opened.unwrap(), []);
    let places: Vec<_> = numbers.map(|number| json!({
        "number": number, "incarnation": number + 1, "leader": "b", "leader_epoch": 1, "isr": ["b"],
    })).collect();
    let view = json!({"streams": [{
        "namespace": "default", "name": "s", "id": 1, "subject": "s", "created_ns": 0, "partitions": places,
    }]});
    served
        .engine
        .publish_view(1, serde_json::from_value(view).unwrap())
        .unwrap();
    let scrape = || {
        let began = Instant::now();
        let (status, text) = served.get("/metrics");
        assert_eq!(status, 200);
        (began.elapsed(), text)
    };
    // The best of ten: other tests run on the same cores.
    let best = (0..10).map(|_| scrape()).min_by_key(|(took, _)| *took);
    let (took, text) = best.unwrap();
    assert_eq!(
        text.matches("\nbascule_partition_log_end_offset{").count(),
        1000
    );
    assert!(text.contains("\nbascule_partitions_open 1000\n") && text.ends_with("# EOF\n"));
    let bar = Duration::from_millis(if cfg!(debug_assertions) { 500 } else { 50 });
    assert!(took <= bar, "{took:?}");
}
