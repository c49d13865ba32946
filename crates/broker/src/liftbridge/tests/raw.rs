//! The service called without a transport: bodies that no generated client would send, and deadlines.
use super::harness::{Harness, PATIENCE, to};
use crate::liftbridge::call::unary_message;
use crate::liftbridge::frames::{FrameReader, frame};
use bascule_wire::liftbridge::messages::{PublishResponse, SubscribeRequest};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use prost::Message;
use serde_json::json;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::Service;

struct Answer {
    messages: Vec<Bytes>,
    status: Status,
}

/// Calls `method` with a body of raw bytes.
async fn call(harness: &Harness, method: &str, body: &[u8], timeout: &str) -> Answer {
    let body = Body::new(Full::new(Bytes::copy_from_slice(body)));
    let mut request = Request::post(format!("http://broker/{method}"));
    if !timeout.is_empty() {
        request = request.header("grpc-timeout", timeout);
    }
    let request = request.body(body).unwrap();
    let mut services = harness.engine.parts.services();
    let response = if method.starts_with("grpc.health") {
        services.health.call(request).await.unwrap()
    } else {
        services.liftbridge.call(request).await.unwrap()
    };
    if let Some(status) = Status::from_header_map(response.headers()) {
        return Answer {
            messages: Vec::new(),
            status,
        };
    }
    let collected = response.into_body().collect().await.unwrap();
    let status = collected
        .trailers()
        .and_then(Status::from_header_map)
        .expect("trailers carry a status");
    let (mut frames, mut data, mut messages) =
        (FrameReader::new(1 << 20), collected.to_bytes(), Vec::new());
    while let Some(message) = frames.next(&mut data).unwrap() {
        messages.push(message);
    }
    frames.end().unwrap();
    Answer { messages, status }
}

fn full_request() -> Vec<u8> {
    let mut request = to("orders", "value");
    request.key = "key".into();
    request.headers = [("h".to_owned(), b"v".to_vec())].into();
    request.encode_to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn publishes_cut_or_changed_at_every_byte_are_answered_and_never_kill() {
    let harness = Harness::new();
    harness.create("orders", 1, &json!({}));
    let whole = full_request();
    for i in 0..whole.len() {
        let mut changed = whole.clone();
        changed[i] ^= 0x55;
        for message in [&whole[..i], &changed[..]] {
            for method in ["proto.API/Publish", "proto.API/PublishAsync"] {
                let answer = call(&harness, method, &frame(message), "10S").await;
                let known = [
                    Code::Ok,
                    Code::Internal,
                    Code::NotFound,
                    Code::InvalidArgument,
                ];
                assert!(
                    known.contains(&answer.status.code()),
                    "{method} at {i}: {:?}",
                    answer.status
                );
            }
        }
    }
    let answer = call(&harness, "proto.API/Publish", &frame(&whole), "10S").await;
    assert_eq!(
        (answer.status.code(), answer.messages.len()),
        (Code::Ok, 1),
        "the broker still serves"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_cut_or_changed_at_every_byte_are_answered_and_never_kill() {
    let harness = Harness::new();
    harness.create("orders", 1, &json!({}));
    let request = SubscribeRequest {
        stream: "orders".into(),
        start_position: 2,
        stop_position: 2,
        stop_timestamp: 1 << 60,
        ..SubscribeRequest::default()
    };
    let whole = request.encode_to_vec();
    for i in 0..whole.len() {
        let mut changed = whole.clone();
        changed[i] ^= 0x55;
        for message in [&whole[..i], &changed[..]] {
            let answer = call(&harness, "proto.API/Subscribe", &frame(message), "50m").await;
            assert_ne!(
                answer.status.code(),
                Code::Ok,
                "a subscription never ends well by itself"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_before_a_malformed_message_is_stored_and_acknowledged() {
    let harness = Harness::new();
    harness.create("orders", 1, &json!({}));
    let good = frame(&full_request());
    for (bad, code) in [
        (frame(&[0xff, 0xff]).to_vec(), Code::Internal),
        (vec![0, 0, 0], Code::Internal),
        (vec![1, 0, 0, 0, 0], Code::Unimplemented),
        (vec![0, 0xff, 0, 0, 0], Code::ResourceExhausted),
    ] {
        let body = [&good[..], &good[..], &bad[..]].concat();
        let answer = call(&harness, "proto.API/PublishAsync", &body, "").await;
        assert_eq!(answer.status.code(), code, "{bad:?}");
        assert_eq!(answer.messages.len(), 2, "{bad:?}");
        for message in answer.messages {
            assert!(
                PublishResponse::decode(message)
                    .unwrap()
                    .async_error
                    .is_none()
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deadlines_end_calls_with_deadline_exceeded() {
    let harness = Harness::new();
    harness.create("orders", 1, &json!({}));
    let admin = call(&harness, "proto.API/FetchMetadata", &frame(&[]), "50m").await;
    assert_eq!(admin.status.code(), Code::DeadlineExceeded);
    let request = SubscribeRequest {
        stream: "orders".into(),
        ..SubscribeRequest::default()
    };
    let subscribe = call(
        &harness,
        "proto.API/Subscribe",
        &frame(&request.encode_to_vec()),
        "50m",
    )
    .await;
    assert_eq!(subscribe.status.code(), Code::DeadlineExceeded);
    assert_eq!(subscribe.messages, vec![Bytes::new()], "the handshake came");
}

#[tokio::test(flavor = "multi_thread")]
async fn publishing_to_a_subject_without_nats_says_so() {
    let harness = Harness::new();
    let answer = call(
        &harness,
        "proto.API/PublishToSubject",
        &frame(&[0x1a, 1, b's']),
        "",
    )
    .await;
    assert_eq!(answer.status.code(), Code::Unknown);
    assert!(
        answer
            .status
            .message()
            .starts_with("failed to publish to NATS: "),
        "{}",
        answer.status.message()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn health_follows_the_broker() {
    let harness = Harness::new();
    let check = async |service: &str| {
        let mut request = vec![0x0a, service.len() as u8];
        request.extend_from_slice(service.as_bytes());
        call(
            &harness,
            "grpc.health.v1.Health/Check",
            &frame(&request),
            "",
        )
        .await
    };
    for name in ["", "proto.API"] {
        assert_eq!(
            check(name).await.messages,
            vec![Bytes::from_static(&[8, 1])],
            "SERVING"
        );
    }
    assert_eq!(check("other").await.status.code(), Code::NotFound);
    harness.engine.set_serving(false);
    assert_eq!(
        check("").await.messages,
        vec![Bytes::from_static(&[8, 2])],
        "NOT_SERVING"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_asks_for_health_is_short() {
    let harness = Harness::new();
    for (length, code) in [(900, Code::NotFound), (1100, Code::ResourceExhausted)] {
        let mut request = vec![10, (length & 0x7f) as u8 | 0x80, (length >> 7) as u8];
        request.resize(3 + length, b'x');
        let answer = call(
            &harness,
            "grpc.health.v1.Health/Check",
            &frame(&request),
            "",
        )
        .await;
        assert_eq!(answer.status.code(), code);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_health_reports_each_change() {
    let harness = Harness::new();
    let body = Body::new(Full::new(frame(&[])));
    let request = Request::post("http://broker/grpc.health.v1.Health/Watch")
        .body(body)
        .unwrap();
    let mut watch = (harness.engine.parts.services().health)
        .call(request)
        .await
        .unwrap()
        .into_body();
    let mut next = async || {
        let frame = tokio::time::timeout(PATIENCE, watch.frame())
            .await
            .unwrap()
            .unwrap();
        frame.unwrap().into_data().unwrap()[5..].to_vec()
    };
    assert_eq!(next().await, [8, 1]);
    harness.engine.set_serving(false);
    assert_eq!(next().await, [8, 2]);
    harness.engine.set_serving(true);
    assert_eq!(next().await, [8, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_beyond_the_bound_on_arriving_ones_is_refused_by_that_name_in_every_method() {
    let harness = Harness::with_limits(&json!({"request_bytes": 64 << 10}));
    let mut client = harness.connect().await;
    let large = || to("orders", &"x".repeat(512 << 10));
    let text = "limits.request_bytes (65536) bytes of requests are arriving: send again later, send smaller messages, \
                or raise it";
    for method in [
        "Publish",
        "PublishAsync",
        "PublishToSubject",
        "Subscribe",
        "SetCursor",
        "FetchCursor",
        "FetchMetadata",
    ] {
        let method = format!("proto.API/{method}");
        let answer: Result<PublishResponse, _> = client.unary(&method, large(), None).await;
        let refused = answer.unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::ResourceExhausted, text),
            "{method}"
        );
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_cancelled_and_one_that_is_refused_says_why() {
    for (given, expected) in [
        (Status::unknown("h2"), Code::Cancelled),
        (Status::internal("h2"), Code::Cancelled),
        (Status::resource_exhausted("full"), Code::ResourceExhausted),
        (Status::deadline_exceeded("slow"), Code::DeadlineExceeded),
    ] {
        let text = given.message().to_owned();
        let begun = Ok(http_body::Frame::data(Bytes::from_static(&[0, 0])));
        let frames = tokio_stream::iter([begun, Err(given)]);
        let body = Body::new(http_body_util::StreamBody::new(frames));
        let refused = unary_message(body, 100).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (expected, &*text));
    }
}
