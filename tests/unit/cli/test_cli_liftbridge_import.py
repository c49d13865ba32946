"""`bascule config import`: converts a Liftbridge configuration."""

import stat
from pathlib import Path

import pytest
import yaml
from bascule import config
from bascule.cli.liftbridge.config import translate
from bascule.cli.liftbridge.import_file import import_file
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.cli.commands import run

SAMPLE = """
listen: 127.0.0.1:9300
logging: {level: debug, raft: true}
nats.servers: ["nats://127.0.0.1:4222", "nats://127.0.0.1:4223"]
nats: {user: u, password: "s3: \\"x\\" #y"}
streams.retention.max: {bytes: 1024, age: "24h"}
clustering: {server.id: b1, raft.snapshot.retain: 3}
"""


def round_trip(tmp_path: Path, text: str) -> config.Settings:
    """The settings of the imported file, checked against those of the original."""
    theirs, ours = tmp_path / "liftbridge.yaml", tmp_path / "bascule.yaml"
    theirs.write_text(text)
    ours.write_text(import_file(theirs).text)
    assert config.load(ours, environment={}) == translate(theirs, {}, {}).settings
    return config.load(ours, environment={})


def test_every_setting_means_the_same_and_notes_are_kept(tmp_path: Path) -> None:
    settings = round_trip(tmp_path, SAMPLE)
    assert settings.nats.password is not None
    assert settings.nats.password.get_secret_value() == 's3: "x" #y'
    text = (tmp_path / "bascule.yaml").read_text()
    assert "  retention_max_bytes: 1024  # streams.retention.max.bytes\n" in text
    assert "# - logging.raft has no effect: there is no Raft log\n" in text
    assert "nats.password_file" in text


def test_retention_applies_at_once_as_in_liftbridge(tmp_path: Path) -> None:
    assert round_trip(tmp_path, "streams.retention.max.messages: 5").streams.retention_min_age_ms == 0
    assert "  retention_min_age_ms: 0  # Liftbridge default\n" in (tmp_path / "bascule.yaml").read_text()


def test_tls_and_authorization_are_taken_over(tmp_path: Path) -> None:
    text = (
        "tls: {cert: c, key: k, client.auth: {enabled: true, ca: ca}, "
        "client.authz: {enabled: true, model: m, policy: p.csv}}"
    )
    settings = round_trip(tmp_path, text)
    assert settings.access.policy_file == Path("p.csv")
    written = (tmp_path / "bascule.yaml").read_text()
    assert "client_auth: required  # tls.client.auth.enabled\n" in written
    assert "policy_file: p.csv  # tls.client.authz.policy\n" in written


@given(name=st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20))
def test_any_text_is_preserved(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    round_trip(tmp_path_factory.mktemp("import"), yaml.safe_dump({"nats.user": name}))


def test_the_command_writes_a_new_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "liftbridge.yaml", tmp_path / "bascule.yaml"
    theirs.write_text(SAMPLE)
    assert run("config", "import", str(theirs), "--output", str(ours)).code == 0
    assert stat.S_IMODE(ours.stat().st_mode) == 0o600
    again = run("config", "import", str(theirs), "--output", str(ours))
    assert again.code == 2
    assert "name a file that does not exist yet" in again.err
    assert ours.read_text() == import_file(theirs).text


def test_invalid_values_are_rejected_with_the_reason(tmp_path: Path) -> None:
    theirs = tmp_path / "liftbridge.yaml"
    theirs.write_text("streams.retention.max.byte: 5")
    refused = run("config", "import", str(theirs))
    assert refused.code == 2
    assert 'Unknown configuration setting "streams.retention.max.byte"' in refused.err


def test_external_servers_with_an_embedded_one_cause_a_warning(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "liftbridge.yaml", tmp_path / "bascule.yaml"
    theirs.write_text("nats: {embedded: true, servers: ['nats://10.0.0.5:4222']}\n")
    done = run("config", "import", str(theirs), "--output", str(ours))
    assert done.code == 0
    assert done.err.startswith(
        "bascule: nats.embedded is set and nats.servers names nats://10.0.0.5:4222: nats.embedded"
    )
    assert len(done.err.splitlines()) == 1
    checked = run("config", "check", str(ours))
    assert checked.code == 0
    assert checked.err.startswith("bascule: nats.standalone is set and nats.servers names nats://10.0.0.5:4222")
    theirs.write_text("nats: {embedded: true, servers: ['nats://127.0.0.1:4333']}\n")
    assert run("config", "import", str(theirs)).err == ""


def test_a_configured_but_disabled_embedded_server_causes_a_warning(tmp_path: Path) -> None:
    theirs = tmp_path / "liftbridge.yaml"
    theirs.write_text("nats: {embedded: false, embedded.config: /n.conf}\n")
    done = run("config", "import", str(theirs))
    sentence = "nats.embedded is false and has no effect: nats.embedded.config wins, which starts a nats-server"
    assert done.err == f"bascule: {sentence}\n"
    assert f"# Contradictory:\n# - {sentence}\n" in done.out


def test_addresses_are_named_by_their_liftbridge_keys(tmp_path: Path) -> None:
    theirs = tmp_path / "liftbridge.yaml"
    theirs.write_text("host: h\nport: 5000\nlisten: 127.0.0.1:6000\n")
    text = import_file(theirs).text
    assert "  host: 127.0.0.1  # listen\n  port: 6000  # listen\n" in text
    assert "  advertised_host: h  # host\n  advertised_port: 5000  # port\n" in text
