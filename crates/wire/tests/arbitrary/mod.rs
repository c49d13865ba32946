//! Messages of the protocol with any content.
use bascule_record::Producer;
use bascule_wire::liftbridge::messages::{
    self, Ack, PublishAsyncError, PublishRequest, PublishResponse,
};
use bascule_wire::liftbridge::publish::ProducerBatch;
use proptest::prelude::*;
use prost::Message;
use std::collections::BTreeMap;

/// The header map of a message.
pub type Headers = BTreeMap<String, Vec<u8>>;

fn blob() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

fn headers() -> impl Strategy<Value = Headers> {
    prop::collection::btree_map(".{0,6}", prop::collection::vec(any::<u8>(), 0..20), 0..24)
}

prop_compose! {
    fn producer_batch()(
        id in 1..=u64::MAX, epoch in any::<u32>(), base_sequence in any::<u32>(), records in 1..=ProducerBatch::MAX_RECORDS,
    ) -> ProducerBatch {
        ProducerBatch { producer: Producer { id, epoch, base_sequence }, records }
    }
}

/// Whether the value is null, the header list, and the time at the origin.
fn own_fields() -> impl Strategy<Value = (bool, Vec<messages::Header>, Option<i64>)> {
    let name = prop_oneof![
        Just(b"a".to_vec()),
        Just(b"\xe9".to_vec()),
        "[a-z]{0,3}".prop_map(String::into_bytes)
    ];
    let header = (name, blob()).prop_map(|(name, value)| messages::Header {
        name: name.into(),
        value: value.into(),
    });
    (
        any::<bool>(),
        prop::collection::vec(header, 0..4),
        prop::option::of(any::<i64>()),
    )
}

prop_compose! {
    /// Any message of this type.
    pub fn publish_request()(
        key in blob(), value in blob(), stream in ".{0,12}", partition in any::<i32>(), headers in headers(),
        ack_inbox in ".{0,12}", correlation_id in ".{0,12}", ack_policy in any::<i32>(), expected_offset in any::<i64>(),
        producer_batch in prop::option::of(producer_batch()), own in own_fields(), subject in ".{0,12}",
    ) -> PublishRequest {
        let (key, value) = (key.into(), value.into());
        let producer_batch = producer_batch.map(|batch| batch.to_bytes().to_vec().into()).unwrap_or_default();
        PublishRequest {
            key, value, stream, partition, headers, ack_inbox, correlation_id, ack_policy, expected_offset, producer_batch,
            null_value: own.0, header_list: own.1, subject, origin_time: own.2,
        }
    }
}

prop_compose! {
    /// Any message of this type.
    pub fn message()(
        own in (any::<i64>(), blob(), blob(), any::<i64>()), stream in ".{0,12}", partition in any::<i32>(),
        subjects in (".{0,12}", ".{0,12}"), headers in headers(), ack_inbox in ".{0,12}", correlation_id in ".{0,12}",
        ack_policy in any::<i32>(), ours in own_fields(),
    ) -> messages::Message {
        let (offset, key, value, timestamp) = (own.0, own.1.into(), own.2.into(), own.3);
        let (subject, reply_subject) = subjects;
        messages::Message {
            offset, key, value, timestamp, stream, partition, subject, reply_subject, headers, ack_inbox, correlation_id,
            ack_policy, null_value: ours.0, header_list: ours.1, origin_time: ours.2,
        }
    }
}

prop_compose! {
    /// Any message of this type.
    pub fn ack()(
        stream in ".{0,12}", partition_subject in ".{0,12}", msg_subject in ".{0,12}", offset in any::<i64>(),
        ack_inbox in ".{0,12}", correlation_id in ".{0,12}", ack_policy in any::<i32>(),
        times in (any::<i64>(), any::<i64>()), ack_error in any::<i32>(),
    ) -> Ack {
        let (reception_timestamp, commit_timestamp) = times;
        Ack {
            stream, partition_subject, msg_subject, offset, ack_inbox, correlation_id, ack_policy, reception_timestamp,
            commit_timestamp, ack_error,
        }
    }
}

/// Fields that no message here has, one of each wire type.
pub fn unknown_fields() -> impl Strategy<Value = Vec<u8>> {
    let field = prop_oneof![
        any::<u64>().prop_map(|value| {
            let mut out = vec![0x98, 0x06]; // 99, varint
            prost::encoding::encode_varint(value, &mut out);
            out
        }),
        any::<[u8; 8]>().prop_map(|value| [&[0x99, 0x06], &value[..]].concat()),
        any::<[u8; 4]>().prop_map(|value| [&[0x9D, 0x06], &value[..]].concat()),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(|value| [
            &[0x9A, 0x06, value.len() as u8],
            &value[..]
        ]
        .concat()),
    ];
    prop::collection::vec(field, 0..4).prop_map(|fields| fields.concat())
}

/// The bytes of any message.
pub fn encoded() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        publish_request().prop_map(|message| message.encode_to_vec()),
        message().prop_map(|message| message.encode_to_vec()),
        ack().prop_map(|ack| ack.encode_to_vec()),
        (ack(), ".{0,9}").prop_map(|(ack, correlation_id)| {
            let async_error = Some(PublishAsyncError {
                code: 3,
                message: "no".into(),
                error: "{}".into(),
            });
            PublishResponse {
                ack: Some(ack),
                async_error,
                correlation_id,
            }
            .encode_to_vec()
        }),
    ]
}
