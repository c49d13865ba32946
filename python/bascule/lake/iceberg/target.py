"""Iceberg tables: one commit for each epoch, which also records the epoch and the offsets that the table covers.

They are recorded as properties of the table (`bascule.lake.iceberg.state`). One commit of the catalog adds the snapshot
and sets the properties, and the catalog refuses it when the table has another snapshot than the one that it is based
on.
"""

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from bascule.errors import StateError
from bascule.lake.archived import Pinned
from bascule.lake.epochs import Append, Epoch, TableState
from bascule.lake.files import DataFile
from bascule.lake.iceberg.catalog import import_pyiceberg, open_catalog
from bascule.lake.iceberg.columns import (
    archived,
    differing,
    fields_of,
    file_schema,
    optional,
    partition_fields,
    partition_record,
    split,
)
from bascule.lake.iceberg.state import (
    changes,
    covered_of,
    erased_of,
    holds_of,
    is_marked,
    sources_of,
    state_of,
    summary,
)
from bascule.lake.iceberg.store import data_root, local_path, open_store
from bascule.lake.matching import KeyFilter, Match
from bascule.lake.mismatch import another_table, check_holds
from bascule.lake.options import DEFAULT_CATALOG, ArchiveOptions
from bascule.lake.plans import FilePlan
from bascule.lake.ranges import Covered, Erased, Source
from bascule.lake.storage import FileStore, LocalFolder, sync_path
from bascule.spark.spelling import spelled
from bascule.spark.usage import usage

PROPERTIES: Final = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
}
"""Properties of tables that are created here: each epoch writes a manifest and a metadata file."""
NEWEST_FORMAT: Final = 2
HASHED_PATHS: Final = "write.object-storage.enabled"
_RETRIES: Final = "commit.retry.num-retries"
_METRICS: Final = "write.metadata.metrics.default"
_METRICS_OF: Final = "write.metadata.metrics.column.{}"
_ATTEMPTS: Final = 5


class IcebergTarget:
    """An Iceberg table as a target of queries. See `bascule.lake.lake_table.LakeTable`."""

    holds = "records"
    """What a row of the table is."""

    def __init__(self, path: str, options: ArchiveOptions) -> None:
        self.options = options
        self.uri = f"{path} (catalog {options.catalog or DEFAULT_CATALOG})"
        self._identifier = tuple(path.split("."))
        self._exceptions: Any = import_pyiceberg("exceptions")
        self._checked: tuple[int, int] | None = None
        self._store: FileStore | None = None

    @property
    def storage(self) -> FileStore:
        """Where the data files are."""
        if self._store is None:
            self._store = open_store(self.open())
        return self._store

    def open(self) -> Any:
        """The table, at its newest version.

        Raises:
            NoSuchTableError: of pyiceberg, when there is none.
        """
        return open_catalog(self.options).load_table(self._identifier)

    def exists(self) -> bool:
        """Whether there is a table."""
        return bool(open_catalog(self.options).table_exists(self._identifier))

    def prepare(self, schema: Any) -> None:
        """Create the table if it is missing, and compare its columns and partitioning."""
        self._prepared(schema)

    def compare(self, schema: Any) -> None:
        """Compare the table, if it is there."""
        try:
            table = self.open()
        except self._exceptions.NoSuchTableError:
            self._check_place(open_catalog(self.options))
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
        if table.format_version > NEWEST_FORMAT:
            raise another_table(
                self.uri, f"its format version is {table.format_version}, this sink writes {NEWEST_FORMAT}"
            )
        if what := differing(schema, table.schema()):
            raise another_table(self.uri, what)
        wanted = [str(each) for each in partition_fields(self.options.partition_by, schema.names)]
        there = [str(each) for each in fields_of(table)]
        if wanted != there:
            found = f"it is partitioned by {', '.join(there)}" if there else "it is not partitioned"
            given = f"means {', '.join(wanted)}" if wanted else "is not given"
            raise another_table(self.uri, f"{found}, and {spelled('partitionBy')} {given}")
        if table.properties.get(HASHED_PATHS, "false").lower() == "true":
            raise another_table(self.uri, f"it has {HASHED_PATHS} = true, which this sink does not support")

    def columns(self) -> Any:
        """Arrow schema of the newest version."""
        return file_schema(self.open().schema())

    def add_columns(self, schema: Any) -> None:
        """Add columns, by the union of names that pyiceberg has."""
        table = self.open()
        with table.update_schema() as update:
            update.union_by_name(optional(schema))
        sync_version(table)

    def plan(self, schema: Any, token: str) -> FilePlan:  # noqa: ARG002 - files are written where they stay
        """The plan of files with the field ids of the table, which is created if it is missing."""
        return plan_of(self._prepared(schema))

    def snapshot(self, epoch: Epoch) -> tuple[TableState, Any]:
        """What the newest version says about an epoch, and the opened table."""
        table = self.open()
        state = state_of(table.properties, epoch)
        if not is_marked(table.properties) and any(True for _ in table.scan().plan_files()):
            state = replace(state, is_foreign=True)
        return state, table

    def append(self, handle: Any, decision: Append, epoch: Epoch, files: Sequence[DataFile]) -> bool:
        """Commit against an opened table."""
        self.check_unchanged(handle)
        if handle.current_snapshot() is None and isinstance(self.storage, LocalFolder):
            self.storage.anchor()
        transaction = without_retries(handle).transaction()
        transaction.set_properties(changes(decision, epoch))
        with transaction.update_snapshot(snapshot_properties=summary(epoch)).merge_append() as added:
            for each in files:
                added.append_data_file(entry(each, handle))
        try:
            transaction.commit_transaction()
        except self._exceptions.CommitFailedException:
            return False
        sync_version(handle)
        return True

    def finish(self) -> None:
        """Sync the newest version of a local table: a run may have died between its commit and the sync."""
        if isinstance(self.storage, LocalFolder):
            sync_version(self.open())

    def covered(self, sources: Iterable[Source]) -> dict[Source, Covered]:
        """The offsets that the newest version covers."""
        return covered_of(self.open().properties, sources)

    def pinned(self, sources: Iterable[Source]) -> Pinned:
        """The newest version, from its manifests."""
        return self._pinned(self.open(), sources)

    def found(self, sources: Iterable[Source]) -> Pinned | None:
        """The newest version; None = there is no table."""
        try:
            table = self.open()
        except self._exceptions.NoSuchTableError:
            return None
        self._store = open_store(table)  # with its credentials, which may expire
        return self._pinned(table, sources)

    def opened(self) -> tuple[Any, Pinned]:
        """The opened table, and its files."""
        table = self.open()
        return table, self._pinned(table, [])

    def check_erasable(self) -> None:
        """Nothing prevents it but delete files, which `opened` refuses."""

    def erase(self, handle: Any, wanted: KeyFilter, matches: Sequence[Match]) -> Mapping[Source, Erased] | None:
        """Replace the files with such records."""
        from bascule.lake.iceberg.erasing import erase  # noqa: PLC0415 - it needs this module

        return erase(self, handle, wanted, matches)

    def _pinned(self, table: Any, sources: Iterable[Source]) -> Pinned:
        self.check_rows(table)
        tasks = list(table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise another_table(self.uri, "it has delete files, which reads of an archive do not apply")
        files = tuple(archived(task.file, table) for task in tasks)
        properties = table.properties
        columns = frozenset(field.name for field in table.schema().fields)
        wanted = list(sources)
        return Pinned(
            columns, covered_of(properties, wanted), files, sources_of(properties), erased_of(properties, wanted)
        )

    def compact(self) -> dict[str, Any]:
        """Merge small files, and expire snapshots as the table's own properties say."""
        from bascule.lake.iceberg.maintenance import compact  # noqa: PLC0415 - it needs this module

        return compact(self)

    def vacuum(self, retention_hours: float, *, dry_run: bool) -> list[str]:  # noqa: ARG002 - refused in any case
        """Refuse.

        Raises:
            UsageError: always.
        """
        raise usage(
            f"{self.uri}: files of an Iceberg table are deleted by the engine that owns it: expire snapshots with "
            "bascule.lake.expire, then remove orphan files with that engine (in Spark: CALL system.remove_orphan_files)"
        )

    def _prepared(self, schema: Any) -> Any:
        try:
            table = self.open()
        except self._exceptions.NoSuchTableError:
            self._create(schema)
            table = self.open()
            self._store = open_store(table)
            if isinstance(self._store, LocalFolder):
                self._store.anchor()
            sync_version(table)
        self.check(table, schema)
        self._checked, self._store = _version(table), open_store(table)
        return table

    def properties(self) -> dict[str, str]:
        """Properties of a table that is created here."""
        return dict(PROPERTIES)

    def check_rows(self, table: Any) -> None:
        """Compare what a row of the table is.

        Raises:
            StateError: it keeps the latest row of each key, and this one wants records, or the like.
        """
        check_holds(self.uri, holds_of(table.properties).get("holds", "records"), self.holds)

    def check_no_deletes(self, table: Any) -> None:
        """Refuse a table whose data files cannot be rewritten.

        Raises:
            StateError: it has delete files of another program, which rewriting would lose.
        """
        content = import_pyiceberg("manifest").ManifestContent
        snapshot = table.current_snapshot()
        if snapshot is not None and any(each.content == content.DELETES for each in snapshot.manifests(table.io)):
            raise StateError(
                "failed_precondition",
                f"{self.uri} has delete files, which a rewrite of data files cannot apply: rewrite them first with the "
                "engine that wrote them (in Spark: CALL system.rewrite_data_files)",
                {"table": self.uri},
            )

    def check_unchanged(self, table: Any) -> None:
        """Compare a table that a commit is based on with the one that was prepared.

        Raises:
            StateError: its columns or its partitioning were changed since.
        """
        if self._checked is not None and _version(table) != self._checked:
            raise another_table(self.uri, "its columns or its partitioning were changed while an epoch was committed")

    def _create(self, schema: Any) -> None:
        """Create the table. Several tasks may do so at once."""
        catalog = open_catalog(self.options)
        self._check_place(catalog)
        for attempt in range(_ATTEMPTS):
            try:
                catalog.create_namespace_if_not_exists(self._identifier[:-1])
                self._create_in(catalog, schema)
            except (TypeError, ValueError, NotImplementedError) as cause:
                raise another_table(self.uri, f"Iceberg cannot hold these columns or partitions: {cause}") from cause
            except Exception:
                if self.exists():
                    return
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(random.uniform(0.05, 0.2))  # noqa: S311 - spreads tasks
            else:
                return

    def _check_place(self, catalog: Any) -> None:
        """Refuse a place where a SQL catalog can create no table. Others say so when the table is created.

        Raises:
            StateError: the name has more than one namespace, or nothing says where the files of the table go.
        """
        if catalog.properties.get("type") != "sql":
            return
        if len(self._identifier) != 2:
            what = f"a SQL catalog has no namespaces within others: name the table {'.'.join(self._identifier[-2:])}"
            raise StateError("failed_precondition", f"{self.uri} cannot be created: {what}", {"table": self.uri})
        namespace = self._identifier[:-1]
        known: Any = catalog.load_namespace_properties(namespace) if catalog.namespace_exists(namespace) else ()
        if "warehouse" not in catalog.properties and "location" not in known:
            what = "the catalog does not say where files go: set its property warehouse, as file:///… or s3://…"
            raise StateError("failed_precondition", f"{self.uri} cannot be created: {what}", {"table": self.uri})

    def _create_in(self, catalog: Any, schema: Any) -> None:
        columns = optional(schema)
        fields = partition_fields(self.options.partition_by, schema.names)
        transaction = catalog.create_table_transaction(self._identifier, columns, properties=self.properties())
        with transaction.update_spec() as spec:
            for each in fields:
                spec.add_field(each.column, each.transform, each.name)
        transaction.commit_transaction()


def plan_of(table: Any) -> FilePlan:
    """The plan of the data files of an opened table."""
    schema, fields = table.schema(), fields_of(table)
    return FilePlan(
        open_store(table),
        file_schema(schema),
        split=partial(split, fields=fields, schema=schema),
        folder=_no_folder,
        statistics=partial(_statistics, table=table),
    )


def entry(file: DataFile, table: Any) -> Any:
    """A file as the manifest of a table has it."""
    manifest = import_pyiceberg("manifest")
    found = manifest.DataFile.from_args(
        content=manifest.DataFileContent.DATA,
        file_path=f"{data_root(table)}/{file.name}",
        file_format=manifest.FileFormat.PARQUET,
        partition=partition_record(file.values, table),
        file_size_in_bytes=file.bytes,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **file.statistics,
    )
    found.spec_id = table.metadata.default_spec_id
    return found


def without_retries(table: Any) -> Any:
    """An opened table whose commits are tried once: pyiceberg would repeat an append on a newer version by itself.

    The property of the table itself stays as it is, because its other writers want their commits retried.
    """
    properties = {**table.metadata.properties, _RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def _no_folder(values: Any) -> str:  # noqa: ARG001 - readers know files by the table's metadata
    return ""


def _statistics(metadata: Any, table: Any) -> dict[str, Any]:
    """Statistics of a closed file, as a manifest has them."""
    io = import_pyiceberg("io.pyarrow")
    schema = table.schema()
    found = io.data_file_statistics_from_parquet_metadata(
        parquet_metadata=metadata,
        stats_columns=io.compute_statistics_plan(schema, _metrics(metadata, table)),
        parquet_column_mapping=io.parquet_path_to_id_mapping(schema),
    )
    return dict(found.to_serialized_dict())


def _metrics(metadata: Any, table: Any) -> dict[str, str]:
    """The table's properties about statistics, without those columns that have none in a file: values and keys."""
    columns = [metadata.row_group(0).column(number) for number in range(metadata.num_columns)]
    searched = [each.path_in_schema for each in columns if each.is_stats_set]
    default = table.properties.get(_METRICS, "truncate(16)")
    return {
        _METRICS: "none",
        **{name: table.properties.get(name, default) for name in map(_METRICS_OF.format, searched)},
    }


def _version(table: Any) -> tuple[int, int]:
    return table.metadata.current_schema_id, table.metadata.default_spec_id


def sync_version(table: Any) -> None:
    """Sync the metadata of the newest version of a local table, which pyiceberg does not."""
    if local_path(table.metadata_location) is None:
        return
    names: list[str] = []
    if (snapshot := table.current_snapshot()) is not None:
        manifests = snapshot.manifests(table.io)
        names = [each.manifest_path for each in manifests if each.added_snapshot_id == snapshot.snapshot_id]
        names.append(snapshot.manifest_list)
    for name in (*names, table.metadata_location):  # what is named before what names it
        path = local_path(name)
        for each in () if path is None else (path, path.parent):
            sync_path(each)
