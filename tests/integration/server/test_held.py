"""Queries that hold records, in a real broker: until they have processed them, until the size, after a restart."""

import json
from collections.abc import Iterator
from typing import Final

import pytest
from bascule.client import Client, StreamOptions
from bascule.spark.reporting import ReportedQuery, report_positions
from bascule.testing import TestBroker, broker

from tests.integration.cli.commands import run
from tests.integration.server.test_archived import RECORD, fill, log_start, partition, rounds
from tests.integration.server.test_http import FREE
from tests.integration.server.test_metric_values import values
from tests.names import fresh
from tests.waiting import until

SETTINGS: Final = {"http.listen": FREE, "streams.cleaner_interval_ms": 100, "streams.retention_min_age_ms": 0}
CAP: Final = 1 << 20
UNREAD: Final = ("bascule_retention_unread_records_total", frozenset[str]())


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker(settings=SETTINGS, durability="disk") as started:
        yield started


def holding(cap: int | None = CAP) -> StreamOptions:
    """Retention keeps 5 records, in segments of a few records; queries may hold more."""
    return StreamOptions(
        codec="none", retention_max_messages=5, segment_max_bytes=4000, retention_hold_max_bytes=cap
    )  # fmt: skip


def report(running: TestBroker, client: Client, stream: str, following: int, *, hold: bool = True) -> list[str]:
    """Returns the streams that let the query hold nothing."""
    query = ReportedQuery(f"grpc://{running.address}", "default", f"{stream}-query", hold)
    place = (partition(client, stream).incarnation, following)
    return report_positions(query, {stream: {0: place}}).not_held


def test_retention_waits_for_a_query_that_holds_and_not_for_one_that_only_reports(running: TestBroker) -> None:
    held, seen = fresh("held"), fresh("seen")
    with running.connect() as client:
        for name in (held, seen):
            client.create_stream(name, options=holding())
            assert report(running, client, name, 0, hold=name == held) == []
            fill(client, name)
        until(lambda: log_start(client, seen) > 40, 20)
        rounds(client)
        assert log_start(client, held) == 0
        report(running, client, held, 20)
        until(lambda: 15 < log_start(client, held) <= 20, 20)
        # A change of the stream makes the broker lead its partitions again; that holds nothing.
        assert run("stream", "edit", held, "--retention-hold-expiry", "2h", url=running.url).code == 0
        report(running, client, held, 20, hold=False)
        until(lambda: log_start(client, held) > 40, 20)
        assert values(running)[UNREAD] == 0


def test_a_hold_is_shown_by_command_and_metrics(running: TestBroker) -> None:
    name = fresh("shown")
    with running.connect() as client:
        client.create_stream(name, options=holding())
        for hold in (True, False):
            report(running, client, name, 0, hold=hold)
            (row,) = json.loads(run("lag", "--stream", name, "--json", url=running.url).out)
            (found,) = client.lags(stream=name)
            left_s = values(running)["bascule_query_hold_seconds", frozenset({f"{name}-query", name})]
            if hold:
                assert found.hold_left is not None
                assert 0 < row["hold_seconds"] <= 3600
                assert 0 < found.hold_left.total_seconds() <= 3600
                assert 0 < left_s <= 3600
            else:
                assert (row["hold_seconds"], found.hold_left, left_s) == (None, None, 0)


def test_above_the_size_the_oldest_segments_go_and_what_is_unread_is_counted(running: TestBroker) -> None:
    name, cap = fresh("capped"), 20_000

    def size() -> int:
        found = partition(client, name).size_bytes
        assert found is not None
        return found

    with running.connect() as client:
        client.create_stream(name, options=holding(cap))
        before = values(running)[UNREAD]
        report(running, client, name, 0)
        fill(client, name, 10)
        report(running, client, name, 3)
        rounds(client)
        assert log_start(client, name) <= 3
        processed = log_start(client, name)
        fill(client, name, 30)
        until(lambda: size() <= cap, 20)
        assert size() > cap // 2
        until(lambda: values(running)[UNREAD] - before == log_start(client, name) - 3, 20)
        assert processed <= 3


def test_a_restart_keeps_what_was_held_until_the_stream_lets_nobody_hold(running: TestBroker) -> None:
    name = fresh("kept")
    with running.connect() as client:
        client.create_stream(name, options=holding())
        report(running, client, name, 0)
        fill(client, name)
        rounds(client)
        assert log_start(client, name) == 0
    running.kill()
    running.start()
    with running.connect() as client:
        assert client.lags(stream=name) == []
        rounds(client)
        assert log_start(client, name) == 0, "the query has not reported yet"
        report(running, client, name, 20)
        assert run("stream", "edit", name, "--retention-hold-max-bytes", "2MiB", url=running.url).code == 0
        rounds(client)
        assert log_start(client, name) <= 20
        client.edit_stream(name, {"retention_hold_max_bytes": None})
        until(lambda: log_start(client, name) > 40, 20)
        assert values(running)[UNREAD] == 0


def test_a_stream_without_a_size_lets_no_query_hold(running: TestBroker) -> None:
    name = fresh("free")
    with running.connect() as client:
        client.create_stream(name, options=holding(None))
        assert report(running, client, name, 0) == [name]
        fill(client, name)
        until(lambda: log_start(client, name) > 40, 20)
        (found,) = client.lags(stream=name)
        assert (found.next_offset, found.hold_left) == (0, None)


def test_a_trim_and_a_purge_do_not_wait(running: TestBroker) -> None:
    name = fresh("asked")
    with running.connect() as client:
        client.create_stream(name, options=holding())
        report(running, client, name, 0)
        fill(client, name)
        client.trim_partition(name, 0, 10)
        until(lambda: log_start(client, name) == 10, 20)
        client.purge_stream(name)
        fill(client, name)
        until(lambda: log_start(client, name) > 40, 20)


def test_compaction_leaves_what_a_query_holds(running: TestBroker) -> None:
    held, free = fresh("held-keys"), fresh("free-keys")
    options = StreamOptions(codec="none", compact_enabled=True, segment_max_bytes=4000, retention_hold_max_bytes=CAP)

    def size(name: str) -> int:
        found = partition(client, name).size_bytes
        assert found is not None
        return found

    with running.connect() as client:
        for name in (held, free):
            client.create_stream(name, options=options)
            report(running, client, name, 0, hold=name == held)
            for _ in range(30):
                client.publish(name, RECORD, key=b"one")
        whole = 30 * len(RECORD)
        until(lambda: size(free) < whole // 2, 30)
        rounds(client)
        assert size(held) >= whole
        report(running, client, held, 30)
        until(lambda: size(held) < whole // 2, 30)


def test_a_hold_that_is_released_lets_retention_continue(running: TestBroker) -> None:
    name = fresh("released")
    with running.connect() as client:
        client.create_stream(name, options=holding())
        report(running, client, name, 0)
        fill(client, name)
        release = ["hold", "release", f"{name}-query", name]
        refused = run(*release, "--yes", url=running.url)
        assert (refused.code, "would hold its records again: stop it" in refused.err) == (6, True)
        query = ReportedQuery(f"grpc://{running.address}", "default", f"{name}-query", hold=True)
        report_positions(query, {}, renewed=(name,), ended=True)
        rounds(client)
        assert log_start(client, name) == 0
        (shown,) = json.loads(run("lag", "--stream", name, "--json", url=running.url).out)
        found = json.loads(run(*release, "--dry-run", "--output", "json", url=running.url).out)
        assert found["partitions"] == {"0": 0}
        assert 0 < found["hold_seconds"] <= shown["hold_seconds"] + 1
        rounds(client)
        assert log_start(client, name) == 0
        assert run(*release, "--yes", url=running.url).code == 0
        until(lambda: log_start(client, name) > 40, 20)
        assert client.lags(stream=name) == []
        assert run(*release, "--yes", url=running.url).code == 3
