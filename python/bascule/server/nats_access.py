"""Addresses, credentials and TLS of the connection to NATS, as the document of `connect_nats`.

All files are read and checked here, so that a broker with an unusable file does not start; the error has the remedy.
The data plane reads TLS files again at each connect, so a renewed certificate needs no restart.
"""

import re
import ssl
from pathlib import Path
from typing import Any, Final

from bascule._text import without_credentials
from bascule.config import NatsSettings, NatsTlsSettings, url_credentials
from bascule.errors import BrokerError, error

__all__ = [
    "OWN_PAUSE_MS",
    "check_authorities",
    "check_pair",
    "nats_settings",
    "read_setting",
    "unusable",
]

OWN_PAUSE_MS: Final = 1000
"""How long messages may stay in the buffer of the broker's own nats-server (`nats_child`)."""

_SEED: Final = re.compile(r"SU[A-Z2-7]{56}")
_SEED_SECTION: Final = re.compile(r"-{3,}BEGIN USER NKEY SEED-{3,}\s+SU[A-Z2-7]{56}\s")
_JWT_SECTION: Final = re.compile(r"-{3,}BEGIN NATS USER JWT-{3,}\s+[\w\-.=]+\s")


def nats_settings(nats: NatsSettings, servers: list[str], pending_bytes: int, *, is_own: bool) -> dict[str, Any]:
    """The document of `connect_nats`. `is_own`: the server is the broker's child.

    Raises:
        UsageError: `configuration_invalid`: a file cannot be used; it names the setting, the file and the remedy.
    """
    document: dict[str, Any] = {
        "servers": [without_credentials(server) for server in servers],
        "pending_bytes": pending_bytes,
        "jetstream_ack_prefixes": list(nats.jetstream_ack_prefixes),
    }
    if nats.ack_inbox_prefixes:
        document["ack_inbox_prefixes"] = list(nats.ack_inbox_prefixes)
    if is_own and nats.config is None:
        document["pause_ms"] = OWN_PAUSE_MS
    document |= _identity(nats, servers)
    tls = _tls(nats.tls)
    if tls:
        document["tls"] = tls
    return document


def _identity(nats: NatsSettings, servers: list[str]) -> dict[str, str]:
    """The credentials of the broker. Those in URLs win; they are removed from the URLs, which logs show."""
    try:
        held = url_credentials(servers)
    except ValueError as different:
        raise error("configuration_invalid", f"nats.servers: {different}", {"key": "nats.servers"}) from None
    if held is not None:
        return {key: value for key, value in held._asdict().items() if value is not None}
    document: dict[str, str] = {}
    if nats.user is not None:
        document["user"] = nats.user
    if nats.password is not None:
        document["password"] = nats.password.get_secret_value()
    if nats.password_file is not None:
        document["password"] = _secret("nats.password_file", nats.password_file)
    if nats.token_file is not None:
        document["token"] = _secret("nats.token_file", nats.token_file)
    if nats.nkey_file is not None:
        document["nkey"] = _nkey("nats.nkey_file", nats.nkey_file)
    if nats.credentials_file is not None:
        document["credentials"] = _credentials("nats.credentials_file", nats.credentials_file)
    return document


def _tls(tls: NatsTlsSettings) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if tls.required:
        document["required"] = True
    if tls.handshake_first:
        document["first"] = True
    if tls.ca_file is not None:
        check_authorities("nats.tls.ca_file", tls.ca_file)
        document["ca"] = str(tls.ca_file.absolute())
    if tls.certificate_file is not None and tls.key_file is not None:
        check_pair("nats.tls", tls.certificate_file, tls.key_file)
        document["cert"], document["key"] = str(tls.certificate_file.absolute()), str(tls.key_file.absolute())
    return document


_MISMATCHES: Final = frozenset({"KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})
"""Errors of OpenSSL for a key that belongs to another certificate, of the same or another type."""


def check_authorities(setting: str, file: Path) -> None:
    """Reject a file without a certificate."""
    read_setting(setting, file)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cafile=str(file))
    except (ssl.SSLError, OSError):
        raise unusable(
            setting, file, "it contains no certificate in PEM form: name the file of the authority"
        ) from None


def check_pair(section: str, certificate: Path, key: Path) -> None:
    """Reject a certificate and a key that do not match. `section`: that of the two settings."""
    read_setting(f"{section}.certificate_file", certificate)
    read_setting(f"{section}.key_file", key)
    try:
        # An empty password, so that OpenSSL does not ask for one at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(str(certificate), str(key), password="")
    except (ssl.SSLError, OSError) as failure:
        if getattr(failure, "reason", "") in _MISMATCHES:
            remedy = f"the private key in {section}.key_file {key} does not belong to its first certificate"
        else:
            remedy = f"it and {section}.key_file {key} are not a certificate and its key in PEM form without a password"
        raise unusable(f"{section}.certificate_file", certificate, remedy) from None


def _nkey(setting: str, file: Path) -> str:
    seed = _secret(setting, file)
    if not _SEED.fullmatch(seed):
        raise unusable(
            setting, file, "it must contain the seed of a user's nkey and nothing else: SU and 56 more letters"
        )
    return seed


def _credentials(setting: str, file: Path) -> str:
    text = read_setting(setting, file)
    if not _JWT_SECTION.search(text) or not _SEED_SECTION.search(text):
        raise unusable(setting, file, "it must contain a user's JWT and nkey seed, as written by `nsc generate creds`")
    return text


def _secret(setting: str, file: Path) -> str:
    secret = read_setting(setting, file).strip()
    if not secret:
        raise unusable(setting, file, "it is empty: write the secret into it")
    return secret


def read_setting(setting: str, file: Path) -> str:
    """The text of the file that a setting names.

    Raises:
        UsageError: `configuration_invalid`.
    """
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "it is not text"
        message = f"cannot read {setting} {file}: {reason}; name a file that the broker's user can read"
        raise error("configuration_invalid", message, {"key": setting}) from failure


def unusable(setting: str, file: Path, remedy: str) -> BrokerError:
    """The error that names a setting and its file."""
    return error("configuration_invalid", f"{setting} {file} cannot be used: {remedy}", {"key": setting})
