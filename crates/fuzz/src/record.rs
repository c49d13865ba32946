//! Record batches: header, payload layout, codecs, rewriting, building.
use crate::input::Input;
use bascule_record::crypt::{DataKey, Entropy, EntropyError, KeyRing, SECRET_BYTES};
use bascule_record::{
    Batch, BatchBuilder, BatchLimits, Batches, Codec, HEADER_BYTES, Header, HeaderEntry, MAGIC,
    Producer, RecordRef, Stamp,
};
use bytes::Bytes;
use std::sync::Arc;

/// Maximum of records checked in a batch; a batch without columns may claim 2^24 of them.
const CHECKED_RECORDS: usize = 512;
/// Most bytes that a compressed payload claims here, so that the memory bound is not the subject.
const CLAIM: u32 = 1 << 20;

/// Bytes as a batch, and again with lengths and checksums recomputed.
pub(crate) fn batch(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let as_is = Batch::read(&bytes);
    if let Ok(batch) = &as_is {
        look(batch);
    }
    let header = Header::read(data);
    assert!(as_is.is_err() || header.is_ok(), "a batch without a header");
    if let Some(resealed) = resealed(data)
        && let Ok(batch) = Batch::read(&resealed)
    {
        look(&batch);
    }
}

/// A batch whose compressed payload is the input.
pub(crate) fn codec(data: &[u8]) {
    let mut input = Input::new(data);
    let codec = 1 + input.byte() % 2;
    let raw = input.u32() % CLAIM;
    let count = u32::from(input.byte()).max(1);
    let columns = input.u16() & 0x3fe;
    let payload = input.rest();
    let mut bytes = vec![0; HEADER_BYTES];
    put(&mut bytes, 5, &[codec]);
    put(&mut bytes, 20, &columns.to_le_bytes());
    put(&mut bytes, 40, &count.to_le_bytes());
    put(&mut bytes, 44, &count.to_le_bytes());
    put(&mut bytes, 84, &raw.to_le_bytes());
    bytes.extend_from_slice(payload);
    if let Some(resealed) = resealed(&bytes)
        && let Ok(batch) = Batch::read(&resealed)
    {
        assert_eq!(batch.payload().len(), raw as usize);
        look(&batch);
    }
}

/// Compaction of whatever reads as a batch: what is kept does not change.
pub(crate) fn rewrite(data: &[u8]) {
    let mut input = Input::new(data);
    let (keep, codec) = (input.u64(), Codec::from_byte(input.byte() % 3));
    let Some(Ok(before)) = resealed(input.rest()).map(|bytes| Batch::read(&bytes)) else {
        return;
    };
    if before.len() > CHECKED_RECORDS {
        return;
    }
    let kept: Vec<usize> = (0..before.len())
        .filter(|i| keep >> (i % 64) & 1 == 1)
        .collect();
    let is_kept = |i| keep >> (i % 64) & 1 == 1;
    let Ok(rewritten) = before.rewrite(codec.unwrap_or_default(), None, is_kept) else {
        panic!("a plain batch needs no key");
    };
    let after = match Batch::read(&rewritten) {
        Ok(after) => after,
        Err(error) => panic!("a rewritten batch does not read: {error}"),
    };
    assert_eq!(after.len(), kept.len());
    assert_eq!(after.header().link(), before.header().link());
    assert_eq!(after.header().next_offset(), before.header().next_offset());
    for (i, &old) in kept.iter().enumerate() {
        assert!(same(&after, i, &before, old), "record {old} changed");
    }
}

/// An encrypted batch with an edit and recomputed checksums: what is authenticated opens unchanged or not at all.
pub(crate) fn encrypted(data: &[u8]) {
    let mut input = Input::new(data);
    let (at, with) = (usize::from(input.u16()), input.short());
    let Some(key) = DataKey::new(3, &[7; SECRET_BYTES]) else {
        return;
    };
    let keys = KeyRing::new([(3, Ok(key))]).with_entropy(Arc::new(NoEntropy));
    let mut builder = BatchBuilder::new(BatchLimits::default());
    let value = input.rest();
    let record = RecordRef {
        value: Some(value),
        ..RecordRef::default()
    };
    let (Ok(()), Ok(Some(mut sealer))) = (builder.push(&record), keys.sealer()) else {
        return;
    };
    let sealed = builder.seal(Codec::Lz4, None, None);
    let Some(Ok(whole)) = sealed.map(|batch| batch.stamp_encrypted(&PLACE, &mut sealer)) else {
        panic!("a batch could not be sealed");
    };
    let mut edited = whole.to_vec();
    put(&mut edited, at, with);
    let Some(resealed) = resealed_fields(&edited, false) else {
        return;
    };
    let authenticated = |bytes: &[u8]| {
        let part = |from: usize, to: usize| bytes.get(from..to).map(<[u8]>::to_vec);
        (part(0, 64), part(88, 104), part(HEADER_BYTES, bytes.len()))
    };
    match Batch::open(&resealed, &keys) {
        Ok(batch) => {
            assert_eq!(authenticated(&resealed), authenticated(&whole));
            assert_eq!(batch.value(0), Some(value));
        }
        Err(_) => assert_ne!(resealed, whole),
    }
}

/// The same nonce for every batch: inputs must repeat.
#[derive(Debug)]
struct NoEntropy;
impl Entropy for NoEntropy {
    fn fill(&self, out: &mut [u8]) -> Result<(), EntropyError> {
        out.fill(5);
        Ok(())
    }
}

/// Where built batches go.
const PLACE: Stamp = Stamp {
    incarnation: 7,
    partition: 3,
    leader_epoch: 1,
    base_offset: 10,
    chain: 9,
    not_before: 0,
};

/// A row of batches as a log reader splits it.
pub(crate) fn batches(data: &[u8]) {
    let mut split = 0;
    for batch in Batches::new(Bytes::copy_from_slice(data)) {
        let Ok(batch) = batch else { return };
        split += batch.len();
        assert!(batch.len() >= HEADER_BYTES);
    }
    assert_eq!(split, data.len());
}

/// Records of any shape: what is built is read back.
pub(crate) fn build(data: &[u8]) {
    let mut input = Input::new(data);
    let codec = Codec::from_byte(input.byte() % 3).unwrap_or_default();
    let producer = Producer {
        id: input.u64(),
        epoch: input.u32(),
        base_sequence: input.u32(),
    };
    let own = input.short();
    let own = std::str::from_utf8(own).ok();
    let not_before = input.u64() as i64;
    let mut builder = BatchBuilder::new(BatchLimits::default());
    let mut expected = Vec::new();
    while !input.is_empty() && expected.len() < CHECKED_RECORDS {
        let shape = input.byte();
        let key = input.short();
        let value = input.long();
        let header = (input.short(), input.short());
        let text = std::str::from_utf8(input.short()).unwrap_or_default();
        let entries = [HeaderEntry {
            key_kind: shape,
            key: header.0,
            value_kind: shape >> 3,
            value: header.1,
        }];
        let record = RecordRef {
            timestamp: i64::from(input.u32()),
            origin_time: (shape & 1 != 0).then_some(i64::from(shape)),
            id: u128::from(shape & 2),
            key: (shape & 4 != 0).then_some(key),
            value: (shape & 8 == 0).then_some(value),
            headers: if shape & 16 == 0 { &[] } else { &entries },
            subject: (shape & 32 != 0).then_some(text),
            reply: if shape & 64 == 0 { "" } else { text },
        };
        let key = record.key.filter(|key| !key.is_empty());
        let content = (key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec));
        if builder.push(&record).is_ok() {
            expected.push(content);
        }
    }
    let Some(sealed) = builder.seal(codec, Some(producer), own) else {
        assert!(expected.is_empty());
        return;
    };
    let stamped = sealed.stamp(&Stamp {
        not_before,
        ..PLACE
    });
    let batch = match Batch::read(&stamped) {
        Ok(batch) => batch,
        Err(error) => panic!("a built batch does not read: {error}"),
    };
    assert_eq!(batch.len(), expected.len());
    for (i, (key, value)) in expected.iter().enumerate() {
        assert_eq!(batch.key(i), key.as_deref());
        assert_eq!(batch.value(i), value.as_deref());
    }
    look(&batch);
}

/// The input with magic, version, lengths and checksums of a batch; `None` when it is too short to be one.
pub(crate) fn resealed(data: &[u8]) -> Option<Bytes> {
    resealed_fields(data, true)
}

/// The same; the raw length stays as it is when `raw` is false.
fn resealed_fields(data: &[u8], raw: bool) -> Option<Bytes> {
    let mut bytes = data.to_vec();
    let payload = bytes.get(HEADER_BYTES..)?.to_vec();
    let length = (payload.len() as u32).to_le_bytes();
    put(&mut bytes, 0, &MAGIC);
    put(&mut bytes, 4, &[1]);
    put(&mut bytes, 80, &length);
    if raw && bytes.get(5) == Some(&0) {
        put(&mut bytes, 84, &length);
    }
    put(&mut bytes, 104, &crc32c::crc32c(&payload).to_le_bytes());
    let crc = crc32c::crc32c(bytes.get(..124)?);
    put(&mut bytes, 124, &crc.to_le_bytes());
    Some(bytes.into())
}

/// Overwrites what lies at `at`.
fn put(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(with) {
        *to = *from;
    }
}

/// Takes every way into a batch.
pub(crate) fn look(batch: &Batch) {
    let (n, header) = (batch.len(), *batch.header());
    let subjects: Vec<Option<&str>> = batch.distinct_subjects().collect();
    let mut last = None;
    for i in (0..n).take(CHECKED_RECORDS).chain(n.checked_sub(1)) {
        let offset = batch.offset(i);
        assert!(offset >= header.base_offset && offset < header.next_offset());
        assert!(last.is_none_or(|last| last < offset) || i + 1 == n);
        last = Some(offset);
        assert_eq!(batch.seek(offset), i);
        assert!(batch.seek_time(batch.timestamp(i)) <= i);
        assert!(batch.timestamp(i) <= header.max_timestamp);
        assert_eq!(
            subjects.get(batch.subject_number(i)),
            Some(&batch.subject(i))
        );
        let bytes: usize = batch
            .headers(i)
            .map(|header| header.key.len() + header.value.len())
            .sum();
        let _ = (batch.key(i), batch.value(i), batch.reply(i), bytes);
        let _ = (batch.id(i), batch.origin_time(i));
    }
    assert_eq!(batch.seek(u64::MAX), n);
    let _ = batch.constant_subject();
}

fn same(a: &Batch, i: usize, b: &Batch, j: usize) -> bool {
    (a.offset(i), a.timestamp(i), a.key(i), a.value(i))
        == (b.offset(j), b.timestamp(j), b.key(j), b.value(j))
        && (a.subject(i), a.reply(i), a.id(i)) == (b.subject(j), b.reply(j), b.id(j))
        && a.origin_time(i) == b.origin_time(j)
        && a.headers(i).eq(b.headers(j))
}
