"""Who may write to a sink: the client that opened it, by its certificate, with and without a policy."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bascule.errors import BrokerError
from bascule.testing import broker

from tests.conformance.mutual import Mutual, rule
from tests.integration.sink_writer import SinkWriter, batch, put

MINE = [b"a", b"b", b"c"]


@pytest.fixture(params=["policy", "no policy"])
def mutual(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Mutual]:
    """A broker with certificates. With the policy, `ada` and `bob` may both publish to `orders`."""
    prepared = Mutual.at(tmp_path)
    settings = prepared.settings()
    if request.param == "policy":
        prepared.write_policy(rule(["ada", "bob"], "Publish", "orders"))
    else:
        del settings["access.policy_file"]
    with broker(directory=tmp_path / "broker", settings=settings) as running:
        prepared.running = running
        with running.connect(tls=prepared.tls("root")) as client:
            client.create_stream("orders")
        yield prepared


def writer(mutual: Mutual, client: str) -> SinkWriter:
    assert mutual.running is not None
    pair = mutual.pair(client)
    files = f"ca={mutual.authority.ca}&cert={pair.cert}&key={pair.key}"
    return SinkWriter(f"bascules://{mutual.running.address}?{files}")


def stored(mutual: Mutual) -> list[bytes | None]:
    assert mutual.running is not None
    with mutual.running.connect(tls=mutual.tls("root")) as client:
        return [record.value for record in client.subscribe("orders", stop="latest").records()]


def test_a_stranger_with_another_certificate_can_do_nothing_to_a_sink_that_is_written(mutual: Mutual) -> None:
    ada, bob = writer(mutual, "ada"), writer(mutual, "bob")
    sink = ada.open()
    pieces = ada.stage([batch(MINE)])
    # bob knows everything that names the sink and the attempt
    bob.sink = sink
    calls = {
        "open": bob.open,
        "stage": lambda: bob.stage([batch([b"foreign"])], task=1),
        "stage under the same name": lambda: bob.stage([batch([b"foreign"])]),
        "publish": lambda: bob.publish(pieces),
    }
    for what, call in calls.items():
        with pytest.raises(BrokerError) as raised:
            call()
        assert raised.value.code == "sink_not_owned", what
        assert "belongs to ada" in str(raised.value), what
    for call in (bob.abort, bob.renew):
        with pytest.raises(BrokerError) as raised:
            call()
        assert raised.value.code == "sink_not_found", "they name no stream, so bob does not learn that it exists"
    assert ada.publish(pieces)
    assert stored(mutual) == MINE
    with pytest.raises(BrokerError) as raised:
        bob.abort()
    assert raised.value.code == "sink_not_found", "also when it is decided"


def test_the_owner_may_abort_and_renew_and_continues_under_a_new_run(mutual: Mutual) -> None:
    ada = writer(mutual, "ada")
    ada.open()
    pieces = ada.stage([batch([b"given up"])])
    ada.renew()
    ada.abort()
    for call in (lambda: ada.publish(pieces), lambda: ada.stage([batch([b"more"])], task=1)):
        with pytest.raises(BrokerError, match="run the epoch again") as raised:
            call()
        assert raised.value.code == "sink_expired"
    again = replace(ada, run="5c8e9a34-0a1b-4f6e-8a57-1f2e3d4c5b6b")
    again.open()
    assert again.publish(again.stage([batch(MINE)]))
    assert stored(mutual) == MINE
    with pytest.raises(BrokerError) as raised:
        ada.stage([batch([b"of the old run"])], epoch=1)
    assert raised.value.code == "sink_fenced"


def test_the_producer_id_of_a_sink_is_refused_to_every_client(mutual: Mutual) -> None:
    """A stranger who may publish to the target cannot fence the sink's link under its producer id."""
    ada, bob = writer(mutual, "ada"), writer(mutual, "bob")
    sink = ada.open()
    assert ada.publish(ada.stage([batch(MINE)]))
    producer = {"id": (1 << 63) + sink.id, "epoch": 1000, "base_sequence": 0}
    for client in (bob, ada):
        with pytest.raises(BrokerError) as raised:
            put(client.address, {"stream": "orders", "producer": producer}, [batch([b"foreign"])])
        assert raised.value.code == "invalid_argument"
    assert ada.publish(ada.stage([batch([b"d"])], epoch=1), epoch=1)
    assert stored(mutual) == [*MINE, b"d"]
