//! Batches that describe themselves: from (`run_id`, partition, counter) everything else follows, so that a reader can
//! distinguish sent bytes from any others.
use bascule_record::{Batch, BatchBuilder, BatchLimits, BuildError, Codec, RecordRef, SealedBatch};

const HEAD_BYTES: usize = 20;
const CODECS: [Codec; 4] = [Codec::None, Codec::None, Codec::Lz4, Codec::Zstd];

/// A small generator with good mixing (`SplitMix64`); the same everywhere for one seed.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// A generator of its own for these numbers.
    pub fn of(seeds: &[u64]) -> Self {
        let mut chance = Self(0x0001_2345_6789_abcd);
        for seed in seeds {
            chance.0 = chance.next() ^ seed;
        }
        chance
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in [0, end); `end` is 1 or more.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

/// Which batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// Run that sent it.
    pub run_id: u32,
    /// Log it was sent to.
    pub partition: u32,
    /// Its number in that run, from 1.
    pub counter: u64,
}

impl Name {
    fn chance(self) -> Chance {
        Chance::of(&[self.run_id.into(), self.partition.into(), self.counter])
    }

    /// The values of its records. Mostly small; one batch in 16 has values of up to 16 KiB.
    fn values(self) -> Vec<Vec<u8>> {
        let mut chance = self.chance();
        let count = 1 + chance.below(12);
        let most = if chance.below(16) == 0 { 16 << 10 } else { 700 };
        (0..count)
            .map(|index| {
                let length = chance.below(most) as usize;
                let mut value = Vec::with_capacity(HEAD_BYTES + length + 8);
                value.extend_from_slice(&self.run_id.to_le_bytes());
                value.extend_from_slice(&self.partition.to_le_bytes());
                value.extend_from_slice(&self.counter.to_le_bytes());
                value.extend_from_slice(&(index as u32).to_le_bytes());
                while value.len() < HEAD_BYTES + length {
                    value.extend_from_slice(&chance.next().to_le_bytes());
                }
                value.truncate(HEAD_BYTES + length);
                value
            })
            .collect()
    }

    /// The batch, ready to be appended; `now_ns` is the time of its records.
    ///
    /// # Errors
    /// Those of the builder, which none of these sizes provokes.
    pub fn build(self, now_ns: i64) -> Result<SealedBatch, BuildError> {
        let mut builder = BatchBuilder::new(BatchLimits::default());
        let values = self.values();
        for value in &values {
            let key = (self.counter % 32).to_le_bytes();
            builder.push(&RecordRef {
                timestamp: now_ns,
                key: self.counter.is_multiple_of(2).then_some(key.as_slice()),
                value: Some(value),
                ..RecordRef::default()
            })?;
        }
        let codec = CODECS
            .get(self.counter as usize % CODECS.len())
            .copied()
            .unwrap_or(Codec::None);
        builder.seal(codec, None, None).ok_or(BuildError::Full)
    }
}

/// Which batch this is; `None` when no run can have sent it as it is. Compaction may have left some of its records only:
/// those that are there have to be at their offsets, in whole.
pub fn recognise(batch: &Batch) -> Option<Name> {
    let head = batch.value(0)?;
    let u32_at = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let name = Name {
        run_id: u32_at(0)?,
        partition: u32_at(4)?,
        counter: u64::from_le_bytes(head.get(8..16)?.try_into().ok()?),
    };
    let (values, header) = (name.values(), batch.header());
    let same = values.len() == header.span as usize
        && (0..batch.len()).all(|i| {
            let sent = values.get((batch.offset(i) - header.base_offset) as usize);
            batch.value(i) == sent.map(Vec::as_slice)
        });
    same.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bascule_record::Stamp;

    #[test]
    fn a_batch_is_recognised_and_one_with_a_changed_value_is_not() {
        let name = Name {
            run_id: 3,
            partition: 2,
            counter: 77,
        };
        let stamp = Stamp {
            incarnation: 1,
            partition: 2,
            leader_epoch: 3,
            base_offset: 0,
            chain: 0,
            not_before: 0,
        };
        let bytes = name.build(5).unwrap().stamp(&stamp);
        assert_eq!(recognise(&Batch::read(&bytes).unwrap()), Some(name));
        let mut builder = BatchBuilder::new(BatchLimits::default());
        for mut value in name.values() {
            value.push(0);
            let record = RecordRef {
                value: Some(&value),
                ..RecordRef::default()
            };
            builder.push(&record).unwrap();
        }
        let other = builder.seal(Codec::None, None, None).unwrap().stamp(&stamp);
        assert_eq!(recognise(&Batch::read(&other).unwrap()), None);
    }
}
