//! NATS headers that mean something to us: the origin of a copy, and message ids.
use bytes::Bytes;

/// Header of copies: `cluster/incarnation/partition/offset`, the last three decimal.
pub(crate) const ORIGIN_HEADER: &str = "Bascule-Origin";
/// Header of copies that may come back to the stream they are from: what [`crate::republish::marks::seal`] makes of the copy.
pub(crate) const SEAL_HEADER: &str = "Bascule-Seal";
const MESSAGE_ID_HEADER: &str = "Nats-Msg-Id";

/// Whether a header is one by which a broker marks a copy.
pub(crate) fn is_mark(name: &[u8]) -> bool {
    name == ORIGIN_HEADER.as_bytes() || name == SEAL_HEADER.as_bytes()
}

/// Names and values of a message's headers, in order.
type Headers = [(Bytes, Bytes)];

/// The partition that a copy was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) incarnation: u64,
}

/// Origin of a message that is a copy from any broker: one with a single, well-formed `Bascule-Origin`.
pub(crate) fn origin(headers: &Headers) -> Option<Origin<'_>> {
    let mut values = values(headers, ORIGIN_HEADER);
    let value = values.next().filter(|_| values.next().is_none())?;
    let mut parts = std::str::from_utf8(value).ok()?.rsplitn(4, '/');
    let _offset: u64 = number(parts.next()?)?;
    let _partition = u32::try_from(number(parts.next()?)?).ok()?;
    let incarnation = number(parts.next()?)?;
    let cluster = parts.next()?;
    (!cluster.is_empty()).then_some(Origin {
        cluster,
        incarnation,
    })
}

/// A decimal number without a sign.
fn number(text: &str) -> Option<u64> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_decimal)
}

/// Id of a message that has a `Nats-Msg-Id`, otherwise 0. Of several the first counts, as with JetStream.
pub(crate) fn message_id(headers: &Headers) -> u128 {
    values(headers, MESSAGE_ID_HEADER)
        .next()
        .filter(|id| !id.is_empty())
        .map_or(0, |id| hash_message_id(id))
}

/// Values of the headers with that name; names of NATS headers are case-sensitive.
fn values<'a>(headers: &'a Headers, name: &str) -> impl Iterator<Item = &'a Bytes> {
    headers
        .iter()
        .filter(move |(other, _)| &other[..] == name.as_bytes())
        .map(|(_, value)| value)
}

/// The stable 128-bit FNV-1a hash of a message id; never 0, which means "none".
pub(crate) fn hash_message_id(id: &[u8]) -> u128 {
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
pub(crate) fn is_same_stream(incarnation: u64, other: u64) -> bool {
    stream_of(incarnation) == stream_of(other)
}

/// The creation of a stream that a partition belongs to.
pub(crate) fn stream_of(incarnation: u64) -> u64 {
    incarnation >> ORDINAL_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> Vec<(Bytes, Bytes)> {
        vec![(Bytes::from_static(name.as_bytes()), value.to_owned().into())]
    }

    #[test]
    fn a_copy_names_its_cluster_and_incarnation() {
        let copy = headers("Bascule-Origin", "c/1/18446744073709551615/3/12");
        let expected = Origin {
            cluster: "c/1",
            incarnation: u64::MAX,
        };
        assert_eq!(origin(&copy), Some(expected));
        assert_eq!(origin(&headers("bascule-origin", "c1/7/0/1")), None);
        let twice = [copy.clone(), copy].concat();
        assert_eq!(origin(&twice), None, "no broker writes two");
    }

    #[test]
    fn a_malformed_origin_is_ignored() {
        for bad in [
            "",
            "x",
            "c1",
            "c1/",
            "c1/7",
            "c1/7/0",
            "/7/0/1",
            "c1/7/0/x",
            "c1/-7/0/1",
            "c1/+7/0/1",
            "c1/7/4294967296/1",
            "c1/18446744073709551616/0/1",
        ] {
            assert_eq!(origin(&headers("Bascule-Origin", bad)), None, "{bad:?}");
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
        assert_eq!(message_id(&[]), 0);
        assert_eq!(message_id(&headers("Nats-Msg-Id", "")), 0);
    }
}
