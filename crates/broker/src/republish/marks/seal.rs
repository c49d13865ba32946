//! Proves that a copy is from this broker. The copies of a stream with a queue group come back to it, and are skipped by
//! their origin header. Any publisher can write that header, so only a copy with a valid seal is skipped: a forged header, or
//! one that is repeated with other content, cannot keep a message out of a stream.
use super::origin::{ORIGIN_HEADER, SEAL_HEADER, is_mark};
use crate::nats::client::headers::without_blanks;
use bascule_record::crypt::{Entropy, SystemEntropy};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use ring::hmac::{self, HMAC_SHA256, Key};
use std::fmt::Write as _;
use std::io;

/// The key of one session. Copies of another are not known as our own, nor can they come back to this one.
pub(crate) struct Seal(Key);

impl Seal {
    /// A key of its own.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Key::new(HMAC_SHA256, &random::<32>()?)))
    }

    /// Seal of a copy, as text: of its origin, its other headers in order, and its payload.
    pub(crate) fn tag<'a>(
        &self,
        origin: &[u8],
        headers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        payload: &[u8],
    ) -> String {
        let tag = hmac::sign(&self.0, &content(origin, headers, payload));
        URL_SAFE_NO_PAD.encode(tag.as_ref())
    }

    /// Whether the headers hold the seal of the copy that they describe.
    pub(crate) fn is_valid(&self, headers: &[(Bytes, Bytes)], payload: &[u8]) -> bool {
        let value = |name: &str| {
            let mut values = headers.iter().filter(|(other, _)| other == name.as_bytes());
            values.next().map(|(_, value)| value)
        };
        let (Some(origin), Some(seal)) = (value(ORIGIN_HEADER), value(SEAL_HEADER)) else {
            return false;
        };
        let others = headers.iter().filter(|(name, _)| !is_mark(name));
        let others = others.map(|(name, value)| (&name[..], &value[..]));
        let sealed = content(origin, others, payload);
        URL_SAFE_NO_PAD
            .decode(seal)
            .is_ok_and(|tag| hmac::verify(&self.0, &sealed, &tag).is_ok())
    }
}

/// The sealed bytes: each part with its length, so that different contents have different bytes.
fn content<'a>(
    origin: &[u8],
    headers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    payload: &[u8],
) -> Vec<u8> {
    let mut content = Vec::with_capacity(origin.len() + payload.len() + 64);
    let mut put = |part: &[u8]| {
        content.extend_from_slice(&(part.len() as u64).to_le_bytes());
        content.extend_from_slice(part);
    };
    put(origin);
    for (name, value) in headers {
        put(name);
        put(without_blanks(value));
    }
    put(payload);
    content
}

/// A name that nobody can guess.
///
/// # Errors
/// When the system gives no random bytes.
pub(crate) fn random_name() -> io::Result<String> {
    Ok(hex(&random::<16>()?))
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemEntropy.fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to memory does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> Vec<(Bytes, Bytes)> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| {
                (
                    Bytes::from_static(name.as_bytes()),
                    (*value).to_owned().into(),
                )
            })
            .collect()
    }

    #[test]
    fn only_the_sealed_content_is_valid() {
        let seal = Seal::new().unwrap();
        let content: [(&[u8], &[u8]); 1] = [(b"h", b"1")];
        let tag = seal.tag(b"c/7/0/1", content.into_iter(), b"payload");
        let sealed = |origin: &str, header: &str, tag: &str| {
            headers(&[
                ("Bascule-Origin", origin),
                ("Bascule-Seal", tag),
                ("h", header),
            ])
        };
        assert!(seal.is_valid(&sealed("c/7/0/1", "1", &tag), b"payload"));
        assert!(
            !seal.is_valid(&sealed("c/7/0/2", "1", &tag), b"payload"),
            "another origin"
        );
        assert!(
            !seal.is_valid(&sealed("c/7/0/1", "2", &tag), b"payload"),
            "another header"
        );
        assert!(
            !seal.is_valid(&sealed("c/7/0/1", "1", &tag), b"forged"),
            "another payload"
        );
        assert!(
            !seal.is_valid(&sealed("c/7/0/1", "1", ""), b"payload"),
            "no seal"
        );
        assert!(!seal.is_valid(&headers(&[("Bascule-Seal", &tag)]), b"payload"));
        assert!(
            !Seal::new()
                .unwrap()
                .is_valid(&sealed("c/7/0/1", "1", &tag), b"payload"),
            "another key"
        );
    }

    #[test]
    fn names_differ() {
        assert_ne!(random_name().unwrap(), random_name().unwrap());
        assert_eq!(random_name().unwrap().len(), 32);
    }
}
