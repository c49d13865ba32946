"""The address of the HTTP listener: accepted and rejected forms."""

from pathlib import Path

import pytest
from bascule import config
from bascule.cli.liftbridge.config import translate
from bascule.errors import UsageError


def load(listen: object, **flags: object) -> config.HttpSettings:
    given = {f"http.{name}": value for name, value in flags.items()}
    return config.load(None, {"http.listen": listen, **given}, {}).http


def test_a_broker_listens_on_loopback_and_a_liftbridge_broker_does_not() -> None:
    assert config.load(None, {}, {}).http.address == ("127.0.0.1", 9393)
    assert translate(None, {}, {}).settings.http.address is None


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("off", None),
        (False, None),
    ],
)
def test_addresses_are_read(given: object, address: tuple[str, int] | None) -> None:
    assert load(given).address == address


def test_off_needs_no_quotes_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("http:\n  listen: off\n")
    assert config.load(file, {}, {}).http.address is None
    assert config.load(None, {}, {"BASCULE_HTTP__LISTEN": "off"}).http.address is None


@pytest.mark.parametrize("given", ["9393", ":9393", "::1:9393", "host", "host:", "host:65536", "host:x", 9393, True])
def test_an_invalid_address_is_rejected_with_an_example(given: object) -> None:
    with pytest.raises(UsageError, match=r"http\.listen.*write host:port, e\.g\. \"127\.0\.0\.1:9393\"") as caught:
        load(given)
    assert caught.value.code == "configuration_invalid"


@pytest.mark.parametrize("listen", ["0.0.0.0:9393", "[::]:9393", "10.0.0.5:1", "broker.example.org:1"])
def test_listening_for_other_machines_needs_permission(listen: str) -> None:
    with pytest.raises(UsageError, match=r"set http\.allow_remote to true"):
        load(listen)
    assert load(listen, allow_remote=True).address == config.HttpSettings(listen=listen, allow_remote=True).address


@pytest.mark.parametrize("transport", ["http", "quic"])
def test_other_transports_of_iggy_need_its_listener(transport: str) -> None:
    key = f"iggy.{transport}_listen"
    with pytest.raises(UsageError, match=rf"{key} is 127\.0\.0\.1:3000 and iggy\.listen is off: set iggy\.listen too"):
        config.load(None, {key: "127.0.0.1:3000"}, {})
    with pytest.raises(UsageError, match=rf"{key}.*write host:port"):
        config.load(None, {key: "3000", "iggy.listen": "127.0.0.1:8090"}, {})
    both = config.load(None, {key: "127.0.0.1:3000", "iggy.listen": "127.0.0.1:8090"}, {})
    alone = config.load(None, {"iggy.listen": "127.0.0.1:8090"}, {})
    addresses = [(given.iggy.http_address, given.iggy.quic_address) for given in (both, alone)]
    address = ("127.0.0.1", 3000)
    assert addresses == [(address, None) if transport == "http" else (None, address), (None, None)]
