"""Iggy's v1b and v2 with published clients for Python, unmodified, each in its own process; and recorded frames."""

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bascule.protocols.iggy.fields import long_text, short_text
from bascule.testing import TestBroker, broker

from tests.conformance import iggy_raw as iggy
from tests.conformance.iggy_raw import Raw, connected
from tests.conformance.iggy_transports import TRANSPORTS, address_of, settings_of
from tests.names import fresh

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "target/iggy-clients"
SUITE = Path(__file__).with_name("apache_suite.py")
VECTORS: list[dict[str, Any]] = json.loads((ROOT / "specs/vectors/iggy/v1b.json").read_text())["captures"]
RELEASES = {"0.5.0": 1, "0.6.0": 0, "0.7.0": 0, "0.8.0": 0, "0.9.0": 0}
"""Of `apache-iggy`: what each calls the first of anything. The last one speaks v2."""
OF_V1B = [release for release in RELEASES if release != "0.9.0"]
PASSWORD = "iggy"
LIMIT_S = 180


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    file = tmp_path_factory.mktemp("iggy") / "password"
    file.write_text(PASSWORD)
    with broker(settings=settings_of(file)) as running:
        yield running


def client_directory(release: str) -> Path:
    """Where a release of the client is; installed once."""
    directory = CLIENTS / release
    if not (directory / "apache_iggy").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary", ":all:"]
        command = [*pip, "--target", str(directory), f"apache-iggy=={release}"]
        installed = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if installed.returncode:
            pytest.skip(f"apache-iggy {release} cannot be installed here: {installed.stderr[-300:]}")
    return directory


def suite(release: str, address: str, stream: str, password: str = PASSWORD) -> "subprocess.Popen[str]":
    arguments = [str(client_directory(release)), str(RELEASES[release]), address, password, stream]
    return subprocess.Popen(
        [sys.executable, str(SUITE), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_every_release_does_all_that_it_offers_at_the_same_time(serving: TestBroker) -> None:
    running = {release: suite(release, serving.iggy_address, fresh(f"apache-{release}")) for release in RELEASES}
    failed = dict[str, str]()
    for release, process in running.items():
        output, _ = process.communicate(timeout=LIMIT_S)
        if process.returncode:
            failed[release] = f"ended with {process.returncode}\n{output}"
    assert not failed, "\n".join(f"{release}:\n{output}" for release, output in failed.items())


def replayed(raw: Raw, release: str) -> dict[str, tuple[int, bytes]]:
    """Status and payload of the reply to each recorded request of a release."""
    return {
        f"{number} {item['command']}": raw.ask(item["code"], bytes.fromhex(item["request_hex"])[8:])
        for number, item in enumerate(item for item in VECTORS if item["client"] == f"apache-iggy {release}")
    }


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("release", OF_V1B)
def test_recorded_requests_are_answered_in_their_order(tmp_path: Path, release: str, transport: str) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    settings = settings_of(tmp_path / "password")
    with broker(settings=settings) as running, connected(address_of(running, transport)) as raw:
        answers = replayed(raw, release)
    refused = {name.split()[1]: status for name, (status, _) in answers.items() if status}
    # The recorded caller named partition 0, which the first release does not have.
    expected = {"SEND_MESSAGES": 3007} if release == "0.5.0" else {"GET_CLUSTER_METADATA": 5}
    assert refused == expected
    created = next(body for name, (_, body) in answers.items() if name.endswith("CREATE_STREAM"))
    assert struct.unpack_from("<I", created) == (RELEASES[release],)
    polled = next(body for name, (_, body) in answers.items() if name.endswith("POLL_MESSAGES"))
    partition, _, count = struct.unpack_from("<IQI", polled)
    assert (partition, count) == (RELEASES[release], 0 if release == "0.5.0" else 2)


def login(raw: Raw, version: str) -> int:
    return raw.login(PASSWORD, version=version)


def test_a_client_that_asks_for_the_cluster_stays_where_it_is(serving: TestBroker) -> None:
    with connected(serving.iggy_address) as raw:
        assert login(raw, "0.10.0") == 0
        assert raw.ask(12) == (5, b"")
        assert raw.ask(503) == (3, b""), "without its fields"
        assert raw.ask(iggy.PING) == (0, b"")


def test_a_connection_keeps_its_generation(serving: TestBroker) -> None:
    with connected(serving.iggy_address) as raw:
        assert login(raw, "0.7.0") == 1
        raw.good(iggy.LOGOUT_USER)
        for version in ("0.8.0", "0.6.202"):
            payload = short_text("iggy") + short_text(PASSWORD) + long_text(version) + long_text("")
            assert raw.ask(iggy.LOGIN_USER, payload) == (5, b"")
        assert login(raw, "0.7.1") == 1


def test_every_generation_shows_one_message_as_its_own(serving: TestBroker) -> None:
    """Sent by v1 with a header; heads have 56 or 64 bytes, and keys a kind in the last."""
    with connected(serving.iggy_address, PASSWORD) as raw:
        stream, topic = raw.create(fresh("generations"))
        raw.send((stream, topic), iggy.BALANCED, [b"payload"], ids=[9], headers=iggy.header("k", 6, b"\7\0\0\0"))
    place = b"\1\1\4" + bytes(4) + iggy.path(stream, topic)
    ask = b"\1\0\0\0\0" + b"\3" + bytes(8) + b"\x05\0\0\0\0"
    text = b"\1\0\0\0k\6\4\0\0\0\7\0\0\0"
    for version, head, block in (("0.8.0", 56, text), ("0.9.0", 64, b"\2" + text)):
        with connected(serving.iggy_address) as raw:
            login(raw, version)
            reply = raw.good(iggy.POLL, place + ask)
            assert struct.unpack_from("<IQI", reply) == (0, 0, 1)
            message = reply[16:]
            _, low, high, offset, timestamp, origin, headers, payload = struct.unpack_from("<8sQQQQQII", message)
            assert (low, high, offset, headers, payload) == (9, 0, 0, len(block), 7)
            assert timestamp == origin > 0
            assert message[head:] == b"payload" + block


def test_a_login_by_token_learns_its_generation_from_later_requests(serving: TestBroker) -> None:
    name = fresh("by-token")
    with connected(serving.iggy_address, PASSWORD) as raw:
        reply = raw.good(42, short_text("generations") + bytes(8))
    token = short_text(reply[1:].decode())
    with connected(serving.iggy_address) as raw:
        assert raw.good(44, token) == struct.pack("<I", 1)
        assert raw.ask(202, short_text(f"{name}-1"))[0] == 0, "a name without a number before it"
        assert raw.ask(12) == (5, b"")
        last = raw.good(iggy.GET_STREAMS)
        assert f"{name}-1".encode() in last
    with connected(serving.iggy_address) as raw:
        raw.good(44, token)
        assert raw.ask(12) == (5, b"")
        assert struct.unpack_from("<I", raw.good(20), 4) == (0,), "the first user, as it counts"
    with connected(serving.iggy_address) as raw:
        raw.good(44, token)
        raw.create(f"{name}-2")
        assert raw.ask(12) == (5, b"")
