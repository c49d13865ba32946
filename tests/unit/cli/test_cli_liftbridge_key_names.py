"""Errors and logs of the `liftbridge` command name Liftbridge keys."""

import json
import logging
from pathlib import Path

import pytest
from bascule import logs
from bascule.cli.liftbridge.command import Configuration
from bascule.cli.liftbridge.config import translate
from bascule.cli.liftbridge.key_names import in_liftbridge_keys
from bascule.errors import UsageError
from bascule.server.config_reload import ConfigSource, log_changes


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("name another port in nats.port", "name another port in nats.servers"),
        ("cannot read nats.tls.ca_file /x: no", "cannot read nats.tls.ca /x: no"),
        ("set tls.certificate_file and tls.key_file", "set tls.cert and tls.key"),
        ("set tls.client_auth to required", "set tls.client.auth.enabled to true"),
        ("at the next start: broker.port, data_dir", "at the next start: port, data.dir"),
        ("it ends with nats.config.", "it ends with nats.embedded.config."),
        ("a path: /etc/tls.key_file/nats.port.pem", "a path: /etc/tls.key_file/nats.port.pem"),
        ("limits.calls has no name there", "limits.calls has no name there"),
    ],
)
def test_settings_are_named_as_there(ours: str, theirs: str) -> None:
    assert in_liftbridge_keys(ours) == theirs
    assert in_liftbridge_keys(theirs) == theirs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tls: {cert: c, key: k, client.authz: {enabled: true, policy: p}}", "set tls.client.auth.enabled to true"),
        ("tls.client.auth.enabled: true", "tls.client.auth.enabled is true without TLS: set tls.cert and tls.key"),
        ("nats.tls.cert: /c.pem", "nats.tls.cert and nats.tls.key go together"),
        ("streams.retention.max.bytes: -1", "streams.retention.max.bytes = -1"),
    ],
)
def test_errors_of_a_liftbridge_configuration_name_liftbridge_keys(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "liftbridge.yaml"
    file.write_text(text)
    with pytest.raises(UsageError) as raised:
        translate(file, {}, {})
    assert said in str(raised.value)
    assert raised.value.__cause__ is not None


@pytest.mark.parametrize(
    ("before", "after", "keys"),
    [
        ("listen: 127.0.0.1:1", "listen: 127.0.0.2:2", "listen"),
        ("{host: a, port: 1}", "{host: b, port: 2}", "host, port"),
        ("{host: a, listen: 127.0.0.1:1}", "{host: a, listen: 127.0.0.1:2}", "listen"),
        ("{listen: 127.0.0.1:1}", "{host: a, listen: 127.0.0.1:1}", "host, listen"),
        ("listen: 127.0.0.1:1", "port: 2", "listen, port"),
        ("port: 1", "", "port"),
        ("nats.embedded: false", "nats.embedded: true", "nats.embedded"),
        ("nats.embedded: true", "", "nats.embedded"),
        ("nats.servers: nats://h:1", "nats.servers: nats://h:2", "nats.servers"),
        ("{nats.embedded: true, nats.servers: h:1}", "{nats.embedded: true, nats.servers: h:2}", "nats.servers"),
        ("", "tls: {cert: c, key: k}", "tls.cert, tls.key"),
        ("", "clustering.namespace: n", "clustering.namespace, data.dir"),
    ],
)
def test_changed_settings_are_logged_once_by_their_liftbridge_keys(
    tmp_path: Path, before: str, after: str, keys: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "liftbridge.yaml"
    file.write_text(before)
    configuration = Configuration(file, {})
    file.write_text(after)
    with caplog.at_level("WARNING", "bascule"):
        log_changes(configuration.first.settings, ConfigSource(configuration.reload, configuration.key))
    assert caplog.messages == [f"SIGHUP: these settings take effect at the next start: {keys}"]


def test_log_messages_name_liftbridge_keys(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("bascule")
    before = (logger.handlers[:], logger.level, logger.propagate)
    try:
        logs.configure("info", "json", in_liftbridge_keys)
        logs.emit(30, "tls", "100 % plain text: set tls.certificate_file", host="h")
    finally:
        logger.handlers[:], logger.level, logger.propagate = before
    event = json.loads(capsys.readouterr().err)
    assert (event["message"], event["host"]) == ("100 % plain text: set tls.cert", "h")
