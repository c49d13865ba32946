"""EditStream, ResumeStream and CheckCreateStream: ours, beside Liftbridge's methods; see `specs/formats/admin.md`."""

import json
from collections.abc import Sequence

from bascule._liftbridge_pb import message
from bascule.control import Controller, Target
from bascule.control.specs import INTERNAL_STREAMS
from bascule.errors import BrokerError
from bascule.metadata import DEFAULT_NAMESPACE, MAX_PARTITIONS, StreamSettings
from bascule.metadata.json_codec import to_plain
from bascule.metadata.rejection import RejectedError
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge.creation import stream_request
from bascule.protocols.liftbridge.gate import Gate
from bascule.protocols.liftbridge.messages import check_count, parse, read_object, serialize
from bascule.protocols.liftbridge.rejections import not_applied, status_of_rejection
from bascule.protocols.router import AdminRequest, Handler

_CreateStreamRequest = message("CreateStreamRequest")
_CreateStreamResponse = message("CreateStreamResponse")


class EditingMethods:
    """The handlers. `defaults` holds what a stream gets whose creator did not say; `gate` says what may be created."""

    def __init__(self, controller: Controller, defaults: StreamSettings, gate: Gate) -> None:
        self._controller = controller
        self._defaults = defaults
        self._gate = gate

    def handlers(self) -> dict[str, Handler]:
        """Handler by method."""
        return {
            "EditStream": self.edit_stream,
            "ResumeStream": self.resume_stream,
            "CheckCreateStream": self.check_create_stream,
        }

    async def edit_stream(self, request: AdminRequest) -> bytes:
        """`{"name", "changes", "dry_run"}` to `{"before", "after"}`: all settings of the stream."""
        asked = read_object(request.body, {"name": str, "changes": dict, "dry_run": bool})
        if asked["name"] in INTERNAL_STREAMS:
            raise StatusError(Status.INVALID_ARGUMENT, "Stream is reserved")
        try:
            before, after = await self._controller.edit_stream(
                DEFAULT_NAMESPACE,
                asked["name"],
                asked["changes"],
                dry_run=asked["dry_run"],
                timeout_s=request.timeout_s,
            )
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            raise not_applied("Failed to edit stream", failure) from failure
        return json.dumps({"before": to_plain(before), "after": to_plain(after)}).encode()

    async def resume_stream(self, request: AdminRequest) -> bytes:
        """`{"name", "partitions", "dry_run"}` to `{"resumed"}`; no partitions = all that are paused."""
        asked = read_object(request.body, {"name": str, "partitions": list, "dry_run": bool})
        target = Target(DEFAULT_NAMESPACE, asked["name"], _numbers(asked["partitions"]))
        try:
            resumed = await self._controller.resume_stream(
                target, dry_run=asked["dry_run"], timeout_s=request.timeout_s
            )
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            raise not_applied("Failed to resume stream", failure) from failure
        return json.dumps({"resumed": resumed}).encode()

    async def check_create_stream(self, request: AdminRequest) -> bytes:
        """A CreateStreamRequest to an empty CreateStreamResponse, or the status that CreateStream would end with."""
        wanted = stream_request(parse(_CreateStreamRequest, request.body), self._defaults)
        try:
            self._gate.check_stream(self._controller.state, wanted)
            self._controller.check_create_stream(wanted)
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            if failure.code == "encryption_unavailable":
                text = f"Failed on preconditions for stream's encryption handler: {failure}"
                raise StatusError(Status.FAILED_PRECONDITION, text, failure.code) from failure
            raise
        return serialize(_CreateStreamResponse())


def _numbers(partitions: Sequence[object]) -> tuple[int, ...]:
    check_count("partitions", len(partitions), MAX_PARTITIONS, "name each partition once")
    numbers = tuple(item for item in partitions if type(item) is int)
    if len(numbers) != len(partitions):
        raise StatusError(Status.INVALID_ARGUMENT, "partitions is not a list of numbers")
    return numbers
