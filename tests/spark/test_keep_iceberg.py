"""Iceberg tables that keep the latest record of each key: merges, replays, conflicts, refusals."""

import random
from importlib import import_module
from pathlib import Path
from typing import Any

import bascule
import bascule.spark
import pytest
from bascule.client import StreamOptions
from bascule.errors import StateError, UsageError
from bascule.failpoints import Name
from bascule.lake import ArchiveOptions, Source, compact, coverage
from bascule.lake.iceberg.merged import MergedIceberg
from bascule.testing import TestBroker as Broker
from lakes import catalog_file

from tests.failpoints import Points

catalogs: Any = import_module("pyiceberg.catalog")

pytestmark = [pytest.mark.spark]


class Kept:
    """A table in a SQL catalog that a query keeps."""

    def __init__(self, spark: Any, broker: Broker, client: bascule.Client, folder: Path, stream: str) -> None:
        self.spark, self.client, self.folder = spark, client, folder
        self.credentials = catalog_file(folder)
        self.options: dict[str, Any] = {"stream": stream, "address": broker.address, "credentials": self.credentials}

    def put(self, *changes: tuple[bytes, bytes | None], partition: int = 0) -> None:
        for key, value in changes:
            self.client.publish(str(self.options["stream"]), value, key=key, partition=partition)

    def start(self, **more: Any) -> Any:
        given: dict[str, Any] = {"to": "lake.kept", "checkpoint": self.folder / "checkpoint", **self.options, **more}
        return bascule.spark.keep_table(self.spark, format="iceberg", available_now=True, **given)

    def run(self, **more: Any) -> None:
        assert self.start(**more).awaitTermination(120), "the run did not end"

    @property
    def archive(self) -> ArchiveOptions:
        return ArchiveOptions("lake.kept", "iceberg", credentials=self.credentials)

    def table(self) -> Any:
        properties = {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}"}
        return catalogs.load_catalog("default", **properties).load_table("lake.kept")

    def snapshots(self) -> int:
        return len(self.table().snapshots())

    def rows(self) -> dict[bytes, bytes | None]:
        found = self.table().scan().to_arrow().to_pylist()
        by_key = {row["key"]: row["value"] for row in found}
        assert len(by_key) == len(found), "one row for each key"
        return by_key

    def end(self) -> int:
        """End of what the table covers of partition 0, exclusive."""
        row = self.table().scan().to_arrow().to_pylist()[0]
        source = Source(row["stream"], row["incarnation"], 0)
        return coverage(self.archive, [source])[source].end

    def forget_last_commit(self) -> None:
        """As if the driver had died before the checkpoint's commit log was written."""
        last = max((self.folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def kept(spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path, request: pytest.FixtureRequest) -> Kept:
    stream = f"iceberg-{abs(hash(request.node.name))}"
    client.create_stream(stream, options=StreamOptions(partitions=2))
    return Kept(spark, broker, client, tmp_path, stream)


def test_the_table_follows_a_dictionary_through_random_changes(kept: Kept) -> None:
    chosen = random.Random(5)
    expected: dict[bytes, bytes] = {}
    for round_ in range(3):
        for number in range(50):
            key = b"k%d" % chosen.randrange(20)
            value = None if chosen.random() < 0.3 else b"%d.%d" % (round_, number)
            kept.put((key, value), partition=key[-1] % 2)
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
        kept.run(maxOffsetsPerTrigger=30)
        assert kept.rows() == expected
    compact(kept.archive)
    assert kept.rows() == expected


def test_a_repeated_epoch_is_merged_once(kept: Kept) -> None:
    kept.put((b"a", b"1"), (b"b", b"2"))
    kept.run()
    kept.put((b"a", None), (b"c", b"3"))
    kept.run()
    snapshots = kept.snapshots()
    kept.forget_last_commit()
    kept.run()
    assert kept.snapshots() == snapshots
    assert kept.rows() == {b"b": b"2", b"c": b"3"}
    kept.put((b"never there", None))
    kept.run()
    assert kept.snapshots() == snapshots + 1
    assert kept.end() == 5, "an epoch without a change is recorded"


@pytest.mark.parametrize("point", [pytest.param("merge.before_commit", marks=pytest.mark.long), "merge.after_commit"])
def test_a_run_that_fails_around_the_commit_is_completed_by_the_next(kept: Kept, points: Points, point: Name) -> None:
    kept.put((b"a", b"1"))
    kept.run()
    kept.put((b"a", b"2"), (b"b", b"1"))
    points.arm(point, "fail")
    with pytest.raises(Exception, match=point):
        kept.start().awaitTermination(120)
    kept.run()
    assert kept.rows() == {b"a": b"2", b"b": b"1"}
    assert kept.end() == 3


def test_a_commit_that_is_overtaken_is_merged_on_the_newer_version(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.put((b"a", b"1"), (b"b", b"1"))
    kept.run()
    real, overtakes = MergedIceberg.merge, [True]

    def overtaken(self: MergedIceberg, handle: Any, *more: Any) -> bool:
        if overtakes and overtakes.pop():
            other = self.open().transaction()
            with other.update_snapshot().fast_append():
                pass
            other.commit_transaction()
        return real(self, handle, *more)

    monkeypatch.setattr(MergedIceberg, "merge", overtaken)
    kept.put((b"a", b"2"))
    before = len([*kept.folder.rglob("*.parquet")])
    kept.run()
    assert not overtakes
    assert kept.rows() == {b"a": b"2", b"b": b"1"}
    assert len([*kept.folder.rglob("*.parquet")]) == before + 1, "files of the refused commit are deleted"


def test_a_key_that_moved_to_another_partition_keeps_its_later_record(kept: Kept) -> None:
    kept.put((b"a", b"old"), partition=1)
    kept.put((b"a", b"new"), partition=0)
    kept.run(maxOffsetsPerTrigger=1)
    assert kept.rows() == {b"a": b"new"}


def test_a_new_checkpoint_is_refused(kept: Kept) -> None:
    kept.put((b"a", b"1"))
    kept.run()
    with pytest.raises(Exception, match=r"has the records of .* before offset 1"):
        kept.start(checkpoint=kept.folder / "other").awaitTermination(120)


def test_archives_and_kept_tables_refuse_each_other(kept: Kept) -> None:
    kept.put((b"a", b"1"))
    kept.run()
    checkpoint = kept.folder / "archive"
    with pytest.raises(StateError, match="it has the latest row of each key, not every record"):
        bascule.spark.archive(kept.spark, to="lake.kept", checkpoint=checkpoint, format="iceberg", **kept.options)


def test_versions_are_refused_by_name(kept: Kept) -> None:
    with pytest.raises(UsageError, match="history is for Delta tables: an Iceberg table is kept at the latest row"):
        kept.start(history=True)
    with pytest.raises(UsageError, match="format is 'parquet': rows are merged into Delta and Iceberg tables"):
        bascule.spark.keep_table(kept.spark, to="t", checkpoint="c", format="parquet")  # type: ignore[arg-type]
