"""TrimPartition and PurgeStream."""

from typing import Any

from bascule._admin_pb import message
from bascule.control import Controller, Trim
from bascule.control.specs import INTERNAL_STREAMS
from bascule.errors import BrokerError
from bascule.metadata import DEFAULT_NAMESPACE
from bascule.metadata.rejection import RejectedError
from bascule.protocols.admin.requests import MethodHandler
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge.rejections import not_applied, status_of_rejection
from bascule.protocols.router import AdminRequest

_TrimPartitionResponse = message("TrimPartitionResponse")
_PurgeStreamResponse = message("PurgeStreamResponse")


class RemovalMethods:
    """The handlers."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handlers(self) -> dict[str, MethodHandler]:
        """Handler by method."""
        return {"TrimPartition": self.trim_partition, "PurgeStream": self.purge_stream}

    async def trim_partition(self, asked: Any, request: AdminRequest) -> Any:
        """TrimPartition."""
        _refuse_internal(asked.name)
        if not asked.HasField("partition"):
            raise StatusError(Status.INVALID_ARGUMENT, "partition is not given: say which one, from 0")
        try:
            wanted = Trim(DEFAULT_NAMESPACE, asked.name, asked.partition, asked.before)
            was, now = await self._controller.trim_partition(wanted, dry_run=asked.dry_run, timeout_s=request.timeout_s)
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            raise not_applied("Failed to trim partition", failure) from failure
        return _TrimPartitionResponse(log_start_before=was, log_start=now)

    async def purge_stream(self, asked: Any, request: AdminRequest) -> Any:
        """PurgeStream."""
        _refuse_internal(asked.name)
        try:
            records, at_once = await self._controller.purge_stream(
                DEFAULT_NAMESPACE, asked.name, now=asked.now, dry_run=asked.dry_run, timeout_s=request.timeout_s
            )
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            raise not_applied("Failed to purge stream", failure) from failure
        return _PurgeStreamResponse(records=records, at_once=at_once)


def _refuse_internal(name: str) -> None:
    if name in INTERNAL_STREAMS:
        raise StatusError(Status.INVALID_ARGUMENT, "Stream is reserved")
