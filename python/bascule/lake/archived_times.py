"""Finds the first archived record at or after a time, by the statistics of files and then by few row groups.

Timestamps never decrease with the offset within a partition, so the first row that is late enough in order of offset is
the first one in time as well.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bascule.lake.archived import ArchivedFile, Wanted, row_groups

if TYPE_CHECKING:
    from bascule.lake.storage import FileStore


def first_at_or_after(store: "FileStore", files: Sequence[ArchivedFile], wanted: Wanted, time_us: int) -> int | None:
    """The offset of the first record of a range that was received at or after a time; None = the range has none.

    Args:
        store: of the table.
        files: see `Pinned.files_of`.
        wanted: the range.
        time_us: in us since 1970.

    Raises:
        CorruptionError: a file is missing or cannot be read.
    """
    found: int | None = None
    for file in sorted(files, key=_first_offset):
        if found is not None and _first_offset(file) >= found:
            break
        if file.latest_us is not None and file.latest_us < time_us:
            continue
        before = wanted if found is None else Wanted(wanted.source, wanted.first, found)
        for group in sorted(row_groups(store, file, before), key=lambda each: each.least):
            if found is not None and group.least >= found:
                break
            least = _least(group.read(before, ("timestamp",)), time_us)
            if least is not None and (found is None or least < found):
                found = least
    return found


def _first_offset(file: ArchivedFile) -> int:
    """A bound below all offsets of a file."""
    return min(file.values_of("offset"), default=0)


def _least(rows: Any, time_us: int) -> int | None:
    """The least offset among rows that are late enough."""
    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
    times = rows["timestamp"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return pc.min(rows.filter(pc.greater_equal(times, time_us))["offset"]).as_py()
