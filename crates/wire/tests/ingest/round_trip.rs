//! What a read emits can be put back.
use super::headers::entries;
use super::*;

/// Rows that have every column that can be written.
fn full_rows() -> RecordBatch {
    let keys: ArrayRef = Arc::new(BinaryArray::from(vec![&b"\xff"[..], b"text", b"three"]));
    let kinds: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let list = entries(
        vec![("key", keys.clone()), ("value", keys), ("key_kind", kinds)],
        None,
    );
    let item = Arc::new(Field::new("element", list.data_type().clone(), true));
    let headers = ListArray::new(
        item,
        OffsetBuffer::from_lengths([0, 2, 0, 1, 0]),
        Arc::new(list),
        None,
    );
    rows(vec![
        ("value", values(5)),
        ("headers", Arc::new(headers)),
        (
            "id",
            Arc::new(BinaryArray::from(vec![
                Some(&[3; 16][..]),
                None,
                None,
                None,
                Some(&[0; 16]),
            ])),
        ),
        (
            "reply",
            Arc::new(StringArray::from(vec![
                Some("r"),
                None,
                Some(""),
                None,
                None,
            ])),
        ),
        (
            "origin_time",
            Arc::new(TimestampMicrosecondArray::from(vec![
                Some(1),
                None,
                Some(-1),
                None,
                None,
            ])),
        ),
        (
            "key",
            Arc::new(StringArray::from(vec![
                Some("k"),
                None,
                None,
                Some("l"),
                None,
            ])),
        ),
        (
            "subject",
            Arc::new(StringArray::from(vec!["a", "a", "b", "b", "own"])),
        ),
    ])
}

#[test]
fn what_was_gathered_can_be_sent_again() {
    let first = full_rows();
    let columns = [
        Column::Stream,
        Column::Partition,
        Column::Subject,
        Column::Key,
        Column::Value,
        Column::Headers,
        Column::Reply,
        Column::Id,
        Column::OriginTime,
    ];
    let projection =
        Projection::named(&columns.map(Column::name)).unwrap_or_else(|error| panic!("{error}"));
    let source = GatherSource {
        stream: "orders".into(),
        partition: 3,
        subject: "own".into(),
    };
    let gathered = |batch: &Batch| {
        let mut gather = Gather::new(
            projection.clone(),
            source.clone(),
            None,
            GatherLimits::default(),
        );
        gather.push(batch, 0, batch.len());
        gather
            .finish()
            .ok()
            .flatten()
            .unwrap_or_else(|| panic!("nothing gathered"))
    };
    let once = stored(&first);
    let again = stored(&gathered(&once));
    assert_eq!(gathered(&once), gathered(&again));
    assert_eq!(again.id(0), u128::from_be_bytes([3; 16]));
    assert_eq!(again.origin_time(2), Some(-1000));
    assert_eq!(
        again.headers(1).count(),
        2,
        "a key that is not text is lost, its header is not"
    );
}
