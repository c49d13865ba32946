//! Headers of every form.
use super::*;

pub(crate) fn header_list(
    keys: StringArray,
    values: ArrayRef,
    lengths: [usize; 3],
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let fields = Fields::from(vec![
        Field::new("Key", DataType::Utf8, true),
        Field::new("VALUE", values.data_type().clone(), true),
    ]);
    let entries = StructArray::new(fields, vec![Arc::new(keys), values], None);
    let item = Arc::new(Field::new("item", entries.data_type().clone(), true));
    Arc::new(ListArray::new(
        item,
        OffsetBuffer::from_lengths(lengths),
        Arc::new(entries),
        nulls,
    ))
}

pub(crate) fn headers_of(batch: &Batch, i: usize) -> Vec<(u8, &[u8], u8, &[u8])> {
    batch
        .headers(i)
        .map(|header| (header.key_kind, header.key, header.value_kind, header.value))
        .collect()
}

#[test]
fn headers_may_be_a_map_and_sliced() {
    let mut map = MapBuilder::new(None, StringBuilder::new(), BinaryBuilder::new());
    for row in 0..3 {
        map.keys().append_value(format!("k{row}"));
        map.values().append_value([row]);
        map.append(true).unwrap_or_else(|error| panic!("{error}"));
    }
    let sliced = rows(vec![
        ("value", values(3)),
        ("headers", Arc::new(map.finish())),
    ])
    .slice(1, 2);
    let batch = stored(&sliced);
    assert_eq!(headers_of(&batch, 0), [(2, &b"k1"[..], 1, &[1][..])]);
    assert_eq!(headers_of(&batch, 1), [(2, &b"k2"[..], 1, &[2][..])]);
}

/// The list of headers of one row.
fn one_list(entries: StructArray) -> ArrayRef {
    let item = Arc::new(Field::new("element", entries.data_type().clone(), true));
    let lengths = [entries.len()];
    Arc::new(ListArray::new(
        item,
        OffsetBuffer::from_lengths(lengths),
        Arc::new(entries),
        None,
    ))
}

pub(crate) fn entries(columns: Vec<(&str, ArrayRef)>, nulls: Option<NullBuffer>) -> StructArray {
    let fields: Vec<_> = columns
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), true))
        .collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    StructArray::new(Fields::from(fields), columns, nulls)
}

#[test]
fn a_header_may_have_no_key_and_kinds_of_its_own() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("c")]));
    let present = Some(NullBuffer::from(vec![true, true, false]));
    let list = one_list(entries(
        vec![("key", texts.clone()), ("value", texts)],
        present,
    ));
    let batch = stored(&rows(vec![("value", values(1)), ("headers", list)]));
    assert_eq!(
        headers_of(&batch, 0),
        [
            (2, &b"a"[..], 1, &b"a"[..]),
            (1, b"", 1, b""),
            (1, b"", 1, b"")
        ]
    );
    let keys: ArrayRef = Arc::new(BinaryArray::from(vec![&b"\xff"[..], b"b", b"c"]));
    let kinds: ArrayRef = Arc::new(Int32Array::from(vec![None, Some(2), Some(15)]));
    let list = one_list(entries(
        vec![
            ("value_kind", kinds.clone()),
            ("value", keys.clone()),
            ("KEY_KIND", kinds),
            ("key", keys),
        ],
        None,
    ));
    let batch = stored(&rows(vec![("value", values(1)), ("headers", list)]));
    assert_eq!(
        headers_of(&batch, 0),
        [
            (1, &b"\xff"[..], 1, &b"\xff"[..]),
            (2, b"b", 2, b"b"),
            (15, b"c", 15, b"c")
        ]
    );
}

#[test]
fn headers_with_other_kinds_or_fields_are_refused() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    for kind in [0, 16, -1] {
        let kinds: ArrayRef = Arc::new(Int32Array::from(vec![kind]));
        let list = one_list(entries(
            vec![
                ("key", texts.clone()),
                ("value", texts.clone()),
                ("key_kind", kinds),
            ],
            None,
        ));
        assert_eq!(
            refused(vec![("value", values(1)), ("headers", list)]),
            format!(
                "column headers has kind {kind} in row 0; kinds are 1 (raw), 2 (string), to 15"
            )
        );
    }
    let list = one_list(entries(
        vec![
            ("key", texts.clone()),
            ("value", texts.clone()),
            ("colour", texts),
        ],
        None,
    ));
    let error = refused(vec![("value", values(1)), ("headers", list)]);
    assert!(error.starts_with("column headers has type List"), "{error}");
}
