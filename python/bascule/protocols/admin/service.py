"""All handlers of the service, for the router.

A handler takes the request as a message and returns the answer as one; everything else is done here, alike for all.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from bascule._admin_pb import message
from bascule._methods import METHODS
from bascule.control.archives import Archives
from bascule.control.queries import Queries
from bascule.control.sinks import Sinks
from bascule.metadata import Stream, StreamSettings
from bascule.protocols.admin.archives import ArchiveMethods
from bascule.protocols.admin.details import DetailMethods
from bascule.protocols.admin.editing import EditingMethods
from bascule.protocols.admin.queries import QueryMethods
from bascule.protocols.admin.removal import RemovalMethods
from bascule.protocols.admin.requests import MethodHandler, read_request
from bascule.protocols.admin.sinks import SinkMethods
from bascule.protocols.admin.users import UserMethods
from bascule.protocols.iggy import IggyAdmin
from bascule.protocols.liftbridge.authorization import check_rights
from bascule.protocols.liftbridge.creation_guard import CreationGuard
from bascule.protocols.router import AdminRequest, Handler
from bascule.security import Access


class Managed(NamedTuple):
    """What the methods are about, beside streams and groups."""

    sinks: Sinks
    queries: Queries
    archives: Archives


class AdminService:
    """The handlers. `defaults`: settings of a stream whose creator left them open; `access` is checked before each
    method, `creation_guard` says what may be created. `iggy`: serves Iggy's clients, whose users are administered.
    """

    def __init__(
        self,
        managed: Managed,
        defaults: StreamSettings,
        access: Access | None = None,
        creation_guard: CreationGuard | None = None,
        iggy: IggyAdmin | None = None,
    ) -> None:
        sinks, queries, archives = managed
        self._controller = controller = sinks.controller
        self._access = access or Access()
        self._parts = (
            RemovalMethods(controller),
            EditingMethods(controller, defaults, creation_guard or CreationGuard()),
            DetailMethods(controller),
            SinkMethods(sinks),
            QueryMethods(queries),
            ArchiveMethods(archives),
            UserMethods(controller, iggy),
        )

    def handlers(self) -> dict[str, Handler]:
        """Handler by method, for the router."""
        handlers: dict[str, MethodHandler] = {}
        for part in self._parts:
            handlers.update(part.handlers())
        return {
            f"admin/{name}": served(name, handler, self._access, self._streams) for name, handler in handlers.items()
        }

    def _streams(self) -> Collection[Stream]:
        return self._controller.state.streams.values()


def served(
    name: str, handler: MethodHandler, access: Access, streams: Callable[[], Collection[Stream]] = tuple[Stream]
) -> Handler:
    """A handler of bytes: reads the request of the method `name`, checks the client's rights, and calls `handler`.
    `streams`: those that exist.
    """
    method = METHODS[name]
    kind = message(method.request)

    async def serve(request: AdminRequest) -> bytes:
        # Rights that do not depend on the request come first: it may be large.
        if method.resource == "*":
            check_rights(access, request, name, None, streams)
        asked = read_request(kind, request.body, method.request_bytes)
        if method.resource != "*":
            check_rights(access, request, name, asked, streams)
        answer = await handler(asked, request)
        serialized: bytes = answer.SerializeToString()
        return serialized

    return serve
