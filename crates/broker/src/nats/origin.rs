//! NATS headers that mean something to us: where a copy came from, and message ids.
use async_nats::HeaderMap;
use async_nats::header::HeaderName;

/// Header of copies: `cluster/incarnation/partition/offset`, the last three decimal.
pub(super) const ORIGIN_HEADER: HeaderName = HeaderName::from_static("Bascule-Origin");
const MESSAGE_ID_HEADER: HeaderName = HeaderName::from_static("Nats-Msg-Id");

/// Incarnation that a message is a copy from, when it is a copy from a partition of `cluster`.
pub(crate) fn incarnation_of_copy(headers: &HeaderMap, cluster: &str) -> Option<u64> {
    let value = headers.get(ORIGIN_HEADER)?.as_str();
    let mut parts = value.strip_prefix(cluster)?.strip_prefix('/')?.split('/');
    let incarnation = parts.next()?.parse().ok()?;
    let _partition: u32 = parts.next()?.parse().ok()?;
    let _offset: u64 = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some(incarnation)
}

/// Whether a message is a copy from any broker.
pub(super) fn is_copy(headers: &HeaderMap) -> bool {
    headers.get(ORIGIN_HEADER).is_some()
}

/// Id of a message that has a `Nats-Msg-Id`, otherwise 0.
pub(crate) fn message_id(headers: &HeaderMap) -> u128 {
    headers
        .get(MESSAGE_ID_HEADER)
        .map_or(0, |id| hash_message_id(id.as_str().as_bytes()))
}

/// The stable 128-bit FNV-1a hash of a message id; never 0, which means "none".
fn hash_message_id(id: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    id.iter()
        .fold(BASIS, |hash, byte| {
            (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
        })
        .max(1)
}

/// Partitions of one creation of a stream have incarnations that differ in their lowest bits only
/// (`specs/formats/metadata.md`).
const ORDINAL_BITS: u32 = 16;

/// Whether two partitions are of the same creation of a stream. What one of them has, a subject they share must not give
/// to another.
pub(super) fn is_same_stream(incarnation: u64, other: u64) -> bool {
    stream_of(incarnation) == stream_of(other)
}

/// The creation of a stream that a partition belongs to.
pub(super) fn stream_of(incarnation: u64) -> u64 {
    incarnation >> ORDINAL_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, value);
        headers
    }

    #[test]
    fn a_copy_tells_its_incarnation_only_within_its_cluster() {
        let copy = headers("Bascule-Origin", "c1/18446744073709551615/3/12");
        assert_eq!(incarnation_of_copy(&copy, "c1"), Some(u64::MAX));
        assert_eq!(incarnation_of_copy(&copy, "c"), None);
        assert_eq!(incarnation_of_copy(&copy, "c2"), None);
        assert!(is_copy(&copy));
    }

    #[test]
    fn a_malformed_origin_is_none() {
        for bad in [
            "",
            "c1",
            "c1/",
            "c1/7",
            "c1/7/0",
            "c1/7/0/x",
            "c1/-7/0/1",
            "c1/7/0/1/2",
            "c1/18446744073709551616/0/1",
        ] {
            assert_eq!(
                incarnation_of_copy(&headers("Bascule-Origin", bad), "c1"),
                None,
                "{bad:?}"
            );
        }
    }

    #[test]
    fn message_ids_are_hashed_as_published_vectors_say() {
        // FNV-1a 128 of "" is the offset basis; of "a" and "foobar" as in the reference test suite.
        assert_eq!(
            hash_message_id(b""),
            0x6c62_272e_07bb_0142_62b8_2175_6295_c58d
        );
        assert_eq!(
            hash_message_id(b"a"),
            0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964
        );
        assert_eq!(
            hash_message_id(b"foobar"),
            0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18
        );
        assert_eq!(
            message_id(&headers("Nats-Msg-Id", "a")),
            hash_message_id(b"a")
        );
        assert_eq!(message_id(&HeaderMap::new()), 0);
    }
}
