"""Retention that waits for an archive, in a real broker: until it has the records, until the cap, after a restart."""

import json
import logging
from collections.abc import Iterator
from typing import Any, Final, cast

import pytest
from bascule._admin_pb import message
from bascule.client import Client, PartitionDetails, StreamOptions
from bascule.errors import BrokerError, UsageError
from bascule.lake import ArchiveOptions
from bascule.lake.lake_table import LakeTable
from bascule.lake.ranges import Covered, Source
from bascule.lake.reporting import report_archived
from bascule.spark.admin_calls import admin_call
from bascule.testing import TestBroker, broker

from tests.integration.cli.commands import run
from tests.integration.server.test_http import FREE
from tests.integration.server.test_metric_values import values
from tests.names import fresh
from tests.waiting import until

SETTINGS: Final = {"http.listen": FREE, "streams.cleaner_interval_ms": 100, "streams.retention_min_age_ms": 0}
RECORD: Final = b"x" * 1000
CAP: Final = 1 << 20


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker(settings=SETTINGS, durability="disk") as started:
        yield started


def waiting(cap: int = CAP) -> StreamOptions:
    """Retention keeps 5 records, in segments of a few records, and waits for an archive."""
    return StreamOptions(
        codec="none", retention_max_messages=5, segment_max_bytes=4000, retention_after_archive=True,
        retention_after_archive_max_bytes=cap,
    )  # fmt: skip


def fill(client: Client, stream: str, count: int = 50) -> None:
    for _ in range(count):
        client.publish(stream, RECORD)


def partition(client: Client, stream: str) -> PartitionDetails:
    (only,) = client.describe_stream(stream).partitions
    return only


def report(running: TestBroker, client: Client, stream: str, first: int, end: int, **more: Any) -> None:
    incarnation = partition(client, stream).incarnation
    item = {"partition": 0, "incarnation": incarnation, "first": first, "end": end}
    request = message("ReportArchivedRequest")(name=stream, archive="lake", partitions=[item], **more)
    admin_call(f"grpc://{running.address}", "ReportArchived", request, timeout_ms=10_000, retry_ms=0)


def log_start(client: Client, stream: str) -> int:
    found = partition(client, stream).log_start
    assert found is not None
    return found


def rounds(client: Client) -> None:
    """Retention has run on every partition: a stream that does not wait was cut meanwhile."""
    options = StreamOptions(retention_max_messages=5, segment_max_bytes=4000)
    client.create_stream("beside", options=options, exist_ok=True)
    before = log_start(client, "beside")
    fill(client, "beside", 20)
    until(lambda: log_start(client, "beside") > before, 20)
    before = log_start(client, "beside")
    fill(client, "beside", 20)
    until(lambda: log_start(client, "beside") > before, 20)


def test_retention_removes_what_the_archive_has_and_nothing_else_also_after_a_restart(running: TestBroker) -> None:
    name = fresh("waits")
    with running.connect() as client:
        client.create_stream(name, options=waiting())
        fill(client, name)
        rounds(client)
        assert log_start(client, name) == 0
        report(running, client, name, 0, 20)
        until(lambda: log_start(client, name) > 0, 20)
        until(lambda: 15 < log_start(client, name) <= 20, 20)
    running.restart()
    with running.connect() as client:
        shown = partition(client, name)
        assert (shown.archived_to, shown.archive) == (20, "lake")
        rounds(client)
        assert log_start(client, name) <= 20
        report(running, client, name, 0, 50)
        until(lambda: log_start(client, name) > 40, 20)
        assert values(running)["bascule_retention_unarchived_records_total", frozenset()] == 0


def test_above_the_cap_the_oldest_segments_go_and_are_counted(running: TestBroker) -> None:
    name, cap = fresh("capped"), 20_000
    metric = ("bascule_retention_unarchived_records_total", frozenset[str]())

    def size() -> int:
        found = partition(client, name).size_bytes
        assert found is not None
        return found

    with running.connect() as client:
        client.create_stream(name, options=waiting(cap))
        before = values(running)[metric]
        fill(client, name, 10)
        rounds(client)
        assert log_start(client, name) == 0
        fill(client, name, 30)
        # Retention may have run in the middle of these: what it left then is above the cap again.
        until(lambda: size() <= cap, 20)
        assert size() > cap // 2
        until(lambda: values(running)[metric] - before == log_start(client, name), 20)


def test_a_trim_a_purge_and_the_end_of_the_setting_do_not_wait(running: TestBroker) -> None:
    name = fresh("asked")
    with running.connect() as client:
        client.create_stream(name, options=waiting())
        fill(client, name)
        client.trim_partition(name, 0, 10)
        until(lambda: log_start(client, name) == 10, 20)
        report(running, client, name, 10, 30)
        assert partition(client, name).archived_to == 30
        client.purge_stream(name)
        assert (partition(client, name).archived_to, partition(client, name).archive) == (0, "")
        fill(client, name)
        rounds(client)
        assert log_start(client, name) == 0
        client.edit_stream(name, {"retention_after_archive": False})
        until(lambda: log_start(client, name) > 40, 20)


def test_the_settings_are_created_edited_and_shown_by_the_command(running: TestBroker) -> None:
    name = fresh("shown")
    with running.connect() as client, pytest.raises(UsageError, match="needs retention_after_archive_max_bytes"):
        client.create_stream("no-end", options=StreamOptions(retention_after_archive=True))
    flags = ("--retention-after-archive", "--retention-after-archive-max-bytes", "1MiB")
    assert run("stream", "create", name, *flags, url=running.url).code == 0
    shown = json.loads(run("stream", "show", name, "--output", "json", url=running.url).out)
    settings = {item["name"]: item["asked"] for item in shown["settings"]}
    assert (settings["retention_after_archive"], settings["retention_after_archive_max_bytes"]) == (True, 1 << 20)
    edit = ("stream", "edit", name, "--retention-after-archive-max-bytes", "2MiB")
    assert run(*edit, url=running.url).code == 0
    with running.connect() as client:
        in_effect = client.describe_stream(name).in_effect
        assert (in_effect["retention_after_archive"], in_effect["retention_after_archive_max_bytes"]) == (True, 2 << 20)
        with pytest.raises(UsageError, match="needs retention_after_archive_max_bytes"):
            client.edit_stream(name, {"retention_after_archive_max_bytes": None})


def test_a_report_beyond_the_log_or_with_a_gap_is_refused(running: TestBroker) -> None:
    name = fresh("checked")
    with running.connect() as client:
        client.create_stream(name, options=waiting())
        fill(client, name, 10)
        for first, end, code in ((0, 11, "invalid_argument"), (1, 10, "archive_gap")):
            with pytest.raises(BrokerError) as refused:
                report(running, client, name, first, end)
            assert refused.value.code == code
        assert partition(client, name).archived_to == 0


class Table:
    """Has ten records of each partition."""

    uri = "lake/all"

    def covered(self, sources: list[Source]) -> dict[Source, Covered]:
        return {source: Covered(0, 10, 1) for source in sources}


def test_a_paused_partition_does_not_keep_others_from_being_reported(
    running: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    name = fresh("paused")
    options = ArchiveOptions("lake/all", complete=True, report_to=running.address)
    with running.connect() as client:
        client.create_stream(name, options=StreamOptions(partitions=2))
        for number in range(20):
            client.publish(name, RECORD, partition=number % 2)
        sources = [Source(name, each.incarnation, each.number) for each in client.describe_stream(name).partitions]
        client.pause_stream(name, partitions=[1])

        def archived() -> list[int]:
            return [each.archived_to for each in client.describe_stream(name).partitions]

        with caplog.at_level(logging.WARNING, "bascule.lake"):
            report_archived(cast("LakeTable", Table()), options, sources)
        (warning,) = caplog.records
        assert f"partition 1 of stream {name} is not open here" in warning.getMessage()
        assert archived() == [10, 0]
        client.resume_stream(name)
        report_archived(cast("LakeTable", Table()), options, sources)
        assert archived() == [10, 10]


def test_the_coverage_of_a_table_of_several_streams_is_reported_stream_by_stream(
    running: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    options = ArchiveOptions("lake/all", complete=True, report_to=running.address)
    with running.connect() as client:
        names = (fresh("covered-a"), fresh("covered-b"))
        for name in names:
            client.create_stream(name)
            fill(client, name, 10)
        sources = [Source(name, partition(client, name).incarnation, 0) for name in names]
        gone = Source("covered-gone", 7, 0)
        with caplog.at_level(logging.WARNING, "bascule.lake"):
            report_archived(cast("LakeTable", Table()), options, [*sources, gone])
        assert [partition(client, name).archived_to for name in names] == [10, 10]
        assert [partition(client, name).archive for name in names] == ["lake/all"] * 2
    (warning,) = caplog.records
    assert "what the table has of stream covered-gone could not be reported" in warning.getMessage()
