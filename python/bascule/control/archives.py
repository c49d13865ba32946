"""What archives have of partitions, for retention that waits for it (docs/decisions/tiered-reads.md)."""

import asyncio
import json
from typing import Final

from bascule._seam import PartitionChange
from bascule.control.controller import Controller
from bascule.control.decide_archives import ArchiveReport, RefusedRange, report_archived, void_archived
from bascule.errors import BrokerError
from bascule.logs import emit
from bascule.metadata.rejection import RejectedError, Rejection

ARCHIVE_VOID: Final = "archive_void"
"""The change of a partition whose log ends before what an archive has."""
PROPOSE_S: Final = 30.0
RETRY_S: Final = 5.0


class Archives:
    """The archives of this broker's partitions. All methods belong to the event loop's thread."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._void: dict[int, int] = {}
        self._changed = asyncio.Event()

    async def report(self, report: ArchiveReport, timeout_s: float) -> tuple[RefusedRange, ...]:
        """Store a report. Returns when retention goes by it here, or when the time is over.

        Returns:
            The partitions that are refused, while others are stored.

        Raises:
            RejectedError: no part is accepted, with the first reason; see `decide_archives.report_archived` and
                `apply_archives.report`.
            BrokerError: as `MetadataLog.propose`.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        status = self._controller.status([item.incarnation for item in report.ranges])
        decision = report_archived(self._controller.state, report, status)
        if isinstance(decision, Rejection):
            raise RejectedError(decision)
        if decision.command is not None:
            index = await self._controller.propose(decision.command, timeout_s)
            await self._controller.carried_out(index, deadline)
        if len(decision.refused) == len(report.ranges):
            raise RejectedError(decision.refused[0].rejection)
        return decision.refused

    def void(self, event: PartitionChange) -> None:
        """Take the report of a partition that what an archive has is more than its log has."""
        self._void[event.incarnation] = json.loads(event.fields)["archived_to"]
        self._changed.set()

    async def run(self) -> None:
        """Store which reports are void, until cancelled. The data plane does not go by them in the meantime."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            for incarnation, archived_to in list(self._void.items()):
                command = void_archived(self._controller.state, incarnation, archived_to)
                try:
                    if command is not None:
                        await self._controller.propose(command, PROPOSE_S)
                    del self._void[incarnation]
                except (BrokerError, RejectedError) as failure:
                    emit(30, "control.archives", f"a void report of an archive is stored again later: {failure}")
                    await asyncio.sleep(RETRY_S)
                    self._changed.set()
