"""Reports the records of an archive that were erased by key: a tiered read lacks them without having lost any."""

import logging
from typing import Final

from bascule.lake.archived import Pinned
from bascule.lake.ranges import Erased, Source

__all__ = ["report_erased"]

logger = logging.getLogger("bascule.spark")

_MOST_REPORTED: Final = 10_000
_reported: set[tuple[str, Source, Erased]] = set()
"""What this process has logged, so that a streaming query does not repeat it with each micro-batch."""


def report_erased(archive: str, table: Pinned) -> None:
    """Log what was erased from the partitions that are read, once in a process until more is erased.

    Args:
        archive: its path, or its name in a catalog.
        table: the version that is read.
    """
    for source, erased in sorted(table.erased.items()):
        if (archive, source, erased) in _reported:
            continue
        if len(_reported) >= _MOST_REPORTED:
            _reported.clear()
        _reported.add((archive, source, erased))
        logger.warning(
            "%d records of %s with offsets in [%d, %d) were erased by key from the archive %s: they are left out, and "
            "no other record is missing there",
            *(erased.rows, source, erased.first, erased.end, archive),
        )
