"""Iggy's consumer groups by frames: members, their partitions, and where a group stands."""

from collections.abc import Iterator

import pytest
from bascule.testing import TestBroker, broker

from tests.conformance import iggy_raw as iggy
from tests.conformance.iggy_raw import Raw, RefusedError, connected
from tests.conformance.iggy_transports import TRANSPORTS, address_of, settings_of
from tests.names import fresh
from tests.waiting import until

PASSWORD = "a password of the test"


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    file = tmp_path_factory.mktemp("iggy") / "password"
    file.write_text(PASSWORD)
    with broker(settings=settings_of(file)) as running:
        yield running


@pytest.fixture(scope="module", params=TRANSPORTS)
def address(serving: TestBroker, request: pytest.FixtureRequest) -> str:
    return address_of(serving, request.param)


@pytest.fixture
def raw(address: str) -> Iterator[Raw]:
    with connected(address, PASSWORD) as it:
        yield it


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return fresh(request.node.name)


def refused(status: int) -> "pytest.RaisesExc[RefusedError]":
    return pytest.raises(RefusedError, check=lambda error: error.status == status)


def test_groups_have_numbers_and_names_and_begin_without_members(raw: Raw, name: str) -> None:
    place = raw.create(name, partitions=3)
    assert raw.create_group(place, "a") == 1
    assert raw.create_group(place, "ninth", 9) == 9
    assert raw.create_group(place, "next") == 10
    for group in ("ninth", 9):
        assert raw.members(place, group) == {}
    for wanted, status in (("a", 5004), ("", 5005), ("x/y", 5005)):
        with refused(status):
            raw.create_group(place, wanted)
    with refused(5001):
        raw.create_group(place, "other", 9)
    with refused(2010):
        raw.create_group((name, 2), "other")
    assert raw.good(iggy.GET_GROUP, iggy.path(*place, "absent")) == b""
    assert raw.good(iggy.GET_GROUPS, iggy.path(*place)).count(b"ninth") == 1
    raw.good(iggy.DELETE_GROUP, iggy.path(*place, 9))
    with refused(5000):
        raw.good(iggy.DELETE_GROUP, iggy.path(*place, 9))
    with refused(5003):
        raw.good(iggy.JOIN_GROUP, iggy.path(*place, "ninth"))


def test_members_share_the_partitions_in_the_order_of_joining(address: str, raw: Raw, name: str) -> None:
    place = raw.create(name, partitions=3)
    raw.create_group(place, "g")
    named = iggy.path(*place, "g")
    for _ in range(2):
        raw.good(iggy.JOIN_GROUP, named)
        assert list(raw.members(place, "g").values()) == [[1, 2, 3]]
    with connected(address, PASSWORD) as second:
        second.good(iggy.JOIN_GROUP, named)
        assert list(raw.members(place, "g").values()) == [[1, 3], [2]]
        raw.good(iggy.LEAVE_GROUP, named)
        assert list(second.members(place, "g").values()) == [[1, 2, 3]]
        with refused(5006):
            raw.good(iggy.LEAVE_GROUP, named)
    until(lambda: raw.members(place, "g") == {}, what="the ended connection leaves")


def test_a_sole_member_reads_its_partitions_in_turn_and_the_group_remembers(address: str, raw: Raw, name: str) -> None:
    place = raw.create(name, partitions=3)
    for partition in (1, 2, 3):
        raw.send(place, iggy.to_partition(partition), [b"a%d" % partition, b"b%d" % partition])
    raw.create_group(place, "g")
    with refused(5006):
        raw.poll(place, iggy.NEXT, kind=2, consumer="g")
    raw.good(iggy.JOIN_GROUP, iggy.path(*place, "g"))
    rounds = [raw.poll(place, iggy.NEXT, kind=2, consumer="g", count=1, commit=True) for _ in range(6)]
    assert [item.partition for item in rounds] == [1, 2, 3, 1, 2, 3]
    assert [item.payloads for item in rounds] == [[b"a1"], [b"a2"], [b"a3"], [b"b1"], [b"b2"], [b"b3"]]
    assert raw.poll(place, iggy.FIRST, kind=2, consumer="g", partition=2).partition == 2, "an explicit one"
    assert raw.poll(place, iggy.NEXT, consumer=1, partition=1, count=1).payloads == [b"a1"], "not the consumer's"
    with connected(address, PASSWORD) as second:
        second.good(iggy.JOIN_GROUP, iggy.path(*place, "g"))
        found = second.poll(place, iggy.NEXT, kind=2, consumer="g")
        assert (found.partition, found.messages) == (2, [])
        stored = second.good(iggy.GET_OFFSET, b"\2" + iggy.path("g", *place) + bytes(4))
        assert stored[:4] == b"\2\0\0\0", "the partition of the last poll"


def test_a_member_without_a_partition_gets_nothing(address: str, raw: Raw, name: str) -> None:
    place = raw.create(name)
    raw.send(place, iggy.BALANCED, [b"x"])
    raw.create_group(place, "g")
    raw.good(iggy.JOIN_GROUP, iggy.path(*place, "g"))
    with connected(address, PASSWORD) as second:
        second.good(iggy.JOIN_GROUP, iggy.path(*place, "g"))
        assert second.poll(place, kind=2, consumer="g") == iggy.Polled(0, 0)
        assert raw.poll(place, kind=2, consumer="g").payloads == [b"x"]


def test_a_group_of_the_same_name_and_number_begins_at_the_beginning(raw: Raw, name: str) -> None:
    place = raw.create(name)
    raw.send(place, iggy.BALANCED, [b"x"])
    for _ in range(2):
        raw.create_group(place, "g", 4)
        raw.good(iggy.JOIN_GROUP, iggy.path(*place, "g"))
        assert raw.poll(place, iggy.NEXT, kind=2, consumer=4, commit=True).payloads == [b"x"]
        assert raw.poll(place, iggy.NEXT, kind=2, consumer=4).payloads == []
        raw.good(iggy.DELETE_GROUP, iggy.path(*place, "g"))
        with refused(5003):
            raw.poll(place, iggy.NEXT, kind=2, consumer="g")
