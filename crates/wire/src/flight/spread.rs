//! Which partition each row of a record batch goes to, when the request names none.
use super::ingest::{Ingest, IngestError};
use super::values;
use crate::partitioning::partition_of_key;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// Rows of a record batch, by number, in the order sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rows {
    /// So many, from the first on.
    All(usize),
    /// These.
    Listed(Vec<u32>),
}

impl Rows {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::All(count) => *count,
            Self::Listed(rows) => rows.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of the row at `place`, which is below the length.
    #[inline]
    pub(super) fn at(&self, place: usize) -> usize {
        match self {
            Self::All(_) => place,
            Self::Listed(rows) => rows.get(place).map_or(0, |row| *row as usize),
        }
    }
}

impl Ingest<'_> {
    /// The rows of each partition: the one that the column `partition` says, else that of the key
    /// ([`partition_of_key`]), else (a null or empty key) `sticky`.
    ///
    /// # Errors
    /// [`IngestError`] when `partition` is not a column of integers, or has a number beyond `partitions`.
    pub fn spread(
        &self,
        partitions: NonZeroU32,
        sticky: u32,
    ) -> Result<BTreeMap<u32, Rows>, IngestError> {
        if self.partition.is_none() && partitions.get() == 1 {
            return Ok(BTreeMap::from([(0, Rows::All(self.rows))]));
        }
        let named = self
            .partition
            .map(|column| values::integers(column, "partition"))
            .transpose()?;
        let mut parts: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for row in 0..self.rows {
            let named = named.as_ref().and_then(|numbers| numbers(row));
            let partition = match named {
                Some(number) => numbered(number, row, partitions)?,
                None => self.by_key(row, partitions).unwrap_or(sticky),
            };
            parts.entry(partition).or_default().push(row as u32);
        }
        let rows = parts.into_iter();
        Ok(rows
            .map(|(number, rows)| (number, Rows::Listed(rows)))
            .collect())
    }

    fn by_key(&self, row: usize, partitions: NonZeroU32) -> Option<u32> {
        let key = self.key.as_ref()?.at(row)?;
        (!key.is_empty()).then(|| partition_of_key(key, partitions))
    }
}

pub(super) fn numbered(
    number: i128,
    row: usize,
    partitions: NonZeroU32,
) -> Result<u32, IngestError> {
    let known = u32::try_from(number).ok();
    let known = known.filter(|number| *number < partitions.get());
    known.ok_or(IngestError::NoPartition {
        row,
        found: number,
        last: partitions.get() - 1,
    })
}
