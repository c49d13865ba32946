"""Tables that keep the latest record of each key: merges, replays, deletions, refusals."""

import random
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import bascule
import bascule.spark
import pytest
from bascule import failpoints
from bascule.client import StreamOptions
from bascule.errors import StateError, UsageError
from bascule.lake import ArchiveOptions, MergeOptions, Source, coverage, merge_epoch, start_merge
from bascule.testing import TestBroker as Broker

deltalake: Any = import_module("deltalake")

pytestmark = [pytest.mark.spark]


class Kept:
    """A table that a query keeps, with a checkpoint that outlives its runs."""

    def __init__(self, spark: Any, broker: Broker, folder: Path, stream: str, **options: Any) -> None:
        self.spark, self.folder = spark, folder
        self.options: dict[str, Any] = {"stream": stream, "address": broker.address, **options}

    def start(self, checkpoint: str = "checkpoint", **more: Any) -> Any:
        given: dict[str, Any] = {"to": self.folder / "table", "available_now": True, **self.options, **more}
        return bascule.spark.keep_table(self.spark, checkpoint=self.folder / checkpoint, **given)

    def run(self, **more: Any) -> None:
        assert self.start(**more).awaitTermination(90), "the run did not end"

    def table(self) -> Any:
        return deltalake.DeltaTable(str(self.folder / "table"))

    def rows(self) -> dict[bytes, bytes | None]:
        found = self.table().to_pyarrow_table().to_pylist()
        by_key = {row["key"]: row["value"] for row in found}
        assert len(by_key) == len(found), "one row for each key"
        return by_key

    def end(self) -> int:
        """End of what the table covers of partition 0, exclusive."""
        row = self.table().to_pyarrow_table().to_pylist()[0]
        source = Source(row["stream"], row["incarnation"], 0)
        return coverage(ArchiveOptions(str(self.folder / "table")), [source])[source].end

    def forget_last_commit(self) -> None:
        """As if the driver had died before the checkpoint's commit log was written."""
        commits = sorted((self.folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        commits[-1].unlink()
        commits[-1].with_name(f".{commits[-1].name}.crc").unlink(missing_ok=True)


@pytest.fixture
def kept(spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path, request: pytest.FixtureRequest) -> Kept:
    stream = f"kept-{abs(hash(request.node.name))}"
    client.create_stream(stream, options=StreamOptions(partitions=2))
    return Kept(spark, broker, tmp_path, stream)


def put(client: bascule.Client, kept: Kept, *records: tuple[bytes | None, bytes | None], partition: int = 0) -> None:
    for key, value in records:
        client.publish(str(kept.options["stream"]), value, key=key, partition=partition)


def test_the_table_follows_a_dictionary_through_random_changes(client: bascule.Client, kept: Kept) -> None:
    chosen = random.Random(7)
    expected: dict[bytes, bytes] = {}
    for round_ in range(4):
        for number in range(60):
            key = b"k%d" % chosen.randrange(25)
            value = None if chosen.random() < 0.3 else b"%d.%d" % (round_, number)
            put(client, kept, (key, value), partition=key[-1] % 2)
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
        kept.run(maxOffsetsPerTrigger=25)
        assert kept.rows() == expected


def test_a_repeated_epoch_is_merged_once(client: bascule.Client, kept: Kept) -> None:
    put(client, kept, (b"a", b"1"), (b"b", b"2"))
    kept.run()
    put(client, kept, (b"a", None), (b"c", b"3"))
    kept.run()
    version = kept.table().version()
    kept.forget_last_commit()
    kept.run()
    assert kept.table().version() == version
    assert kept.rows() == {b"b": b"2", b"c": b"3"}
    put(client, kept, (b"a", b"4"))
    kept.run()
    assert kept.rows() == {b"a": b"4", b"b": b"2", b"c": b"3"}


@pytest.mark.parametrize("point", [pytest.param("merge.before_commit", marks=pytest.mark.long), "merge.after_commit"])
def test_a_run_that_fails_around_the_commit_is_completed_by_the_next(
    client: bascule.Client, kept: Kept, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, point: str
) -> None:
    put(client, kept, (b"a", b"1"))
    kept.run()
    put(client, kept, (b"a", b"2"), (b"b", b"1"))
    monkeypatch.setenv(failpoints.VARIABLE, str(tmp_path))
    (tmp_path / point).write_text("fail")
    query = kept.start()
    with pytest.raises(Exception, match=point):
        query.awaitTermination(90)
    kept.run()
    assert kept.rows() == {b"a": b"2", b"b": b"1"}
    assert kept.end() == 3


def test_an_epoch_without_a_change_is_recorded(client: bascule.Client, kept: Kept) -> None:
    put(client, kept, (b"a", b"1"))
    kept.run()
    put(client, kept, (b"never there", None))
    kept.run()
    assert kept.end() == 2
    assert kept.rows() == {b"a": b"1"}


def test_a_new_checkpoint_is_refused(client: bascule.Client, kept: Kept) -> None:
    put(client, kept, (b"a", b"1"))
    kept.run()
    with pytest.raises(Exception, match=r"has the records of .* before offset 1"):
        kept.start(checkpoint="other").awaitTermination(90)
    assert kept.rows() == {b"a": b"1"}


def test_a_key_that_moved_to_another_partition_keeps_its_later_record(client: bascule.Client, kept: Kept) -> None:
    put(client, kept, (b"a", b"old"), partition=1)
    put(client, kept, (b"a", b"new"), partition=0)
    kept.run(maxOffsetsPerTrigger=1)
    assert kept.rows() == {b"a": b"new"}


@pytest.mark.parametrize(
    ("choice", "rows"),
    [("delete", {b"b": b"2"}), ("null", {b"a": None, b"b": b"2"}), ("skip", {b"a": b"1", b"b": b"2"})],
)
def test_a_tombstone_does_what_the_argument_says(
    client: bascule.Client, kept: Kept, choice: str, rows: dict[bytes, bytes | None]
) -> None:
    put(client, kept, (b"a", b"1"), (b"b", b"2"), (b"a", None))
    kept.run(on_tombstone=choice)
    assert kept.rows() == rows


def test_a_tombstone_or_a_null_key_fails_the_query_with_its_offset(client: bascule.Client, kept: Kept) -> None:
    put(client, kept, (b"a", b"1"), (b"a", None))
    with pytest.raises(Exception, match=r"/0 has a tombstone .* at offset 1: set on_tombstone to"):
        kept.start(on_tombstone="fail").awaitTermination(90)
    put(client, kept, (None, b"2"))
    with pytest.raises(Exception, match=r"\[record_invalid\] .* has a record whose key \(key\) is null at offset 2"):
        kept.start(checkpoint="second").awaitTermination(90)
    assert not deltalake.DeltaTable.is_deltatable(str(kept.folder / "table"))
    kept.run(on_missing_key="skip", checkpoint="third")
    assert kept.rows() == {}


def test_archives_and_kept_tables_refuse_each_other(spark: Any, client: bascule.Client, kept: Kept) -> None:
    put(client, kept, (b"a", b"1"))
    kept.run()
    table, address = str(kept.folder / "table"), str(kept.options["address"])
    stream, checkpoint = str(kept.options["stream"]), kept.folder / "archive"
    with pytest.raises(StateError, match="it has the latest row of each key, not every record"):
        bascule.spark.archive(spark, stream=stream, to=table, checkpoint=checkpoint, address=address)
    reader = spark.read.format("bascule").options(stream=kept.options["stream"], address=address, archivePath=table)
    with pytest.raises(Exception, match="it has the latest row of each key, not every record"):
        reader.load().collect()


def test_decoded_rows_with_keys_of_their_own(spark: Any, client: bascule.Client, kept: Kept) -> None:
    put(client, kept, (None, b'{"id": 1, "at": "x", "n": 1}'), (None, b'{"id": 1, "at": "x", "n": 2}'))
    put(client, kept, (None, b'{"id": 2, "at": "y", "gone": true}'), (None, b'{"id": 2, "at": "z", "n": 5}'))
    given = {"stream": str(kept.options["stream"]), "address": str(kept.options["address"])}
    columns = "stream,incarnation,partition,offset,timestamp,value"
    read = spark.readStream.format("bascule").options(**given, columns=columns).load()
    rows = read.selectExpr("*", "from_json(cast(value as string), 'id BIGINT, at STRING, n INT, gone BOOLEAN') AS d")
    frame = rows.selectExpr("stream", "incarnation", "partition", "offset", "timestamp", "d.*")
    options = MergeOptions(path=str(kept.folder / "t"), keys=("id", "at"), delete_when="gone")
    query = start_merge(frame, options, checkpoint=kept.folder / "c", available_now=True)
    assert query.awaitTermination(90)
    found = deltalake.DeltaTable(str(kept.folder / "t")).to_pyarrow_table(columns=["id", "at", "n"]).to_pylist()
    assert sorted(found, key=str) == [{"id": 1, "at": "x", "n": 2}, {"id": 2, "at": "z", "n": 5}]
    other = MergeOptions(path=str(kept.folder / "t"), keys=("id",))
    batch = spark.createDataFrame([("s", 1, 0, 9, datetime.now(tz=UTC), 3, "x", 1, None)], frame.schema)
    with pytest.raises(StateError, match="its keys are id, at, and keys is id"):
        merge_epoch(batch, other, query_id="q", epoch=0)
    with pytest.raises(UsageError, match="the rows have no column gone_by"):
        merge_epoch(batch, MergeOptions(path=other.path, keys=("gone_by",)), query_id="q", epoch=0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"partitionBy": "date"}, "a kept table is not partitioned"),
        ({"onTombstone": "skip"}, "the argument on_tombstone does"),
        ({"key": "offset"}, "key is 'offset': it must be key or subject"),
        ({"columns": "stream,offset"}, "incarnation is missing"),
        ({"maxRows": 1}, "there is no option 'maxRows'"),
    ],
)
def test_wrong_arguments_are_refused(kept: Kept, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        kept.start(**options)


def test_a_table_that_cannot_take_the_rows_is_refused_when_the_query_starts(client: bascule.Client, kept: Kept) -> None:
    put(client, kept, (b"k", b"1"))
    kept.run()
    place: dict[str, Any] = {"to": kept.folder / "table", "checkpoint": kept.folder / "other", "spark": kept.spark}
    for table_format, message in (("delta", "has the latest row of each key"), ("parquet", "the folder contains")):
        with pytest.raises(StateError, match=message):
            bascule.spark.archive(**place, **kept.options, format=table_format)
    archived: dict[str, Any] = {**place, "to": kept.folder / "{stream}"}
    assert bascule.spark.archive(**archived, **kept.options, available_now=True).awaitTermination(90)
    (folder,) = [each for each in kept.folder.iterdir() if each.name.startswith("kept")]
    with pytest.raises(StateError, match="it has every record, not the latest row of each key"):
        kept.start(to=folder, checkpoint="third")
    with pytest.raises(StateError, match="the folder contains"):
        bascule.spark.archive(**archived, **kept.options, format="parquet")
    assert not (kept.folder / "third").exists(), "nothing was started"
