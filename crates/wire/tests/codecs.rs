//! The codecs written by hand agree with prost on every message, and on every damaged one.
mod arbitrary;

use arbitrary::{Headers, ack, encoded, publish_request, unknown_fields};
use bascule_wire::envelope::{self, EnvelopedPublish, MessageType, Recognised};
use bascule_wire::liftbridge::acks::{
    AckFields, AckTemplate, AckView, ResponseView, put_async_error_frame,
};
use bascule_wire::liftbridge::delivery::MessageView;
use bascule_wire::liftbridge::messages::{
    self, Ack, PublishAsyncError, PublishRequest, PublishResponse, PublishToSubjectRequest,
};
use bascule_wire::liftbridge::publish::{
    PRODUCER_BATCH_AT, ProducerBatch, PublishFields, PublishToSubjectView, PublishView,
    put_envelope_publish, put_request_frame,
};
use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;

fn collected(headers: &[(Bytes, Bytes)]) -> Headers {
    let text =
        |name: &Bytes| String::from_utf8(name.to_vec()).unwrap_or_else(|error| panic!("{error}"));
    let map: Headers = headers
        .iter()
        .map(|(name, value)| (text(name), value.to_vec()))
        .collect();
    assert_eq!(map.len(), headers.len(), "a name came twice");
    map
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8(bytes.to_vec()).unwrap_or_else(|error| panic!("{error}"))
}

/// The message in a gRPC frame; there must be one, whole.
fn unframed(frame: &[u8]) -> &[u8] {
    let (prefix, body) = frame.split_at(5);
    assert_eq!(prefix[0], 0, "not compressed");
    assert_eq!(
        u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize,
        body.len()
    );
    body
}

fn request_of(view: &PublishView) -> PublishRequest {
    PublishRequest {
        key: view.key.clone(),
        value: view.value.clone(),
        stream: view.stream_name().to_owned(),
        partition: view.partition,
        headers: collected(&view.headers),
        ack_inbox: text(&view.ack_inbox),
        correlation_id: text(&view.correlation_id),
        ack_policy: view.ack_policy,
        expected_offset: view.expected_offset,
        producer_batch: view.producer_batch.clone(),
        null_value: view.null_value,
        header_list: listed(&view.header_list),
        subject: text(&view.subject),
        origin_time: view.origin_time,
    }
}

fn listed(headers: &[(Bytes, Bytes)]) -> Vec<messages::Header> {
    let header = |(name, value): &(Bytes, Bytes)| messages::Header {
        name: name.clone(),
        value: value.clone(),
    };
    headers.iter().map(header).collect()
}

/// What our writer makes of a request: a list only where a map cannot show everything, then beside the map of it.
fn as_written(request: PublishRequest) -> PublishRequest {
    let mut map = request.headers.clone();
    let mut list = request.header_list.clone();
    if !list.is_empty() {
        let text = |name: &Bytes| String::from_utf8(name.to_vec());
        map = list
            .iter()
            .filter_map(|header| Some((text(&header.name).ok()?, header.value.to_vec())))
            .collect();
        if map.len() == list.len() {
            list.clear();
        }
    }
    PublishRequest {
        headers: map,
        header_list: list,
        ..request
    }
}

/// The headers that count of a map and a list: names, which are any bytes, and values.
fn counted(map: &Headers, list: &[messages::Header]) -> Vec<(Bytes, Bytes)> {
    if list.is_empty() {
        let pair = |(name, value): (&String, &Vec<u8>)| (name.clone().into(), value.clone().into());
        map.iter().map(pair).collect()
    } else {
        let pair = |header: &messages::Header| (header.name.clone(), header.value.clone());
        list.iter().map(pair).collect()
    }
}

fn subject_request_of(view: &PublishToSubjectView) -> PublishToSubjectRequest {
    PublishToSubjectRequest {
        key: view.key.clone(),
        value: view.value.clone(),
        subject: view.subject_name().to_owned(),
        headers: collected(&view.headers),
        ack_inbox: text(&view.ack_inbox),
        correlation_id: text(&view.correlation_id),
        ack_policy: view.ack_policy,
        null_value: view.null_value,
        header_list: listed(&view.header_list),
    }
}

fn message_of(view: &MessageView) -> messages::Message {
    messages::Message {
        offset: view.offset(),
        key: view.key_bytes(),
        value: view.value_bytes(),
        timestamp: view.timestamp(),
        stream: view.stream().to_owned(),
        partition: view.partition(),
        subject: view.subject().to_owned(),
        reply_subject: view.reply_subject().to_owned(),
        headers: view
            .headers()
            .map(|(name, value)| (name.to_owned(), value.to_vec()))
            .collect(),
        null_value: view.null_value(),
        header_list: view
            .header_list()
            .map(|(name, value)| messages::Header {
                name: Bytes::copy_from_slice(name),
                value: Bytes::copy_from_slice(value),
            })
            .collect(),
        origin_time: view.origin_time(),
        ..Default::default()
    }
}

fn ack_of(view: &AckView) -> Ack {
    Ack {
        stream: text(&view.stream),
        partition_subject: text(&view.partition_subject),
        msg_subject: text(&view.message_subject),
        offset: view.offset,
        ack_inbox: text(&view.ack_inbox),
        correlation_id: text(&view.correlation_id),
        ack_policy: view.ack_policy,
        reception_timestamp: view.reception_timestamp,
        commit_timestamp: view.commit_timestamp,
        ack_error: view.ack_error,
    }
}

fn response_of(view: &ResponseView) -> PublishResponse {
    let error = |view: &bascule_wire::liftbridge::acks::AsyncErrorView| PublishAsyncError {
        code: view.code,
        message: text(&view.message),
        error: text(&view.error),
    };
    PublishResponse {
        ack: view.ack.as_ref().map(ack_of),
        async_error: view.async_error.as_ref().map(error),
        correlation_id: text(&view.correlation_id),
    }
}

/// What counts of an enveloped message.
fn enveloped_of(message: &messages::Message) -> (Vec<(Bytes, Bytes)>, EnvelopedPublish) {
    let is_null = message.null_value && message.value.is_empty();
    let publish = EnvelopedPublish {
        key: message.key.clone(),
        value: (!is_null).then(|| message.value.clone()),
        headers: Vec::new(),
        ack_inbox: message.ack_inbox.clone().into(),
        correlation_id: message.correlation_id.clone().into(),
        ack_policy: message.ack_policy,
        expected_offset: message.offset,
    };
    let mut headers = counted(&message.headers, &message.header_list);
    if message.header_list.is_empty() {
        headers.sort_unstable();
    }
    (headers, publish)
}

/// Recognises a payload inside an envelope; headers apart, because the order of a map is free.
fn recognised(payload: &[u8]) -> Option<(Vec<(Bytes, Bytes)>, EnvelopedPublish)> {
    let mut out = Vec::new();
    envelope::put(&mut out, MessageType::Publish, payload, true);
    match envelope::recognise(&out.into()) {
        Recognised::Plain => None,
        Recognised::Publish(mut publish) => {
            let mut headers = std::mem::take(&mut publish.headers);
            let message = messages::Message::decode(payload).unwrap_or_default();
            if message.header_list.is_empty() {
                headers.sort_unstable();
            }
            Some((headers, publish))
        }
    }
}

/// Groups are the one thing that prost accepts and we do not.
fn check<T: PartialEq + std::fmt::Debug>(bytes: &[u8], ours: Option<&T>, theirs: Option<&T>) {
    let may_have_group = bytes.iter().any(|byte| byte & 7 == 3);
    if ours.is_some() || !may_have_group {
        assert_eq!(ours, theirs, "{bytes:02x?}");
    }
}

/// The views and prost must come to one judgement of `bytes`, and see the same in it.
fn agree(bytes: &[u8]) {
    let owned = || Bytes::copy_from_slice(bytes);
    let ours = PublishView::read(owned()).as_ref().map(request_of);
    check(
        bytes,
        ours.as_ref(),
        PublishRequest::decode(bytes).ok().as_ref(),
    );
    let ours = PublishToSubjectView::read(owned())
        .as_ref()
        .map(subject_request_of);
    check(
        bytes,
        ours.as_ref(),
        PublishToSubjectRequest::decode(bytes).ok().as_ref(),
    );
    let ours = AckView::read(owned()).as_ref().map(ack_of);
    check(bytes, ours.as_ref(), Ack::decode(bytes).ok().as_ref());
    let ours = ResponseView::read(owned()).as_ref().map(response_of);
    check(
        bytes,
        ours.as_ref(),
        PublishResponse::decode(bytes).ok().as_ref(),
    );
    let theirs = messages::Message::decode(bytes).ok();
    check(
        bytes,
        recognised(bytes).as_ref(),
        theirs.as_ref().map(enveloped_of).as_ref(),
    );
    let delivered = theirs.map(|message| messages::Message {
        ack_inbox: String::new(),
        correlation_id: String::new(),
        ack_policy: 0,
        ..message
    });
    let ours = MessageView::read(owned()).as_ref().map(message_of);
    check(bytes, ours.as_ref(), delivered.as_ref());
}

proptest! {
    #[test]
    fn whole_messages_are_read_alike(bytes in encoded(), unknown in unknown_fields(), again in encoded()) {
        agree(&bytes);
        // Behind it unknown fields, then the same kind of message or another: the last of each field wins, or it is refused.
        agree(&[&bytes[..], &unknown, &again].concat());
    }

    #[test]
    fn damaged_messages_are_judged_alike(bytes in encoded(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            agree(&bytes[..at]);
            let mut changed = bytes;
            changed[at] = byte;
            agree(&changed);
        }
    }

    #[test]
    fn garbage_is_judged_alike(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        agree(&bytes);
        envelope::recognise(&bytes.clone().into());
        envelope::recognise(&[&[0xB9, 0x0E, 0x43, 0xB4, 0][..], &bytes].concat().into());
    }

    #[test]
    fn requests_are_written_as_prost_writes_them(request in publish_request()) {
        let written = counted(&request.headers, &request.header_list);
        let headers: Vec<(&[u8], &[u8])> = written.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let fields = PublishFields {
            key: &request.key,
            value: &request.value,
            stream: &request.stream,
            partition: request.partition,
            headers: &headers,
            ack_inbox: &request.ack_inbox,
            correlation_id: &request.correlation_id,
            ack_policy: request.ack_policy,
            expected_offset: request.expected_offset,
            producer_batch: PublishView::read(request.encode_to_vec().into()).and_then(|view| view.begun_batch()).flatten(),
            is_null: request.null_value,
            subject: &request.subject,
            origin_time: request.origin_time,
        };
        let mut out = Vec::new();
        put_request_frame(&mut out, &fields);
        let expected = as_written(request.clone());
        prop_assert_eq!(PublishRequest::decode(unframed(&out)), Ok(expected.clone()));
        let mut view = PublishView::read(Bytes::copy_from_slice(unframed(&out))).unwrap_or_default();
        prop_assert_eq!(view.take_record_headers(), written.clone());
        let is_null = request.null_value && request.value.is_empty();
        prop_assert_eq!(view.record_value(), (!is_null).then(|| request.value.clone()));
        if let Some(batch) = fields.producer_batch {
            prop_assert_eq!(&out[PRODUCER_BATCH_AT..PRODUCER_BATCH_AT + ProducerBatch::BYTES], &batch.to_bytes());
        }

        out.clear();
        put_envelope_publish(&mut out, "some.subject", &fields);
        let payload = envelope::open(&out.into(), MessageType::Publish).unwrap_or_default();
        let message = messages::Message::decode(payload).unwrap_or_default();
        prop_assert_eq!(message.subject, "some.subject");
        prop_assert_eq!((message.offset, message.key, message.value), (expected.expected_offset, expected.key, expected.value));
        prop_assert_eq!((message.stream, message.headers), (expected.stream, expected.headers));
        prop_assert_eq!((message.null_value, message.header_list), (expected.null_value, expected.header_list));
        prop_assert_eq!(
            (message.ack_inbox, message.correlation_id, message.ack_policy),
            (expected.ack_inbox, expected.correlation_id, expected.ack_policy)
        );
    }

    #[test]
    fn acks_are_written_as_prost_writes_them(ack in ack(), with_correlation in any::<bool>()) {
        let template = AckTemplate::new(&ack.stream, &ack.partition_subject, &ack.msg_subject);
        let fields = AckFields {
            offset: ack.offset,
            ack_inbox: ack.ack_inbox.as_bytes(),
            correlation_id: ack.correlation_id.as_bytes(),
            ack_policy: ack.ack_policy,
            reception_timestamp: ack.reception_timestamp,
            commit_timestamp: ack.commit_timestamp,
            ack_error: ack.ack_error,
        };
        let mut out = Vec::new();
        template.put_ack(&mut out, &fields);
        prop_assert_eq!(&out, &ack.encode_to_vec());
        out.clear();
        template.put_response_frame(&mut out, &fields, with_correlation);
        let correlation_id = if with_correlation { ack.correlation_id.clone() } else { String::new() };
        let expected = PublishResponse { ack: Some(ack.clone()), async_error: None, correlation_id };
        prop_assert_eq!(unframed(&out), &expected.encode_to_vec());
        let view = ResponseView::read(Bytes::copy_from_slice(unframed(&out))).unwrap_or_default();
        prop_assert_eq!(text(view.answered()), ack.correlation_id);
    }

    #[test]
    fn async_errors_have_an_empty_ack(correlation_id in ".{0,40}", code in 0i32..8, message in ".{0,200}", error in ".{0,200}") {
        let mut out = Vec::new();
        put_async_error_frame(&mut out, correlation_id.as_bytes(), code, &message, &error);
        let async_error = Some(PublishAsyncError { code, message, error: error.clone() });
        let expected = PublishResponse { ack: Some(Ack::default()), async_error, correlation_id: correlation_id.clone() };
        prop_assert_eq!(unframed(&out), &expected.encode_to_vec());
        let view = ResponseView::read(Bytes::copy_from_slice(unframed(&out))).unwrap_or_default();
        prop_assert_eq!(text(view.answered()), correlation_id);
        prop_assert_eq!(view.async_error.map(|view| text(&view.error)), Some(error));
    }
}

#[test]
fn every_truncation_and_every_byte_is_survived() {
    let message = messages::Message {
        offset: 300,
        key: "key".into(),
        value: "value".into(),
        timestamp: 1_700_000_000_000_000_000,
        stream: "stream".into(),
        partition: 2,
        subject: "a.b".into(),
        reply_subject: "reply".into(),
        headers: [
            ("one".to_owned(), b"1".to_vec()),
            ("two".to_owned(), Vec::new()),
        ]
        .into(),
        ack_inbox: "inbox".into(),
        correlation_id: "correlation".into(),
        ack_policy: 1,
        null_value: true,
        header_list: vec![messages::Header {
            name: "\u{e9}".into(),
            value: "list".into(),
        }],
        origin_time: Some(-2),
    };
    let bytes = message.encode_to_vec();
    for at in 0..bytes.len() {
        agree(&bytes[..at]);
        for byte in 0..=255 {
            let mut changed = bytes.clone();
            changed[at] = byte;
            agree(&changed);
        }
    }
}

#[test]
fn of_headers_with_one_name_the_last_counts() {
    let entry = |number: u8, name: &str, value: &str| {
        let mut entry = vec![10, name.len() as u8];
        entry.extend_from_slice(name.as_bytes());
        entry.extend_from_slice(&[18, value.len() as u8]);
        entry.extend_from_slice(value.as_bytes());
        [&[number << 3 | 2, entry.len() as u8][..], &entry].concat()
    };
    for count in [3, 40] {
        let bytes: Vec<u8> = (0..count)
            .flat_map(|i| entry(5, &format!("h{}", i % 2), &i.to_string()))
            .collect();
        let view = PublishView::read(bytes.clone().into()).unwrap_or_default();
        assert_eq!(view.headers.len(), 2);
        agree(&bytes);
    }
    let bytes = [entry(9, "h", "1"), entry(9, "h", "2")].concat();
    let view = MessageView::read(bytes.into()).unwrap_or_default();
    assert_eq!(view.header("h"), Some(&b"2"[..]));
    assert_eq!(view.header("x"), None);
}

#[test]
fn the_ack_beside_an_error_says_nothing() {
    let ack = Some(Ack {
        correlation_id: "of the ack".into(),
        ..Ack::default()
    });
    let answered = |async_error| {
        let response = PublishResponse {
            ack: ack.clone(),
            async_error,
            correlation_id: String::new(),
        };
        let view = ResponseView::read(response.encode_to_vec().into()).unwrap_or_default();
        text(view.answered())
    };
    assert_eq!(answered(None), "of the ack");
    assert_eq!(answered(Some(PublishAsyncError::default())), "");
}

#[test]
fn the_handshake_is_a_message_of_no_bytes() {
    assert!(MessageView::read(Bytes::new()).is_some_and(|view| view.is_handshake()));
    assert!(
        MessageView::read(Bytes::from_static(b"\x08\x01")).is_some_and(|view| !view.is_handshake())
    );
}
