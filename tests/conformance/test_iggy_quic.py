"""Iggy's clients over QUIC: what is not as over TCP, and the published client, unmodified.

The tests by frames, of commands, groups, rights and v2, run over both.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from bascule.testing import TestBroker, broker

from tests.certificates import Authority
from tests.conformance import iggy_long, iggy_raw
from tests.conformance.iggy_transports import address_of, opened, settings_of
from tests.conformance.test_iggy_apache import suite
from tests.names import fresh

PASSWORD = "secret"
GET_CLUSTER = 12
OF_QUIC = "0.9.0"
"""The release of `apache-iggy` that speaks QUIC."""
SUITE_S = 180


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    file = tmp_path_factory.mktemp("iggy") / "password"
    file.write_text(PASSWORD)
    with broker(settings=settings_of(file)) as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return fresh(request.node.name)


@pytest.mark.parametrize("scheme", ["quic://", f"iggy+quic://iggy:{PASSWORD}@"])
def test_the_published_client_does_over_quic_what_it_offers(serving: TestBroker, scheme: str, name: str) -> None:
    running = suite(OF_QUIC, f"{scheme}{serving.iggy_quic_address}", name, PASSWORD)
    output, _ = running.communicate(timeout=SUITE_S)
    assert running.returncode == 0, output


@pytest.mark.parametrize("release", ["0.6.0", "0.7.0", "0.8.0"])
def test_published_clients_of_v1b_do_over_quic_what_they_offer(serving: TestBroker, release: str, name: str) -> None:
    string = f"iggy+quic://iggy:{PASSWORD}@{serving.iggy_quic_address}"
    running = suite(release, f"{serving.iggy_address},{string}", name, PASSWORD)
    output, _ = running.communicate(timeout=SUITE_S)
    assert running.returncode == 0, output


def test_a_client_of_v2_is_shown_the_port_that_it_dialled(serving: TestBroker) -> None:
    ports = [int(address.rpartition(":")[2]) for address in (serving.iggy_address, serving.iggy_quic_address)]
    for transport in ("tcp", "quic"):
        with iggy_long.connected(address_of(serving, transport), PASSWORD) as client:
            shown = client.read(GET_CLUSTER)
            host, rest = shown.rpartition(b"127.0.0.1")[1:]
            assert host == b"127.0.0.1"
            assert struct.unpack_from("<HHHH", rest) == (*ports, 0, 0)


def test_a_client_is_not_sent_elsewhere_when_the_hosts_differ(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    settings = settings_of(tmp_path / "password", **{"iggy.quic_listen": "127.0.0.2:0"})
    with broker(settings=settings) as running:
        for transport in ("tcp", "quic"):
            with iggy_long.connected(address_of(running, transport), PASSWORD) as client:
                assert client.ask(iggy_long.READ, GET_CLUSTER) == (5, b"")


@pytest.mark.parametrize("is_rsa", [False, True])
def test_a_configured_certificate_is_verified(tmp_path: Path, name: str, is_rsa: bool) -> None:
    """A client that verifies nothing accepts no signature of RSA: it is shown another certificate."""
    (tmp_path / "password").write_text(PASSWORD)
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    pair = authority.issue("broker.test", is_rsa=is_rsa)
    tls = {"tls.certificate_file": str(pair.cert), "tls.key_file": str(pair.key)}
    with broker(settings=settings_of(tmp_path / "password", **tls)) as running:
        address = address_of(running, "quic")
        with opened(address, authority=authority.ca) as stream:
            assert iggy_raw.Raw(stream).login(PASSWORD) == 1
        with pytest.raises(ConnectionError), opened(address, authority=other.ca):
            pass
        published = suite(OF_QUIC, address, name, PASSWORD)
        output, _ = published.communicate(timeout=SUITE_S)
        assert published.returncode == 0, output
