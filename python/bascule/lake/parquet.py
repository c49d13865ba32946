"""Parquet tables: folders of files that any reader of Parquet can read, with a commit log of their own.

Tasks write below `_bascule/staged`, which readers leave out. A commit is the creation of one record
(`bascule.lake.commit_record`); afterwards the files that it lists are moved into their places. A process that dies in
between is finished by the next commit to the table, or by `bascule.lake.vacuum`: moving a file twice has no effect. So
a reader never sees a file of an epoch that is not decided; while the files of an epoch are moved it may see some of
them.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bascule.errors import CorruptionError
from bascule.failpoints import failpoint
from bascule.lake.archived import ArchivedFile, Pinned
from bascule.lake.commit_record import (
    COMMITS,
    FORMAT,
    LAST,
    STAGED,
    TABLE,
    CommitRecord,
    decode,
    encode,
    following,
    live_files,
    record_name,
    state_of,
)
from bascule.lake.epochs import Append, Epoch, TableState
from bascule.lake.files import DataFile
from bascule.lake.matching import KeyFilter, Match
from bascule.lake.mismatch import another_table, difference
from bascule.lake.options import ArchiveOptions, partition_column
from bascule.lake.own_files import object_of, valid
from bascule.lake.plans import FilePlan, hive_plan
from bascule.lake.ranges import Covered, Erased, Source
from bascule.lake.storage import check_conditional_put, open_storage
from bascule.spark.spelling import spelled
from bascule.spark.usage import usage


class ParquetTarget:
    """A Parquet table as a target of queries. See `bascule.lake.lake_table.LakeTable`."""

    def __init__(self, path: str, options: ArchiveOptions) -> None:
        self.storage = open_storage(path, options)
        self.uri = self.storage.uri
        self.options = options

    def prepare(self, schema: Any) -> None:
        """Create the table if it is missing, and compare its columns and partitioning."""
        there = self._table()
        if there is None:
            self._create(schema)
            there = self._table()
        self.check(there or {}, schema)

    def compare(self, schema: Any) -> None:
        """Compare the table, if it is there."""
        there = self._table()
        if there is None:
            self._check_place()
        elif schema is not None:
            self.check(there, schema)

    def check(self, document: Mapping[str, Any], schema: Any) -> None:
        """Compare a table with the rows.

        Raises:
            StateError: it has other columns, or is partitioned otherwise.
        """
        wanted = self._document(schema)
        columns, there = dict(wanted["columns"]), dict(document["columns"])
        if columns != there:
            raise another_table(self.uri, difference(columns, there))
        if document["partition_by"] != wanted["partition_by"]:
            found = ", ".join(document["partition_by"]) or "none"
            raise another_table(
                self.uri,
                f"it is partitioned by {found}, and {spelled('partitionBy')} is {wanted['partition_by'] or 'none'}",
            )

    def exists(self) -> bool:
        """Whether there is a table."""
        return self.storage.read(TABLE) is not None

    def records(self, first: int = 0, last: int | None = None) -> Iterator[CommitRecord]:
        """Commit records from version `first` on, in order.

        Args:
            first: version of the first one.
            last: there are records up to this version; None = as `last.json` says.

        Raises:
            CorruptionError: one is damaged, or one up to `last` is missing.
        """
        last = self._last() if last is None else last  # before the records: others may commit and finish meanwhile
        version = first
        while (content := self.storage.read(record_name(version))) is not None:
            yield decode(content, record_name(version))
            version += 1
        if version <= last:
            raise self._lost(version, f"{LAST} says that there are records up to {last}")

    def newest(self) -> CommitRecord | None:
        """The newest commit record; None = nothing was committed.

        Raises:
            CorruptionError: as for `records`.
        """
        record = None
        for found in self.records(max(last := self._last(), 0), last):
            record = found
        if record is None and any(name.endswith(".json") for name, _ in self.storage.entries(COMMITS)):
            record = self._first()
        return record

    def _first(self) -> CommitRecord:
        """The newest record of a table whose first one another writer has made meanwhile, or has lost."""
        record = None
        for found in self.records():
            record = found
        if record is None:
            raise self._lost(0, f"{COMMITS} has later ones")
        return record

    def _lost(self, version: int, because: str) -> CorruptionError:
        name = record_name(version)
        return CorruptionError(
            "damaged",
            f"{self.uri}: {name} is missing, and {because}: restore it from a backup; without one, no epoch can be "
            "committed here: write to a new table",
            {"table": self.uri, "file": name},
        )

    def snapshot(self, epoch: Epoch) -> tuple[TableState, Any]:
        """What the newest record says about an epoch, and that record."""
        record = self.newest()
        return state_of(record, epoch), record

    def append(self, handle: Any, decision: Append, epoch: Epoch, files: Sequence[DataFile]) -> bool:
        """Create the record after `handle`."""
        self.storage.settle([each.staged for each in files])
        record = following(handle, decision, epoch, files, int(time.time() * 1000))
        return self.storage.put_if_absent(record_name(record.version), encode(record))

    def finish(self) -> None:
        """Move the files of all records beyond the last finished one into their places."""
        last = self._last()
        finished = last
        for record in self.records(last + 1, last):
            for number, file in enumerate(record.files):
                self._move(file, record.version)
                if number == 0:
                    failpoint("archive.between_moves")
            self.storage.delete(list(record.removed))
            self.storage.settle([*record.removed, *(each.name for each in record.files)])
            finished = record.version
            for folder in sorted({"/".join(each.staged.split("/")[:3]) for each in record.files}):
                self.storage.prune(folder)
        if finished > last:
            self.storage.replace(LAST, json.dumps({"version": finished}).encode())

    def plan(self, schema: Any, token: str) -> FilePlan:
        """The plan of files that are staged until the commit."""
        return hive_plan(self.storage, self.options, schema, f"{STAGED}/{token}")

    def columns(self) -> None:
        """None: the columns are fixed."""
        return

    def add_columns(self, schema: Any) -> None:
        """Refuse.

        Raises:
            UsageError: always.
        """
        raise usage(
            f"{self.uri}: a Parquet table has fixed columns, without {', '.join(schema.names)}: write another table"
        )

    def covered(self, sources: Iterable[Source]) -> dict[Source, Covered]:
        """The offsets that the newest record covers."""
        record = self.newest()
        return {source: record.covered[source] for source in sources if source in record.covered} if record else {}

    def found(self, sources: Iterable[Source]) -> Pinned | None:
        """The newest version; None = there is no table."""
        return self.pinned(sources) if self.exists() else None

    def pinned(self, sources: Iterable[Source]) -> Pinned:  # noqa: ARG002 - refused in any case
        """Refuse: the commit records of these tables have no statistics of files.

        Raises:
            UsageError: always.
        """
        raise usage(f"{self.uri}: archives are read from Delta and Iceberg tables, not from folders of Parquet files")

    def opened(self) -> tuple[Any, Pinned]:
        """The newest record and the files of all, each in its place."""
        self.finish()
        records = list(self.records())
        columns = [name for name, _ in (self._table() or {"columns": ()})["columns"]]
        files = tuple(
            ArchivedFile(
                each.name,
                tuple((name, _value(name, text)) for name, text in each.values),
                (),
                bytes=each.bytes,
                rows=each.rows,
            )
            for each in live_files(records)
        )
        return records[-1] if records else None, Pinned(frozenset(columns), {}, files)

    def check_erasable(self) -> None:
        """Nothing prevents it."""

    def erase(self, handle: Any, wanted: KeyFilter, matches: Sequence[Match]) -> Mapping[Source, Erased] | None:
        """Replace files by ones without the records, under the same names, so that a reader sees each row once."""
        from bascule.lake.parquet_erasing import erase  # noqa: PLC0415 - it needs this module

        return erase(self, handle, wanted, matches)

    def compact(self) -> dict[str, Any]:
        """Refuse.

        Raises:
            UsageError: always.
        """
        raise usage("a Parquet table cannot be compacted while it is read: use Delta or Iceberg")

    def vacuum(self, retention_hours: float, *, dry_run: bool) -> list[str]:
        """Finish committed epochs, and delete files of failed attempts that are older than `retention_hours`."""
        self.finish()
        before = time.time() - retention_hours * 3600
        old = [name for name, changed in self.storage.entries(STAGED) if changed < before]
        if not dry_run:
            self.storage.delete(old)
        return old

    def _move(self, file: DataFile, version: int) -> None:
        if self.storage.move(file.staged, file.name) or self.storage.size(file.name) is not None:
            return
        if not any(file.name in record.removed for record in self.records(version + 1)):
            raise CorruptionError(
                "damaged",
                f"{self.storage.uri}: {file.name} of a committed epoch is missing, and so is {file.staged}: restore "
                "one of them from a backup",
                {"table": self.storage.uri, "file": file.name},
            )

    def _last(self) -> int:
        content = self.storage.read(LAST)
        if content is None:
            return -1
        with valid(LAST, "delete it: the next commit makes it again", self.uri):
            return int(object_of(content)["version"])

    def _table(self) -> Mapping[str, Any] | None:
        """What `table.json` says; None = there is no table.

        Raises:
            CorruptionError: it is damaged.
            StateError: it was made by a newer version.
        """
        content = self.storage.read(TABLE)
        if content is None:
            return None
        with valid(TABLE, "restore it from a backup: it names the columns of the table", self.uri):
            document = object_of(content)
            found = document["format"]
        if found != FORMAT:
            raise another_table(self.uri, f"{TABLE} has format {found}, this version reads {FORMAT}")
        with valid(TABLE, "restore it from a backup: it names the columns of the table", self.uri):
            columns = [(str(name), str(kind)) for name, kind in document["columns"]]
            return {"columns": columns, "partition_by": [str(each) for each in document["partition_by"]]}

    def _check_place(self) -> bool:
        """Refuse a folder with files of another table; returns whether the table is missing still."""
        for name, _ in self.storage.entries(""):
            if name.startswith("_delta_log/") or (name.endswith(".parquet") and not name.startswith(("_", "."))):
                if self.exists():  # another writer has created it meanwhile, and the file is of its first epoch
                    return False
                raise another_table(
                    self.uri, f"the folder contains {name}, which was not written as a Parquet table of Bascule"
                )
        return True

    def _create(self, schema: Any) -> None:
        if not self._check_place():
            return
        check_conditional_put(self.storage)
        self.storage.anchor()
        self.storage.put_if_absent(TABLE, json.dumps(self._document(schema), sort_keys=True).encode())

    def _document(self, schema: Any) -> dict[str, Any]:
        fields = [partition_column(field) for field in self.options.partition_by]
        columns = [[field.name, str(field.type)] for field in schema]
        return {"format": FORMAT, "columns": columns, "partition_by": fields}


def _value(column: str, text: str | None) -> Any:
    """The value of a column that the table is partitioned by, whose records have text."""
    return int(text) if column in ("incarnation", "partition", "offset") and text is not None else text
