//! gRPC frames and the messages of the Liftbridge API.
use bascule_wire::liftbridge::acks::ResponseView;
use bascule_wire::liftbridge::delivery::MessageView;
use bascule_wire::liftbridge::messages;
use bascule_wire::liftbridge::publish::{PublishToSubjectView, PublishView};
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The messages that the data plane and the client read.
const DECODERS: &[fn(&[u8])] = &[
    round_trip::<messages::Ack>,
    round_trip::<messages::SubscribeRequest>,
    round_trip::<messages::PublishRequest>,
    round_trip::<messages::PublishResponse>,
    round_trip::<messages::PublishToSubjectRequest>,
    round_trip::<messages::SetCursorRequest>,
    round_trip::<messages::FetchCursorRequest>,
    round_trip::<messages::FetchCursorResponse>,
    round_trip::<messages::Message>,
];

/// One message, chosen by the first byte.
pub(crate) fn messages(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else {
        return;
    };
    if let Some(decode) = DECODERS.get(usize::from(*choice) % DECODERS.len()) {
        decode(body);
    }
}

fn round_trip<M: Message + Default + PartialEq + Debug>(data: &[u8]) {
    if let Ok(message) = M::decode(data) {
        let bytes = message.encode_to_vec();
        assert_eq!(M::decode(&bytes[..]).ok(), Some(message));
    }
}

/// The readers written by hand agree with the generated ones.
pub(crate) fn hot(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    if let Some(view) = PublishView::read(bytes.clone()) {
        let full = decoded::<messages::PublishRequest>(data);
        assert_eq!((&view.key, &view.value), (&full.key, &full.value));
        assert_eq!(
            (view.stream_name(), view.partition),
            (&*full.stream, full.partition)
        );
        assert_eq!(view.ack_inbox, full.ack_inbox.as_bytes());
        assert_eq!(view.correlation_id, full.correlation_id.as_bytes());
        assert_eq!(view.ack_policy, full.ack_policy);
        assert_eq!(view.expected_offset, full.expected_offset);
        assert_eq!(view.producer_batch, full.producer_batch);
        let begun = view.begun_batch().flatten();
        assert!(begun.is_none_or(|batch| view.producer_batch == batch.to_bytes()[..]));
        assert_eq!(last_of_each(&view.headers), full.headers);
    }
    if let Some(view) = PublishToSubjectView::read(bytes.clone()) {
        let full = decoded::<messages::PublishToSubjectRequest>(data);
        assert_eq!((&view.key, &view.value), (&full.key, &full.value));
        assert_eq!(view.subject_name(), full.subject);
        assert_eq!(last_of_each(&view.headers), full.headers);
    }
    if let Some(view) = ResponseView::read(bytes.clone()) {
        let full = decoded::<messages::PublishResponse>(data);
        assert_eq!(view.correlation_id, full.correlation_id.as_bytes());
    }
    if let Some(view) = MessageView::read(bytes) {
        let full = decoded::<messages::Message>(data);
        assert_eq!(
            (view.offset(), view.timestamp()),
            (full.offset, full.timestamp)
        );
        assert_eq!((view.key(), view.value()), (&full.key[..], &full.value[..]));
        assert_eq!(
            (view.stream(), view.subject()),
            (&*full.stream, &*full.subject)
        );
        assert_eq!(view.reply_subject(), full.reply_subject);
        for (name, value) in &full.headers {
            assert_eq!(view.header(name), Some(&value[..]));
        }
    }
}

fn decoded<M: Message + Default>(data: &[u8]) -> M {
    match M::decode(data) {
        Ok(message) => message,
        Err(error) => panic!("taken by the reader written by hand only: {error}"),
    }
}

fn last_of_each(headers: &[(Bytes, Bytes)]) -> BTreeMap<String, Vec<u8>> {
    headers
        .iter()
        .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.to_vec()))
        .collect()
}

/// A body cut at every place that the first byte stands for reads as the whole does, on both sides of the wire.
pub(crate) fn frames(data: &[u8]) {
    let Some((cut, body)) = data.split_first() else {
        return;
    };
    let whole = bascule_broker::fuzz::grpc_frames(body, body.len().max(1));
    let parts = bascule_broker::fuzz::grpc_frames(body, usize::from(*cut).max(1));
    assert_eq!(whole, parts);
    if let Ok(messages) = &whole {
        let read = bascule_client::fuzz::frames(body, usize::from(*cut).max(1));
        assert_eq!(read.as_ref(), Some(messages));
    }
    let _ = bascule_broker::fuzz::grpc_timeout(body);
}
