//! What requests name: streams, topics, consumers, partitions, positions.
use crate::iggy::reader::{Reader, text};
use crate::iggy::{Generation, Malformed};
use std::num::NonZeroU32;
use xxhash_rust::xxh32::xxh32;

/// A stream, topic or group, by number or by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identifier<'a> {
    /// Number, from 1.
    Number(u32),
    /// Name, 1 to 255 bytes.
    Name(&'a str),
}
impl<'a> Identifier<'a> {
    pub(super) fn read(from: &mut Reader<'a>, field: &'static str) -> Result<Self, Malformed> {
        match Self::read_as_sent(from, field)? {
            Self::Number(value) => from
                .generation()
                .meant(value)
                .map(Self::Number)
                .ok_or(Malformed::Unknown { field, value }),
            name @ Self::Name(_) => Ok(name),
        }
    }

    /// With the number that was sent, not counted from 1.
    fn read_as_sent(from: &mut Reader<'a>, field: &'static str) -> Result<Self, Malformed> {
        let kind = from.u8(field)?;
        let length = from.u8(field)?;
        let value = from.take(length.into(), field)?;
        let unknown = |value: u8| Malformed::Unknown {
            field,
            value: value.into(),
        };
        match (kind, length) {
            (1, 4) => match Reader::new(value, from.generation()).u32(field)? {
                number if number < from.generation().first_number() => Err(unknown(0)),
                number => Ok(Self::Number(number)),
            },
            (2, 1..) => text(value, field).map(Self::Name),
            (1 | 2, length) => Err(unknown(length)),
            (kind, _) => Err(unknown(kind)),
        }
    }
}

/// Whose position: of one consumer, or of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerKind {
    /// One consumer, by its number or a name of its own.
    One,
    /// A group of the topic.
    Group,
}

/// Who polls or stores a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumer<'a> {
    /// One or a group.
    pub kind: ConsumerKind,
    /// Its number or name; the number of a single consumer is as it was sent.
    pub id: Identifier<'a>,
}
impl<'a> Consumer<'a> {
    pub(super) fn read(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let kind = match from.u8("the consumer's kind")? {
            1 => ConsumerKind::One,
            2 => ConsumerKind::Group,
            value => {
                return Err(Malformed::Unknown {
                    field: "the consumer's kind",
                    value: value.into(),
                });
            }
        };
        let id = match kind {
            ConsumerKind::One => Identifier::read_as_sent(from, "the consumer")?,
            ConsumerKind::Group => Identifier::read(from, "the consumer")?,
        };
        Ok(Self { kind, id })
    }

    /// The number under which a single consumer's positions are kept: its own, or the XXH32 of its name.
    pub fn number(&self) -> u32 {
        match self.id {
            Identifier::Number(number) => number,
            Identifier::Name(name) => xxh32(name.as_bytes(), 0),
        }
    }
}

/// Which partition a send goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitioning<'a> {
    /// The topic's next one in turn.
    Balanced,
    /// This one; 0 is none.
    Partition(u32),
    /// The one that the key chooses; 0 to 255 bytes, of which 0 are refused by [`super::Send::read`].
    Key(&'a [u8]),
}
impl<'a> Partitioning<'a> {
    /// Bytes that have to be left for a partitioning to be read, though a balanced one takes 2.
    const LEAST_BYTES: usize = 3;

    pub(super) fn read(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        const FIELD: &str = "the partitioning";
        if from.rest().len() < Self::LEAST_BYTES {
            return Err(Malformed::Ended { field: FIELD });
        }
        let kind = from.u8(FIELD)?;
        let length = from.u8(FIELD)?;
        let value = from.take(length.into(), FIELD)?;
        let unknown = |value: u8| Malformed::Unknown {
            field: FIELD,
            value: value.into(),
        };
        match (kind, length) {
            (1, 0) => Ok(Self::Balanced),
            (2, 4) => {
                let value = Reader::new(value, from.generation()).u32(FIELD)?;
                let number = from.generation().meant(value);
                number.map(Self::Partition).ok_or(Malformed::Unknown {
                    field: FIELD,
                    value,
                })
            }
            (3, _) => Ok(Self::Key(value)),
            (1 | 2, length) => Err(unknown(length)),
            (kind, _) => Err(unknown(kind)),
        }
    }

    /// The partition of a key, from 1 to `partitions`: XXH32 of the key modulo their number. For clients that count from 1
    /// the number that comes out, 0 being the last; for those that count from 0 it is theirs.
    pub fn of_key(key: &[u8], partitions: NonZeroU32, generation: Generation) -> u32 {
        match (xxh32(key, 0) % partitions, generation.first_number()) {
            (0, 1) => partitions.get(),
            (number, first) => number + 1 - first,
        }
    }
}

/// Where a poll starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// At this offset.
    Offset(u64),
    /// At the first message of this time or later, µs since 1970.
    Timestamp(u64),
    /// At the oldest kept.
    First,
    /// So that it ends with the newest.
    Last,
    /// After the stored offset.
    Next,
}
impl Strategy {
    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let kind = from.u8("the strategy")?;
        let value = from.u64("the strategy's value")?;
        match kind {
            1 => Ok(Self::Offset(value)),
            2 => Ok(Self::Timestamp(value)),
            3 => Ok(Self::First),
            4 => Ok(Self::Last),
            5 => Ok(Self::Next),
            kind => Err(Malformed::Unknown {
                field: "the strategy",
                value: kind.into(),
            }),
        }
    }
}

/// A partition's number from 1; none = none given, which is 0 on the wire, or a flag.
pub(super) fn partition(from: &mut Reader<'_>) -> Result<Option<NonZeroU32>, Malformed> {
    const FIELD: &str = "the partition";
    if !from.generation().has_partition_flag() {
        return from.u32(FIELD).map(NonZeroU32::new);
    }
    let (is_given, value) = (from.flag("the flag of the partition")?, from.u32(FIELD)?);
    if !is_given {
        return Ok(None);
    }
    numbered(from, value).map(Some)
}

/// A partition's number from 1 that is always given.
pub(super) fn given_partition(from: &mut Reader<'_>) -> Result<NonZeroU32, Malformed> {
    let value = from.u32("the partition")?;
    numbered(from, value)
}

fn numbered(from: &Reader<'_>, value: u32) -> Result<NonZeroU32, Malformed> {
    let number = from.generation().meant(value).and_then(NonZeroU32::new);
    number.ok_or(Malformed::Unknown {
        field: "the partition",
        value,
    })
}
