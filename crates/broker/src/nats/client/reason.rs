//! Why a connection to NATS is down.
use serde::Serialize;

/// Reason why a connection is not up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The first attempt is under way.
    Starting,
    /// Settings cannot be used: a URL, a file, credentials.
    Settings,
    /// The host's name could not be resolved.
    AddressUnknown,
    /// Nobody listens at the address, or no route leads there.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// The server refused user, password, token, nkey or JWT.
    LoginRefused,
    /// The TLS handshake failed, or the server offers no TLS although it is required.
    TlsFailed,
    /// What answers does not speak the NATS protocol, or ended the connection with an error.
    Protocol,
    /// The connection was lost.
    Lost,
}
