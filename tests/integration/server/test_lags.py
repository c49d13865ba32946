"""Lags of groups and queries in a real broker: by `bascule lag`, by the SDK and in `/metrics`."""

import json
from collections.abc import Iterator
from typing import Final

import pytest
from bascule import group_cursor
from bascule.client import Client, ReaderLag, StreamOptions
from bascule.errors import BrokerError
from bascule.spark.reporting import ReportedQuery, report_positions
from bascule.testing import TestBroker, broker

from tests.integration.cli.commands import run
from tests.integration.server.test_http import FREE
from tests.integration.server.test_metric_values import values

RECORD: Final = b"x" * 1000


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker(settings={"http.listen": FREE, "cursors.partitions": 1}, durability="disk") as started:
        yield started


def query(running: TestBroker, name: str = "totals") -> ReportedQuery:
    return ReportedQuery(f"grpc://{running.address}", "default", name)


def incarnation(client: Client, stream: str, number: int = 0) -> int:
    return client.describe_stream(stream).partitions[number].incarnation


def the(found: list[ReaderLag]) -> ReaderLag:
    (only,) = found
    return only


def test_a_query_and_a_group_at_one_position_have_the_same_lag(running: TestBroker) -> None:
    with running.connect() as client:
        client.create_stream("orders", options=StreamOptions(partitions=2, codec="none"))
        for _ in range(100):
            client.publish("orders", RECORD, partition=1)
        place = incarnation(client, "orders", 1)
        assert report_positions(query(running), {"orders": {1: (place, 40)}}).unknown == []
        client.set_cursor(group_cursor("billing"), "orders", 39, partition=1)
        found = client.lags(stream="orders")
        assert [(item.kind, item.reader, item.next_offset, item.records) for item in found] == [
            ("group", "billing", 40, 60), ("query", "totals", 40, 60),
        ]  # fmt: skip
        for item in found:
            assert item.bytes is not None
            assert 60_000 <= item.bytes <= 140_000
            assert item.age is not None
            assert 0 < item.age.total_seconds() < 60
        assert found[1].state == "reporting"
        before = values(running)
        for name, reader in (("bascule_group_lag", "billing"), ("bascule_query_lag", "totals")):
            labels = frozenset({reader, "orders"})
            assert before[f"{name}_records", labels] == 60
            assert 60_000 <= before[f"{name}_bytes", labels] <= 140_000
            assert 0 < before[f"{name}_seconds", labels] < 60
        assert 0 <= before["bascule_query_report_age_seconds", frozenset({"totals", "orders"})] < 60
        report_positions(query(running), {"orders": {1: (place, 100)}}, ended=True)
        done = the(client.lags(reader="totals"))
        assert (done.records, done.bytes, done.state) == (0, 0, "ended")
        assert done.age is not None
        assert done.age.total_seconds() == 0


def test_the_command_shows_what_the_sdk_does(running: TestBroker) -> None:
    with running.connect() as client:
        client.create_stream("shown")
        client.publish("shown", b"a")
        report_positions(query(running), {"shown": {0: (incarnation(client, "shown"), 0)}})
        (row,) = json.loads(run("lag", "totals", "--stream", "shown", "--json", url=running.url).out)
        assert (row["kind"], row["stream"], row["partition"], row["records"]) == ("query", "shown", 0, 1)
        assert run("lag", "nobody", url=running.url).err == "no group and no query has a position there\n"


def test_a_restart_forgets_and_the_next_report_is_asked_for_all(running: TestBroker) -> None:
    with running.connect() as client:
        client.create_stream("kept")
        position = {"kept": {0: (incarnation(client, "kept"), 0)}}
        assert report_positions(query(running), position).unknown == []
        assert report_positions(query(running), {}, renewed=("kept",)).unknown == []
    running.restart()
    with running.connect() as client:
        assert client.lags(reader="totals") == []
        assert report_positions(query(running), {}, renewed=("kept",)).unknown == ["kept"]
        assert report_positions(query(running), position).unknown == []
        assert the(client.lags(reader="totals")).records == 0


def test_what_cannot_be_shown_is_refused_by_name(running: TestBroker) -> None:
    with running.connect() as client:
        client.create_stream("bounds")
        place = incarnation(client, "bounds")
        for position, code, text in (
            ({"gone": {0: (place, 0)}}, "stream_not_found", "gone"),
            ({"bounds": {1: (place, 0)}}, "partition_not_found", "partition 1 of stream bounds"),
            ({"bounds": {0: (place + 1, 0)}}, "incarnation_changed", f"not {place + 1}"),
            ({"bounds": {0: (place, 1)}}, "invalid_argument", "offset 1 is not between 0 and the high watermark 0"),
        ):
            with pytest.raises(BrokerError, match=text) as refused:
                report_positions(query(running, "wrong"), position)
            assert refused.value.code == code


def test_more_queries_than_the_limit_are_refused() -> None:
    with broker(settings={"limits.queries": 2}) as small, small.connect() as client:
        client.create_stream("bounds")
        position = {"bounds": {0: (incarnation(client, "bounds"), 0)}}
        for name in ("one", "two", "one"):
            report_positions(query(small, name), position)
        with pytest.raises(BrokerError, match="2 queries report already, which is the most") as refused:
            report_positions(query(small, "three"), position)
        assert refused.value.code == "too_many_queries"


def test_the_position_in_a_stream_that_was_created_again_has_no_lag(running: TestBroker) -> None:
    with running.connect() as client:
        client.create_stream("again")
        report_positions(query(running), {"again": {0: (incarnation(client, "again"), 0)}})
        client.delete_stream("again")
        client.create_stream("again")
        client.publish("again", b"a")
        assert the(client.lags(stream="again")).records is None
