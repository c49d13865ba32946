//! A small file of two slots, one of which survives a torn write.
//!
//! Slot 0 is at position 0, slot 1 at 4,096, so that no block holds both. Each has a sequence number and ends with a
//! checksum. The valid slot with the higher number counts; an invalid slot counts as absent. A write never replaces the slot
//! that was synced last.
use crate::io::disk::read_up_to;
use crate::io::storage::StorageFile;
use std::io;

/// Position of slot 1, bytes.
pub(crate) const SLOT_DISTANCE: u64 = 4096;
/// The slot of the first write.
pub(crate) const FIRST_SLOT: u64 = 1;

/// The content of the two slots.
pub(crate) struct Slots<T> {
    /// The newer valid slot.
    pub last: Option<T>,
    /// A slot that was written fails its checksum.
    pub is_damaged: bool,
    /// Sequence number of the newer valid one, 0 = none.
    pub sequence: u64,
    /// Which one that is, 0 or 1.
    pub newest: Option<u64>,
}

impl<T> Slots<T> {
    /// `parse`: sequence number and content of a slot of so many bytes; `None` when it does not count.
    ///
    /// # Errors
    /// Those of the storage: one slot alone may be out of date.
    pub fn read<const BYTES: usize>(
        file: &dyn StorageFile,
        parse: impl Fn(&[u8]) -> Option<(u64, T)>,
    ) -> io::Result<Self> {
        let bytes = [
            read_slot::<BYTES>(file, 0)?,
            read_slot::<BYTES>(file, SLOT_DISTANCE)?,
        ];
        let slots = bytes.map(|bytes| parse(&bytes));
        let valid = slots.iter().flatten().count();
        let valid_slots = (0..).zip(slots).filter_map(|(slot, it)| Some((slot, it?)));
        let newest = valid_slots.max_by_key(|(_, (sequence, _))| *sequence);
        let sequence = newest.as_ref().map_or(0, |(_, (sequence, _))| *sequence);
        let [first, second] = bytes.map(|bytes| bytes.iter().all(|byte| *byte == 0));
        // After the first write one slot is valid; after every later one both are.
        let is_damaged = match valid {
            2 => false,
            1 => sequence > 1 || !first,
            _ => !first || !second,
        };
        Ok(Self {
            newest: newest.as_ref().map(|(slot, _)| *slot),
            last: newest.map(|(_, (_, content))| content),
            is_damaged,
            sequence,
        })
    }
}

/// Allocates the blocks of both slots, so that a full disk cannot prevent a write.
pub(crate) fn reserve(file: &dyn StorageFile, slot_bytes: usize) -> io::Result<()> {
    let whole = SLOT_DISTANCE + slot_bytes as u64;
    let len = file.len()?;
    if len < whole {
        file.write_all_at(&vec![0; (whole - len) as usize], len)?;
    }
    Ok(())
}

/// The bytes of a slot, zeros after the end of the file.
pub(crate) fn read_slot<const BYTES: usize>(
    file: &dyn StorageFile,
    position: u64,
) -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    read_up_to(file, &mut bytes, position)?;
    Ok(bytes)
}
