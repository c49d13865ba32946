"""Erases records from a Parquet table: each file with such records is replaced by one without them.

The new files are staged, as those of an epoch are, and one commit record decides. `ParquetTarget.finish` then moves
each over the file that it replaces, and deletes files of which no row is left.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any
from uuid import uuid4

from bascule.failpoints import failpoint
from bascule.lake.archived import ArchivedFile
from bascule.lake.commit_record import STAGED, CommitRecord, encode, erasing, live_files, record_name
from bascule.lake.conflicts import MOST_CONFLICTS
from bascule.lake.files import DataFile, TableWriter
from bascule.lake.footers import read_metadata
from bascule.lake.matching import KeyFilter, Match, erased_of
from bascule.lake.options import MOST_FILE_BYTES
from bascule.lake.parquet import ParquetTarget
from bascule.lake.partitioning import Values
from bascule.lake.plans import FilePlan
from bascule.lake.ranges import Erased, Source


def erase(
    target: ParquetTarget, handle: CommitRecord, wanted: KeyFilter, matches: Sequence[Match]
) -> Mapping[Source, Erased] | None:
    """See `LakeTable.erase`. All records are erased in one commit."""
    token = uuid4().hex
    records = islice(target.records(), handle.version + 1)
    known = {file.name: file for file in live_files(records)}
    staged: list[DataFile] = []
    removed: list[str] = []
    for number, match in enumerate(matches):
        files = _rewritten(target, known[match.file.name].values, match.file, wanted, f"{token}-{number:05d}")
        if files:
            staged += [replace(files[0], name=match.file.name), *files[1:]]
        else:
            removed.append(match.file.name)
    erased = erased_of(matches)
    failpoint("erase.before_commit")
    if not _commit(target, handle, staged, removed, erased):
        target.storage.delete([each.staged for each in staged])
        return None
    failpoint("erase.after_commit")
    target.finish()
    return erased


def _commit(
    target: ParquetTarget,
    handle: CommitRecord,
    files: Sequence[DataFile],
    removed: Sequence[str],
    erased: Mapping[Source, Erased],
) -> bool:
    """Create the record after the newest one, unless a record after `handle` has changed one of these files."""
    target.storage.settle([each.staged for each in files])
    touched = {each.name for each in files} | set(removed)
    newest = handle
    for _ in range(MOST_CONFLICTS):
        record = erasing(newest, files, removed, erased, int(time.time() * 1000))
        if target.storage.put_if_absent(record_name(record.version), encode(record)):
            return True
        for later in target.records(record.version):
            if touched & {*later.removed, *(each.name for each in later.files)}:
                return False
            newest = later
    return False


def _rewritten(
    target: ParquetTarget, values: Values, file: ArchivedFile, wanted: KeyFilter, prefix: str
) -> list[DataFile]:
    """The other rows of a file in staged ones: one as a rule, none if there are no other rows."""
    parquet: Any = import_module("pyarrow.parquet")
    constants = dict(file.constants)
    with target.storage.reading(file.name) as raw:
        opened = parquet.ParquetFile(raw, metadata=read_metadata(file, raw))
        plan = _plan(target, opened.schema_arrow, values, f"{STAGED}/{prefix}", file.name.rpartition("/")[0])
        writer = TableWriter(plan, replace(target.options, file_bytes=MOST_FILE_BYTES), prefix=prefix)
        try:
            for batch in opened.iter_batches():
                kept = batch.filter(_other_rows(wanted, batch, constants))
                if kept.num_rows:
                    writer.write(kept)
            return writer.close()
        except BaseException:
            writer.discard()
            raise


def _other_rows(wanted: KeyFilter, batch: Any, constants: Mapping[str, Any]) -> Any:
    pc: Any = import_module("pyarrow.compute")
    return pc.invert(wanted.rows(batch, constants))


def _plan(target: ParquetTarget, schema: Any, values: Values, staging: str, folder: str) -> FilePlan:
    """How the rows of one file are written: with its columns, partition values and folder."""
    return FilePlan(
        target.storage,
        schema,
        split=partial(_whole, values=values),
        folder=partial(_same, folder=folder),
        statistics=_no_statistics,
        staging=staging,
    )


def _whole(batch: Any, values: Values) -> Iterator[tuple[Values, Any]]:
    yield values, batch


def _same(values: Values, folder: str) -> str:  # noqa: ARG001 - all files have the same
    return folder


def _no_statistics(metadata: Any) -> dict[str, Any]:  # noqa: ARG001 - commit records have none
    return {}
