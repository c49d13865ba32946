"""All handlers of the protocol, for the router."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from bascule.control import Controller
from bascule.errors import BrokerError
from bascule.metadata import DEFAULT_TOKENS, StreamSettings
from bascule.metadata.rejection import RejectedError, RejectionCode
from bascule.protocols.grpc_status import StatusError
from bascule.protocols.iggy.authorization import OPEN, caller, check
from bascule.protocols.iggy.commands import SINCE_V2, decode
from bascule.protocols.iggy.fields import MalformedError
from bascule.protocols.iggy.groups import GroupCommands
from bascule.protocols.iggy.http import HttpService
from bascule.protocols.iggy.logins import Logins
from bascule.protocols.iggy.machine import Machine
from bascule.protocols.iggy.members import MemberRequests
from bascule.protocols.iggy.numbering import FirstNumber, counting_from
from bascule.protocols.iggy.partitions import PartitionCommands
from bascule.protocols.iggy.passwords import Passwords
from bascule.protocols.iggy.requests import IggyHandler, IggyRequest
from bascule.protocols.iggy.showing import Showing
from bascule.protocols.iggy.statuses import IggyError, IggyStatus, from_failure, from_rejection
from bascule.protocols.iggy.streams import StreamCommands
from bascule.protocols.iggy.system import SystemCommands
from bascule.protocols.iggy.tokens import TokenCommands
from bascule.protocols.iggy.topics import TopicCommands
from bascule.protocols.iggy.users import UserCommands
from bascule.protocols.liftbridge import CreationGuard
from bascule.protocols.router import AdminRequest, Handler
from bascule.security import Access

__all__ = ["IggyAdmin"]

_PREFIXES: Final[dict[str, FirstNumber]] = {"iggy": 1, "iggy0": 0, "iggy2": 0}
"""Of methods: what the client calls the first of anything."""
_V2: Final = "iggy2"
"""The prefix of clients of v2."""

_NUMBER_IN_USE = {
    "CREATE_STREAM": IggyStatus.STREAM_ID_EXISTS,
    "CREATE_TOPIC": IggyStatus.TOPIC_ID_EXISTS,
    "CREATE_CONSUMER_GROUP": IggyStatus.GROUP_ID_EXISTS,
}


class IggyAdmin:
    """The handlers. `defaults`: settings that are stored with a topic; `creation_guard` is asked before one is created;
    `access` may deny what a user's rights allow; `data_dir`: on the disk whose room is shown; `tokens_per_user`: at
    most, 1 to 1,000.

    Attributes:
        logins: of the clients.
        users: of the clients.
        system: about the broker itself.
        tokens: of the users.
    """

    def __init__(  # noqa: PLR0913 (what a broker has, and a setting)
        self,
        controller: Controller,
        defaults: StreamSettings,
        creation_guard: CreationGuard,
        data_dir: Path,
        access: Access | None = None,
        *,
        tokens_per_user: int = DEFAULT_TOKENS,
    ) -> None:
        showing = Showing(controller)
        passwords = Passwords()
        self._controller = controller
        self._access = access or Access()
        self.logins = Logins(controller, passwords)
        self.users = UserCommands(controller, passwords)
        self.tokens = TokenCommands(controller, tokens_per_user)
        self.system = SystemCommands(controller, Machine(data_dir))
        self._parts = (
            self.logins,
            self.users,
            self.tokens,
            StreamCommands(controller, showing, _held_by_sinks(controller)),
            TopicCommands(controller, showing, defaults, creation_guard),
            PartitionCommands(controller, creation_guard),
            GroupCommands(controller),
            self.system,
        )

    def handlers(self) -> dict[str, Handler]:
        """Handler by method, for the router."""
        commands = self.commands()
        http = HttpService(self._controller, commands).handlers()
        return commands | http | MemberRequests(self._controller).handlers()

    def commands(self) -> dict[str, Handler]:
        """Handlers of the binary protocol, by method."""
        handlers = [item for part in self._parts for item in part.handlers().items()]
        return {
            f"{prefix}/{name}": self._decoded(name, handler, first, options=prefix == _V2)
            for prefix, first in _PREFIXES.items()
            for name, handler in handlers
            if prefix == _V2 or name not in SINCE_V2
        }

    def _decoded(self, name: str, handler: IggyHandler, first: FirstNumber, *, options: bool) -> Handler:
        """The handler of a payload, for those who may give the command; every failure is one of Iggy's statuses."""

        async def handle(request: AdminRequest) -> bytes:
            try:
                with counting_from(first, options=options):
                    command = decode(name, request.body)
                    user = caller(self._controller.state, request.client)
                    decoded = IggyRequest(command, request.peer, user, request.timeout_s)
                    if name not in OPEN:
                        check(self._controller.state, self._access, decoded, name)
                    return await handler(decoded)
            except MalformedError as malformed:
                raise IggyError(IggyStatus.INVALID_COMMAND, str(malformed)) from malformed
            except RejectedError as rejected:
                if rejected.rejection.code is RejectionCode.USER_IS_ROOT and name == "DELETE_USER":
                    raise IggyError(IggyStatus.CANNOT_DELETE_USER, rejected.rejection.message) from rejected
                raise from_rejection(rejected, _NUMBER_IN_USE.get(name, IggyStatus.ERROR)) from rejected
            except IggyError:
                raise
            except StatusError as refused:
                # What Liftbridge would refuse by its own rules: names under the broker's prefix.
                raise IggyError(IggyStatus.INVALID_TOPIC_NAME, refused.message) from refused
            except BrokerError as failure:
                raise from_failure(failure) from failure

        return handle


def _held_by_sinks(controller: Controller) -> Callable[[str], str]:
    """Why a namespace may not be deleted, empty = it may: a sink in it would be left without its streams."""

    def reason(namespace: str) -> str:
        names = sorted(key.name for key in controller.state.sinks if key.namespace == namespace)
        if not names:
            return ""
        return f"stream {namespace!r} has the sink {names[0]!r}: delete it first, bascule sink delete"

    return reason
