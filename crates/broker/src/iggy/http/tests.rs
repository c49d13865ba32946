//! The listener over real sockets, without a control plane.
use super::IggyHttpSettings;
use crate::http::tests::{Served, to_end};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;

fn serve() -> Served {
    let settings = IggyHttpSettings {
        max_request_bytes: 1000,
        cors_origins: vec!["https://a.example".to_owned()],
    };
    let served = Served::start(&json!({"handshakes": 4}), |engine| {
        engine.serve_iggy_http("127.0.0.1", 0, settings).unwrap()
    });
    served.engine.set_serving(true);
    served
}

/// What is answered to `request`, after which the client sends no more.
fn say(served: &Served, request: &str) -> String {
    let mut stream = served.connect();
    stream.write_all(request.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    to_end(stream)
}

#[test]
fn requests_are_answered_one_after_the_other_on_a_connection() {
    let served = serve();
    let answer = say(&served, &"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n".repeat(3));
    assert_eq!(answer.matches("pong").count(), 3, "{answer}");
    served.engine.set_serving(false);
    let answer = say(&served, "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("retry-after: 1"), "{answer}");
}

#[test]
fn what_has_no_token_is_refused_before_the_control_plane_is_asked() {
    let served = serve();
    let body = "x".repeat(200);
    let post =
        format!("POST /streams HTTP/1.1\r\nHost: x\r\nContent-Length: 200\r\n\r\n{body}").repeat(2);
    let answer = say(&served, &post);
    assert_eq!(answer.matches("HTTP/1.1 401 ").count(), 2, "{answer}");
    assert!(
        answer.contains("\"code\":\"access_token_missing\""),
        "{answer}"
    );
    let large = "POST /users/login HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
    let answer = say(&served, large);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    let answer = say(&served, "PATCH /streams HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    let fields = "A: b\r\n".repeat(100);
    let answer = say(&served, &format!("GET /ping HTTP/1.1\r\n{fields}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[test]
fn clients_that_send_nothing_give_way_to_newer_ones() {
    let served = serve();
    let mut silent: Vec<TcpStream> = (0..50).map(|_| served.connect()).collect();
    let answer = say(&served, "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.contains("pong"), "{answer}");
    let mut byte = [0];
    assert!(matches!(silent[0].read(&mut byte), Ok(0) | Err(_)));
}

#[test]
fn pages_of_the_origins_that_are_set_may_call() {
    let served = serve();
    let ask = |origin: &str| {
        say(
            &served,
            &format!(
                "OPTIONS /streams HTTP/1.1\r\nHost: x\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: PUT\r\n\r\n"
            ),
        )
    };
    let answer = ask("https://a.example");
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    assert!(
        answer.contains("access-control-allow-origin: https://a.example"),
        "{answer}"
    );
    assert!(!ask("https://b.example").contains("access-control-allow-origin"));
}
