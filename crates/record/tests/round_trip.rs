//! What is pushed is what is read, whatever it is.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]
mod support;

use bascule_record::{Batch, Codec, Columns, Flags};
use proptest::prelude::*;
use support::{OwnedRecord, any_codec, any_records, read_all, seal, stamp};

proptest! {
    #[test]
    fn every_record_comes_back_as_it_was(records in any_records(), codec in any_codec()) {
        let sealed = seal(&records, codec);
        let bytes = sealed.clone().stamp(&stamp());
        prop_assert_eq!(sealed.batch_bytes(), bytes.len());
        let batch = Batch::read(&bytes).unwrap();
        let expected: Vec<_> = records.iter().map(OwnedRecord::as_read).collect();
        prop_assert_eq!(read_all(&batch), expected);
        for i in 0..batch.len() {
            prop_assert_eq!(batch.offset(i), 1_000 + i as u64);
            prop_assert_eq!(batch.seek(batch.offset(i)), i);
        }
        prop_assert_eq!(batch.header().max_timestamp, batch.timestamp(batch.len() - 1));
        prop_assert_eq!(batch.seek(u64::MAX), batch.len());
    }

    #[test]
    fn a_column_is_absent_exactly_when_it_carries_nothing(records in any_records()) {
        let batch = Batch::read(&seal(&records, Codec::None).stamp(&stamp())).unwrap();
        let read = read_all(&batch);
        let has = |column| batch.header().columns.has(column);
        prop_assert_eq!(has(Columns::TIMESTAMP), read.iter().any(|r| r.timestamp != read[0].timestamp));
        prop_assert_eq!(has(Columns::VALUE), read.iter().any(|r| r.value.as_ref().is_some_and(|v| !v.is_empty())));
        prop_assert_eq!(has(Columns::NULL), read.iter().any(|r| r.value.is_none()));
        prop_assert_eq!(has(Columns::KEY), read.iter().any(|r| r.key.is_some()));
        prop_assert_eq!(has(Columns::HEADER), read.iter().any(|r| !r.headers.is_empty()));
        prop_assert_eq!(has(Columns::SUBJECT), read.iter().any(|r| r.subject.is_some()));
        prop_assert_eq!(has(Columns::REPLY), read.iter().any(|r| r.reply.is_some()));
        prop_assert_eq!(has(Columns::ID), read.iter().any(|r| r.id != 0));
        prop_assert_eq!(has(Columns::ORIGIN), read.iter().any(|r| r.origin_time.is_some()));
        let is_constant = read.iter().all(|r| r.subject == read[0].subject);
        prop_assert_eq!(batch.constant_subject(), is_constant.then(|| read[0].subject.as_deref()));
        prop_assert_eq!(batch.distinct_subjects().nth(batch.subject_number(0)), Some(read[0].subject.as_deref()));
    }

    #[test]
    fn seek_time_finds_the_first_record_not_before(records in any_records(), probe in 0..2_000_000_000_i64) {
        let batch = Batch::read(&seal(&records, Codec::None).stamp(&stamp())).unwrap();
        let probe = batch.header().base_timestamp - 1_000_000_000 + probe;
        let expected = (0..batch.len()).find(|i| batch.timestamp(*i) >= probe).unwrap_or(batch.len());
        prop_assert_eq!(batch.seek_time(probe), expected);
    }

    #[test]
    fn rewriting_keeps_offsets_times_and_link(records in any_records(), codec in any_codec(), kept in any::<u64>()) {
        let original = Batch::read(&seal(&records, codec).stamp(&stamp())).unwrap();
        let keep = |i: usize| kept & (1 << i) != 0;
        let once = Batch::read(&original.rewrite(codec, None, keep).unwrap()).unwrap();
        let again = Batch::read(&once.rewrite(Codec::None, None, |i| i % 2 == 0).unwrap()).unwrap();

        let survivors: Vec<_> = (0..original.len()).filter(|i| keep(*i)).collect();
        let halved: Vec<_> = survivors.iter().copied().step_by(2).collect();
        for (batch, survivors) in [(&once, survivors), (&again, halved)] {
            prop_assert_eq!(batch.header().flags.0, Flags::SPARSE | Flags::REWRITTEN);
            prop_assert_eq!(batch.header().link(), original.header().link());
            prop_assert_eq!(batch.header().next_offset(), original.header().next_offset());
            prop_assert_eq!(batch.header().base_timestamp, original.header().base_timestamp);
            prop_assert_eq!(batch.len(), survivors.len());
            for (i, old) in survivors.iter().enumerate() {
                prop_assert_eq!(OwnedRecord::read_from(batch, i), OwnedRecord::read_from(&original, *old));
                prop_assert_eq!(batch.offset(i), original.offset(*old));
                prop_assert_eq!(batch.seek(batch.offset(i)), i);
            }
        }
    }
}
