"""ReportArchived: up to where an archive has the records of a stream."""

from typing import Any, Final

from bascule._admin_pb import message
from bascule.control.archives import Archives
from bascule.control.decide_archives import ArchivedRange, ArchiveReport
from bascule.control.specs import INTERNAL_STREAMS
from bascule.metadata import DEFAULT_NAMESPACE, StreamKey
from bascule.protocols.admin.requests import MethodHandler, with_sentences
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge.messages import check_count
from bascule.protocols.router import AdminRequest

MAX_RANGES: Final = 1000


class ArchiveMethods:
    """The handlers."""

    def __init__(self, archives: Archives) -> None:
        self._archives = archives

    def handlers(self) -> dict[str, MethodHandler]:
        """Handler by method."""
        return {"ReportArchived": with_sentences(self.report_archived)}

    async def report_archived(self, asked: Any, request: AdminRequest) -> Any:
        """ReportArchived."""
        namespace = asked.namespace or DEFAULT_NAMESPACE
        if namespace == DEFAULT_NAMESPACE and asked.name in INTERNAL_STREAMS:
            raise _invalid("Stream is reserved")
        if not asked.archive:
            raise _invalid("archive is empty: name it, for example by the address of its table")
        if not asked.partitions:
            raise _invalid("partitions is empty: name at least one")
        check_count("partitions", len(asked.partitions), MAX_RANGES, "report fewer partitions at once")
        ranges = tuple(
            ArchivedRange(each.partition, each.incarnation, each.first, each.end) for each in asked.partitions
        )
        if len({each.partition for each in ranges}) != len(ranges):
            raise _invalid(f"a partition of stream {asked.name} is named twice")
        stream = StreamKey(namespace, asked.name)
        report = ArchiveReport(stream, asked.archive, ranges, take_over=asked.take_over)
        refused = await self._archives.report(report, request.timeout_s)
        return message("ReportArchivedResponse")(
            refused=[
                {"partition": partition, "code": str(rejection.code), "message": rejection.message}
                for partition, rejection in refused
            ]
        )


def _invalid(text: str) -> StatusError:
    return StatusError(Status.INVALID_ARGUMENT, text)
