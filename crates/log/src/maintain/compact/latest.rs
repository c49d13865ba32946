//! The latest offset of each key, in bounded memory.
//!
//! A key is stored as 128 bits of two independently keyed `SipHash` values. A collision would cost a record; for 2^30 keys its
//! probability is below 2^-67, and a client that does not know the random keys of this process cannot provoke it.
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

/// Bytes of a bucket of the table: 16 of the key, 8 of the offset, 1 of control.
const BUCKET_BYTES: usize = 25;
/// Minimum number of buckets.
const MIN_BUCKETS: usize = 16;

type Fingerprint = [u64; 2];

/// A hasher that returns the fingerprint itself.
#[derive(Default)]
struct FirstWord(u64);
impl Hasher for FirstWord {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u64(&mut self, word: u64) {
        self.0 ^= word;
    }
    fn write_usize(&mut self, _length: usize) {}
}

/// Keys and the largest offset of each.
pub(super) struct LatestOffsets {
    offsets: HashMap<Fingerprint, u64, BuildHasherDefault<FirstWord>>,
    max_keys: usize,
    keyed: [RandomState; 2],
}

impl LatestOffsets {
    /// An empty map of at most `bytes` (at least room for 14 keys); while it grows it takes half as much again.
    pub fn with_memory(bytes: usize) -> Self {
        let affordable = (bytes / BUCKET_BYTES).max(MIN_BUCKETS);
        // Tables have a power of two of buckets and are filled to seven eighths.
        let buckets = 1 << affordable.ilog2();
        Self {
            offsets: HashMap::default(),
            max_keys: buckets / 8 * 7,
            keyed: [RandomState::new(), RandomState::new()],
        }
    }

    /// Sets the latest offset of `key`; offsets ascend. `false`: the map is full.
    pub fn insert(&mut self, key: &[u8], offset: u64) -> bool {
        let fingerprint = self.fingerprint(key);
        if let Some(known) = self.offsets.get_mut(&fingerprint) {
            *known = offset;
            return true;
        }
        let has_room = self.offsets.len() < self.max_keys;
        if has_room {
            self.offsets.insert(fingerprint, offset);
        }
        has_room
    }

    /// The latest offset of the key.
    pub fn get(&self, key: &[u8]) -> Option<u64> {
        self.offsets.get(&self.fingerprint(key)).copied()
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Removes all keys, keeps the memory.
    pub fn clear(&mut self) {
        self.offsets.clear();
    }

    fn fingerprint(&self, key: &[u8]) -> Fingerprint {
        self.keyed.each_ref().map(|keyed| {
            let mut hasher = keyed.build_hasher();
            hasher.write(key);
            hasher.finish()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_offset_of_a_key_counts_and_a_full_map_still_takes_known_keys() {
        let mut latest = LatestOffsets::with_memory(0);
        assert!(latest.is_empty());
        for key in 0..14_u8 {
            assert!(latest.insert(&[key], u64::from(key)));
        }
        assert!(!latest.insert(b"one more", 20));
        assert!(latest.insert(&[3], 21));
        assert_eq!(latest.get(&[3]), Some(21));
        assert_eq!(latest.get(&[4]), Some(4));
        assert_eq!(latest.get(b"one more"), None);
        latest.clear();
        assert_eq!(latest.get(&[3]), None);
    }

    #[test]
    fn memory_stays_within_the_bound() {
        let bytes = 1 << 20;
        let mut latest = LatestOffsets::with_memory(bytes);
        let mut key = 0_u64;
        while latest.insert(&key.to_le_bytes(), key) {
            key += 1;
        }
        assert_eq!(key, 28_672, "seven eighths of 2^15");
        let buckets = latest.offsets.capacity() / 7 * 8;
        assert!(buckets * BUCKET_BYTES <= bytes);
    }
}
