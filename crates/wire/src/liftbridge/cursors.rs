//! Cursors as they are kept (liftbridge §3.11): the key and value of a record on `__cursors`, and which partition it
//! lies on.
use prost::Message;

/// The internal message `Cursor` (liftbridge §6.3); our fields are numbered from 100.
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

/// The key that positions are stored under: `<cursor id>,<stream>,<partition>`. Where an id has a comma, backslashes and
/// commas of both are written with a backslash before them: two places never have one key.
pub fn key(cursor_id: &str, stream: &str, partition: i32) -> String {
    if cursor_id.contains(',') || stream.contains(',') {
        format!("{},{},{partition}", escaped(cursor_id), escaped(stream))
    } else {
        raw_key(cursor_id, stream, partition)
    }
}

/// The same without backslashes: says which partition the key lies on. Positions were stored under it before keys were
/// escaped, and the ids in their values say whose they are.
pub fn raw_key(cursor_id: &str, stream: &str, partition: i32) -> String {
    format!("{cursor_id},{stream},{partition}")
}

/// What a key of [`key`] is made of: cursor id, stream, partition. `None`: it is not such a key.
pub fn split_key(key: &str) -> Option<(String, String, i32)> {
    // No id of a key without backslashes has a comma: it has two, and an escaped one has more.
    let (ids, partition) = key.rsplit_once(',')?;
    let partition = partition.parse().ok()?;
    if let [cursor_id, stream] = ids.split(',').collect::<Vec<_>>()[..] {
        return Some((cursor_id.to_owned(), stream.to_owned(), partition));
    }
    let mut parts = vec![String::new()];
    let mut characters = ids.chars();
    while let Some(character) = characters.next() {
        let part = parts.last_mut()?;
        match character {
            '\\' => part.push(characters.next()?),
            ',' => parts.push(String::new()),
            other => part.push(other),
        }
    }
    let [cursor_id, stream] = <[String; 2]>::try_from(parts).ok()?;
    Some((cursor_id, stream, partition))
}

fn escaped(id: &str) -> String {
    id.replace('\\', "\\\\").replace(',', "\\,")
}

/// A record of `__cursors` as a position: its key, escaped, and what it says. `None`: the value is not a cursor, or not the one
/// that the record's key names.
pub fn read(key: &[u8], value: &[u8]) -> Option<(String, Cursor)> {
    let cursor = Cursor::decode(value).ok()?;
    let own = self::key(&cursor.cursor_id, &cursor.stream, cursor.partition);
    let raw = raw_key(&cursor.cursor_id, &cursor.stream, cursor.partition);
    let named = !cursor.cursor_id.is_empty() && !cursor.stream.is_empty();
    (named && (key == own.as_bytes() || key == raw.as_bytes())).then_some((own, cursor))
}

/// The compaction key of a record of `__cursors`; `None` = it holds no position, and so supersedes none with its key.
pub fn compaction_key(key: &[u8], value: Option<&[u8]>) -> Option<Vec<u8>> {
    let (key, _) = read(key, value?)?;
    Some(key.into_bytes())
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
        assert_eq!(partition_of(raw_key("c", "foo", 0).as_bytes(), 10), 4);
        assert_eq!(
            partition_of(raw_key("__group:g", "orders", 3).as_bytes(), 10),
            6
        );
    }

    #[test]
    fn no_two_places_have_one_key() {
        let ids = ["x", "x,a", "a,b", "b", "x\\", "x\\,a", ",", "\\", "a,", "0"];
        let mut keys = std::collections::HashMap::new();
        for cursor in ids {
            for stream in ids {
                for partition in [0, 1] {
                    let place = (cursor, stream, partition);
                    let name = key(cursor, stream, partition);
                    let parts = split_key(&name).unwrap();
                    assert_eq!((&*parts.0, &*parts.1, parts.2), place);
                    let other = keys.insert(name, place);
                    assert_eq!(other, None, "{place:?}");
                }
            }
        }
        assert_eq!(key("c", "orders", 3), "c,orders,3", "as it always was");
        assert_eq!(key("x,a", "b", 0), "x\\,a,b,0");
        for other in ["", "a", "a,b", "a,b,c", "a,b,c,0", "a\\,b,c\\"] {
            assert_eq!(split_key(other), None, "{other}");
        }
    }

    #[test]
    fn a_record_is_a_position_when_its_key_is_that_of_its_value() {
        let cursor = Cursor {
            stream: "b".into(),
            cursor_id: "x,a".into(),
            offset: 7,
            ..Cursor::default()
        };
        let value = cursor.encode_to_vec();
        let wanted = Some(("x\\,a,b,0".to_owned(), cursor));
        assert_eq!(read(b"x\\,a,b,0", &value), wanted);
        assert_eq!(read(b"x,a,b,0", &value), wanted, "as keys were before");
        assert_eq!(read(b"y,b,0", &value), None);
        assert_eq!(read(b"x,a,b,0", b"\xff"), None);
        assert_eq!(
            compaction_key(b"x,a,b,0", Some(&value)),
            Some(b"x\\,a,b,0".to_vec())
        );
        assert_eq!(compaction_key(b"x,a,b,0", None), None);
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
