//! Publishes of another broker's clients, over a real connection.
use super::{Echo, brokers, events, local, until};
use crate::access::Access;
use crate::admission::Admission;
use crate::consensus::network::{Answer, Kind};
use crate::forward::server::ForwardServer;
use crate::limits::Limits;
use crate::peer::{DIAL, DataReader, DataWriter, PeerListener, Way};
use bascule_wire::peer::{
    Forward, ForwardAnswer, ForwardOutcome, Frame, FrameType, Purpose, RaftHead,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Leads nothing.
#[derive(Debug)]
struct Leader(Arc<ForwardServer>);

impl Answer for Leader {
    fn answer<'a>(
        &'a self,
        from: u64,
        kind: Kind,
        request: &'a [u8],
    ) -> BoxFuture<'a, io::Result<Bytes>> {
        Echo.answer(from, kind, request)
    }

    fn publishes(&self) -> Option<Arc<ForwardServer>> {
        Some(self.0.clone())
    }
}

async fn leader() -> PeerListener {
    let server = ForwardServer {
        broker_id: "b2".into(),
        view: Arc::default(),
        access: Arc::new(Access::default()),
        admission: Arc::new(Admission::new(Limits::default(), Arc::default())),
    };
    let own = Arc::new(brokers(2, &BTreeMap::new()));
    let answers = Arc::new(Leader(Arc::new(server)));
    let opened = PeerListener::open(local(0), own, None, answers, events()).await;
    opened.unwrap()
}

async fn connected(port: &PeerListener) -> (DataWriter, DataReader) {
    let way = Way {
        brokers: Arc::new(brokers(1, &BTreeMap::from([(2, port.address())]))),
        tls: None,
        events: events(),
        to: 2,
    };
    let opened = way.open(Purpose::Publishes, DIAL).await;
    opened.unwrap().split()
}

fn publish(request: u64, records: u32, body: &[u8]) -> Vec<u8> {
    let head = Forward {
        request,
        incarnation: 40,
        leader_epoch: 5,
        stream: "s".into(),
        records,
        ..Forward::default()
    };
    Frame::write(FrameType::Forward, &head, body)
}

async fn answer(reader: &mut DataReader) -> ForwardAnswer {
    ForwardAnswer::read(&reader.receive().await.unwrap()).unwrap()
}

#[tokio::test]
async fn a_publish_for_what_is_not_led_here_is_answered_so_and_the_leader_shows_that_it_lives() {
    let port = leader().await;
    let (mut writer, mut reader) = connected(&port).await;
    writer.send(&publish(7, 1, &[0])).await.unwrap();
    writer.send(&publish(8, 0, b"no batch")).await.unwrap();
    let mut answers = BTreeMap::new();
    while answers.len() < 3 {
        let answer = answer(&mut reader).await;
        answers.insert(answer.request, answer.outcome());
    }
    let refused = ForwardOutcome::NotLeader;
    let expected = [(0, ForwardOutcome::None), (7, refused), (8, refused)];
    assert_eq!(answers, BTreeMap::from(expected));
}

#[tokio::test]
async fn anything_but_a_publish_ends_the_connection() {
    let port = leader().await;
    let head = RaftHead {
        request: 1,
        error: String::new(),
    };
    let frames = [
        Frame::write(FrameType::Append, &head, b""),
        Frame::write(FrameType::Forward, &Forward::default(), b""),
    ];
    for frame in frames {
        let (mut writer, mut reader) = connected(&port).await;
        writer.send(&frame).await.unwrap();
        while reader.receive().await.is_ok() {}
    }
    let expected = BTreeMap::from([("malformed", 1), ("type", 1)]);
    until("a count of each", || port.refused() == expected).await;
}
