"""What tables have is reported to a real broker after each commit, and retention waits for it."""

from pathlib import Path
from typing import Any

import bascule
import pytest
from bascule.client import PartitionDetails, StreamOptions
from bascule.errors import UsageError
from bascule.lake import ArchiveOptions
from bascule.testing import TestBroker as Broker
from lakes import FORMATS, Archive, Format

pytestmark = [pytest.mark.spark]


def archive(
    spark: Any, broker: Broker, folder: Path, stream: str, table_format: Format = "delta", **more: Any
) -> Archive:
    return Archive(
        spark, broker, folder, table_format, stream=stream, to=str(folder / stream), reportTo=broker.address, **more
    )  # fmt: skip


def archived(client: bascule.Client, stream: str) -> list[tuple[int, bool]]:
    """By partition: up to where, and whether an archive is named."""
    found: tuple[PartitionDetails, ...] = client.describe_stream(stream).partitions
    return [(item.archived_to, bool(item.archive)) for item in found]


@pytest.mark.parametrize("table_format", FORMATS)
def test_each_commit_reports_what_the_table_covers(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path, table_format: Format
) -> None:
    stream = f"reported-{table_format}"
    client.create_stream(stream, options=StreamOptions(partitions=2))
    for number in range(10):
        client.publish(stream, b"%d" % number, partition=number % 2 if number < 4 else 0)
    query = archive(spark, broker, tmp_path, stream, table_format)
    query.run()
    assert archived(client, stream) == [(8, True), (2, True)]
    client.publish(stream, b"more", partition=1)
    query.run()
    assert archived(client, stream) == [(8, True), (3, True)]


def test_a_second_table_is_refused_and_takes_over_when_it_says_so(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    client.create_stream("two")
    client.publish("two", b"a")
    archive(spark, broker, tmp_path / "first", "two").run()
    first = client.describe_stream("two").partitions[0].archive
    client.publish("two", b"b")
    archive(spark, broker, tmp_path / "second", "two").run()
    assert archived(client, "two") == [(1, True)], "the query has archived, and its report was refused"
    archive(spark, broker, tmp_path / "third", "two", reportTakeOver=True).run()
    assert archived(client, "two") == [(2, True)]
    assert client.describe_stream("two").partitions[0].archive != first


def test_a_table_that_begins_later_is_not_counted(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    client.create_stream("late")
    client.publish_many("late", [b"a", b"b", b"c"])
    archive(spark, broker, tmp_path, "late", startingOffsets="-1").run()
    assert archived(client, "late") == [(0, False)]


def test_a_table_of_a_part_of_the_records_may_not_report(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the rows are not all records of their streams"):
        ArchiveOptions(str(tmp_path), report_to="127.0.0.1:9292")
    with pytest.raises(UsageError, match="report_take_over is for tables that report"):
        ArchiveOptions(str(tmp_path), complete=True, report_take_over=True)
    with pytest.raises(UsageError, match="it must be host:port"):
        ArchiveOptions(str(tmp_path), complete=True, report_to="nowhere")
