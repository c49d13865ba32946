"""The broker that a call is sent to."""

import zlib
from typing import Any, cast

import pytest
from bascule._liftbridge_pb import message
from bascule.client import Client
from bascule.client._core.connection_pool import ConnectionPool
from bascule.client._core.routes import BrokerPlace, CursorPlace, PartitionPlace, Routes
from bascule.errors import BrokerError

from tests.unit.client.fakes import FakeNative, FakeOutgoing, FakeSubscription, failure


def cluster(leaders: dict[tuple[str, int], str], brokers: str = "ab") -> bytes:
    response = message("FetchMetadataResponse")()
    for broker in brokers:
        response.brokers.add(id=broker, host=f"host-{broker}", port=9292)
    streams: dict[str, Any] = {}
    for (name, number), leader in leaders.items():
        stream = streams.get(name) or streams.setdefault(name, response.streamMetadata.add(name=name))
        stream.partitions[number].leader = leader
    return response.SerializeToString()


class Brokers:
    """A native core for each address."""

    def __init__(self, *names: str) -> None:
        self.natives = {name: FakeNative() for name in names}

    def connect(self, address: str, options: bytes) -> FakeNative:
        return self.natives[address].connect(address, options)

    def client(self) -> Client:
        pool = ConnectionPool(["first:1"], {}, cast("Any", self.connect), cast("Any", FakeOutgoing))
        return Client(pool, timeout=30, reconnect=30)


def test_every_place_has_its_broker() -> None:
    leaders = {("s", 0): "a", ("s", 1): "b", **{("__cursors", number): "ab"[number % 2] for number in range(10)}}
    routes = Routes.read(cluster(leaders))
    assert routes.find(PartitionPlace("s", 0)) == "host-a:9292"
    assert routes.find(PartitionPlace("s", 1)) == "host-b:9292"
    assert routes.find(PartitionPlace("s", 2)) is None
    assert routes.find(BrokerPlace("b")) == "host-b:9292"
    assert routes.find(None) is None
    assert zlib.crc32(b"cursor-1,orders,0") % 10 == 6, "the worked example of liftbridge §13.4"
    assert routes.find(CursorPlace("cursor-1", "orders", 0)) == "host-a:9292"


def test_a_single_broker_is_reached_by_the_given_address() -> None:
    routes = Routes.read(cluster({("s", 0): "a"}, brokers="a"))
    assert routes.find(PartitionPlace("s", 0)) is None
    assert routes.find(BrokerPlace("a")) is None


def test_ipv6_hosts_stand_in_brackets() -> None:
    response = message("FetchMetadataResponse")()
    response.brokers.add(id="a", host="::1", port=1)
    response.brokers.add(id="b", host="b", port=2)
    assert Routes.read(response.SerializeToString()).find(BrokerPlace("a")) == "[::1]:1"


def test_a_broker_that_does_not_lead_makes_the_client_fetch_the_routes() -> None:
    brokers = Brokers("first:1", "host-a:9292", "host-b:9292")
    first, leader = brokers.natives["first:1"], brokers.natives["host-b:9292"]
    first.subscriptions = [failure("not_leader")]
    first.answers = [cluster({("s", 0): "b"})]
    leader.subscriptions = [FakeSubscription([])]
    client = brokers.client()
    assert list(client.subscribe("s")) == []
    client.publish("s", b"")
    assert leader.published == [[b""]], "a known leader is called directly"
    assert client.reconnects == 0
    client.close()
    assert (first.closed, leader.closed) == (1, 1)


def test_a_missing_partition_makes_the_client_fetch_the_count_again() -> None:
    brokers = Brokers("first:1", "host-a:9292", "host-b:9292")
    first, leader = brokers.natives["first:1"], brokers.natives["host-b:9292"]
    client = brokers.client()
    first.acks = [failure("not_leader")]
    first.answers = [cluster({("s", 0): "b"})]
    client.publish("s", b"1", partition=0)
    leader.acks = [failure("stream_not_found")]
    with pytest.raises(BrokerError):
        client.publish("s", b"2", partition=0)
    client.publish("s", b"3", partition=0)
    assert (first.published, leader.published) == ([[b"3"]], [[b"1"]])


def test_after_the_leader_dies_another_broker_is_used() -> None:
    brokers = Brokers("first:1", "host-a:9292", "host-b:9292")
    first, leader = brokers.natives["first:1"], brokers.natives["host-b:9292"]
    client = brokers.client()
    first.acks = [failure("not_leader")]
    first.answers = [cluster({("s", 0): "b"})]
    client.publish("s", b"1", partition=0)
    leader.acks = [failure("unavailable")]
    client.publish("s", b"2", partition=0)
    assert (first.published, leader.published) == ([[b"2"]], [[b"1"]])
    assert client.reconnects == 1


def test_brokers_that_the_metadata_names_are_asked_when_the_given_one_is_lost() -> None:
    brokers = Brokers("first:1", "host-a:9292", "host-b:9292")
    first, other = brokers.natives["first:1"], brokers.natives["host-a:9292"]
    client = brokers.client()
    first.acks = [failure("not_leader")]
    first.answers = [cluster({("s", 0): "b"}), failure("unavailable")]
    client.publish("s", b"1", partition=0)
    other.answers = [cluster({("s", 0): "b"})]
    assert [stream.name for stream in client.list_streams()] == ["s"]
    assert client.reconnects == 1
