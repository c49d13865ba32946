"""CreateStream, DeleteStream, PauseStream, SetStreamReadonly (liftbridge §3.1 to §3.4), and what the data plane
itself asks for on behalf of a publisher or a subscriber: resuming a partition.
"""

import json
from typing import Any

from bascule._liftbridge_pb import message
from bascule.control import Controller, Target
from bascule.control.specs import INTERNAL_STREAMS
from bascule.errors import BrokerError, CapacityError
from bascule.metadata import DEFAULT_NAMESPACE, MAX_PARTITIONS, StreamSettings
from bascule.metadata.rejection import RejectedError, RejectionCode
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge.creation import stream_request
from bascule.protocols.liftbridge.creation_guard import CreationGuard
from bascule.protocols.liftbridge.messages import check_count, parse, serialize
from bascule.protocols.liftbridge.rejections import not_applied, status_of_rejection
from bascule.protocols.router import AdminRequest, Handler

_CreateStreamRequest = message("CreateStreamRequest")
_CreateStreamResponse = message("CreateStreamResponse")
_DeleteStreamRequest = message("DeleteStreamRequest")
_DeleteStreamResponse = message("DeleteStreamResponse")
_PauseStreamRequest = message("PauseStreamRequest")
_PauseStreamResponse = message("PauseStreamResponse")
_SetStreamReadonlyRequest = message("SetStreamReadonlyRequest")
_SetStreamReadonlyResponse = message("SetStreamReadonlyResponse")


class StreamMethods:
    """The handlers. `defaults`: settings that a request may leave out; `creation_guard` bounds what is created."""

    def __init__(self, controller: Controller, defaults: StreamSettings, creation_guard: CreationGuard) -> None:
        self._controller = controller
        self._defaults = defaults
        self._creation_guard = creation_guard

    def handlers(self) -> dict[str, Handler]:
        """Handler by method."""
        return {
            "CreateStream": self.create_stream,
            "DeleteStream": self.delete_stream,
            "PauseStream": self.pause_stream,
            "SetStreamReadonly": self.set_stream_readonly,
            "ResumePartition": self.resume_partition,
        }

    async def create_stream(self, request: AdminRequest) -> bytes:
        """CreateStream."""
        wanted = stream_request(parse(_CreateStreamRequest, request.body), self._defaults)
        try:
            with self._creation_guard.stream(self._controller.state, wanted):
                await self._controller.create_stream(wanted, request.timeout_s)
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            if failure.code == "encryption_unavailable":
                text = f"Failed on preconditions for stream's encryption handler: {failure}"
                raise StatusError(Status.FAILED_PRECONDITION, text, failure.code) from failure
            # The text of the original, but not for a full disk, which it does not report.
            is_full = isinstance(failure, CapacityError)
            text = "Failed to create the stream" if is_full else "Failed to replicate partition"
            raise not_applied(text, failure) from failure
        return serialize(_CreateStreamResponse())

    async def delete_stream(self, request: AdminRequest) -> bytes:
        """DeleteStream."""
        name: str = parse(_DeleteStreamRequest, request.body).name
        if name in INTERNAL_STREAMS:
            raise StatusError(Status.INVALID_ARGUMENT, "Stream is reserved")
        try:
            await self._controller.delete_stream(DEFAULT_NAMESPACE, name, request.timeout_s)
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            raise not_applied("Failed to delete stream", failure) from failure
        return serialize(_DeleteStreamResponse())

    async def pause_stream(self, request: AdminRequest) -> bytes:
        """PauseStream."""
        asked = parse(_PauseStreamRequest, request.body)
        target = self._target(asked)
        try:
            await self._controller.pause_stream(target, resume_all=asked.resumeAll, timeout_s=request.timeout_s)
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            raise not_applied("Failed to pause stream", failure) from failure
        return serialize(_PauseStreamResponse())

    async def set_stream_readonly(self, request: AdminRequest) -> bytes:
        """SetStreamReadonly."""
        asked = parse(_SetStreamReadonlyRequest, request.body)
        target = self._target(asked)
        try:
            await self._controller.set_readonly(target, readonly=asked.readonly, timeout_s=request.timeout_s)
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            raise not_applied("Failed to set stream readonly flag", failure) from failure
        return serialize(_SetStreamReadonlyResponse())

    async def resume_partition(self, request: AdminRequest) -> bytes:
        """Resume on behalf of a writer or a reader: `{"namespace": …, "stream": …, "partition": …}`; an empty answer
        when what had to be resumed is open. The status is the one that a unary Publish ends with.
        """
        asked: dict[str, Any] = json.loads(request.body)
        name, partition = asked["stream"], asked["partition"]
        try:
            await self._controller.resume_partition(asked["namespace"], name, partition, request.timeout_s)
        except RejectedError as rejection:
            if rejection.rejection.code is RejectionCode.STREAM_NOT_FOUND:
                raise StatusError(Status.NOT_FOUND, f"No such stream: {name}", "stream_not_found") from rejection
            if rejection.rejection.code is RejectionCode.PARTITION_NOT_FOUND:
                text = f"No such partition: {partition}"
                raise StatusError(Status.NOT_FOUND, text, "partition_not_found") from rejection
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            raise not_applied("Failed to resume stream", failure) from failure
        return b""

    def _target(self, asked: Any) -> Target:
        """The partitions that a request is about.

        Raises:
            StatusError: NOT_FOUND: all partitions of a stream that does not exist. INVALID_ARGUMENT: more numbers than
                a stream may have partitions.
        """
        check_count("partitions", len(asked.partitions), MAX_PARTITIONS, "name each partition once")
        if not asked.partitions and self._controller.state.stream(DEFAULT_NAMESPACE, asked.name) is None:
            raise StatusError(Status.NOT_FOUND, "stream not found", "stream_not_found")
        return Target(DEFAULT_NAMESPACE, asked.name, tuple(asked.partitions))
