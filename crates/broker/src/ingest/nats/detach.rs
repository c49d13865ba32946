//! Copies the records of a group out of the buffers that they were read into, so that what waits keeps only its own bytes.
use super::group::Group;
use bytes::{Bytes, BytesMut};

/// One allocation of exactly the size of all parts.
pub(crate) fn detach(group: &mut Group) {
    let mut total = 0;
    each_part(group, |part| total += part.len());
    let mut copied = BytesMut::with_capacity(total);
    each_part(group, |part| copied.extend_from_slice(part));
    let mut rest = copied.freeze();
    each_part(group, |part| {
        // Nothing is kept for an empty part.
        *part = match part.len() {
            0 => Bytes::new(),
            length => rest.split_to(length),
        };
    });
}

fn each_part(group: &mut Group, mut visit: impl FnMut(&mut Bytes)) {
    for record in &mut group.records {
        visit(&mut record.key);
        record.value.as_mut().map(&mut visit);
        for (name, value) in &mut record.headers {
            visit(name);
            visit(value);
        }
        visit(&mut record.subject);
        visit(&mut record.reply);
    }
    for ack in &mut group.acks {
        visit(&mut ack.subject);
        visit(&mut ack.inbox);
        visit(&mut ack.correlation_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::IncomingRecord;

    #[test]
    fn a_detached_group_is_equal_and_keeps_nothing_of_the_buffer() {
        struct Owner {
            _alive: std::sync::Arc<()>,
        }
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                b"keyvaluenameheadersubjectreply"
            }
        }
        let alive = std::sync::Arc::new(());
        let buffer = Bytes::from_owner(Owner {
            _alive: alive.clone(),
        });
        let record = IncomingRecord {
            key: buffer.slice(..3),
            value: Some(buffer.slice(3..8)),
            headers: vec![(buffer.slice(8..12), buffer.slice(12..18))],
            subject: buffer.slice(18..25),
            reply: buffer.slice(25..),
            ..IncomingRecord::default()
        };
        let null = IncomingRecord::default();
        let mut group = Group {
            records: vec![record, null],
            ..Group::default()
        };
        drop(buffer);
        assert_eq!(std::sync::Arc::strong_count(&alive), 2);
        detach(&mut group);
        assert_eq!(
            std::sync::Arc::strong_count(&alive),
            1,
            "the buffer is gone"
        );
        let [record, null] = &group.records[..] else {
            panic!("{group:?}")
        };
        assert_eq!(
            (&record.key[..], record.value.as_deref()),
            (&b"key"[..], Some(&b"value"[..]))
        );
        assert_eq!(
            record.headers,
            [(Bytes::from("name"), Bytes::from("header"))]
        );
        assert_eq!(
            (&record.subject[..], &record.reply[..]),
            (&b"subject"[..], &b"reply"[..])
        );
        assert_eq!((null.value.as_ref(), null.key.len()), (None, 0));
    }
}
