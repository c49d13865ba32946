use super::*;
use serde_json::json;

fn peer() -> Caller {
    Caller {
        address: "127.0.0.1:5".to_owned(),
        name: None,
    }
}

/// A barrier, which is never dropped, or a line of the log.
fn barrier_or_line(is_barrier: bool, id: u64) -> Event {
    if is_barrier {
        return Event::Barrier { id, index: 0 };
    }
    Event::Log {
        level: Level::Info,
        target: id.to_string(),
        message: String::new(),
        fields: json!({}),
    }
}

fn id_of(event: &Event) -> u64 {
    match event {
        Event::Barrier { id, .. } => *id,
        Event::Log { target, .. } => target.parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn events_come_out_in_order_and_overflow_is_counted() {
    let events = Events::new(2).unwrap();
    for id in 0..3 {
        events.push(barrier_or_line(false, id));
    }
    events.push(barrier_or_line(true, 9));
    let ids: Vec<_> = events.poll(10).iter().map(id_of).collect();
    assert_eq!(ids, [0, 1, 9]);
    assert_eq!(events.dropped(), 1);
}

#[test]
fn requests_leave_room_for_events_and_bodies_are_bounded() {
    let events = Events::new(16).unwrap();
    let request = |bytes: usize| {
        events.try_push(Event::Request(Request {
            id: 1,
            method: String::new(),
            body: Bytes::from(vec![0; bytes]),
            caller: Caller::default(),
            timeout: None,
        }))
    };
    assert!(request(REQUEST_BYTES + 1));
    assert!(!request(1));
    events.poll(1);
    assert!((0..14).all(|_| request(1)));
    assert!(!request(1));
    events.push(barrier_or_line(false, 2));
    assert!(matches!(events.poll(99).last(), Some(Event::Log { .. })));
    assert!(request(1));
}

#[test]
fn answers_to_the_proposer_are_never_dropped() {
    let events = Events::new(8).unwrap();
    for id in 0..20 {
        events.push(match id % 3 {
            0 => Event::Committed {
                index: id,
                entry: Bytes::new(),
                proposal: None,
            },
            1 => Event::Failed {
                proposal: id,
                code: ErrorCode::Busy,
                message: String::new(),
            },
            _ => barrier_or_line(true, id),
        });
    }
    assert_eq!(events.poll(99).len(), 20);
    assert_eq!(events.dropped(), 0);
}

#[test]
fn the_eventfd_is_readable_exactly_while_events_wait() {
    let events = Events::new(10).unwrap();
    let readable = || {
        let mut fds = [rustix::event::PollFd::new(
            &events.wake,
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() == 1
    };
    assert!(!readable());
    events.push(barrier_or_line(false, 1));
    events.push(barrier_or_line(false, 2));
    assert!(readable());
    events.poll(1);
    assert!(readable());
    events.poll(1);
    assert!(!readable());
}

#[tokio::test]
async fn a_request_gets_its_answer_and_a_late_one_is_ignored() {
    let events = std::sync::Arc::new(Events::new(10).unwrap());
    let asking = {
        let events = events.clone();
        tokio::spawn(async move {
            events
                .request("x/Y", Bytes::from_static(b"in"), peer(), None)
                .await
        })
    };
    let asked = loop {
        if let Some(Event::Request(request)) = events.poll(1).pop() {
            break request;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        (asked.method.as_str(), &asked.body[..], asked.timeout),
        ("x/Y", &b"in"[..], None)
    );
    events.respond(asked.id, Ok(Bytes::from_static(b"out")));
    assert_eq!(asking.await.unwrap().unwrap(), "out");
    events.respond(asked.id, Ok(Bytes::new()));
}

#[tokio::test]
async fn requests_beyond_the_bound_are_refused_and_counted() {
    let events = Events::new(100).unwrap().with_requests(1, 100);
    let short = Some(Duration::from_millis(50));
    let ask = || events.request("x/Y", Bytes::new(), peer(), short);
    let (first, second) = tokio::join!(ask(), ask());
    assert_eq!(first.unwrap_err().status, Code::DeadlineExceeded as i32);
    let refused = second.unwrap_err();
    assert_eq!(refused.code, Some(ErrorCode::Busy));
    assert!(refused.message.contains("limits.admin_requests (1)"));
    assert_eq!((events.requests_open(), events.requests_refused()), (0, 1));
}

#[tokio::test]
async fn a_request_that_nobody_answers_ends_with_its_deadline() {
    let events = Events::new(10).unwrap();
    let outcome = events
        .request("x/Y", Bytes::new(), peer(), Some(Duration::from_millis(10)))
        .await;
    assert_eq!(outcome.unwrap_err().status, Code::DeadlineExceeded as i32);
    assert!(events.requests.lock().is_empty());
}

#[tokio::test]
async fn a_request_whose_caller_has_gone_is_not_handed_out() {
    let events = Events::new(10).unwrap();
    let ask = || events.request("x/Y", Bytes::from_static(b"in"), peer(), None);
    let (mut kept, mut gone) = (Box::pin(ask()), Box::pin(ask()));
    for request in [&mut kept, &mut gone] {
        let asked = tokio::time::timeout(Duration::ZERO, request).await;
        assert!(asked.is_err(), "nobody has answered");
    }
    drop(gone);
    let taken = events.poll(10);
    assert!(matches!(&taken[..], [Event::Request(request)] if request.id == 1));
    assert!(events.is_awaited(1) && !events.is_awaited(2));
    assert_eq!(events.queue.lock().request_bytes, 0);
}
