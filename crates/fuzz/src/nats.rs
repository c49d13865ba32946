//! What arrives from NATS: envelopes of all 15 types, headers, subjects.
use bascule_wire::envelope::{self, MessageType, Recognised};
use bascule_wire::subject::{
    SubjectFilter, has_wildcard, is_publish_subject, is_stream_subject, is_subscribable,
    partition_subject,
};
use bytes::Bytes;

/// Recognition on a stream's subject, and opening as each of the types; with the checksum as it is and recomputed.
pub(crate) fn envelope(data: &[u8]) {
    recognise(data);
    let mut resealed = data.to_vec();
    if let (Some(payload), true) = (data.get(12..), data.first() == Some(&envelope::MAGIC[0])) {
        let crc = crc32c::crc32c(payload).to_be_bytes();
        for (to, from) in resealed.iter_mut().skip(8).zip(crc) {
            *to = from;
        }
        recognise(&resealed);
    }
}

fn recognise(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    if let Recognised::Publish(publish) = envelope::recognise(&bytes) {
        let content = publish.key.len()
            + publish.value.as_ref().map_or(0, Bytes::len)
            + publish.ack_inbox.len();
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

/// NATS header blocks: what is read lies in the block, in order, and a block written from it reads the same.
pub(crate) fn headers(data: &[u8]) {
    const MOST: usize = 8;
    let block = Bytes::copy_from_slice(data);
    let Some(read) = bascule_broker::fuzz::nats_headers(&block, MOST) else {
        assert!(data.len() > MOST * 2, "more than {MOST} headers need bytes");
        return;
    };
    assert!(read.headers.len() <= MOST);
    let bytes: usize = read
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    assert!(bytes + read.headers.len() + read.unusable as usize <= data.len());
    assert!(
        read.status
            .is_none_or(|status| status < 1000 && read.unusable > 0)
    );
    assert!(!read.headers.is_empty() || (!read.origin && read.id == 0));
    let mut again = b"NATS/1.0\r\n".to_vec();
    for (name, value) in &read.headers {
        assert!(!name.is_empty() && !name.contains(&b':'));
        for part in [&name[..], b":", value, b"\r\n"] {
            again.extend_from_slice(part);
        }
    }
    again.extend_from_slice(b"\r\n");
    let again = bascule_broker::fuzz::nats_headers(&again.into(), MOST);
    let again = again.map(|again| (again.headers, again.unusable));
    assert_eq!(again, Some((read.headers, 0)));
}

/// What a NATS server sends: operations follow each other, their parts lie inside and do not overlap, and what was read is
/// read the same with more behind it.
pub(crate) fn operations(data: &[u8]) {
    let Some(operations) = bascule_broker::fuzz::nats_operations(data) else {
        return;
    };
    let mut end = 0;
    for operation in &operations {
        assert_eq!(operation.at, end);
        assert!(operation.end > end && operation.end <= data.len());
        end = operation.end;
        let bytes: usize = operation
            .parts
            .iter()
            .flatten()
            .map(|part| part.len())
            .sum();
        assert!(bytes < operation.end - operation.at);
        if let Some([subject, reply, ..]) = operation.parts
            && data[operation.at..].starts_with(b"MSG ")
        {
            assert!(!subject.is_empty());
            assert!(!subject.contains(&b' ') && !reply.contains(&b' '));
        }
    }
    let longer = [&data[..end], b"PING\r\n"].concat();
    let again = bascule_broker::fuzz::nats_operations(&longer);
    let again = again.map(|again| again.len());
    assert_eq!(again, Some(operations.len() + 1));
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
