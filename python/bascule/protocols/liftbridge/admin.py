"""All handlers of the protocol, for the router."""

from collections.abc import Collection

from bascule.control import Controller
from bascule.control.groups import Groups
from bascule.metadata import Stream, StreamSettings
from bascule.protocols.liftbridge.authorization import guarded
from bascule.protocols.liftbridge.creation_guard import CreationGuard
from bascule.protocols.liftbridge.groups import GroupMethods
from bascule.protocols.liftbridge.metadata import MetadataMethods
from bascule.protocols.liftbridge.streams import StreamMethods
from bascule.protocols.router import Handler
from bascule.security import Access


class LiftbridgeAdmin:
    """The handlers. `defaults`: settings of a stream whose creator left them open; `access` is checked before each
    method, `creation_guard` before a stream or a group is created.
    """

    def __init__(
        self,
        controller: Controller,
        groups: Groups,
        defaults: StreamSettings,
        access: Access | None = None,
        creation_guard: CreationGuard | None = None,
    ) -> None:
        self._access = access or Access()
        self._controller = controller
        creation_guard = creation_guard or CreationGuard()
        self._parts = (
            StreamMethods(controller, defaults, creation_guard),
            MetadataMethods(controller),
            GroupMethods(groups, controller, creation_guard),
        )

    def handlers(self) -> dict[str, Handler]:
        """Handler by method, for the router."""
        handlers: dict[str, Handler] = {}
        for part in self._parts:
            handlers.update(part.handlers())
        return {
            f"liftbridge/{name}": guarded(name, handler, self._access, self._streams)
            for name, handler in handlers.items()
        }

    def _streams(self) -> Collection[Stream]:
        return self._controller.state.streams.values()
