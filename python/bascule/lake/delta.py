"""Delta tables: one commit for each epoch, which also records the epoch and the offsets that the table covers.

They are recorded as application transactions, a part of the commit that checkpoints, compaction and vacuum keep:

| `appId` | `version` |
|---|---|
| `bascule/epoch/<query>/<target>` | last epoch of a writer |
| `bascule/run/…`, `bascule/token/…` | numbers that stand for its run and its attempt |
| `bascule/rows/…` | its rows |
| `bascule/writer/<target>` | number of the query or the batch job that used a target name last |
| `bascule/first/<stream>/<incarnation>/<partition>` | first covered offset |
| `bascule/end/…`, `bascule/by/…` | end of the covered offsets, exclusive; number of the writer |

A commit on a snapshot that another commit with one of these has overtaken is refused by Delta itself.
"""

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, cast
from urllib.parse import quote

from bascule.errors import StateError
from bascule.lake.archived import ArchivedFile, Pinned
from bascule.lake.commit_record import TABLE
from bascule.lake.credentials import storage_options
from bascule.lake.epochs import Append, Epoch, Recorded, TableState
from bascule.lake.files import DataFile
from bascule.lake.mismatch import another_table, difference
from bascule.lake.options import ArchiveOptions, codec_of, partition_column
from bascule.lake.plans import FilePlan, hive_plan
from bascule.lake.ranges import Covered, Source
from bascule.lake.storage import LocalFolder, check_conditional_put, open_storage

CONFIGURATION: Final = {"delta.enableDeletionVectors": "false"}
"""Configuration of tables that are created here."""
FORGETS_EPOCHS: Final = "delta.setTransactionRetentionDuration"
"""A property of tables that forget what they record about epochs."""
LOG: Final = "_delta_log"
_SHAPE_ONLY: Final = frozenset({"nullable", "containsNull", "valueContainsNull", "metadata"})


class DeltaTarget:
    """A Delta table as a target of queries. See `bascule.lake.lake_table.LakeTable`."""

    def __init__(self, path: str, options: ArchiveOptions) -> None:
        self.storage = open_storage(path, options)
        self.uri = self.storage.uri
        self._options = options
        self._delta: Any = import_deltalake()
        self._secrets = storage_options(options) if path.startswith("s3://") else None
        self._table: Any = None

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

    def check(self, table: Any, schema: Any) -> None:
        """Compare a table with the rows.

        Raises:
            StateError: it has other columns, is partitioned otherwise, or needs what this writer cannot give.
        """
        wanted, there = _columns(self._schema(schema)), _columns(table.schema())
        if wanted != there:
            raise another_table(self.storage.uri, difference(wanted, there))
        fields = [partition_column(field) for field in self._options.partition_by]
        metadata = table.metadata()
        if list(metadata.partition_columns) != fields:
            found = ", ".join(metadata.partition_columns) or "none"
            raise another_table(
                self.storage.uri, f"it is partitioned by {found}, and partitionBy is {fields or 'none'}"
            )
        for name, value in metadata.configuration.items():
            is_mapped = name == "delta.columnMapping.mode" and value != "none"
            if is_mapped or name == FORGETS_EPOCHS or name.startswith("delta.constraints."):
                raise another_table(self.storage.uri, f"it has {name} = {value}, which this sink does not support")

    def snapshot(self, epoch: Epoch) -> tuple[TableState, Any]:
        """What the newest version says about an epoch, and the opened table."""
        table = self.open()
        writer = str(epoch.writer)
        numbers = [table.transaction_version(f"bascule/{each}/{writer}") for each in ("epoch", "run", "token", "rows")]
        last = None if numbers[0] is None else Recorded(*(int(number) for number in numbers))
        target = table.transaction_version(f"bascule/writer/{epoch.writer.target}")
        return TableState(last, target, _covered(table, epoch.ranges or {})), table

    def append(self, handle: Any, decision: Append, epoch: Epoch, files: Sequence[DataFile]) -> bool:
        """Commit against an opened table."""
        transaction: Any = import_module("deltalake.transaction")
        numbers = _transactions(decision, epoch)
        properties = transaction.CommitProperties(
            custom_metadata={"bascule": _description(epoch)},
            max_commit_retries=0,
            app_transactions=[self._delta.Transaction(name, version) for name, version in numbers.items()],
        )
        try:
            handle.create_write_transaction(
                [_add(transaction, each) for each in files],
                "append",
                handle.schema(),
                partition_by=[partition_column(field) for field in self._options.partition_by],
                commit_properties=properties,
            )
        except self._delta.exceptions.CommitFailedError:
            return False
        return True

    def finish(self) -> None:
        """Sync the newest entry of a local table's log, which deltalake does not; files are in their places."""
        if isinstance(self.storage, LocalFolder):
            self.storage.sync(f"{LOG}/{self.open().version():020d}.json")

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

    def pinned(self, sources: Iterable[Source]) -> Pinned:
        """The newest version, from its log alone."""
        table = self.open()
        if "deletionVectors" in (table.protocol().reader_features or ()):
            raise another_table(self.uri, "it has deletion vectors, which reads of an archive do not apply")
        actions = import_module("pyarrow").table(table.get_add_actions(flatten=True)).to_pylist()
        partitions = {field.name: field.type for field in self.columns() if field.name in _partition_columns(table)}
        files = tuple(_archived(each, partitions) for each in actions)
        return Pinned(frozenset(self.columns().names), _covered(table, sources), files)

    def compact(self) -> dict[str, Any]:
        """Merge small files; the figures are those of deltalake."""
        codec, level = codec_of(self._options.compression)
        properties = self._delta.WriterProperties(
            compression="UNCOMPRESSED" if codec == "none" else "LZ4_RAW" if codec == "lz4" else codec.upper(),
            compression_level=level,
        )
        size = self._options.file_bytes
        return dict(self.open().optimize.compact(target_size=size, writer_properties=properties))

    def vacuum(self, retention_hours: float, *, dry_run: bool) -> list[str]:
        """Delete files that no version younger than `retention_hours` has."""
        hours = math.ceil(retention_hours)
        found = self.open().vacuum(retention_hours=hours, dry_run=dry_run, enforce_retention_duration=False, full=True)
        return sorted(str(name) for name in found)

    def _create(self, schema: Any) -> None:
        if self.storage.read(TABLE) is not None:
            raise another_table(self.storage.uri, "the folder contains a Parquet table")
        check_conditional_put(self.storage)
        self.storage.anchor()
        try:
            self._delta.DeltaTable.create(
                self.storage.uri,
                self._schema(schema),
                partition_by=[partition_column(field) for field in self._options.partition_by],
                configuration=dict(CONFIGURATION),
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


def _covered_by(table: Any, source: Source) -> Covered | None:
    name = _source_name(source)
    numbers = [table.transaction_version(f"bascule/{each}/{name}") for each in ("first", "end", "by")]
    return None if numbers[1] is None else Covered(*(int(number) for number in numbers))


def _partition_columns(table: Any) -> list[str]:
    return list(table.metadata().partition_columns)


def _archived(action: Mapping[str, Any], partitions: Mapping[str, Any]) -> ArchivedFile:
    """A file as a flattened action of the log names it."""
    bounds = [
        (name, action[f"min.{name}"], action[f"max.{name}"])
        for name in ("stream", "incarnation", "partition", "offset")
        if action.get(f"min.{name}") is not None and action.get(f"max.{name}") is not None
    ]
    constants = [(name, action.get(f"partition.{name}")) for name in partitions]
    return ArchivedFile(action["path"], tuple(constants), tuple(bounds))


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


def _source_name(source: Source) -> str:
    return f"{quote(source.stream, safe='')}/{source.incarnation}/{source.partition}"


def _transactions(decision: Append, epoch: Epoch) -> dict[str, int]:
    writer, recorded = str(epoch.writer), decision.recorded
    numbers = {
        f"bascule/epoch/{writer}": recorded.epoch,
        f"bascule/run/{writer}": recorded.run,
        f"bascule/token/{writer}": recorded.token,
        f"bascule/rows/{writer}": recorded.rows,
        f"bascule/writer/{epoch.writer.target}": epoch.writer.owner,
    }
    for source, covered in decision.covered.items():
        name = _source_name(source)
        numbers[f"bascule/first/{name}"] = covered.first
        numbers[f"bascule/end/{name}"] = covered.end
        numbers[f"bascule/by/{name}"] = covered.writer
    return numbers


def _description(epoch: Epoch) -> dict[str, Any]:
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
        stats=json.dumps(file.statistics),
    )
