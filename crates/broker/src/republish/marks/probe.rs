//! Reply subjects of probes: a republished message with one asks NATS whether anybody is subscribed.
use super::seal::random_name;
use std::io;

/// Begins the reply subjects of probes.
const PROBES: &str = "_INBOX.bascule.";

/// A prefix for the reply subjects of one session's probes.
///
/// # Errors
/// When the system gives no random bytes.
pub(crate) fn probe_inbox() -> io::Result<String> {
    Ok(format!("{PROBES}{}", random_name()?))
}

/// Whether a reply subject is that of a probe of any broker.
pub(crate) fn is_probe(reply: &[u8]) -> bool {
    reply.starts_with(PROBES.as_bytes())
}

/// Last part of a probe's reply subject.
pub(crate) fn probe_name(incarnation: u64, token: u64) -> String {
    format!("{incarnation}-{token}")
}

/// Incarnation and token of the probe whose reply subject this is.
pub(crate) fn parse_probe(subject: &[u8]) -> Option<(u64, u64)> {
    let (_, name) = std::str::from_utf8(subject).ok()?.rsplit_once('.')?;
    let (incarnation, token) = name.split_once('-')?;
    Some((incarnation.parse().ok()?, token.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_known_by_its_reply_subject() {
        let subject = format!("_INBOX.abc.{}", probe_name(u64::MAX, 7));
        assert_eq!(parse_probe(subject.as_bytes()), Some((u64::MAX, 7)));
        for bad in [
            "",
            "7-7",
            "_INBOX.abc",
            "_INBOX.abc.7",
            "_INBOX.abc.7-",
            "_INBOX.abc.-7",
            "_INBOX.abc.7-x",
        ] {
            assert_eq!(parse_probe(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
