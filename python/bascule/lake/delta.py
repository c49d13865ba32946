"""Delta tables: one commit for each epoch, which also records the epoch and the offsets that the table covers.

They are recorded as application transactions, a part of the commit that checkpoints, compaction and vacuum keep:

| `appId` | `version` |
|---|---|
| `bascule/epoch/<query>/<target>` | last epoch of a writer |
| `bascule/run/…`, `bascule/token/…` | numbers that stand for its run and its attempt |
| `bascule/rows/…`, `bascule/offsets/…` | its rows; number that stands for the checkpoint's offsets, 0 = not known |
| `bascule/complete/…` | 1, if its rows are all records of its range |
| `bascule/writer/<target>` | number of the query or the batch job that used a target name last |
| `bascule/first/<stream>/<incarnation>/<partition>` | first covered offset |
| `bascule/end/…`, `bascule/by/…` | end of the covered offsets, exclusive; number of the writer |
| `bascule/written` | 1, if a query or a job has written to the table |
| `bascule/erased` | 1, if rows were erased by key from any partition |
| `bascule/erased/<stream>/<incarnation>/<partition>` | number of rows that were erased by key |
| `bascule/erased-first/…`, `bascule/erased-end/…` | least offset of these, and the offset after the greatest one |

A commit on a snapshot that another commit with one of these has overtaken is refused by Delta itself.
"""

import json
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from importlib import import_module
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from bascule.errors import StateError
from bascule.lake.archived import ArchivedFile, Pinned
from bascule.lake.commit_record import TABLE
from bascule.lake.credentials import storage_options
from bascule.lake.delta_syncing import OF_A_DEAD_RUN, sync_versions
from bascule.lake.epochs import Append, Epoch, Recorded, TableState
from bascule.lake.files import ORDER, OWN_FILE, DataFile
from bascule.lake.matching import NOT_MERGED, KeyFilter, Match, check_pages
from bascule.lake.mismatch import another_table, check_holds, difference
from bascule.lake.options import ArchiveOptions, codec_of, partition_column
from bascule.lake.plans import FilePlan, hive_plan
from bascule.lake.ranges import Covered, Erased, Source
from bascule.lake.storage import LocalFolder, check_conditional_put, open_storage
from bascule.spark.spelling import spelled

CONFIGURATION: Final = {"delta.enableDeletionVectors": "false"}
"""Configuration of tables that are created here."""
FORGETS_EPOCHS: Final = "delta.setTransactionRetentionDuration"
"""A property of tables that forget what they record about epochs."""
REFUSES_ERASURE: Final = {
    "delta.appendOnly": "so that no row can be deleted",
    "delta.enableChangeDataFeed": "so that deleted rows are written to _change_data",
}
"""Properties of tables that records cannot be erased from."""
ERASED: Final = ("erased", "erased-first", "erased-end")
"""Application transactions about erased rows, in the order of `Erased`."""
ANY_ERASED: Final = "bascule/erased"
"""The application transaction of a table that rows were erased from."""
_WRITTEN: Final = "bascule/written"
ICEBERG_METADATA: Final = ".metadata.json"
"""How names of files of an Iceberg table end that say what it is."""
_DATA_FILE: Final = re.compile(
    rf"{OWN_FILE}|part-\d{{5}}-[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}-c\d{{3}}(\.\w+)?\.parquet"
)
"""Names of the files that queries write, and that deltalake's compaction does."""
_RECORDED: Final = tuple(field.name for field in fields(Recorded))
_SHAPE_ONLY: Final = frozenset({"nullable", "containsNull", "valueContainsNull", "metadata"})


class DeltaTarget:
    """A Delta table as a target of queries. See `bascule.lake.lake_table.LakeTable`."""

    holds = "records"
    """What a row of the table is: one record, or the latest of a key."""

    def __init__(self, path: str, options: ArchiveOptions) -> None:
        self.storage = open_storage(path, options)
        self.uri = self.storage.uri
        self._options = options
        self._delta: Any = import_deltalake()
        self._secrets = storage_options(options) if path.startswith("s3://") else None
        self._table: Any = None
        self._synced: int | None = None

    def open(self) -> Any:
        """The table, at its newest version. The same object each time, which moves to that version.

        Raises:
            TableNotFoundError: of deltalake, when there is none.
        """
        if self._table is None:
            self._table = self._delta.DeltaTable(self.storage.uri, storage_options=self._secrets)
        else:
            self._table.update_incremental()
        return self._table

    def exists(self) -> bool:
        """Whether there is a table."""
        return bool(self._delta.DeltaTable.is_deltatable(self.storage.uri, storage_options=self._secrets))

    def prepare(self, schema: Any) -> None:
        """Create the table if it is missing, and compare its columns and partitioning."""
        try:
            table = self.open()
        except self._delta.exceptions.TableNotFoundError:
            self._create(schema)
            table = self.open()
        self.check(table, schema)

    def compare(self, schema: Any) -> None:
        """Compare the table, if it is there."""
        try:
            table = self.open()
        except self._delta.exceptions.TableNotFoundError:
            self._check_place()
            return
        if schema is None:
            self.check_rows(table)
        else:
            self.check(table, schema)

    def check(self, table: Any, schema: Any) -> None:
        """Compare a table with the rows.

        Raises:
            StateError: it has other columns, is partitioned otherwise, or needs what this writer cannot give.
        """
        self.check_rows(table)
        wanted, there = _columns(self._schema(schema)), _columns(table.schema())
        if wanted != there:
            raise another_table(self.storage.uri, difference(wanted, there, can_evolve=True))
        fields = [partition_column(field) for field in self._options.partition_by]
        metadata = table.metadata()
        if list(metadata.partition_columns) != fields:
            found = ", ".join(metadata.partition_columns) or "none"
            raise another_table(
                self.storage.uri, f"it is partitioned by {found}, and {spelled('partitionBy')} is {fields or 'none'}"
            )
        for name, value in metadata.configuration.items():
            is_mapped = name == "delta.columnMapping.mode" and value != "none"
            if is_mapped or name == FORGETS_EPOCHS or name.startswith("delta.constraints."):
                raise another_table(self.storage.uri, f"it has {name} = {value}, which this sink does not support")

    def description(self) -> str | None:
        """Description of a table that is created here: JSON, if its rows are not the records of streams."""
        return None

    def check_rows(self, table: Any) -> None:
        """Compare what a row of the table is.

        Raises:
            StateError: it keeps the latest row of each key, and this one wants records, or the like.
        """
        check_holds(self.storage.uri, described(table).get("holds", "records"), self.holds)

    def snapshot(self, epoch: Epoch) -> tuple[TableState, Any]:
        """What the newest version says about an epoch, and the opened table."""
        table = self.open()
        writer = str(epoch.writer)
        numbers = [table.transaction_version(f"bascule/{each}/{writer}") for each in _RECORDED]
        last = None if numbers[0] is None else Recorded(*(int(number or 0) for number in numbers))
        target = table.transaction_version(f"bascule/writer/{epoch.writer.target}")
        covered = _covered(table, epoch.ranges or {})
        is_known = last is not None or target is not None or bool(covered)
        return TableState(last, target, covered, is_foreign=not is_known and _is_foreign(table)), table

    def append(self, handle: Any, decision: Append, epoch: Epoch, files: Sequence[DataFile]) -> bool:
        """Commit against an opened table."""
        transaction: Any = import_module("deltalake.transaction")
        try:
            handle.create_write_transaction(
                [_add(transaction, each) for each in files],
                "append",
                handle.schema(),
                partition_by=[partition_column(field) for field in self._options.partition_by],
                commit_properties=self.properties(decision, epoch),
            )
        except self._delta.exceptions.CommitFailedError:
            return False
        return True

    def properties(self, decision: Append, epoch: Epoch) -> Any:
        """Properties of the commit of an epoch: it records the epoch, and is tried once."""
        transaction: Any = import_module("deltalake.transaction")
        numbers = _transactions_of(decision, epoch)
        return transaction.CommitProperties(
            custom_metadata={"bascule": _description_of(epoch)},
            max_commit_retries=0,
            app_transactions=[self._delta.Transaction(name, version) for name, version in numbers.items()],
        )

    def finish(self) -> None:
        """Make the versions of a local table since the last call durable, which deltalake does not.

        Raises:
            CorruptionError: a power cut has lost a file of one of them.
        """
        if not isinstance(self.storage, LocalFolder):
            return
        newest, synced = int(self.open().version()), self._synced
        if synced is None or synced > newest:  # the table was made again
            synced = max(newest - OF_A_DEAD_RUN, -1)
        sync_versions(self.storage, synced + 1, newest)
        self._synced = newest

    def columns(self) -> Any:
        """Arrow schema of the newest version."""
        return import_module("pyarrow").schema(self.open().schema().to_arrow())

    def add_columns(self, schema: Any) -> None:
        """Add columns."""
        self.open().alter.add_columns(self._schema(schema).fields)

    def plan(self, schema: Any, token: str) -> FilePlan:  # noqa: ARG002 - files are written where they stay
        """The plan of files that stay where they are: readers know them by the table's log."""
        return hive_plan(self.storage, self._options, schema)

    def covered(self, sources: Iterable[Source]) -> dict[Source, Covered]:
        """The offsets that the newest version covers."""
        return _covered(self.open(), sources)

    def found(self, sources: Iterable[Source]) -> Pinned | None:
        """The newest version; None = there is no table."""
        return self.pinned(sources) if self.exists() else None

    def pinned(self, sources: Iterable[Source]) -> Pinned:
        """The newest version, from its log alone."""
        table = self.open()
        self.check_rows(table)
        if "deletionVectors" in (table.protocol().reader_features or ()):
            raise another_table(self.uri, "it has deletion vectors, which reads of an archive do not apply")
        pa: Any = import_module("pyarrow")
        columns = pa.schema(table.schema().to_arrow())
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        partitions = [field.name for field in columns if field.name in _partition_columns(table)]
        files = tuple(_archived(each, partitions) for each in actions)
        wanted = list(sources)
        # A transaction that is not there is searched in the whole log.
        is_erased = table.transaction_version(ANY_ERASED) is not None
        erased = {source: found for source in wanted if is_erased and (found := erased_by(table, source)) is not None}
        return Pinned(frozenset(columns.names), _covered(table, wanted), files, erased=erased)

    def compact(self) -> dict[str, Any]:
        """Merge small files; the figures are those of deltalake, which compares no checksums: that is done before.

        Raises:
            CorruptionError: a file is missing, or a page of it fails its checksum.
        """
        properties = self.writer_properties()
        size = self._options.file_bytes
        self.finish()
        for file in self._small_files(size):
            check_pages(self.storage, file, NOT_MERGED)
        figures = dict(self.open().optimize.compact(target_size=size, writer_properties=properties))
        self.finish()
        return figures

    def _small_files(self, file_bytes: int) -> list[ArchivedFile]:
        """The files below a size, where a partition of the table has several: those that are merged."""
        pa: Any = import_module("pyarrow")
        names = _partition_columns(self.open())
        by_partition: dict[tuple[Any, ...], list[ArchivedFile]] = {}
        for each in pa.table(self.open().get_add_actions(flatten=True)).to_pylist():
            if each["size_bytes"] < file_bytes:
                place = tuple(each.get(f"partition.{name}") for name in names)
                by_partition.setdefault(place, []).append(_archived(each, names))
        return [file for files in by_partition.values() if len(files) > 1 for file in files]

    def writer_properties(self) -> Any:
        """How deltalake writes data files of the table."""
        codec, level = codec_of(self._options.compression)
        return self._delta.WriterProperties(
            compression="UNCOMPRESSED" if codec == "none" else "LZ4_RAW" if codec == "lz4" else codec.upper(),
            compression_level=level,
        )

    def opened(self) -> tuple[Any, Pinned]:
        """The opened table, and the files of its version."""
        pinned = self.pinned([])
        return self._table, pinned

    def check_erasable(self) -> None:
        """Refuse a table that refuses deletions, or that keeps what was deleted for readers of changes; finish it."""
        for name, what in REFUSES_ERASURE.items():
            if self.open().metadata().configuration.get(name, "false").lower() == "true":
                raise StateError(
                    "failed_precondition",
                    f"{self.uri} has {name} = true, {what}: set it to false, erase, and set it again",
                    {"table": self.uri},
                )
        self.finish()

    def erase(self, handle: Any, wanted: KeyFilter, matches: Sequence[Match]) -> Mapping[Source, Erased] | None:
        """Delete rows of one source by their offsets, in a commit of deltalake."""
        from bascule.lake.delta_erasing import erase  # noqa: PLC0415 - it needs this module

        return erase(self, handle, wanted, matches)

    def vacuum(self, retention_hours: float, *, dry_run: bool) -> list[str]:
        """Delete data files of this table that no version younger than `retention_hours` has; no other files."""
        table = self.open()
        hours = math.ceil(retention_hours)
        # A real run of `full` would delete whatever else is in the folder, and tables in folders below it.
        unused = table.vacuum(retention_hours=hours, dry_run=True, enforce_retention_duration=False, full=True)
        columns = _partition_columns(table)
        found = sorted(name for name in map(str, unused) if is_data_file(name, columns))
        if not dry_run:
            self.storage.delete(found)
        return found

    def _check_place(self) -> None:
        """Refuse a folder with a table of another format."""
        if self.storage.read(TABLE) is not None:
            raise another_table(self.storage.uri, "the folder contains a Parquet table")
        if any(name.endswith(ICEBERG_METADATA) for name, _ in self.storage.entries("metadata")):
            raise another_table(self.storage.uri, "the folder contains an Iceberg table")

    def _create(self, schema: Any) -> None:
        self._check_place()
        check_conditional_put(self.storage)
        self.storage.anchor()
        try:
            self._delta.DeltaTable.create(
                self.storage.uri,
                self._schema(schema),
                partition_by=[partition_column(field) for field in self._options.partition_by],
                configuration=dict(CONFIGURATION),
                description=self.description(),
                storage_options=self._secrets,
            )
        except self._delta.exceptions.DeltaError:
            if not self.exists():  # another writer may have created it
                raise

    def _schema(self, schema: Any) -> Any:
        pa: Any = import_module("pyarrow")
        nullable = pa.schema([field.with_nullable(True) for field in schema])
        try:
            return self._delta.Schema.from_arrow(nullable)
        except Exception as cause:
            raise another_table(self.storage.uri, f"Delta cannot hold these columns: {cause}") from cause


def _covered(table: Any, sources: Iterable[Source]) -> dict[Source, Covered]:
    """The offsets that an opened table covers."""
    return {source: found for source in sources if (found := _covered_by(table, source)) is not None}


def _is_foreign(table: Any) -> bool:
    """Whether an opened table has rows, and no commit that records an epoch."""
    if table.transaction_version(_WRITTEN) is not None or not table.file_uris():
        return False
    return not any("bascule" in commit for commit in table.history())  # earlier versions wrote no such transaction


def _covered_by(table: Any, source: Source) -> Covered | None:
    name = source_name(source)
    end = table.transaction_version(f"bascule/end/{name}")
    if end is None:
        return None
    first, by = (table.transaction_version(f"bascule/{each}/{name}") for each in ("first", "by"))
    return Covered(int(first), int(end), int(by))


def erased_by(table: Any, source: Source) -> Erased | None:
    """What was erased by key from an opened table; None = nothing."""
    name = source_name(source)
    numbers = [table.transaction_version(f"bascule/{each}/{name}") for each in ERASED]
    return None if numbers[0] is None else Erased(*(int(number) for number in numbers))


def is_data_file(name: str, partition_columns: Sequence[str]) -> bool:
    """Whether a file has the place and the name of a data file, of this archive's queries or of deltalake's compaction.

    Args:
        name: relative to the table.
        partition_columns: of the table, in order.
    """
    *folders, file = name.split("/")
    if len(folders) != len(partition_columns):
        return False
    is_in_place = all(map(str.startswith, folders, (f"{column}=" for column in partition_columns)))
    return is_in_place and _DATA_FILE.fullmatch(file) is not None


def described(table: Any) -> Mapping[str, Any]:
    """What the description of a table says about it, if this package wrote it: `holds`, `keys`."""
    try:
        return dict(json.loads(table.metadata().description)["bascule"])
    except (ValueError, KeyError, TypeError):
        return {}


def _partition_columns(table: Any) -> list[str]:
    return list(table.metadata().partition_columns)


def _archived(action: Mapping[str, Any], partitions: Iterable[str]) -> ArchivedFile:
    """A file as a flattened action of the log names it."""
    bounds = [
        (name, action[f"min.{name}"], action[f"max.{name}"])
        for name in ORDER
        if action.get(f"min.{name}") is not None and action.get(f"max.{name}") is not None
    ]
    constants = [(name, action.get(f"partition.{name}")) for name in partitions]
    latest = action.get("max.timestamp")
    latest_us = None if latest is None else _end_us(latest)
    size, rows = action["size_bytes"], action.get("num_records")
    return ArchivedFile(unquote(action["path"]), tuple(constants), tuple(bounds), latest_us, size, rows)


def _end_us(latest: datetime) -> int:
    """A bound above a time, in us since 1970. Other writers of statistics cut it off at its millisecond."""
    since = latest - datetime(1970, 1, 1, tzinfo=latest.tzinfo)
    return (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds + 999


def import_deltalake() -> Any:
    """The package deltalake.

    Raises:
        StateError: it is not installed.
    """
    try:
        return import_module("deltalake")
    except ImportError as cause:
        raise StateError(
            "failed_precondition", "Delta tables need the package deltalake: pip install 'bascule[lake]'"
        ) from cause


def _columns(schema: Any) -> dict[str, Any]:
    """Types by column, without nullability."""
    return {field["name"]: _shape(field["type"]) for field in json.loads(schema.to_json())["fields"]}


def _shape(kind: Any) -> Any:
    if isinstance(kind, dict):
        inside = cast("dict[str, Any]", kind)
        return {name: _shape(value) for name, value in inside.items() if name not in _SHAPE_ONLY}
    return [_shape(each) for each in cast("list[Any]", kind)] if isinstance(kind, list) else kind


def source_name(source: Source) -> str:
    """A source in the names of application transactions."""
    return f"{quote(source.stream, safe='')}/{source.incarnation}/{source.partition}"


def _transactions_of(decision: Append, epoch: Epoch) -> dict[str, int]:
    """Application transactions that record an epoch, see above."""
    writer, recorded = str(epoch.writer), decision.recorded
    numbers = {
        **{f"bascule/{name}/{writer}": getattr(recorded, name) for name in _RECORDED},
        f"bascule/writer/{epoch.writer.target}": epoch.writer.owner,
        _WRITTEN: 1,
    }
    for source, covered in decision.covered.items():
        name = source_name(source)
        numbers[f"bascule/first/{name}"] = covered.first
        numbers[f"bascule/end/{name}"] = covered.end
        numbers[f"bascule/by/{name}"] = covered.writer
    return numbers


def _description_of(epoch: Epoch) -> dict[str, Any]:
    """What the table's history shows about a commit."""
    return {
        "query": epoch.writer.query_id,
        "target": epoch.writer.target,
        "epoch": epoch.number,
        "rows": epoch.rows,
        "ranges": epoch.shown_ranges(),
    }


def _add(transaction: Any, file: DataFile) -> Any:
    return transaction.AddAction(
        path=file.name,  # deltalake encodes it for the log
        size=file.bytes,
        partition_values=dict(file.values),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps(file.statistics, ensure_ascii=False),  # deltalake decodes pairs of surrogates wrongly
    )
