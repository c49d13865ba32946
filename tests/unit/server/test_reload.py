"""SIGHUP reads certificates and policy again, each separately: what is not valid changes nothing."""

import logging
from pathlib import Path
from typing import Any, cast

import pytest
from bascule import config
from bascule.engine import Engine
from bascule.errors import UsageError
from bascule.server.security import Security

POLICY = "rules: [{clients: shop, allow: Publish, resources: orders}]\n"
TLS = {"certificate_file": "broker.pem", "key_file": "broker.key", "client_auth": "required"}
CERTIFICATE = {"subject": "CN=broker", "expires_s": 2_000_000_000, "notes": ["an authority has expired"]}


class FakeEngine:
    """Accepts certificates until they are expired, and every table."""

    def __init__(self) -> None:
        self.is_expired = False
        self.loaded: list[dict[str, Any]] = []
        self.tables: list[Any] = []

    def load_tls(self, document: dict[str, Any]) -> dict[str, Any]:
        if self.is_expired:
            raise UsageError("configuration_invalid", "broker.pem has expired")
        self.loaded.append(document)
        return CERTIFICATE

    def publish_access(self, table: Any) -> None:
        self.tables.append(table)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return file


def security(engine: FakeEngine, **settings: Any) -> Security:
    return Security(config.load(None, settings, {}), cast("Engine", engine))


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def loaded(engine: FakeEngine, policy: Path) -> Security:
    """A broker with a certificate and a policy, after its start."""
    started = security(engine, tls=TLS, access={"policy_file": str(policy)})
    started.load()
    return started


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_both_are_reloaded(engine: FakeEngine, loaded: Security, policy: Path) -> None:
    policy.write_text(POLICY.replace("shop", "till"))
    assert loaded.reload()
    assert (len(engine.loaded), len(engine.tables)) == (2, 2)
    assert [loaded.access.allows(client, "Publish", "orders") for client in ("shop", "till")] == [False, True]


def test_a_certificate_that_is_not_valid_does_not_stop_a_new_policy(
    engine: FakeEngine, loaded: Security, policy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine.is_expired = True
    policy.write_text(POLICY.replace("shop", "till"))
    assert not loaded.reload()
    assert loaded.access.allows("till", "Publish", "orders")
    (text,) = errors(caplog)
    assert "certificates" in text
    assert "broker.pem has expired" in text


def test_a_policy_that_is_not_valid_stops_no_new_certificate_and_keeps_the_old_rights(
    engine: FakeEngine, loaded: Security, policy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy.write_text(POLICY.replace("allow", "alow"))
    assert not loaded.reload()
    assert (len(engine.loaded), len(engine.tables)) == (2, 1)
    assert loaded.access.allows("shop", "Publish", "orders")
    (text,) = errors(caplog)
    assert str(policy) in text


def test_a_start_fails_on_a_file_that_is_not_valid(engine: FakeEngine, policy: Path) -> None:
    policy.write_text("rules: 1\n")
    with pytest.raises(UsageError, match=str(policy)):
        security(engine, tls=TLS, access={"policy_file": str(policy)}).load()
    assert engine.tables == []


@pytest.mark.parametrize(("host", "warns"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_plain_text_on_another_interface_than_loopback_is_a_warning(
    engine: FakeEngine, host: str, *, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        security(engine, broker={"host": host}).load()
    assert any("plain text" in message for message in caplog.messages) == warns


def test_without_certificates_and_policy_there_is_nothing_to_reload(engine: FakeEngine) -> None:
    assert security(engine).reload()
    assert (engine.loaded, engine.tables) == ([], [])
