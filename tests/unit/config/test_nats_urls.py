"""Credentials in URLs of NATS servers: read as by other NATS clients, and never shown."""

import pytest
from bascule import config
from bascule.config import UrlCredentials, url_credentials
from bascule.errors import UsageError
from bascule.server import nats_access


@pytest.mark.parametrize(
    ("servers", "held"),
    [
        (["nats://h:4222"], None),
        (["nats://u:p@h:4222"], UrlCredentials("u", "p", None)),
        (["u:p@h:4222"], UrlCredentials("u", "p", None)),
        (["tls://t0ken@h"], UrlCredentials(None, None, "t0ken")),
        (["nats://u:@h"], UrlCredentials("u", "", None)),
        (["nats://us%40er:p%2Fa%3As%25s@h"], UrlCredentials("us@er", "p/a:s%s", None)),
        (["nats://u:p@a@h"], UrlCredentials("u", "p@a", None)),
        (["nats://u:p@h:1", "nats://h:2", "nats://u:p@h:3"], UrlCredentials("u", "p", None)),
    ],
)
def test_credentials_are_read_as_by_nats_clients(servers: list[str], held: UrlCredentials | None) -> None:
    assert url_credentials(servers) == held


def test_different_credentials_are_rejected_without_showing_them() -> None:
    nats = config.load(None, {"nats.servers": ["nats://u:geheim@one:1", "nats://u:andere@two:2"]}, {}).nats
    with pytest.raises(UsageError, match="have different credentials") as caught:
        nats_access.nats_settings(nats, list(nats.servers), 9, is_own=False)
    assert "nats://one:1, nats://two:2" in str(caught.value)
    assert not {"geheim", "andere"} & set(str(caught.value).replace("@", " ").replace(":", " ").split())


def test_the_data_plane_gets_credentials_separately_from_the_servers() -> None:
    nats = config.load(None, {"nats.servers": ["nats://u:p@h:1", "nats://h:2"], "nats.user": "other"}, {}).nats
    document = nats_access.nats_settings(nats, list(nats.servers), 9, is_own=False)
    assert document["servers"] == ["nats://h:1", "nats://h:2"]
    assert (document["user"], document["password"]) == ("u", "p")
    token = config.load(None, {"nats.servers": ["nats://t@h:1"]}, {}).nats
    assert nats_access.nats_settings(token, list(token.servers), 9, is_own=False)["token"] == "t"
