"""What a broker that is one of several does differently: registration, duties, and the calls that it refuses."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from bascule._seam import Expired, Stopped
from bascule._seam import Office as OfficeChange
from bascule.config import Settings
from bascule.config.listening import parse_address
from bascule.control import Controller, MetadataLog, Reconciler
from bascule.control.cluster import ClusterRules, Identity, Membership
from bascule.control.fencing import Fencing
from bascule.control.office import Office
from bascule.control.roles import Roles
from bascule.engine import Engine
from bascule.logs import emit
from bascule.metadata import Broker as Member
from bascule.metadata import State
from bascule.metadata.replica_commands import Addresses
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.router import AdminRequest, Handler

__all__ = ["FOREVER_S", "Cluster", "refuse_unsafe"]

FOREVER_S: Final = 10 * 365 * 86_400.0
"""A start waits for a majority of the brokers, which may be started by hand one after the other."""

SERVED: Final = frozenset(
    {
        "liftbridge/CreateStream",
        "liftbridge/DeleteStream",
        "liftbridge/PauseStream",
        "liftbridge/ResumePartition",
        "liftbridge/SetStreamReadonly",
        "liftbridge/FetchMetadata",
        "liftbridge/FetchPartitionMetadata",
        "liftbridge/JoinConsumerGroup",
        "liftbridge/LeaveConsumerGroup",
        "liftbridge/FetchConsumerGroupAssignments",
        "liftbridge/ReportConsumerGroupCoordinator",
        "admin/FetchStreamDetails",
        "admin/FetchStreams",
        "admin/FetchGroupDetails",
        "admin/FetchBrokerDetails",
        "admin/FetchClusterStatus",
        "admin/EditStream",
        "admin/ResumeStream",
        "admin/CheckCreateStream",
        "admin/TrimPartition",
        "admin/PurgeStream",
        "admin/FetchUsers",
        "admin/CreateUser",
        "admin/DeleteUser",
        "admin/SetUserPassword",
        "admin/SetUserStatus",
        "admin/SetUserRights",
        "admin/CreateUserToken",
        "admin/DeleteUserToken",
    }
)
"""Methods of the control plane that are safe with several brokers; the others are refused by name."""

SERVED_PROTOCOLS: Final = ("iggy/", "iggy0/", "iggy2/", "iggyhttp/", "iggygroups/")
"""Prefixes of methods that are all safe: what is not refuses itself."""


_CHANGES: Final = {"fenced": (30, "a broker is fenced"), "confirmed": (20, "a broker is live")}
"""Level and text of the line about a broker whose run changed so."""


class Cluster:
    """The part of a broker that knows of the others. Belongs to the event loop's thread."""

    def __init__(self, settings: Settings, engine: Engine, broker_id: str) -> None:
        self._settings = settings
        self._engine = engine
        self._broker_id = broker_id
        self._office: Office | None = None
        self._fencing: Fencing | None = None
        self._early: list[OfficeChange] = []
        self._shown: Mapping[str, Member] = {}
        self.rules = ClusterRules(engine, broker_id)

    def on_office(self, event: OfficeChange) -> None:
        """This broker took the office of the controller, or lost it."""
        if self._office is None:
            self._early.append(event)
        else:
            self._office.on_change(event)

    def on_watched(self, event: Expired | Stopped) -> None:
        """As the controller, this broker has not heard another one in time, or heard that ended roles have stopped."""
        if self._fencing is None:
            return
        if isinstance(event, Stopped):
            self._fencing.on_stopped(event)
        else:
            self._fencing.on_expired(event)

    def membership(self, controller: Controller, host: str, port: int) -> Membership:
        """What makes this run known; clients reach it at `host` and `port`."""
        peers = self._settings.cluster.peers
        peer_host, peer_port = parse_address(peers[self._broker_id])
        addresses = Addresses(host, port, peer_host, peer_port)
        founder = min(peers, key=lambda name: name.encode())
        return Membership(controller, self._engine, Identity(self._broker_id, addresses, founder))

    def follow(self, controller: Controller) -> None:
        """Tell handshakes of the runs that the state knows, now and after every entry."""
        self._show_runs(controller.state)
        controller.follow(self._show_runs)

    def begin_roles(self, controller: Controller, reconciler: Reconciler) -> None:
        """Give replicas their roles, now and after every entry. What an earlier run led, this one leads no more."""
        roles = Roles(self._engine, self._broker_id, reconciler.done.index)
        roles.follow(controller.state)
        controller.follow(roles.follow)
        reconciler.follow(roles.on_carried_out)

    def _show_runs(self, state: State) -> None:
        if state.brokers is self._shown:
            return
        before, self._shown = self._shown, state.brokers
        runs = [(item.raft_id, item.boot_epoch, item.nonce, item.run == "fenced") for item in state.brokers.values()]
        self._engine.know_brokers(runs)
        for name, member in sorted(state.brokers.items()):
            known = before.get(name)
            if known is not None and known.run != member.run and member.run in _CHANGES:
                level, text = _CHANGES[member.run]
                emit(level, "cluster", text, broker=name, boot_epoch=member.boot_epoch)

    def office(self, controller: Controller, log: MetadataLog, *duties: Callable[[], Awaitable[None]]) -> Office:
        """The duties of the controller, for the supervisor."""
        self._fencing = fencing = Fencing(controller, self._engine)
        self._office = office = Office(log, [*duties, lambda: fencing.run(office.term)])
        for event in self._early:
            office.on_change(event)
        self._early.clear()
        return office


def refuse_unsafe(handlers: Mapping[str, Handler]) -> dict[str, Handler]:
    """The handlers of a broker of a cluster: those of other methods than `SERVED` refuse by name."""
    return {name: handler if is_served(name) else _refused(name) for name, handler in handlers.items()}


def is_served(name: str) -> bool:
    """Whether a method is safe with several brokers."""
    return name in SERVED or name.startswith(SERVED_PROTOCOLS)


def _refused(name: str) -> Handler:
    async def refuse(_: AdminRequest) -> bytes:
        method = name.rpartition("/")[2]
        message = f"{method} is not available with several brokers yet"
        raise StatusError(Status.FAILED_PRECONDITION, message, "cluster_unsupported")

    return refuse
