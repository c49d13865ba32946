//! How to reach NATS and what to send there.
use serde::Deserialize;
use std::path::PathBuf;

/// How to reach NATS (`Engine.connect_nats`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NatsSettings {
    /// URLs (`nats://host:4222`, `tls://host`); all belong to one NATS deployment.
    pub servers: Vec<String>,
    /// User, with [`NatsSettings::password`].
    pub user: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// Token; used when there is no user.
    pub token: Option<String>,
    /// Seed of a user's nkey (`SU…`), which signs what the server asks; used with none of the others.
    pub nkey: Option<String>,
    /// Content of a credentials file: a user's JWT and nkey seed; used with none of the others.
    pub credentials: Option<String>,
    /// Name of the connections in NATS' monitoring, before `.ingest` and `.streams`; by default `bascule.<broker id>`.
    pub name: Option<String>,
    /// TLS; absent = where a server asks for it, with the authorities that the system trusts.
    pub tls: Option<NatsTls>,
    /// Bytes of messages taken off the connections and not yet queued at a partition, and as many of copies that wait, each
    /// message counted with 256 bytes more;
    /// absent = `limits.nats_pending_bytes`.
    pub pending_bytes: Option<usize>,
    /// How long messages may be left with NATS when `pending_bytes` are used up, ms in any 5 s; 0 = drop at once; absent =
    /// 250. NATS keeps what is not read, and ends the connection of who lets more than its `max_pending` (64 MiB by
    /// default) lie.
    pub pause_ms: Option<u64>,
    /// Acks go only to inboxes that begin with one of these, and to the brokers' own; the others are withheld and counted.
    /// None = to every valid subject.
    pub ack_inbox_prefixes: Vec<String>,
    /// Acks for JetStream publishers go only to reply subjects that begin with one of these; the others are withheld and
    /// counted.
    pub jetstream_ack_prefixes: Vec<String>,
}

impl NatsSettings {
    /// Whether acks may go to `inbox`; `<namespace>.ack.` is where brokers wait for those of calls.
    pub(crate) fn is_ack_inbox(&self, namespace: &str, inbox: &str) -> bool {
        let prefixes = &self.ack_inbox_prefixes;
        let own = inbox.strip_prefix(namespace);
        prefixes.is_empty()
            || own.is_some_and(|rest| rest.starts_with(".ack."))
            || prefixes.iter().any(|prefix| inbox.starts_with(prefix))
    }

    /// Whether an ack for a JetStream publisher may go to `reply`.
    pub(crate) fn is_jetstream_reply(&self, reply: &str) -> bool {
        let mut prefixes = self.jetstream_ack_prefixes.iter();
        prefixes.any(|prefix| reply.starts_with(prefix))
    }
}

/// A URL without its user, password or token.
pub(crate) fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let separator = if scheme.is_empty() { "" } else { "://" };
    let host = rest.rsplit('@').next().unwrap_or(rest);
    format!("{scheme}{separator}{host}")
}

/// TLS to NATS.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NatsTls {
    /// Refuse a server that offers none.
    pub required: bool,
    /// Speak TLS from the first byte (`handshake_first` of the server).
    pub first: bool,
    /// PEM file with the certificate authorities to trust instead of the system's. Read at each connect, as the others.
    pub ca: Option<PathBuf>,
    /// PEM file with the client certificate, together with [`NatsTls::key`].
    pub cert: Option<PathBuf>,
    /// PEM file with the client's key.
    pub key: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_shown_without_what_is_secret() {
        for (url, expected) in [
            ("nats://user:pass@one:4222", "nats://one:4222"),
            ("tls://token@two", "tls://two"),
            ("user:p@ss@three", "three"),
            ("nats://four:1", "nats://four:1"),
            ("five", "five"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn acks_go_to_the_prefixes_that_are_set_and_to_the_brokers_own_inboxes() {
        let mut settings = NatsSettings::default();
        assert!(settings.is_ack_inbox("ns", "orders"));
        settings.ack_inbox_prefixes = vec!["_INBOX.".into(), "acks.".into()];
        for (inbox, allowed) in [
            ("_INBOX.x", true),
            ("acks.x", true),
            ("ns.ack.x", true),
            ("other.ack.x", false),
            ("ns.acks", false),
            ("acks", false),
            ("orders", false),
        ] {
            assert_eq!(settings.is_ack_inbox("ns", inbox), allowed, "{inbox}");
        }
    }
}
