"""Streaming reads of an archive and the broker: the seam, restarts, retention that passes the reader."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bascule.errors import BrokerError, CorruptionError, UsageError
from bascule.spark.batch import RangesPartition
from bascule.spark.stream import BasculeStreamReader
from harness import Streams
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType
from tiered import ALL, DAMAGES, FORMATS, Tiers, expected, filled, values

from tests.unit.lake.query import data_files

pytestmark = pytest.mark.spark

COLUMNS = ("partition", "offset", "value")
SCHEMA = StructType(
    [
        StructField("partition", IntegerType(), False),
        StructField("offset", LongType(), False),
        StructField("value", BinaryType(), True),
    ]
)
Rows = list[tuple[int, int, bytes]]


@pytest.fixture(params=FORMATS)
def tiers(request: pytest.FixtureRequest, streams: Streams, tmp_path: Path) -> Tiers:
    return filled(streams, tmp_path, request.param)


class Query:
    """A streaming query as Spark runs it: documents are passed as JSON text, and each run has a new reader."""

    def __init__(self, tiers: Tiers, batch: int = 10_000, **options: Any) -> None:
        self._tiers = tiers
        self.options = {"columns": ",".join(COLUMNS), "longPollMs": 50, "maxOffsetsPerTrigger": batch, **options}
        self._limit = ReadMaxRows(batch)
        self.restart()
        self.documents = [json.dumps(self.reader.initialOffset())]

    def restart(self) -> None:
        self.reader = BasculeStreamReader(self._tiers.options(**self.options), SCHEMA)

    def plan(self) -> bool:
        """Plan the next micro-batch; whether there is one."""
        end = json.dumps(self.reader.latestOffset(json.loads(self.documents[-1]), self._limit))
        if end == self.documents[-1]:
            return False
        self.documents.append(end)
        return True

    def next(self) -> int:
        """The next offset of partition 0."""
        return json.loads(self.documents[-1])["streams"]["s"]["0"]["next"]

    def tasks(self, number: int = -1) -> list[RangesPartition]:
        """The tasks of a micro-batch; the first one is 1."""
        number %= len(self.documents)
        start, end = (json.loads(each) for each in self.documents[number - 1 : number + 1])
        return [task for task in self.reader.partitions(start, end) if isinstance(task, RangesPartition)]

    def read(self, number: int = -1) -> Rows:
        """The records of a micro-batch, in the order of its tasks."""
        return self.rows(self.tasks(number))

    def rows(self, tasks: list[RangesPartition]) -> Rows:
        batches = [batch for task in tasks for batch in self.reader.read(task)]
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    def run(self) -> Rows:
        """All micro-batches until there are no new records."""
        found: Rows = []
        for _ in range(100):
            if not self.plan():
                return sorted(found)
            found += self.read()
        raise AssertionError(f"the query does not become idle: {self.documents[-1]}")


def is_archived(task: RangesPartition) -> list[bool]:
    return [each.files is not None for each in task.ranges]


@pytest.mark.parametrize("batch", [10_000, 170, 100])
def test_a_query_begins_in_the_archive_and_goes_over_to_the_broker(tiers: Tiers, batch: int) -> None:
    tiers.retain(250)
    query = Query(tiers, batch)
    assert query.run() == ALL
    tiers.streams.put("s", values(0, 1000, 1010))
    assert query.run() == expected((0, 1000, 1010))
    assert is_archived(query.tasks()[0]) == [False]
    query.restart()
    assert query.run() == []


def test_each_micro_batch_is_repeated_as_it_was_from_another_tier(tiers: Tiers) -> None:
    query = Query(tiers, 130, maxRecordsPerPartition=40)
    found: list[tuple[Rows, list[list[tuple[int, int]]]]] = []
    while query.plan():
        found.append((query.read(), [spans(task) for task in query.tasks()]))
    assert sorted(row for rows, _ in found for row in rows) == ALL
    tiers.archive_all()
    tiers.retain(100)
    for number, (rows, tasks) in enumerate(found, 1):
        query.restart()
        assert query.read(number) == rows
        assert [spans(task) for task in query.tasks(number)] == tasks


def spans(task: RangesPartition) -> list[tuple[int, int]]:
    """The offsets of a task by partition, whichever tier they come from."""
    found: dict[int, tuple[int, int]] = {}
    for each in task.ranges:
        start, end = found.get(each.partition, (each.start, each.start))
        assert end == each.start, "the parts of a range follow each other"
        found[each.partition] = (start, each.end)
    return list(found.values())


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_archive_serves_a_reader_that_retention_has_passed(tiers: Tiers, is_restarted: bool) -> None:
    query = Query(tiers, 850)
    assert query.plan()
    found = query.read()
    tiers.archive_all()
    tiers.streams.put("s", values(0, 1000, 1300))
    assert query.next() < tiers.retain(350) <= 1000
    if is_restarted:
        query.restart()
    assert sorted(found + query.run()) == expected((0, 0, 1300), (1, 0, 30))


def test_a_gap_between_the_tiers_ends_the_query_or_is_skipped(tiers: Tiers) -> None:
    failing, skipping, later = Query(tiers), Query(tiers), Query(tiers, 900)
    tiers.streams.put("s", values(0, 1000, 1300))
    assert later.plan()
    read = later.read()
    mark, start = later.next(), tiers.retain(150)
    assert 800 < mark < start
    with pytest.raises(BrokerError, match=f"offset 800 is below the log start offset {start}"):
        failing.run()
    skipping.options["onDataLoss"] = "skip"
    skipping.restart()
    assert skipping.run() == expected((0, 0, 800), (0, start, 1300), (1, 0, 30))
    with pytest.raises(BrokerError, match=f"offset {mark} is below the log start offset {start}") as refusal:
        later.plan()
    assert refusal.value.code == "offset_out_of_range"
    later.options["onDataLoss"] = "skip"
    later.restart()
    assert sorted(read + later.run()) == expected((0, 0, mark), (0, start, 1300), (1, 0, 30))


def test_a_query_at_the_end_of_its_streams_asks_the_archive_nothing(tiers: Tiers, tmp_path: Path) -> None:
    query = Query(tiers)
    assert query.run() == ALL
    (tmp_path / "lake").rename(tmp_path / "elsewhere")
    tiers.streams.put("s", values(0, 1000, 1100))
    assert query.run() == expected((0, 1000, 1100))


def test_the_archive_alone_is_followed_while_it_grows(tiers: Tiers) -> None:
    query = Query(tiers, tier="archive")
    assert query.run() == expected((0, 0, 800), (1, 0, 30))
    before = tiers.streams.calls().get("DoGet", 0)
    tiers.archive_all()
    assert query.run() == expected((0, 800, 1000))
    tiers.streams.put("s", values(1, 30, 40), 1)
    assert query.run() == []
    query.restart()
    read = tiers.streams.calls().get("DoGet", 0)
    tiers.archive_all()
    archiving = tiers.streams.calls().get("DoGet", 0) - read
    assert query.run() == expected((1, 30, 40))
    assert archiving > 0
    assert tiers.streams.calls().get("DoGet", 0) == read + archiving
    assert before <= read


def test_an_archive_of_another_log_ends_the_query(tiers: Tiers, tmp_path: Path) -> None:
    tiers.streams.save(tmp_path / "copy")
    tiers.streams.put("s", values(0, 1000, 1100))
    tiers.archive_all()
    tiers.streams.put_back(tmp_path / "copy")
    for data_loss in ("fail", "skip"):
        with pytest.raises(BrokerError, match="up to offset 1100, which is beyond the high watermark 1000") as refusal:
            Query(tiers, onDataLoss=data_loss)
        assert refusal.value.code == "history_changed"
    tiers.streams.put("s", [b"other"] * 150)
    for batch in (10_000, 1100):  # joined within a micro-batch, and between two
        query = Query(tiers, batch)
        with pytest.raises(BrokerError, match="the archive's record 1099 was received") as refusal:
            query.run()
        assert refusal.value.code == "history_changed"


def test_a_table_that_lost_its_end_is_named(streams: Streams, tmp_path: Path) -> None:
    tiers = filled(streams, tmp_path, "delta")
    query = Query(tiers, tier="archive")
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    tiers.archive_all()
    assert query.run() == expected((0, 0, 1000), (1, 0, 30))
    shutil.rmtree(tmp_path / "lake")
    (tmp_path / "copy").rename(tmp_path / "lake")
    query.restart()
    with pytest.raises(BrokerError, match="beyond the end 800 of its archive: the table was rolled back"):
        query.run()
    with pytest.raises(BrokerError, match=r"the archive has \[0, 800\): the table was rolled back") as refusal:
        query.read(1)
    assert refusal.value.code == "offset_out_of_range"


def test_a_table_that_is_not_there_is_named(tiers: Tiers) -> None:
    missing = "lake.other" if tiers.archive.table_format == "iceberg" else f"{tiers.archive.path}-other"
    with pytest.raises(UsageError, match="archivePath names the archive of s"):
        Query(tiers, archivePath=missing)


def test_a_partition_that_appears_is_read_from_its_first_record(tiers: Tiers) -> None:
    query = Query(tiers)
    assert query.run() == ALL
    tiers.streams.create("s", 3)
    tiers.streams.put("s", values(2, 0, 5), 2)
    assert query.run() == expected((2, 0, 5))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_missing_or_damaged_ends_the_query_or_is_skipped(
    tiers: Tiers, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    tiers.archive_all()
    newest = max(data_files(tmp_path / "lake"), key=lambda path: path.stat().st_mtime)
    content = newest.read_bytes()
    failing = Query(tiers, 500)
    assert failing.plan()
    found = failing.read()
    damage(newest)
    tiers.streams.put("s", values(0, 1000, 1100))
    assert failing.plan()
    for _ in range(2):
        failing.restart()
        with pytest.raises(CorruptionError, match=newest.name) as refusal:
            failing.read()
        assert refusal.value.code == "damaged"
    skipping = Query(tiers, onDataLoss="skip")
    assert skipping.run() == expected((0, 0, 800), (0, 1000, 1100), (1, 0, 30))
    newest.write_bytes(content)
    failing.restart()
    assert sorted([*found, *failing.read(), *failing.run()]) == expected((0, 0, 1100), (1, 0, 30))


def test_times_bound_a_query_in_the_archive_and_across_the_seam(tiers: Tiers) -> None:
    times = tiers.times()
    tiers.retain(150)
    for first, end in ((0, 200), (300, 700), (600, 900), (900, 1000)):
        bounds = (times[0, first], times[0, min(end, 999)])
        wanted = [row for row in ALL if bounds[0] <= times[row[:2]] < bounds[1]]
        query = Query(tiers, 130, startingTimestamp=bounds[0].isoformat(), endingTimestamp=bounds[1].isoformat())
        assert query.run() == wanted
        query.restart()
        assert query.run() == []


def test_a_subject_filter_leaves_out_records_of_both_tiers(tiers: Tiers) -> None:
    query = Query(tiers, subject="s.1")
    assert query.run() == expected((1, 0, 30))


def test_spark_reads_each_record_once_across_the_seam(tiers: Tiers, spark: Any, tmp_path: Path) -> None:
    tiers.retain(250)
    given = {"columns": "partition,offset,value", "maxOffsetsPerTrigger": 300, **tiers.place}
    reader = spark.readStream.format("bascule").option("address", tiers.streams.address).option("stream", "s")
    frame = reader.options(**given).load()
    checkpoint, output = tmp_path / "checkpoint", str(tmp_path / "output")

    def run() -> None:
        writer = frame.writeStream.format("parquet").option("path", output)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(90), "the run did not end"

    def rows() -> Rows:
        found = spark.read.parquet(output).collect()
        return sorted((row.partition, row.offset, bytes(row.value)) for row in found)

    run()
    assert rows() == ALL
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    tiers.archive_all()
    tiers.streams.put("s", values(0, 1000, 1200))
    tiers.retain(250)
    run()
    assert rows() == expected((0, 0, 1200), (1, 0, 30))


LOSS: dict[str, Any] = {"tier": "broker", "onDataLoss": "archive"}


def test_records_that_are_removed_before_their_tasks_run_come_from_the_archive(tiers: Tiers) -> None:
    query = Query(tiers, **LOSS)
    assert query.plan()
    tasks = query.tasks()
    assert not any(any(is_archived(task)) for task in tasks)
    assert 0 < tiers.retain(250) <= 800
    assert sorted(query.rows(tasks)) == ALL
    query.restart()
    assert any(any(is_archived(task)) for task in query.tasks()), "the next run plans it otherwise"
    assert sorted(query.read()) == ALL


def test_a_query_of_the_broker_continues_in_the_archive_after_retention_passed_it(tiers: Tiers) -> None:
    query = Query(tiers, 500, **LOSS)
    assert query.plan()
    found = query.read()
    assert query.next() < tiers.retain(250) <= 800
    assert sorted(found + query.run()) == ALL
    begins = Query(tiers, **LOSS)
    start = tiers.streams.position("s")[0]
    assert begins.run() == expected((0, start, 1000), (1, 0, 30)), "the first record of the broker"


def test_records_that_neither_tier_has_end_the_query(tiers: Tiers) -> None:
    tiers.streams.put("s", values(0, 1000, 1300))
    planned, later = Query(tiers, **LOSS), Query(tiers, 900, **LOSS)
    assert planned.plan()
    tasks = planned.tasks()
    assert later.plan()
    later.read()
    assert 800 < later.next() < tiers.retain(150)
    for read in (lambda: planned.rows(tasks), planned.read, later.run):
        with pytest.raises(BrokerError, match="is below the log start offset") as refusal:
            read()
        assert refusal.value.code == "offset_out_of_range"
