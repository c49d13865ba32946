"""TrimPartition and PurgeStream: ours, beside the methods of Liftbridge, with JSON objects as bodies."""

import json

from bascule.control import Controller, Trim
from bascule.control.specs import INTERNAL_STREAMS
from bascule.errors import BrokerError
from bascule.metadata import DEFAULT_NAMESPACE
from bascule.metadata.rejection import RejectedError
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge.messages import read_object
from bascule.protocols.liftbridge.rejections import not_applied, status_of_rejection
from bascule.protocols.router import AdminRequest, Handler


class RemovalMethods:
    """The handlers."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handlers(self) -> dict[str, Handler]:
        """Handler by method."""
        return {"TrimPartition": self.trim_partition, "PurgeStream": self.purge_stream}

    async def trim_partition(self, request: AdminRequest) -> bytes:
        """`{"name", "partition", "before", "dry_run"}` to `{"log_start_before", "log_start"}`."""
        asked = read_object(request.body, {"name": str, "partition": int, "before": int, "dry_run": bool})
        if asked["name"] in INTERNAL_STREAMS:
            raise StatusError(Status.INVALID_ARGUMENT, "Stream is reserved")
        try:
            wanted = Trim(DEFAULT_NAMESPACE, asked["name"], asked["partition"], asked["before"])
            was, now = await self._controller.trim_partition(
                wanted, dry_run=asked["dry_run"], timeout_s=request.timeout_s
            )
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            raise not_applied("Failed to trim partition", failure) from failure
        return json.dumps({"log_start_before": was, "log_start": now}).encode()

    async def purge_stream(self, request: AdminRequest) -> bytes:
        """`{"name", "dry_run", "now" (may be absent)}` to `{"records", "at_once"}`."""
        asked = read_object(request.body, {"name": str, "dry_run": bool}, optional={"now": False})
        if asked["name"] in INTERNAL_STREAMS:
            raise StatusError(Status.INVALID_ARGUMENT, "Stream is reserved")
        try:
            records, at_once = await self._controller.purge_stream(
                DEFAULT_NAMESPACE,
                asked["name"],
                now=asked["now"],
                dry_run=asked["dry_run"],
                timeout_s=request.timeout_s,
            )
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            raise not_applied("Failed to purge stream", failure) from failure
        return json.dumps({"records": records, "at_once": at_once}).encode()
