//! The digest of rows: what it depends on and what it does not.
use bascule_record::{HeaderEntry, RecordRef};
use bascule_wire::flight::digest::RowDigest;
use proptest::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    headers: Vec<(u8, Vec<u8>, u8, Vec<u8>)>,
    subject: String,
    id: u128,
    reply: String,
    origin_time: Option<i64>,
}

impl Row {
    fn add(&self, digest: &mut RowDigest) {
        let headers: Vec<_> = self
            .headers
            .iter()
            .map(|(key_kind, key, value_kind, value)| HeaderEntry {
                key_kind: *key_kind,
                key,
                value_kind: *value_kind,
                value,
            })
            .collect();
        digest.add(&RecordRef {
            timestamp: 5,
            origin_time: self.origin_time,
            id: self.id,
            key: Some(&self.key[..]).filter(|key| !key.is_empty()),
            value: self.value.as_deref(),
            headers: &headers,
            subject: Some(&self.subject[..]).filter(|subject| !subject.is_empty()),
            reply: &self.reply,
        });
    }
}

fn digest<'a>(rows: impl IntoIterator<Item = &'a Row>) -> u128 {
    let mut digest = RowDigest::new("orders");
    rows.into_iter().for_each(|row| row.add(&mut digest));
    digest.value()
}

/// Short fields, so that lengths and contents meet in many ways.
fn row() -> impl Strategy<Value = Row> {
    let bytes = || proptest::collection::vec(0..3_u8, 0..4);
    let header = (1..4_u8, bytes(), 1..4_u8, bytes());
    (
        bytes(),
        proptest::option::of(bytes()),
        proptest::collection::vec(header, 0..3),
        "[ab]{0,3}",
        0..3_u128,
        "[ab]{0,3}",
        proptest::option::of(-1..2_i64),
    )
        .prop_map(
            |(key, value, headers, subject, id, reply, origin_time)| Row {
                key,
                value,
                headers,
                subject,
                id,
                reply,
                origin_time,
            },
        )
}

proptest! {
    #[test]
    fn it_is_the_same_in_any_order_and_cut(
        rows in proptest::collection::vec(row(), 0..20),
        shuffled in any::<prop::sample::Index>(),
    ) {
        let whole = digest(&rows);
        let mut other = rows.clone();
        other.reverse();
        if !other.is_empty() {
            let middle = shuffled.index(other.len());
            other.rotate_left(middle);
            let (left, right) = rows.split_at(middle);
            prop_assert_eq!(digest(left).wrapping_add(digest(right)), whole);
        }
        prop_assert_eq!(digest(&other), whole);
    }

    #[test]
    fn rows_that_differ_have_digests_that_differ(one in row(), other in row()) {
        prop_assert_eq!(digest([&one]) == digest([&other]), one == other);
    }

    #[test]
    fn a_row_twice_is_not_a_row_once(one in row()) {
        prop_assert_ne!(digest([&one, &one]), digest([&one]));
    }
}

#[test]
fn each_field_counts_and_so_does_the_order_of_headers() {
    let plain = Row {
        key: b"k".to_vec(),
        value: Some(b"v".to_vec()),
        headers: vec![
            (2, b"a".to_vec(), 1, b"1".to_vec()),
            (2, b"b".to_vec(), 1, b"2".to_vec()),
        ],
        subject: "s".into(),
        id: 1,
        reply: "r".into(),
        origin_time: Some(0),
    };
    let changed = |change: &dyn Fn(&mut Row)| {
        let mut row = plain.clone();
        change(&mut row);
        row
    };
    let others = [
        changed(&|row| row.key.clear()),
        changed(&|row| row.value = None),
        changed(&|row| row.value = Some(Vec::new())),
        changed(&|row| row.headers.reverse()),
        changed(&|row| row.headers[0].0 = 1),
        changed(&|row| row.headers[0].2 = 2),
        changed(&|row| row.subject.clear()),
        changed(&|row| row.id = 0),
        changed(&|row| row.reply.clear()),
        changed(&|row| row.origin_time = None),
    ];
    let mut digests: Vec<_> = others
        .iter()
        .chain([&plain])
        .map(|row| digest([row]))
        .collect();
    let mut of_other_stream = RowDigest::new("order");
    plain.add(&mut of_other_stream);
    digests.push(of_other_stream.value());
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 12);
}

/// What other programs compute has to agree: `xxh3_128` of these bytes, by the reference implementation.
#[test]
fn the_digest_of_a_known_row_stays_as_it_is() {
    let row = Row {
        key: b"k".to_vec(),
        value: None,
        headers: vec![(2, b"h".to_vec(), 1, Vec::new())],
        subject: String::new(),
        id: 0,
        reply: String::new(),
        origin_time: None,
    };
    assert_eq!(
        format!("{:032x}", digest([&row])),
        "a7065ba6c7d5ec5c1346da86b7d8001b"
    );
}
