"""EditStream, ResumeStream and CheckCreateStream."""

from typing import Any

from bascule._admin_pb import message
from bascule.control import Controller, Target
from bascule.control.specs import INTERNAL_STREAMS
from bascule.errors import BrokerError
from bascule.metadata import DEFAULT_NAMESPACE, MAX_PARTITIONS, StreamSettings
from bascule.metadata.json_codec import to_plain
from bascule.metadata.rejection import RejectedError
from bascule.protocols.admin.requests import MethodHandler
from bascule.protocols.admin.settings import settings_changes, settings_message
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge.creation import stream_request
from bascule.protocols.liftbridge.creation_guard import CreationGuard
from bascule.protocols.liftbridge.messages import check_count
from bascule.protocols.liftbridge.rejections import not_applied, status_of_rejection
from bascule.protocols.router import AdminRequest

_EditStreamResponse = message("EditStreamResponse")
_ResumeStreamResponse = message("ResumeStreamResponse")
_CheckCreateStreamResponse = message("CheckCreateStreamResponse")


class EditingMethods:
    """The handlers. `defaults`: settings that a request may leave out; `creation_guard` bounds what is created."""

    def __init__(self, controller: Controller, defaults: StreamSettings, creation_guard: CreationGuard) -> None:
        self._controller = controller
        self._defaults = defaults
        self._creation_guard = creation_guard

    def handlers(self) -> dict[str, MethodHandler]:
        """Handler by method."""
        return {
            "EditStream": self.edit_stream,
            "ResumeStream": self.resume_stream,
            "CheckCreateStream": self.check_create_stream,
        }

    async def edit_stream(self, asked: Any, request: AdminRequest) -> Any:
        """EditStream."""
        if asked.name in INTERNAL_STREAMS:
            raise StatusError(Status.INVALID_ARGUMENT, "Stream is reserved")
        changes = settings_changes(asked)
        try:
            before, after = await self._controller.edit_stream(
                DEFAULT_NAMESPACE, asked.name, changes, dry_run=asked.dry_run, timeout_s=request.timeout_s
            )
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            raise not_applied("Failed to edit stream", failure) from failure
        return _EditStreamResponse(before=settings_message(to_plain(before)), after=settings_message(to_plain(after)))

    async def resume_stream(self, asked: Any, request: AdminRequest) -> Any:
        """ResumeStream."""
        check_count("partitions", len(asked.partitions), MAX_PARTITIONS, "name each partition once")
        target = Target(DEFAULT_NAMESPACE, asked.name, tuple(asked.partitions))
        try:
            resumed = await self._controller.resume_stream(target, dry_run=asked.dry_run, timeout_s=request.timeout_s)
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            raise not_applied("Failed to resume stream", failure) from failure
        return _ResumeStreamResponse(resumed=resumed)

    async def check_create_stream(self, asked: Any, _: AdminRequest) -> Any:
        """CheckCreateStream."""
        wanted = stream_request(asked.create, self._defaults)
        try:
            self._creation_guard.check_stream(self._controller.state, wanted)
            self._controller.check_create_stream(wanted)
        except RejectedError as rejection:
            raise status_of_rejection(rejection) from rejection
        except BrokerError as failure:
            if failure.code == "encryption_unavailable":
                text = f"Failed on preconditions for stream's encryption handler: {failure}"
                raise StatusError(Status.FAILED_PRECONDITION, text, failure.code) from failure
            raise
        return _CheckCreateStreamResponse()
