"""Reports to a broker what a table has, so that retention may remove it there (`retention_after_archive`).

What is reported is read back from the table after the commit. A report that fails is logged, also one about a single
partition. The next commit of records of the stream reports all of its partitions again: until then the broker keeps
more than it must.
"""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from bascule._admin_pb import message
from bascule.errors import BrokerError
from bascule.lake.options import ArchiveOptions
from bascule.spark.admin_calls import admin_call
from bascule.spark.connection_options import ADDRESS

if TYPE_CHECKING:
    from bascule.lake.lake_table import LakeTable
    from bascule.lake.ranges import Source

logger = logging.getLogger("bascule.lake")

TIMEOUT_MS: Final = 10_000
MAX_RANGES: Final = 1000
"""Partitions of one report."""


def report_archived(table: "LakeTable", options: ArchiveOptions, sources: Iterable["Source"]) -> None:
    """Report what the table has of these partitions. A broker that refuses or is not reached is logged.

    Args:
        table: after a commit.
        options: with `report_to`.
        sources: the partitions. Those that the table has nothing of are left out.
    """
    ranges: dict[str, list[dict[str, int]]] = {}
    for source, found in sorted(table.covered(sources).items()):
        item = {"partition": source.partition, "incarnation": source.incarnation, "first": found.first}
        ranges.setdefault(source.stream, []).append({**item, "end": found.end})
    for stream, each in ranges.items():
        for begin in range(0, len(each), MAX_RANGES):
            _report(table.uri, options, stream, each[begin : begin + MAX_RANGES])


def _report(archive: str, options: ArchiveOptions, stream: str, ranges: list[dict[str, int]]) -> None:
    request = message("ReportArchivedRequest")(
        namespace=options.report_namespace,
        name=stream,
        archive=archive,
        partitions=ranges,
        take_over=options.report_take_over,
    )
    assert options.report_to is not None
    text = "%s: what the table has of stream %s could not be reported: %s; the broker keeps it until then"
    try:
        answer = admin_call(
            ADDRESS.read(options.report_to), "ReportArchived", request, timeout_ms=TIMEOUT_MS, retry_ms=0
        )
    except BrokerError as failure:
        logger.warning(text, archive, stream, failure)
        return
    for each in answer.refused:
        logger.warning(text, archive, stream, each.message)
