"""Delta tables that are merged by keys: of the latest row of each key, and of all versions."""

import json
from importlib import import_module
from typing import Any

from bascule.lake.delta import DeltaTarget, described
from bascule.lake.epochs import Append, Epoch
from bascule.lake.history import changes_of, history_schema
from bascule.lake.later import later_than
from bascule.lake.merge_options import CLOSES, DELETED, IS_CURRENT, OF_HISTORY, VALID_FROM, VALID_TO, MergeOptions
from bascule.lake.mismatch import check_keys
from bascule.lake.ranges import POSITION


class MergedDelta(DeltaTarget):
    """The table as a target of merges. What an epoch records is what archives record."""

    holds = "latest"

    def __init__(self, options: MergeOptions) -> None:
        super().__init__(options.path, options.table())
        self._keys = options.keys

    def description(self) -> str:
        """Description of a table that is created here."""
        return json.dumps({"bascule": {"holds": self.holds, "keys": list(self._keys)}}, ensure_ascii=False)

    def check_rows(self, table: Any) -> None:
        """As that of archives; compares the keys as well.

        Raises:
            StateError: the table has every record, or the latest rows by other keys.
        """
        super().check_rows(table)
        check_keys(self.uri, described(table).get("keys", ()), self._keys)

    def schema_of(self, rows: Any) -> Any:
        """Arrow schema of the table, for that of the rows of an epoch."""
        return rows.remove(rows.get_field_index(DELETED))

    def merge(self, handle: Any, decision: Append, epoch: Epoch, rows: Any) -> bool:
        """Merge against an opened table; False = another commit was first, and nothing was written.

        Args:
            handle: the opened table.
            decision: by that version of it.
            epoch: what the commit records.
            rows: Arrow table, one row for each key, with the column `DELETED`.
        """
        merger, later = self._merger(handle, decision, epoch, rows), later_than("s", "t")
        merger = merger.when_matched_delete(f"s.{DELETED} AND {later}")
        merger = merger.when_matched_update_all(f"NOT s.{DELETED} AND {later}", except_cols=[DELETED])
        merger = merger.when_not_matched_insert_all(f"NOT s.{DELETED}", except_cols=[DELETED])
        return self._execute(merger, handle, decision, epoch)

    def _merger(self, handle: Any, decision: Append, epoch: Epoch, rows: Any, condition: str = "") -> Any:
        """A merge of rows `s` into the table `t` by the keys, with a further condition."""
        keys = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in self._keys)
        return handle.merge(
            source=rows,
            predicate=keys + condition,
            source_alias="s",
            target_alias="t",
            commit_properties=self.properties(decision, epoch),
        )

    def _execute(self, merger: Any, handle: Any, decision: Append, epoch: Epoch) -> bool:
        before = handle.version()
        try:
            merger.execute()
        except self._delta.exceptions.CommitFailedError:
            return False
        # A merge that changes no row commits nothing: the epoch is recorded by an append of no files.
        return handle.version() > before or self.append(handle, decision, epoch, [])


class HistoryDelta(MergedDelta):
    """A table of all versions of each key. The versions that an epoch may change are read by the driver."""

    holds = "history"

    def schema_of(self, rows: Any) -> Any:
        """As that of the latest rows, with the columns of versions."""
        return history_schema(rows)

    def merge(self, handle: Any, decision: Append, epoch: Epoch, rows: Any) -> bool:
        """As that of the latest rows.

        Args:
            handle: the opened table.
            decision: by that version of it.
            epoch: what the commit records.
            rows: Arrow table, see `bascule.lake.history.changes_of`.
        """
        changes = changes_of(rows, self._versions(handle, rows), self._keys)
        if not len(changes):
            return self.append(handle, decision, epoch, [])
        merger = self._merger(handle, decision, epoch, changes, f" AND s.{CLOSES} AND t.{IS_CURRENT}")
        merger = merger.when_matched_update({VALID_TO: f"s.{VALID_TO}", IS_CURRENT: "false"})
        merger = merger.when_not_matched_insert_all(f"NOT s.{CLOSES}", except_cols=[CLOSES])
        return self._execute(merger, handle, decision, epoch)

    def _versions(self, handle: Any, rows: Any) -> Any:
        """The versions that are current, or end after the first one of the rows begins."""
        field = import_module("pyarrow.dataset").field
        first = import_module("pyarrow.compute").min(rows[VALID_FROM])
        wanted = field(IS_CURRENT) | (field(VALID_TO) > first)
        columns = [*self._keys, *POSITION, *OF_HISTORY]
        return handle.to_pyarrow_dataset().to_table(columns=columns, filter=wanted)


def quoted(name: str) -> str:
    """A column's name as an identifier of DataFusion's SQL."""
    return '"' + name.replace('"', '""') + '"'
