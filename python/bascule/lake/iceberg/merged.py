"""An Iceberg table that holds the latest row of each key: the files whose rows an epoch replaces are written again.

One commit of the catalog deletes these files, adds those that have their other rows and the new ones, and records the
epoch as the archive's commits do (`bascule.lake.iceberg.target`). The catalog refuses it when the table has another
snapshot than the one that was read; then nothing was merged. No delete files are written: every engine reads the table.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final
from uuid import uuid4

from bascule.lake.epochs import Append, Epoch
from bascule.lake.files import DataFile, TableWriter
from bascule.lake.iceberg.catalog import import_pyiceberg
from bascule.lake.iceberg.columns import archived
from bascule.lake.iceberg.state import HOLDS, changes, holds_of, summary
from bascule.lake.iceberg.target import IcebergTarget, entry, plan_of, sync_version, without_retries
from bascule.lake.later import is_later
from bascule.lake.matching import check_footer, check_pages
from bascule.lake.merge_options import DELETED, MergeOptions
from bascule.lake.mismatch import check_keys
from bascule.lake.ranges import POSITION

_REMEDY: Final = "restore it: a merge would lose its rows, or give them new checksums"
_ROW: Final = "__row"
_AT: Final = "__at"


@dataclass(frozen=True)
class _Replaced:
    """Rows of a file whose keys are among those of an epoch.

    Attributes:
        task: of the scan that reads the file.
        at: numbers of its rows that the epoch replaces or deletes, from 0.
    """

    task: Any
    at: Any


class MergedIceberg(IcebergTarget):
    """The table as a target of merges. What an epoch records is what archives record."""

    holds = "latest"

    def __init__(self, options: MergeOptions) -> None:
        super().__init__(options.path, options.table())
        self._keys = list(options.keys)

    def check_rows(self, table: Any) -> None:
        """As that of archives; compares the keys as well.

        Raises:
            StateError: the table has every record, or the latest rows by other keys.
        """
        super().check_rows(table)
        check_keys(self.uri, holds_of(table.properties).get("keys", ()), self._keys)

    def schema_of(self, rows: Any) -> Any:
        """Arrow schema of the table, for that of the rows of an epoch."""
        return rows.remove(rows.get_field_index(DELETED))

    def merge(self, handle: Any, decision: Append, epoch: Epoch, rows: Any) -> bool:
        """Merge against an opened table; False = another commit was first, and nothing was merged.

        Args:
            handle: the opened table.
            decision: by that version of it.
            epoch: what the commit records.
            rows: Arrow table, one row for each key, with the column `DELETED`.

        Raises:
            StateError: the table has delete files of another program, or its columns were changed meanwhile.
            CorruptionError: a file of the table is missing or damaged.
        """
        pc: Any = import_module("pyarrow.compute")
        self.check_unchanged(handle)
        self.check_no_deletes(handle)
        replaced, late = self._compared(handle, rows)
        kept = rows.filter(pc.invert(pc.or_(rows[DELETED], _marks(late, len(rows)))))
        if not replaced and not len(kept):
            return self.append(handle, decision, epoch, [])
        writer = TableWriter(plan_of(handle), self.options, prefix=f"{uuid4().hex}-merge")
        try:
            for each in replaced:
                self._write_rest(handle, each, writer)
            _write(kept.drop_columns([DELETED]), writer)
            files = writer.close()
        except BaseException:
            writer.discard()
            raise
        if self._replace(handle, (decision, epoch), [each.task.file for each in replaced], files):
            return True
        writer.plan.store.delete([each.name for each in files])
        return False

    def properties(self) -> dict[str, str]:
        """Properties of a table that is created here."""
        holds = {"holds": self.holds, "keys": self._keys}
        return {**super().properties(), HOLDS: json.dumps(holds, ensure_ascii=False)}

    def _compared(self, table: Any, rows: Any) -> tuple[list[_Replaced], list[Any]]:
        """The rows of the table that the epoch replaces, and the numbers of the epoch's rows that come too late."""
        pa: Any = import_module("pyarrow")
        pc: Any = import_module("pyarrow.compute")
        numbers = pa.array(range(len(rows)), pa.int64())
        wanted = rows.select(self._keys).take(numbers).append_column(_ROW, numbers)  # aligned, as joins want it
        columns = list(dict.fromkeys([*self._keys, *POSITION]))
        replaced: list[_Replaced] = []
        late: list[Any] = []
        for task in table.scan().plan_files():
            check_footer(self.storage, archived(task.file, table), _REMEDY)
            there = _read(table, task, columns, rows.schema)
            numbered = there.select(self._keys).append_column(_AT, pa.array(range(len(there)), pa.int64()))
            both = numbered.join(wanted, self._keys, join_type="inner")
            if not len(both):
                continue
            found = there.take(both[_AT])
            later = is_later(rows.take(both[_ROW]), {name: found[name] for name in POSITION})
            late.append(both[_ROW].filter(pc.invert(later)))
            if pc.any(later).as_py():
                replaced.append(_Replaced(task, both[_AT].filter(later)))
        return replaced, late

    def _write_rest(self, table: Any, replaced: _Replaced, writer: TableWriter) -> None:
        """Write the rows of a file that stay."""
        pc: Any = import_module("pyarrow.compute")
        check_pages(writer.plan.store, archived(replaced.task.file, table), _REMEDY)
        begin = 0
        gone = _marks([replaced.at], replaced.task.file.record_count)
        for batch in _batches(table, replaced.task, table.schema()):
            rest = batch.filter(pc.invert(gone.slice(begin, batch.num_rows)))
            begin += batch.num_rows
            if rest.num_rows:
                writer.write(rest.select(writer.plan.schema.names).cast(writer.plan.schema))

    def _replace(self, table: Any, recorded: tuple[Append, Epoch], old: Sequence[Any], new: Sequence[DataFile]) -> bool:
        """Replace files, and record the epoch, in one commit; False = another commit was first."""
        decision, epoch = recorded
        transaction = without_retries(table).transaction()
        transaction.set_properties(changes(decision, epoch))
        with transaction.update_snapshot(snapshot_properties=summary(epoch)).overwrite() as overwritten:
            for file in old:
                overwritten.delete_data_file(file)
            for each in new:
                overwritten.append_data_file(entry(each, table))
        try:
            transaction.commit_transaction()
        except import_pyiceberg("exceptions").CommitFailedException:
            return False
        sync_version(table)
        return True


def _read(table: Any, task: Any, columns: Sequence[str], rows: Any) -> Any:
    """Columns of a file, with the types that the rows have."""
    pa: Any = import_module("pyarrow")
    schema = pa.schema([rows.field(name) for name in columns])
    parts = [batch.select(columns).cast(schema) for batch in _batches(table, task, table.schema().select(*columns))]
    return pa.Table.from_batches(parts, schema)


def _batches(table: Any, task: Any, schema: Any) -> Any:
    """The rows of a file in their order."""
    everything = import_pyiceberg("expressions").AlwaysTrue()
    return (
        import_pyiceberg("io.pyarrow").ArrowScan(table.metadata, table.io, schema, everything).to_record_batches([task])
    )


def _write(rows: Any, writer: TableWriter) -> None:
    schema = writer.plan.schema
    for batch in rows.select(schema.names).cast(schema).to_batches():
        writer.write(batch)


def _marks(numbers: Sequence[Any], count: int) -> Any:
    """True at the given numbers of `[0, count)`, else false."""
    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
    every = pa.array(range(count), pa.int64())
    given = pa.chunked_array([chunk for each in numbers for chunk in each.chunks], pa.int64())
    return pc.is_in(every, value_set=given.combine_chunks())
