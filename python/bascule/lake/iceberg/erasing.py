"""Erases records from an Iceberg table: one commit replaces the files with such records by files without them."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any
from uuid import uuid4

from bascule.failpoints import failpoint
from bascule.lake.commit_record import added_to
from bascule.lake.files import TableWriter
from bascule.lake.iceberg.catalog import import_pyiceberg
from bascule.lake.iceberg.columns import archived
from bascule.lake.iceberg.maintenance import Rewrite, replace_files
from bascule.lake.iceberg.state import erased_changes, erased_of
from bascule.lake.iceberg.target import IcebergTarget, plan_of
from bascule.lake.matching import KeyFilter, Match
from bascule.lake.matching import erased_of as rows_of
from bascule.lake.ranges import Erased, Source


def erase(
    target: IcebergTarget, handle: Any, wanted: KeyFilter, matches: Sequence[Match]
) -> Mapping[Source, Erased] | None:
    """See `LakeTable.erase`. All records are erased in one commit.

    Raises:
        StateError: the table has delete files, which rewriting would lose.
        UnavailableError: other writers committed first many times in a row.
    """
    target.check_no_deletes(handle)
    plan, token, erased = plan_of(handle), uuid4().hex, rows_of(matches)
    chosen = {match.file.name for match in matches}
    rewrites: list[Rewrite] = []
    try:
        for number, task in enumerate(handle.scan().plan_files()):
            if archived(task.file, handle).name in chosen:
                writer = TableWriter(plan, target.options, prefix=f"{token}-{number:05d}")
                rewrites.append(_rewritten(handle, writer, task, wanted))
    except BaseException:
        plan.store.delete([each.name for rewrite in rewrites for each in rewrite.new])
        raise

    def changes(table: Any) -> dict[str, str]:
        return erased_changes(added_to(erased_of(table.properties, erased), erased))

    failpoint("erase.before_commit")
    done = replace_files(target, rewrites, plan.store, {"bascule.erasure": "true"}, changes)
    failpoint("erase.after_commit")
    return erased if done else None


def _rewritten(table: Any, writer: TableWriter, task: Any, wanted: KeyFilter) -> Rewrite:
    """The other rows of a file in new ones; none if there are no other rows."""
    pc: Any = import_module("pyarrow.compute")
    io: Any = import_pyiceberg("io.pyarrow")
    everything = import_pyiceberg("expressions").AlwaysTrue()
    scan = io.ArrowScan(table.metadata, table.io, table.schema(), everything)
    try:
        for batch in scan.to_record_batches([task]):
            kept = batch.filter(pc.invert(wanted.rows(batch, {})))
            if kept.num_rows:
                writer.write(kept.select(writer.plan.schema.names).cast(writer.plan.schema))
        return Rewrite((task.file,), tuple(writer.close()))
    except BaseException:
        writer.discard()
        raise
