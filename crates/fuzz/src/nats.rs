//! What arrives from NATS: envelopes of all 15 types, headers, subjects.
use bascule_wire::envelope::{self, MessageType, Recognised};
use bascule_wire::subject::{
    SubjectFilter, has_wildcard, is_publish_subject, is_stream_subject, is_subscribable,
    partition_subject,
};
use bytes::Bytes;

/// Recognition on a stream's subject, and opening as each of the types; with the checksum as it is and mended.
pub(crate) fn envelope(data: &[u8]) {
    recognise(data);
    let mut mended = data.to_vec();
    if let (Some(payload), true) = (data.get(12..), data.first() == Some(&envelope::MAGIC[0])) {
        let crc = crc32c::crc32c(payload).to_be_bytes();
        for (to, from) in mended.iter_mut().skip(8).zip(crc) {
            *to = from;
        }
        recognise(&mended);
    }
}

fn recognise(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    if let Recognised::Publish(publish) = envelope::recognise(&bytes) {
        let content = publish.key.len() + publish.value.len() + publish.ack_inbox.len();
        assert!(content <= data.len());
        assert!(std::str::from_utf8(&publish.ack_inbox).is_ok());
        assert!(std::str::from_utf8(&publish.correlation_id).is_ok());
        // Each header takes at least a key and a length of the input.
        assert!(publish.headers.len() <= data.len() / 2);
        assert!(envelope::open(&bytes, MessageType::Publish).is_ok());
    }
    let opened = MessageType::ALL
        .iter()
        .filter(|kind| envelope::open(&bytes, **kind).is_ok())
        .count();
    assert!(opened <= 1, "one envelope, {opened} types");
}

/// NATS header blocks: ids and origins.
pub(crate) fn headers(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (origin, id) = text.split_once('\n').unwrap_or((&text, ""));
    let (incarnation, hashed) = bascule_broker::fuzz::nats_headers(origin, id, "c1");
    assert!(incarnation.is_none() || origin.starts_with("c1/"));
    // No header can hold a line break.
    assert!(id.is_empty() || id.contains(['\r', '\n']) || hashed != 0);
}

/// Subjects and filters; matching agrees with a slow and plain one.
pub(crate) fn subjects(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (pattern, subject) = text.split_once('\n').unwrap_or((&text, "a.b"));
    assert!(!is_publish_subject(subject) || is_stream_subject(subject));
    assert!(!is_subscribable(pattern) || is_stream_subject(pattern));
    assert!(!is_publish_subject(subject) || !has_wildcard(subject));
    assert!(partition_subject(subject, 3).len() == subject.len() + 2);
    let filter = SubjectFilter::parse(pattern);
    assert_eq!(filter.is_ok(), is_subscribable(pattern));
    if let Ok(filter) = filter
        && is_publish_subject(subject)
    {
        let wanted: Vec<&str> = pattern.split('.').collect();
        let tokens: Vec<&str> = subject.split('.').collect();
        assert_eq!(filter.matches(subject), matches(&wanted, &tokens));
    }
}

fn matches(wanted: &[&str], tokens: &[&str]) -> bool {
    match (wanted, tokens) {
        ([">"], [_, ..]) | ([], []) => true,
        (["*", wanted @ ..], [_, tokens @ ..]) => matches(wanted, tokens),
        ([first, wanted @ ..], [token, tokens @ ..]) => first == token && matches(wanted, tokens),
        _ => false,
    }
}
