"""All handlers of the protocol, for the router."""

from bascule.control import Controller
from bascule.metadata import StreamSettings
from bascule.protocols.liftbridge.metadata import MetadataMethods
from bascule.protocols.liftbridge.removal import RemovalMethods
from bascule.protocols.liftbridge.streams import StreamMethods
from bascule.protocols.router import AdminRequest, Handler
from bascule.protocols.status import Status, StatusError

_LATER = {
    "SetCursor": "cursors",
    "FetchCursor": "cursors",
    "JoinConsumerGroup": "consumer groups",
    "LeaveConsumerGroup": "consumer groups",
    "FetchConsumerGroupAssignments": "consumer groups",
    "ReportConsumerGroupCoordinator": "consumer groups",
}


class LiftbridgeAdmin:
    """The handlers. `defaults` holds what a stream gets whose creator did not say."""

    def __init__(self, controller: Controller, defaults: StreamSettings) -> None:
        self._parts = (StreamMethods(controller, defaults), MetadataMethods(controller), RemovalMethods(controller))

    def handlers(self) -> dict[str, Handler]:
        """Handler by method, for the router."""
        handlers: dict[str, Handler] = {}
        for part in self._parts:
            handlers.update(part.handlers())
        handlers.update(dict.fromkeys(_LATER, _not_yet))
        return {f"liftbridge/{name}": handler for name, handler in handlers.items()}


async def _not_yet(request: AdminRequest) -> bytes:
    name = request.method.rpartition("/")[2]
    raise StatusError(Status.UNIMPLEMENTED, f"{name}: {_LATER[name]} are not available in this version")
