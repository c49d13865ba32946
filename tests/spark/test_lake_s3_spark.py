"""Lakes in S3 with real Spark and a real broker: a streaming archive, tiered reads, a replay, and kept tables."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import bascule.spark
import pytest
from bascule.client import StreamOptions
from bascule.lake import ArchiveOptions, compact
from bascule.lake.options import TableFormat
from bascule.testing import TestBroker as Broker
from buckets import SECRET, Bucketed
from lakes import ONE_FORMAT

from tests.torture.copying import put_batch

pytestmark = [pytest.mark.spark]

pa: Any = import_module("pyarrow")
PARTITIONS = 2
Rows = list[tuple[int, int, bytes | None, bytes | None]]
"""(partition, offset, key, value)."""


class Lake:
    """A stream, and the options of a table in the bucket."""

    def __init__(self, spark: Any, broker: Broker, options: ArchiveOptions, stream: str, folder: Path) -> None:
        self.spark, self.broker, self.options, self.stream, self.folder = spark, broker, options, stream, folder
        self.rows: Rows = []
        with broker.connect() as client:
            client.create_stream(stream, options=StreamOptions(partitions=PARTITIONS))

    @property
    def place(self) -> dict[str, Any]:
        """Options of the table."""
        options = {"format": self.options.table_format, "credentials": self.options.credentials}
        return options | ({"endpoint": self.options.endpoint} if self.options.endpoint else {})

    def put(self, partition: int, *changes: tuple[bytes | None, bytes | None]) -> None:
        """Append records with these keys and values."""
        first = sum(row[0] == partition for row in self.rows)
        keys, values = zip(*changes, strict=True)
        columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
        command = {"stream": self.stream, "partition": partition}
        put_batch(self.broker.address, command, pa.RecordBatch.from_pydict(columns))
        self.rows += [(partition, first + number, *change) for number, change in enumerate(changes)]
        self.rows.sort(key=lambda row: row[:2])

    def fill(self, count: int) -> None:
        """Append `count` records to each partition; each key is in one partition."""
        for partition in range(PARTITIONS):
            first = sum(row[0] == partition for row in self.rows)
            numbers = range(first, first + count)
            changes = ((b"%d-%d" % (partition, number % 7), b"%d/%d" % (partition, number)) for number in numbers)
            self.put(partition, *changes)

    def tiered(self, reader: Any, **more: Any) -> Any:
        """A read of the archive and the broker."""
        named = {f"archive{name.capitalize()}": value for name, value in self.place.items()}
        options = {"address": self.broker.address, "stream": self.stream, "archivePath": self.options.path}
        return reader.format("bascule").options(**options, **named, **more).load()

    def check_secrets(self) -> None:
        """No checkpoint has them."""
        folders = [path for path in self.folder.iterdir() if (path / "commits").exists()]
        assert folders
        for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
            assert SECRET.encode() not in path.read_bytes(), path


def collected(frame: Any) -> Rows:
    """The records of a frame, in order."""
    rows = frame.select("partition", "offset", "key", "value").collect()
    return sorted(((row[0], row[1], _plain(row[2]), _plain(row[3])) for row in rows), key=lambda row: row[:2])


def _plain(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def seen(bucket: Bucketed, options: ArchiveOptions) -> Rows:
    """What a stranger's reader sees of an archive."""
    found = [(row["partition"], row["offset"], row["key"], row["value"]) for row in bucket.read(options)]
    return sorted(found, key=lambda row: row[:2])


@pytest.mark.parametrize("table_format", ONE_FORMAT)
def test_a_stream_is_archived_read_from_both_tiers_and_replayed(
    spark: Any, broker: Broker, bucket: Bucketed, tmp_path: Path, table_format: TableFormat
) -> None:
    stream = f"archived-{table_format}-{uuid4().hex}"
    lake = Lake(spark, broker, bucket.options(table_format, stream), stream, tmp_path)
    source = {"stream": stream, "address": broker.address, "longPollMs": 100, "maxOffsetsPerTrigger": 90}
    query = bascule.spark.archive(
        spark, to=lake.options.path, checkpoint=str(tmp_path / "archive"), **source, **lake.place
    )
    try:
        for _ in range(3):
            lake.fill(60)
            query.processAllAvailable()
    finally:
        query.stop()
    archived = list(lake.rows)
    assert seen(bucket, lake.options) == archived
    lake.fill(40)
    if table_format != "parquet":
        check_tiers(lake, archived)
        assert compact(lake.options)["numFilesRemoved"] > 1
        check_tiers(lake, archived)
    with broker.connect() as client:
        client.create_stream(f"{stream}-again", options=StreamOptions(partitions=PARTITIONS))
    done = bascule.spark.replay(
        spark,
        archive=lake.options.path,
        to=f"{stream}-again",
        id=f"{stream}-again",
        checkpoint=str(tmp_path / "replay"),
        address=broker.address,
        leaveOut="reply,id",
        maxRowsPerEpoch=100,
        **lake.place,
    )
    assert done.rows == len(archived)
    again = spark.read.format("bascule").options(address=broker.address, stream=f"{stream}-again").load()
    assert collected(again) == archived
    lake.check_secrets()


def check_tiers(lake: Lake, archived: Rows) -> None:
    """Batch reads and a streaming one, each record once."""
    assert collected(lake.tiered(lake.spark.read)) == lake.rows
    assert collected(lake.tiered(lake.spark.read, tier="archive")) == archived
    starting = json.dumps({lake.stream: {"0": 170, "1": 190}})
    middle = collected(lake.tiered(lake.spark.read, startingOffsets=starting))
    assert middle == [row for row in lake.rows if row[1] >= (170 if row[0] == 0 else 190)]
    name = lake.stream.replace("-", "_")
    writer = lake.tiered(lake.spark.readStream, maxOffsetsPerTrigger="130").writeStream.format("memory")
    writer = writer.queryName(name).trigger(availableNow=True).outputMode("append")
    query = writer.option("checkpointLocation", str(lake.folder / f"tiered-{len(list(lake.folder.iterdir()))}")).start()
    assert query.awaitTermination(120), "the run did not end"
    assert collected(lake.spark.table(name)) == lake.rows
    assert len(query.recentProgress) > 2


@pytest.mark.parametrize(
    ("table_format", "history"),
    [pytest.param("delta", False, marks=pytest.mark.long), ("delta", True), ("iceberg", False)],
)
def test_a_table_of_the_latest_records_is_kept(
    spark: Any, broker: Broker, bucket: Bucketed, tmp_path: Path, table_format: TableFormat, *, history: bool
) -> None:
    stream = f"kept-{uuid4().hex}"
    lake = Lake(spark, broker, bucket.options(table_format, stream), stream, tmp_path)
    versions = {"history": True} if history else {}

    def run() -> None:
        query = bascule.spark.keep_table(
            spark,
            to=lake.options.path,
            checkpoint=tmp_path / "kept",
            stream=stream,
            address=broker.address,
            maxOffsetsPerTrigger=30,
            available_now=True,
            **versions,
            **lake.place,
        )
        assert query.awaitTermination(120), "the run did not end"

    lake.fill(40)
    run()
    lake.put(0, (b"0-0", None), (b"0-1", b"new"), (b"0-last", b"here"))
    lake.put(1, (b"1-2", b"other"), (b"1-2", None), (b"1-3", b""))
    run()
    newest = max((tmp_path / "kept" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    run()
    rows = bucket.read(lake.options)
    current = [(row["key"], row["value"]) for row in rows if row.get("is_current", True)]
    latest = {key: value for _, _, key, value in lake.rows}
    assert sorted(current) == sorted((key, value) for key, value in latest.items() if value is not None)
    if history:
        assert len(rows) == sum(value is not None for *_, value in lake.rows), "each record is a version"
        assert all((row["valid_to"] is None) is row["is_current"] for row in rows)
    lake.check_secrets()
