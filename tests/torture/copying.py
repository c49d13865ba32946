"""A stream that Spark copies to another stream and to a table; and the exact comparison of every row.

Every row says where it came from: value `<partition>/<number>`, a key (every 11th has none) and a header with the
number. So a row that is lost, stored twice, changed or out of order is found and named.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from bascule.lake import ArchiveOptions
from pyarrow import flight

SOURCE_PARTITIONS: Final = 2
TARGET_PARTITIONS: Final = 3
ROWS_A_TRIGGER: Final = 400
_CALL_ROWS: Final = 500
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Row(NamedTuple):
    """What is compared of a record."""

    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]

    @property
    def place(self) -> tuple[int, int]:
        """Source partition and number."""
        partition, _, number = self.value.rstrip(b".").partition(b"/")
        return int(partition), int(number)


def row(partition: int, number: int, size: int) -> Row:
    """The record with this number of a source partition; its value has at least `size` bytes."""
    key = None if number % 11 == 0 else b"key-%d" % (number % 7)
    return Row(key, (b"%d/%d" % (partition, number)).ljust(size, b"."), (("n", b"%d" % number),))


@dataclass(frozen=True)
class Copy:
    """Two queries over one stream: one writes to another stream, one to a table.

    Attributes:
        address: of the broker.
        folder: for the checkpoints and the table.
        source: name of the stream that is read.
        target: name of the stream that is written to, and of the sink.
        table_format: `delta`, `iceberg` or `parquet`.
    """

    address: str
    folder: str
    source: str
    target: str
    table_format: str

    @property
    def table(self) -> str:
        """The folder of the table; of an Iceberg table, its name in the catalog."""
        return self.place("table")

    def place(self, name: str) -> str:
        """Where a table is."""
        return f"lake.{name}" if self.table_format == "iceberg" else f"{self.folder}/{name}"

    @property
    def catalog(self) -> dict[str, str]:
        """Options of Spark's queries about the catalog of Iceberg tables."""
        return {"credentials": f"{self.folder}/catalog.json"} if self.table_format == "iceberg" else {}

    def options_of(self, name: str) -> ArchiveOptions:
        """A table for functions of `bascule.lake`."""
        table_format: Any = self.table_format
        return ArchiveOptions(self.place(name), table_format, credentials=self.catalog.get("credentials"))

    def start_sink(self, spark: Any, *, available_now: bool) -> Any:
        """Start the query that writes to the target stream."""
        options = {**self._source(), "columns": "key,value,headers"}
        frame = spark.readStream.format("bascule").options(**options).load()
        writer = frame.writeStream.format("bascule").option("address", self.address).option("stream", self.target)
        writer = writer.option("sinkId", self.target).option("checkpointLocation", f"{self.folder}/sink")
        import_module("bascule.spark").clear_unfinished(spark, f"{self.folder}/sink")
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def start_archive(self, spark: Any, *, available_now: bool) -> Any:
        """Start the query that writes the table."""
        archive: Any = import_module("bascule.spark").archive
        options = {**self._source(), "format": self.table_format, **self.catalog}
        place = {"to": self.table, "checkpoint": f"{self.folder}/archive"}
        return archive(spark, **place, available_now=available_now, **options)

    def _source(self) -> dict[str, str]:
        return {
            "address": self.address,
            "stream": self.source,
            "longPollMs": "100",
            "maxOffsetsPerTrigger": str(ROWS_A_TRIGGER),
        }

    def save(self, path: Path) -> None:
        """Write it to a file, and make its catalog, because processes that make one at once disturb each other."""
        if self.catalog:
            properties = {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db"}
            properties["warehouse"] = f"file://{self.folder}/warehouse-of-tables"
            Path(self.catalog["credentials"]).write_text(json.dumps(properties))
            import_module("bascule.lake.iceberg.catalog").open_catalog(self.options_of("table"))
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Copy:
        """Read it from a file."""
        return cls(**json.loads(path.read_text()))


@dataclass
class Ledger:
    """What was published to the source, by partition, in order."""

    copy: Copy
    rows: list[list[Row]] = field(default_factory=lambda: [[] for _ in range(SOURCE_PARTITIONS)])

    @property
    def count(self) -> int:
        """Number of records published."""
        return sum(map(len, self.rows))

    def publish(self, count: int, size: int = 0) -> None:
        """Publish `count` records to each partition."""
        for partition, known in enumerate(self.rows):
            fresh = [row(partition, number, size) for number in range(len(known), len(known) + count)]
            put(self.copy.address, {"stream": self.copy.source, "partition": partition}, fresh)
            known.extend(fresh)

    def copied(self) -> int:
        """Number of records that the target stream shows now."""
        return sum(len(read(self.copy.address, self.copy.target, number)) for number in range(TARGET_PARTITIONS))

    def archived(self) -> int:
        """Number of rows of the table now."""
        return len(table_rows(self.copy))

    def stream_fault(self) -> str | None:
        """How the target stream differs from what must be there."""
        found = [read(self.copy.address, self.copy.target, number) for number in range(TARGET_PARTITIONS)]
        wanted = Counter(item for rows in self.rows for item in rows)
        return difference(wanted, Counter(item for rows in found for item in rows)) or next(misplaced(found), None)

    def table_fault(self) -> str | None:
        """How the table differs from what must be there."""
        wanted = [
            (partition, offset, item) for partition, rows in enumerate(self.rows) for offset, item in enumerate(rows)
        ]
        return difference(Counter(wanted), Counter(table_rows(self.copy)))


def put(address: str, command: dict[str, Any], rows: list[Row]) -> None:
    """Append records, and wait until all are acknowledged."""
    columns = {
        "key": pa.array([item.key for item in rows], pa.binary()),
        "value": pa.array([item.value for item in rows], pa.binary()),
        "headers": pa.array([[{"key": k, "value": v} for k, v in item.headers] for item in rows], _HEADERS),
    }
    put_batch(address, command, pa.RecordBatch.from_pydict(columns))


def put_batch(address: str, command: dict[str, Any], batch: pa.RecordBatch) -> None:
    """Append the records of a batch, and wait until all are acknowledged."""
    descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
    with flight.FlightClient(f"grpc://{address}") as client:
        writer, reader = client.do_put(descriptor, batch.schema)
        with writer:
            for first in range(0, batch.num_rows, _CALL_ROWS):
                writer.write_batch(batch.slice(first, _CALL_ROWS))
            writer.done_writing()
            while reader.read() is not None:
                pass


def read(address: str, stream: str, partition: int) -> list[Row]:
    """All records of a partition in order; checks that the offsets have no gap."""
    return _rows(read_columns(address, stream, partition, ["offset", "key", "value", "headers"]))


def read_columns(address: str, stream: str, partition: int, columns: list[str]) -> pa.Table:
    """All records of a partition in order, `offset` among the columns; checks that the offsets have no gap."""
    ticket = flight.Ticket(json.dumps({"stream": stream, "partition": partition, "columns": columns}).encode())
    with flight.FlightClient(f"grpc://{address}") as client:
        table = client.do_get(ticket).read_all()
    assert table["offset"].to_pylist() == list(range(table.num_rows)), f"offsets of {stream}/{partition} have gaps"
    return table


def table_rows(copy: Copy) -> list[tuple[int, int, Row]]:
    """(partition, offset, record) of every row of the table; none while there is no table."""
    if (table := read_table(copy, "table")) is None or "offset" not in table.column_names:
        return []
    places = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    return [(*place, item) for place, item in zip(places, _rows(table), strict=True)]


def read_table(copy: Copy, name: str) -> pa.Table | None:
    """All rows of a table, as another reader sees them; None = there is no table."""
    place = copy.place(name)
    if copy.table_format == "iceberg":
        catalog = import_module("bascule.lake.iceberg.catalog").open_catalog(copy.options_of(name))
        return catalog.load_table(place).scan().to_arrow() if catalog.table_exists(place) else None
    if copy.table_format == "delta":
        is_there = Path(place, "_delta_log").exists()
        return import_module("deltalake").DeltaTable(place).to_pyarrow_table() if is_there else None
    if not Path(place).exists():
        return None
    return import_module("pyarrow.dataset").dataset(place, format="parquet", partitioning="hive").to_table()


def _rows(table: Any) -> list[Row]:
    keys, values, headers = (table[name].to_pylist() for name in ("key", "value", "headers"))
    return [
        Row(key, value, tuple((each["key"], each["value"]) for each in given or ()))
        for key, value, given in zip(keys, values, headers, strict=True)
    ]


def difference(wanted: Counter[Any], found: Counter[Any]) -> str | None:
    """What is lost, repeated or invented; the first few of each."""
    if wanted == found:
        return None
    lost, surplus = wanted - found, found - wanted
    invented = Counter({item: count for item, count in surplus.items() if item not in wanted})
    repeated = surplus - invented
    parts = {"lost": lost, "repeated": repeated, "invented": invented}
    return ", ".join(f"{each.total()} {what} {_first(each)}" for what, each in parts.items() if each)


def _first(found: Counter[Any]) -> str:
    return ", ".join(repr(item)[:120] for item in list(found)[:3])


def misplaced(found: list[list[Row]]) -> Iterator[str]:
    """Records in another partition than that of their key, and records of one source partition out of order."""
    for number, rows in enumerate(found):
        last = dict.fromkeys(range(SOURCE_PARTITIONS), -1)
        for item in rows:
            if item.key is not None and zlib.crc32(item.key) % TARGET_PARTITIONS != number:
                yield f"{item.place} with key {item.key!r} is in partition {number}"
            partition, place = item.place
            if place < last[partition]:
                yield f"partition {number} has record {place} of source partition {partition} after {last[partition]}"
            last[partition] = place
