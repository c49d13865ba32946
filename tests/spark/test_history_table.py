"""Tables of all versions of each key: changes, tombstones, replays, crashes, late records, jobs."""

import random
from datetime import datetime
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import bascule
import bascule.spark
import pytest
from bascule.client import StreamOptions
from bascule.failpoints import Name
from bascule.lake import compact
from bascule.lake.options import ArchiveOptions
from bascule.pipeline import parse_job, run
from bascule.testing import TestBroker as Broker

from tests.failpoints import Points

deltalake: Any = import_module("deltalake")

pytestmark = [pytest.mark.spark]

Change = tuple[bytes, bytes | None]


class Kept:
    """A table of versions and a table of latest records of one stream, each kept by a query of its own."""

    def __init__(self, spark: Any, broker: Broker, client: bascule.Client, folder: Path, stream: str) -> None:
        self.spark, self.client, self.folder = spark, client, folder
        self.options: dict[str, Any] = {"stream": stream, "address": broker.address}

    def put(self, *changes: Change, partition: int = 0) -> None:
        for key, value in changes:
            self.client.publish(str(self.options["stream"]), value, key=key, partition=partition)

    def start(self, *, history: bool = True, checkpoint: str = "", **more: Any) -> Any:
        place = "history" if history else "latest"
        return bascule.spark.keep_table(
            self.spark, to=self.folder / place, checkpoint=self.folder / (checkpoint or f"{place}-checkpoint"),
            history=history, available_now=True, **{**self.options, **more},
        )  # fmt: skip

    def run(self, **more: Any) -> None:
        assert self.start(**more).awaitTermination(120), "the run did not end"

    def table(self, place: str = "history") -> Any:
        return deltalake.DeltaTable(str(self.folder / place))

    def versions(self) -> dict[bytes, list[dict[str, Any]]]:
        """By key, in order of their beginning; checks that they follow each other."""
        found: dict[bytes, list[dict[str, Any]]] = {}
        rows = self.table().to_pyarrow_table().to_pylist()
        for row in sorted(rows, key=lambda row: (row["valid_from"], row["partition"], row["offset"])):
            found.setdefault(row["key"], []).append(row)
        for of_key in found.values():
            for one, following in pairwise(of_key):
                assert not one["is_current"]
                assert one["valid_from"] <= one["valid_to"] <= following["valid_from"]
            assert of_key[-1]["is_current"] is (of_key[-1]["valid_to"] is None)
        return found

    def values(self) -> dict[bytes, list[bytes]]:
        """Values of the versions by key."""
        return {key: [row["value"] for row in rows] for key, rows in self.versions().items()}

    def current(self) -> dict[bytes, bytes]:
        found = self.versions()
        return {key: rows[-1]["value"] for key, rows in found.items() if rows[-1]["is_current"]}

    def at(self, moment: datetime) -> dict[bytes, bytes]:
        """Values that were valid at a moment."""
        return {
            row["key"]: row["value"]
            for rows in self.versions().values()
            for row in rows
            if row["valid_from"] <= moment and (row["valid_to"] is None or moment < row["valid_to"])
        }

    def times(self) -> list[datetime]:
        """Times of the records of partition 0."""
        records = self.spark.read.format("bascule").options(**self.options).load().where("partition = 0")
        return [row["timestamp"] for row in records.orderBy("offset").toArrow().to_pylist()]

    def forget_last_commit(self) -> None:
        """As if the driver had died before the checkpoint's commit log was written."""
        folder = self.folder / "history-checkpoint" / "commits"
        last = max(folder.glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def kept(spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path, request: pytest.FixtureRequest) -> Kept:
    stream = f"versions-{abs(hash(request.node.name))}"
    client.create_stream(stream, options=StreamOptions(partitions=2))
    return Kept(spark, broker, client, tmp_path, stream)


def test_random_changes_are_versions_in_order_and_the_current_ones_are_the_kept_table(kept: Kept) -> None:
    chosen = random.Random(11)
    wanted: dict[bytes, list[bytes]] = {}
    for round_ in range(2):
        for number in range(40):
            key = b"k%d" % chosen.randrange(12)
            value = None if chosen.random() < 0.3 else b"%d.%d" % (round_, number)
            kept.put((key, value), partition=key[-1] % 2)
            if value is not None:
                wanted.setdefault(key, []).append(value)
        kept.run(maxOffsetsPerTrigger=30)
        kept.run(maxOffsetsPerTrigger=30, history=False)
        assert kept.values() == wanted
        latest = kept.table("latest").to_pyarrow_table().to_pylist()
        assert kept.current() == {row["key"]: row["value"] for row in latest}


def test_a_version_is_valid_from_its_record_to_the_next_one_or_to_the_tombstone(kept: Kept) -> None:
    kept.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"a", None), (b"gone", None))
    kept.run()
    times = kept.times()
    first, second = kept.versions()[b"a"]
    assert (first["valid_from"], first["valid_to"]) == (times[0], times[2])
    assert (second["valid_from"], second["valid_to"], second["is_current"]) == (times[2], times[3], False)
    assert kept.at(times[2]) == {b"a": b"2", b"b": b"1"}
    assert kept.at(times[3]) == {b"b": b"1"}
    kept.put((b"a", b"3"))
    kept.run()
    assert kept.values() == {b"a": [b"1", b"2", b"3"], b"b": [b"1"]}


def test_a_repeated_epoch_adds_no_version(kept: Kept) -> None:
    kept.put((b"a", b"1"))
    kept.run()
    kept.put((b"a", b"2"), (b"a", b"3"))
    kept.run()
    version = kept.table().version()
    kept.forget_last_commit()
    kept.run()
    assert kept.table().version() == version
    kept.put((b"a", None))
    kept.run()
    assert kept.values() == {b"a": [b"1", b"2", b"3"]}
    assert kept.current() == {}


@pytest.mark.parametrize("point", [pytest.param("merge.before_commit", marks=pytest.mark.long), "merge.after_commit"])
def test_a_run_that_fails_around_the_commit_is_completed_by_the_next(kept: Kept, points: Points, point: Name) -> None:
    kept.put((b"a", b"1"), (b"b", b"1"))
    kept.run()
    kept.put((b"a", b"2"), (b"b", None))
    points.arm(point, "fail")
    with pytest.raises(Exception, match=point):
        kept.start().awaitTermination(120)
    kept.run()
    assert kept.values() == {b"a": [b"1", b"2"], b"b": [b"1"]}
    assert kept.current() == {b"a": b"2"}


def test_a_late_record_of_another_partition_adds_no_version_and_its_epoch_is_recorded(kept: Kept) -> None:
    kept.put((b"a", b"late"), partition=1)
    kept.put((b"a", b"new"), partition=0)
    kept.run(maxOffsetsPerTrigger=1)
    kept.run(maxOffsetsPerTrigger=1)
    values = kept.values()[b"a"]
    assert values[-1] == b"new"
    assert kept.current() == {b"a": b"new"}
    version = kept.table().version()
    kept.run()
    assert kept.table().version() == version, "nothing is left to merge"


def test_a_compacted_table_is_merged_into(kept: Kept) -> None:
    for number in range(3):
        kept.put((b"a", b"%d" % number))
        kept.run()
    compact(ArchiveOptions(str(kept.folder / "history")))
    kept.put((b"a", b"3"))
    kept.run()
    assert kept.values() == {b"a": [b"0", b"1", b"2", b"3"]}


def test_tables_of_versions_and_of_latest_rows_refuse_each_other(kept: Kept) -> None:
    kept.put((b"a", b"1"))
    kept.run()
    (kept.folder / "history").rename(kept.folder / "latest")
    with pytest.raises(Exception, match="it has all versions of each key, not the latest row of each key"):
        kept.start(history=False).awaitTermination(120)


def test_a_job_keeps_all_versions(kept: Kept) -> None:
    position = "stream, incarnation, partition, offset, timestamp"
    merge = {"keys": ["key"], "deleteWhen": "value IS NULL", "history": True}
    target: dict[str, Any] = {"format": "delta", "path": "history", "merge": merge}
    document: dict[str, Any] = {
        "name": "versions",
        "source": kept.options,
        "sql": f"SELECT {position}, key, value FROM source",
        "targets": [target],
        "mode": "availableNow",
        "checkpoint": "checkpoint",
    }
    kept.put((b"a", b"1"), (b"b", b"1"), (b"a", None))
    run(parse_job(document, base=kept.folder), spark=kept.spark)
    document["sql"] = f"SELECT {position}, key, value, length(value) AS bytes FROM source"
    target["onSchemaChange"] = "evolve"
    kept.put((b"b", b"22"))
    run(parse_job(document, base=kept.folder), spark=kept.spark)
    assert kept.values() == {b"a": [b"1"], b"b": [b"1", b"22"]}
    assert [row["bytes"] for row in kept.versions()[b"b"]] == [None, 2]


def test_a_column_of_versions_in_the_rows_is_refused(kept: Kept) -> None:
    rows = kept.spark.createDataFrame([], "stream string, valid_to int")
    options = bascule.lake.MergeOptions(path="t", keys=("k",), history=True)
    with pytest.raises(bascule.errors.UsageError, match="the rows have no column incarnation"):
        options.check(rows.columns)
    with pytest.raises(bascule.errors.UsageError, match="the rows have a column valid_to, a name that merging needs"):
        options.check(["stream", "incarnation", "partition", "offset", "timestamp", "k", "valid_to"])
