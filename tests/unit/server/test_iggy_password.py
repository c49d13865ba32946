"""The password of the first user of Iggy's clients: where it comes from, and which is refused."""

from pathlib import Path

import pytest
from bascule import config
from bascule.errors import UsageError
from bascule.server.iggy import root_password


def settings(file: Path | None, listen: str = "127.0.0.1:8090", **more: object) -> config.Settings:
    flags = {"iggy.listen": listen, "iggy.root_password_file": str(file) if file else None, **more}
    return config.load(None, {key: value for key, value in flags.items() if value is not None}, {})


@pytest.mark.parametrize("text", ["secret", "secret\n", "secret\r\n"])
def test_the_file_holds_the_password_and_the_end_of_its_line_is_not_part_of_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "password"
    file.write_bytes(text.encode())
    assert root_password(settings(file)) == "secret"


def test_without_a_file_or_a_listener_there_is_none(tmp_path: Path) -> None:
    assert root_password(settings(None)) is None
    assert root_password(settings(tmp_path / "absent", listen="off")) is None


@pytest.mark.parametrize(("text", "size"), [("", 0), ("ab", 2), ("x" * 101, 101), ("\N{EURO SIGN}" * 34, 102)])
def test_a_password_has_3_to_100_bytes(tmp_path: Path, text: str, size: int) -> None:
    file = tmp_path / "password"
    file.write_text(text)
    with pytest.raises(UsageError, match=f"of {size} bytes: write one of 3 to 100"):
        root_password(settings(file))
    for allowed in ("abc", "x" * 100):
        file.write_text(allowed)
        assert root_password(settings(file)) == allowed


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="absent cannot be read"):
        root_password(settings(tmp_path / "absent"))


def test_the_password_that_everybody_knows_stays_on_the_loopback_interface(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("iggy\n")
    assert root_password(settings(file)) == "iggy"
    with pytest.raises(UsageError, match=r"iggy\.allow_default_password"):
        root_password(settings(file, listen="0.0.0.0:8090"))
    with pytest.raises(UsageError, match=r"iggy\.http_listen is 0\.0\.0\.0:3000"):
        root_password(settings(file, **{"iggy.http_listen": "0.0.0.0:3000"}))
    with pytest.raises(UsageError, match=r"iggy\.quic_listen is 0\.0\.0\.0:8080"):
        root_password(settings(file, **{"iggy.quic_listen": "0.0.0.0:8080"}))
    assert root_password(settings(file, listen="0.0.0.0:8090", **{"iggy.allow_default_password": True})) == "iggy"


def test_a_listener_may_stand_beside_client_certificates() -> None:
    more = {"tls.certificate_file": "c.pem", "tls.key_file": "k.pem", "tls.client_auth": "required"}
    assert settings(None, **more).iggy.address is not None
