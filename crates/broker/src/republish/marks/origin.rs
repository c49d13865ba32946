//! The headers that mark a copy, and where it is from.
use bytes::Bytes;

/// Header of copies: `cluster/incarnation/partition/offset`, the last three decimal.
pub(crate) const ORIGIN_HEADER: &str = "Bascule-Origin";
/// Header of copies that may come back to the stream they are from: what [`crate::republish::marks::seal`] makes of the copy.
pub(crate) const SEAL_HEADER: &str = "Bascule-Seal";

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

/// Values of the headers with that name; names of NATS headers are case-sensitive.
fn values<'a>(headers: &'a Headers, name: &str) -> impl Iterator<Item = &'a Bytes> {
    headers
        .iter()
        .filter(move |(other, _)| &other[..] == name.as_bytes())
        .map(|(_, value)| value)
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
}
