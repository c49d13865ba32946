"""What the published client was recorded to send, played to a broker; and the same frames over TLS."""

import json
import socket
import ssl
import struct
from pathlib import Path
from typing import Any

import pytest
from bascule.testing import broker

from tests.certificates import Authority
from tests.conformance import iggy_raw as iggy
from tests.conformance.iggy_raw import Raw, connected, polled
from tests.conformance.iggy_transports import LIMIT_S, TRANSPORTS, address_of, settings_of

VECTORS = json.loads((Path(__file__).resolve().parents[2] / "specs/vectors/iggy/v1.json").read_text())
CAPTURES: dict[str, dict[str, Any]] = {item["id"]: item for item in VECTORS["captures"]}
PASSWORD = "iggy"
"""Which the recorded client sends; a broker takes it on the loopback interface."""
ABSENT_TOPIC = 2010
SENT_TO_ANOTHER_TOPIC = "v1-11"
"""The stand-in server of the recording called every topic 2; here only what was made has a number."""


@pytest.fixture
def password(tmp_path: Path) -> dict[str, object]:
    (tmp_path / "password").write_text(PASSWORD)
    return settings_of(tmp_path / "password")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_recorded_requests_are_answered_in_their_order(password: dict[str, object], transport: str) -> None:
    answers = dict[str, tuple[int, bytes]]()
    with broker(settings=password) as running, connected(address_of(running, transport)) as raw:
        for name, capture in CAPTURES.items():
            request = bytes.fromhex(capture["request_hex"])
            answers[name] = raw.ask(capture["code"], request[8:])
    refused = {name: status for name, (status, _) in answers.items() if status}
    assert refused == {SENT_TO_ANOTHER_TOPIC: ABSENT_TOPIC}
    bodies = {name: body for name, (_, body) in answers.items()}
    assert bodies["v1-02"] == b"\1\0\0\0"
    assert bodies["v1-03"] == b"", "the stream does not exist yet"
    assert struct.unpack_from("<I", bodies["v1-04"]) == (1,)
    assert struct.unpack_from("<I", bodies["v1-05"]) == (7,)
    for name in ("v1-04", "v1-06"):
        assert bodies[name][32:44] == b"\x0btest-stream"
    number, _, partitions = struct.unpack_from("<IQI", bodies["v1-07"])
    assert (number, partitions) == (1, 3)
    number, _, partitions, _, compression, _, replication = struct.unpack_from("<IQIQBQB", bodies["v1-08"])
    assert (number, partitions, compression, replication) == (9, 1, 2, 2)
    assert bodies["v1-09"] == bodies["v1-07"]
    found = [polled(bodies[name]) for name in ("v1-12", "v1-13", "v1-14", "v1-15", "v1-16")]
    assert [len(item.messages) for item in found[2:]] == [2, 2, 2], "first, last, next"
    assert found[0].messages == []
    assert {item.current_offset for item in found} == {1}


def test_constructed_requests_are_well_formed_to_the_broker(password: dict[str, object]) -> None:
    with broker(settings=password) as running, connected(running.iggy_address, PASSWORD) as raw:
        for item in VECTORS["constructed"]:
            request = bytes.fromhex(item["request_hex"])
            status, _ = raw.ask(item["code"], request[8:])
            assert status != iggy.INVALID_COMMAND, item["command"]


def test_a_client_over_tls_is_served_and_plain_text_is_not(tmp_path: Path, password: dict[str, object]) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("broker.test")
    settings = {**password, "tls.certificate_file": str(pair.cert), "tls.key_file": str(pair.key)}
    with broker(settings=settings) as running:
        host, _, port = running.iggy_address.rpartition(":")
        context = ssl.create_default_context(cafile=str(authority.ca))
        with (
            socket.create_connection((host, int(port)), timeout=LIMIT_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            raw = Raw(secured)
            assert raw.login(PASSWORD) == 1
            place = raw.create("s")
            payload = bytes(3_000_000)
            raw.send(place, iggy.BALANCED, [payload])
            assert raw.poll(place).payloads == [payload]
        with connected(running.iggy_address) as raw:
            raw.stream.sendall(struct.pack("<II", 4, iggy.PING))
            assert raw.stream.recv(8) != bytes(8), "no reply in plain text"
