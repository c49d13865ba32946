//! Requests that nobody carries out, and their bodies.
mod leader;

use super::positions::Owner;
use super::*;
use crate::cursor_index::CursorIndexes;
use crate::events::Events;
use crate::forward::ForwarderParts;
use crate::user_rights::{UserAction, UserRights};
use crate::view::{PartitionView, StreamView, View};
use arc_swap::ArcSwap;
use bytes::Bytes;
use std::collections::HashMap;

const USER: u64 = 7;
/// Of a request that nobody carries out.
const LIMIT: Duration = Duration::from_millis(250);

fn stream(leader: &str) -> StreamView {
    StreamView {
        namespace: "orders".into(),
        name: "paid".into(),
        id: 3,
        subject: String::new(),
        created_ns: 0,
        partition_by_subject: false,
        concurrency_control: false,
        resume_all: false,
        groups: Vec::new(),
        partitions: vec![PartitionView {
            number: 0,
            incarnation: 40,
            leader: leader.into(),
            leader_epoch: 5,
            isr: Vec::new(),
            readonly: false,
            paused: false,
            handle: None,
        }],
    }
}

/// What a broker `b1` knows, where `leader` leads.
fn view(leader: &str) -> View {
    let mut view = View::default();
    let streams = view.namespaces.entry("orders".into()).or_default();
    streams.insert("paid".into(), Arc::new(stream(leader)));
    Arc::make_mut(&mut view.numbers).insert(2, "orders".into());
    let rights = UserRights {
        principal: "iggy:ada".into(),
        everywhere: UserAction::Poll as u8,
        streams: HashMap::new(),
        topics: HashMap::new(),
    };
    view.users = Arc::new(HashMap::from([(USER, Arc::new(rights))]));
    view
}

fn server(view: &Arc<ArcSwap<View>>) -> RequestServer {
    let events = Arc::new(Events::new(64).unwrap());
    let positions = Positions::new(10, events, Arc::<CursorIndexes>::default());
    RequestServer::new("b1", view, &Arc::default(), positions)
}

fn requests(view: View) -> Requests {
    let view = Arc::new(ArcSwap::from_pointee(view));
    let events = Arc::new(Events::new(64).unwrap());
    let forwarder = Forwarder::new(ForwarderParts {
        broker_id: "b1".into(),
        view: view.clone(),
        statistics: Arc::default(),
        events,
        budget: 1 << 20,
    });
    Requests::new(Arc::new(forwarder), Arc::new(server(&view)))
}

fn asked(question: Question) -> Asked {
    Asked {
        user: USER,
        address: "127.0.0.1:9".into(),
        namespace: "orders".into(),
        stream: "paid".into(),
        ids: (2, 3),
        partition: 0,
        incarnation: 40,
        leader_epoch: 5,
        deadline_ms: 1000,
        question,
    }
}

fn read() -> Asked {
    asked(Question::Read {
        start: Start::Last,
        count: 3,
        bytes: 100,
    })
}

fn target(incarnation: u64) -> Target {
    Target {
        namespace: "orders".into(),
        stream: "paid".into(),
        number: 0,
        incarnation,
    }
}

#[tokio::test]
async fn a_request_waits_for_a_leader_until_its_deadline_and_not_for_what_is_gone() {
    let requests = requests(view(""));
    let began = Instant::now();
    let until = began + LIMIT;
    let late = requests.ask(&target(40), read(), until).await;
    assert_eq!(late, Err(Unanswered::Late));
    assert!(began + LIMIT - LONGEST_PAUSE <= Instant::now());
    let gone = requests.ask(&target(39), read(), until).await;
    assert_eq!(gone, Err(Unanswered::Gone));
}

#[tokio::test]
async fn whoever_does_not_lead_does_nothing() {
    let requests = requests(view("b2"));
    let answer = |asked: Asked| {
        let server = requests.server();
        async move {
            let answer = server.answer(&encode(&asked).unwrap()).await.unwrap();
            decode::<Answered>(&answer).unwrap()
        }
    };
    assert_eq!(answer(read()).await, Answered::Later);
    let position = asked(Question::StorePosition {
        id: "\0iggy:consumer:1".into(),
        offset: 4,
        waits: true,
    });
    assert_eq!(answer(position).await, Answered::Later, "no __cursors");
    assert!(requests.server().answer(b"no request").await.is_err());
}

#[test]
fn a_position_belongs_to_a_consumer_at_an_incarnation() {
    assert_eq!(read().owner(), None);
    let owner = asked(Question::FindPosition("\0iggy:consumer:1".into())).owner();
    let expected = Owner {
        id: "\0iggy:consumer:1".into(),
        stream: "#2/3".into(),
        partition: 0,
        incarnation: 40,
    };
    assert_eq!(owner, Some(expected));
}

#[test]
fn bodies_come_back_as_they_were() {
    let questions = [
        Question::Read {
            start: Start::Time(-1),
            count: 0,
            bytes: u32::MAX,
        },
        Question::Flush,
        Question::FindPosition(String::new()),
        Question::StorePosition {
            id: "\0iggy:group:9".into(),
            offset: u64::MAX,
            waits: false,
        },
        Question::DeletePosition("\0iggy:group:9".into()),
    ];
    for question in questions {
        let asked = asked(question);
        assert_eq!(decode::<Asked>(&encode(&asked).unwrap()).unwrap(), asked);
    }
    let answers = [
        Answered::Read {
            start: 1,
            end: 2,
            batches: Bytes::from_static(&[0xff; 300]),
        },
        Answered::Position(None),
        Answered::Position(Some(u64::MAX)),
        Answered::Deleted(true),
        Answered::Later,
        Answered::Unknown,
    ];
    for answer in answers {
        assert_eq!(
            decode::<Answered>(&encode(&answer).unwrap()).unwrap(),
            answer
        );
    }
}
