//! Cursors as they are kept (§3.11): the key and value of a record on `__cursors`, and which partition it lies on.
use prost::Message;

/// The internal message `Cursor` (§6.3); our fields are numbered from 100.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Cursor {
    /// Stream name.
    #[prost(string, tag = "1")]
    pub stream: String,
    /// Partition number.
    #[prost(int32, tag = "2")]
    pub partition: i32,
    /// Name of the reader.
    #[prost(string, tag = "3")]
    pub cursor_id: String,
    /// By convention the last one processed.
    #[prost(int64, tag = "4")]
    pub offset: i64,
    /// Which creation of the partition the offset belongs to; 0 = it did not exist.
    #[prost(uint64, tag = "100")]
    pub incarnation: u64,
    /// Generation of the group that stored it; 0 = none.
    #[prost(uint64, tag = "101")]
    pub generation: u64,
}

/// `<cursor id>,<stream>,<partition>`.
pub fn key(cursor_id: &str, stream: &str, partition: i32) -> String {
    format!("{cursor_id},{stream},{partition}")
}

/// The partition of `__cursors` that a key lies on; `partitions` ≥ 1.
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    crc32(key) % partitions.max(1)
}

/// CRC-32 (IEEE 802.3, reflected) of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        let mut crc = crc ^ u32::from(*byte);
        for _ in 0..8 {
            let carry = 0xEDB8_8320 & (crc & 1).wrapping_neg();
            crc = (crc >> 1) ^ carry;
        }
        crc
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_specification() {
        let known = [
            ("", 0),
            ("a", 3_904_355_907),
            ("foo", 2_356_372_769),
            ("key", 2_324_736_937),
            ("hello", 907_060_870),
            ("c,foo,0", 2_114_518_764),
            ("cursor-1,orders,0", 60_229_506),
            ("__group:g,orders,3", 2_260_069_526),
        ];
        for (text, hash) in known {
            assert_eq!(crc32(text.as_bytes()), hash, "{text}");
        }
        assert_eq!(partition_of(key("c", "foo", 0).as_bytes(), 10), 4);
        assert_eq!(
            partition_of(key("__group:g", "orders", 3).as_bytes(), 10),
            6
        );
    }

    #[test]
    fn values_of_the_original_are_read() {
        let theirs = [10, 1, b's', 16, 3, 26, 1, b'c', 32, 7];
        let cursor = Cursor::decode(&theirs[..]).unwrap();
        assert_eq!(
            cursor,
            Cursor {
                stream: "s".into(),
                partition: 3,
                cursor_id: "c".into(),
                offset: 7,
                ..Cursor::default()
            }
        );
    }
}
