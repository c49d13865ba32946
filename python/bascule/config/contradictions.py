"""Settings that contradict each other. A broker starts nevertheless, and warns which one wins."""

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from bascule._text import without_credentials
from bascule.config.sections import NatsSettings, Settings

__all__ = ["contradictions"]

_HERE: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_EVERY: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 (compared, not bound)
_NATS_PORT: Final = 4222
_IDENTITIES: Final = ("user", "password", "password_file", "token_file", "nkey_file", "credentials_file")


def contradictions(settings: Settings) -> Iterator[str]:
    """One sentence for each contradiction: the settings, and which one wins."""
    nats = settings.nats
    if nats.standalone and nats.config is None and "servers" in nats.model_fields_set and not _names_own(nats):
        servers = ", ".join(without_credentials(server, "…") for server in nats.servers)
        yield (
            f"nats.standalone is set and nats.servers names {servers}: nats.standalone wins, the broker starts a "
            "nats-server and connects only to it; leave one of them out"
        )
    if nats.standalone and settings.cluster.peers:
        yield (
            "nats.standalone and cluster.peers are set: every broker has a nats-server of its own, so a message to a"
            " subject reaches only streams whose leader is the broker of that server; set nats.servers to servers that"
            " all brokers share"
        )
    if nats.config is not None and not nats.standalone and "standalone" in nats.model_fields_set:
        yield (
            f"nats.standalone is false and nats.config names {nats.config}: nats.standalone wins, no nats-server is "
            "started and that file is not used; leave one of them out"
        )
    others = [f"nats.{name}" for name in _IDENTITIES if getattr(nats, name) is not None]
    if others and any("@" in server for server in nats.servers):
        yield (
            f"nats.servers contains credentials and {' and '.join(others)} {'is' if len(others) == 1 else 'are'} set:"
            " nats.servers wins, as in other NATS clients; leave one of them out"
        )


def _names_own(nats: NatsSettings) -> bool:
    """Whether `nats.servers` is the address of the standalone server."""
    if not nats.port:
        # the default, as printed by `config show` of earlier versions
        return nats.servers == NatsSettings.model_fields["servers"].default
    if len(nats.servers) != 1:
        return False
    url = urlsplit(nats.servers[0] if "://" in nats.servers[0] else f"nats://{nats.servers[0]}")
    return (url.port or _NATS_PORT) == nats.port and (
        url.hostname in _HERE | _EVERY or url.hostname == nats.host or nats.host in _EVERY
    )
