"""Certificates and policies from files: failed starts, reloads, and errors of our clients."""

import dataclasses
import json
import os
import re
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import bascule
import pytest
from bascule import config, testing
from bascule.errors import AccessError, BrokerError, UsageError
from bascule.server import Broker

from tests.certificates import DAY, Authority, locked
from tests.conformance.api import Api, Failed
from tests.conformance.mutual import BROKER, ROOT, Mutual, mutual_broker, rule
from tests.waiting import until

WAIT_S = 30.0


async def refusal(directory: Path, **flags: object) -> str:
    """The error of a failed start."""
    given = {key.replace("__", "."): value for key, value in flags.items()}
    given |= {"data_dir": directory / "data", "broker.port": 0, "nats.standalone": True, "http.listen": "off"}
    broker = Broker(config.load(None, given, {}))
    with pytest.raises(UsageError) as caught:
        await broker.start()
    assert caught.value.code == "configuration_invalid"
    assert "\n" not in str(caught.value)
    assert broker.nats_pid is None
    return str(caught.value)


def _damage(file: Path) -> Path:
    text = file.read_text()
    file.write_text(text[:100] + "!" + text[101:])
    return file


BAD: dict[str, tuple[Callable[[Mutual, Path], dict[str, Any]], str]] = {
    "no such file": (lambda _, here: {"tls.certificate_file": here / "absent.pem"}, "absent.pem cannot be read: No"),
    "no such key": (lambda _, here: {"tls.key_file": here / "absent.key"}, "absent.key cannot be read: No such"),
    "a directory": (lambda _, here: {"tls.key_file": here}, "cannot be read: Is a directory"),
    "no PEM": (lambda m, _: {"tls.certificate_file": m.policy}, "holds no certificate: a PEM file with"),
    "no key in it": (lambda m, _: {"tls.key_file": m.authority.ca}, "holds no private key: a PEM file with"),
    "key under a password": (
        lambda m, _: {"tls.key_file": locked(m.pair(BROKER), b"x")}, "is protected by a password: write it without"
    ),
    "key of another": (
        lambda m, _: {"tls.key_file": m.pair("other").key}, "does not belong to the first certificate in"
    ),
    "expired": (
        lambda m, _: _as_settings(m.authority.issue("old", begins=-3 * DAY, ends=timedelta(hours=-23))),
        "expired 1 days ago: renew it",
    ),
    "not yet valid": (
        lambda m, _: _as_settings(m.authority.issue("new", begins=2 * DAY)), "becomes valid in 2 days"
    ),
    "damaged certificate": (
        lambda m, _: {"tls.certificate_file": _damage(m.authority.issue("torn").cert)}, "damaged"
    ),
    "damaged key": (lambda m, _: {"tls.key_file": _damage(m.authority.issue("cut").key)}, "damaged"),
    "expired authority": (
        lambda _, here: {"tls.client_ca_file": Authority(here / "old", begins=-3 * DAY, ends=-DAY).ca},
        "no authority in",
    ),
    "no policy": (lambda _, here: {"access.policy_file": here / "absent.yaml"}, "absent.yaml cannot be used"),
    "policy misspelt": (
        lambda _, here: {"access.policy_file": _text(here / "p.yaml", "rules: [{clients: a, alow: Publish}]")},
        'rules.0: unknown key "alow"; did you mean "allow"?',
    ),
}  # fmt: skip


def _as_settings(pair: Any) -> dict[str, Any]:
    return {"tls.certificate_file": pair.cert, "tls.key_file": pair.key}


def _text(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


@pytest.mark.parametrize("what", BAD)
async def test_a_start_with_an_unusable_file_names_the_file_and_the_error(tmp_path: Path, what: str) -> None:
    mutual = Mutual.at(tmp_path)
    wrong, sentence = BAD[what]
    flags = {**mutual.settings(), **wrong(mutual, tmp_path)}
    said = await refusal(tmp_path, **flags)
    assert sentence in said
    changed = [str(value) for key, value in flags.items() if mutual.settings().get(key) != value]
    assert any(file in said for file in changed)
    assert "PRIVATE" not in said or "BEGIN PRIVATE KEY-----" in said, "no part of a key is shown"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"tls.certificate_file": "c"}, "go together"),
        ({"tls.client_auth": "required"}, "required without TLS"),
        ({"tls.certificate_file": "c", "tls.key_file": "k", "tls.client_ca_file": "a"}, "has no effect without"),
        ({"access.policy_file": "p.yaml"}, "set tls.client_auth to required"),
        ({"access.model_file": "m"}, "set access.policy_file"),
        ({"tls.min_version": "1.1"}, "'1.2' or '1.3'"),
    ],
)
def test_contradictory_settings_are_rejected(flags: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        config.load(None, flags, {})


def test_a_version_of_tls_may_be_written_as_a_number() -> None:
    assert config.load(None, {"tls.min_version": 1.2}, {}).tls.min_version == "1.2"


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mutual]:
    with mutual_broker(tmp_path_factory.mktemp("mutual")) as running:
        yield running


def shown(mutual: Mutual) -> bytes:
    """The broker's certificate, in DER."""
    assert mutual.running is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(mutual.authority.ca)
    pair = mutual.pair(ROOT)
    context.load_cert_chain(pair.cert, pair.key)
    host, _, port = mutual.running.address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), WAIT_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as protected,
    ):
        assert protected.version() == "TLSv1.3"
        found = protected.getpeercert(binary_form=True)
    assert found is not None
    return found


def test_a_new_certificate_is_shown_after_sighup_and_a_bad_one_changes_nothing(mutual: Mutual) -> None:
    own = mutual.pair(BROKER)
    first = shown(mutual)
    with mutual.api(ROOT) as before:
        before.create("renewed")
        mutual.authority.issue(BROKER)
        mutual.hangup("the certificate is in use")
        second = shown(mutual)
        assert second != first
        good = own.key.read_bytes()
        own.key.write_bytes(mutual.pair("other").key.read_bytes())
        mutual.hangup("the certificates could not be used, the previous version stays in use: the private key in")
        assert shown(mutual) == second
        own.key.write_bytes(good)
        assert before.publish("renewed", b"x") == 0, "an open connection stays open"
    mutual.hangup("the certificate is in use")


def test_a_policy_that_cannot_be_used_changes_nothing(mutual: Mutual) -> None:
    mutual.allow(rule("reader", "FetchMetadata", "*"))
    good = mutual.policy.read_text()
    with mutual.api("reader") as api:
        api.stream("x")
        mutual.policy.write_text("rules: [{clients: reader")
        mutual.hangup("the policy could not be used, the previous version stays in use: the policy")
        api.stream("x")
        mutual.policy.write_text(good)
        mutual.allow()
        with pytest.raises(Failed, match="not authorized to call FetchMetadata"):
            api.stream("x")


def test_our_client_connects_by_argument_and_by_url(mutual: Mutual) -> None:
    assert mutual.running is not None
    tls = mutual.tls(ROOT)
    with bascule.connect(mutual.running.url, tls=tls, timeout=WAIT_S) as client:
        client.create_stream("ours", exist_ok=True)
        client.publish("ours", b"a")
    url = f"{mutual.running.url}?ca={tls.ca}&cert={tls.cert}&key={tls.key}"
    with bascule.connect(url, timeout=WAIT_S) as client:
        assert client.get_stream("ours").name == "ours"


async def test_our_asynchronous_client_connects_too(mutual: Mutual) -> None:
    assert mutual.running is not None
    async with bascule.connect_async(mutual.running.url, tls=mutual.tls(ROOT), timeout=WAIT_S) as client:
        await client.create_stream("ours", exist_ok=True)
        assert await client.publish("ours", b"a")


def test_our_client_reports_denied_calls_and_rejected_certificates_at_once(mutual: Mutual, tmp_path: Path) -> None:
    mutual.allow()
    assert mutual.running is not None
    running = mutual.running
    with bascule.connect(running.url, tls=mutual.tls("nobody"), timeout=WAIT_S) as client:
        with pytest.raises(AccessError, match="not authorized to call Publish on resource ours") as denied:
            client.publish("ours", b"x", partition=0)
        assert denied.value.code == "permission_denied"
    stranger = Authority(tmp_path)
    for tls in (mutual.tls(None), bascule.Tls(ca=stranger.ca), _shown_by(stranger, mutual)):
        with pytest.raises(BrokerError) as refused, bascule.connect(running.url, tls=tls, timeout=WAIT_S) as client:
            client.list_streams()
        assert refused.value.code == "tls_failed", str(refused.value)


def _shown_by(stranger: Authority, mutual: Mutual) -> bascule.Tls:
    pair = stranger.issue(ROOT)
    return bascule.Tls(ca=mutual.authority.ca, cert=pair.cert, key=pair.key)


@pytest.mark.parametrize("what", ["ca", "cert", "key"])
def test_our_client_names_a_file_that_it_cannot_use(mutual: Mutual, tmp_path: Path, what: str) -> None:
    assert mutual.running is not None
    tls = mutual.tls(ROOT)
    for wrong in (tmp_path / "absent.pem", _text(tmp_path / "text.pem", "no PEM")):
        wrong_tls = dataclasses.replace(tls, **{what: wrong})
        with pytest.raises(UsageError, match=wrong.name) as refused:
            bascule.connect(mutual.running.url, tls=wrong_tls, timeout=WAIT_S)
        assert refused.value.code == "invalid_argument"


def test_tls_without_client_certificates_accepts_every_client(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    own = authority.issue(BROKER, ends=3 * DAY - timedelta(hours=1))
    settings = {"tls.certificate_file": str(own.cert), "tls.key_file": str(own.key), "tls.min_version": "1.2"}
    with testing.broker(settings=settings) as running:
        assert "expires in 2 days: renew it" in running.log
        with bascule.connect(running.url, tls=bascule.Tls(ca=authority.ca), timeout=WAIT_S) as client:
            client.create_stream("s")
        context = ssl.create_default_context(cafile=str(authority.ca))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        host, _, port = running.address.rpartition(":")
        with (
            socket.create_connection((host, int(port)), WAIT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as protected,
        ):
            assert protected.version() == "TLSv1.2"
        with Api(running.address) as plain_api, pytest.raises(Failed):
            plain_api.stream("s")


def test_sighup_without_files_is_logged() -> None:
    with testing.broker() as running:
        os.kill(running.pid, signal.SIGHUP)
        until(lambda: "SIGHUP: nothing to reload" in running.log, WAIT_S)


def test_sighup_logs_settings_that_need_a_restart() -> None:
    with testing.broker(settings={"nats.user": "u", "nats.password": "geheim-1"}) as running:
        file = running.directory / "broker.json"
        before = json.loads(file.read_text())
        # 1. no change: nothing is logged
        os.kill(running.pid, signal.SIGHUP)
        until(lambda: "SIGHUP: nothing to reload" in running.log, WAIT_S)
        # 2. the name is logged, never the value; settings by flag are not changed by the file
        changes = {"streams.retention_max_age_ms": "1d", "nats.password": "geheim-2", "nats.standalone": False}
        file.write_text(json.dumps({**before, **changes}))
        os.kill(running.pid, signal.SIGHUP)
        said = "SIGHUP: these settings take effect at the next start: nats.password, streams.retention_max_age_ms\n"
        until(lambda: said in running.log.replace('"', "\n"), WAIT_S)
        assert running.log.count("take effect at the next start") == 1
        assert "geheim" not in running.log
        # 3. a file with which a start would fail
        file.write_text(json.dumps({**before, "streams.retention_max_aeg_ms": "1d"}))
        os.kill(running.pid, signal.SIGHUP)
        until(lambda: "SIGHUP: a start with this configuration would fail: " in running.log, WAIT_S)
        assert "did you mean" in running.log
        file.write_text(json.dumps(before))


def test_plain_text_reachable_by_others_causes_a_warning() -> None:
    with testing.broker(settings={"broker.host": "0.0.0.0", "broker.advertised_host": "127.0.0.1"}) as running:
        assert "connections are in plain text, and other machines can reach the port" in running.log
