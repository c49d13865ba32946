//! Which partition a key belongs to, as every Liftbridge client computes it.
use std::num::NonZeroU32;

/// CRC-32 (IEEE) of the key modulo the number of partitions.
pub fn partition_of_key(key: &[u8], partitions: NonZeroU32) -> u32 {
    crc32fast::hash(key) % partitions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_of_other_clients() {
        let all = NonZeroU32::MAX;
        assert_eq!(partition_of_key(b"123456789", all), 0xCBF4_3926);
        assert_eq!(partition_of_key(b"", all), 0);
        let seven = NonZeroU32::new(7).unwrap_or(NonZeroU32::MIN);
        assert_eq!(partition_of_key(b"123456789", seven), 0xCBF4_3926 % 7);
    }
}
