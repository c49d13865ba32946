"""This broker as a member of a cluster: how it becomes known, and what is not safe with several brokers yet.

`next_step` is pure: the state and what this run has to say in, the entry that is missing out. Only a majority of the
brokers can commit it, so a start waits for one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bascule.control.decide import StreamRequest
from bascule.errors import BrokerError, error
from bascule.logs import emit
from bascule.metadata import Command, Partition, RegisterBroker, State, Stream, StreamSettings
from bascule.metadata.rejection import RejectedError
from bascule.metadata.replica_commands import Addresses, ConfirmBroker, FenceBroker, Finalize, JoinBroker, Register
from bascule.metadata.replicas import MAX_LEVEL, Versions

PROPOSE_S = 10.0
LEAVE_S = 2.0
AGAIN_S = 0.2
LEVEL = 2
"""Feature level of a cluster."""


class ClusterPlane(Protocol):
    """What the data plane knows of the cluster."""

    def cluster_run(self) -> dict[str, Any]:
        """What the registration of this run has to say."""
        ...

    def store_boot_epoch(self, boot_epoch: int) -> None:
        """Store the boot epoch of this run, durably. Blocks."""
        ...

    def begin_run(self) -> None:
        """Begin another run, which has yet to register. Blocks."""
        ...

    def stop_leading(self) -> None:
        """Take no more records as the leader of several replicas; waits a moment for followers. Blocks."""
        ...

    def cluster_status(self) -> dict[str, Any]:
        """Who is the controller, and which brokers are connected."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this broker is.

    Attributes:
        broker_id: its id.
        addresses: where it is dialled.
        founder: the broker that makes the cluster known to the state.
    """

    broker_id: str
    addresses: Addresses
    founder: str


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a registration says of the run; see `Register` and `JoinBroker`."""

    nonce: int
    stored: int
    directory_id: str
    cluster_id: str
    raft_id: int
    kernel_boot_id: str
    mount_id: str


def next_step(state: State, identity: Identity, run: RunFacts, now_ns: int) -> Command | None:
    """The entry that comes next until this run is registered; `None` = it is, or another broker's entry is missing.

    Raises:
        StateError: `broker_id_in_use`: the id was given to another data directory.
    """
    known = state.brokers.get(identity.broker_id)
    if state.level < LEVEL:
        if identity.broker_id != identity.founder:
            return None
        if known is None:
            return RegisterBroker(identity.broker_id, identity.addresses.host, identity.addresses.port, now_ns)
        return Finalize(LEVEL, run.cluster_id, run.raft_id)
    versions = Versions(1, MAX_LEVEL)
    if known is None:
        return JoinBroker(
            identity.broker_id, run.directory_id, identity.addresses, versions, "", now_ns, raft_id=run.raft_id
        )
    if known.directory_id not in {"", run.directory_id}:
        message = (
            f"broker id {identity.broker_id} belongs to another data directory of this cluster: start it with that"
            " directory, or give this broker an id of its own"
        )
        raise error("broker_id_in_use", message)
    if is_registered(state, identity, run):
        return None
    return Register(
        identity.broker_id,
        run.nonce,
        run.directory_id,
        run.stored,
        run.kernel_boot_id,
        run.mount_id,
        identity.addresses,
        versions,
    )


def is_fenced(state: State, identity: Identity, run: RunFacts) -> bool:
    """Whether this run was registered and is over: nothing was heard of it for too long."""
    known = state.brokers.get(identity.broker_id)
    return known is not None and known.nonce == run.nonce and known.run == "fenced"


def is_registered(state: State, identity: Identity, run: RunFacts) -> bool:
    """Whether this run has its boot epoch."""
    known = state.brokers.get(identity.broker_id)
    return known is not None and known.nonce == run.nonce


class ClusterRules:
    """What a broker of a cluster does not do yet, and whom it reaches."""

    def __init__(self, plane: ClusterPlane, broker_id: str) -> None:
        self._plane = plane
        self._broker_id = broker_id

    def status(self) -> dict[str, Any]:
        """Where this broker stands in its cluster."""
        return self._plane.cluster_status()

    def reachable(self) -> frozenset[str]:
        """The brokers that are connected, and this one."""
        return frozenset({self._broker_id, *self._plane.cluster_status()["connected"]})

    def has_lease(self) -> bool:
        """Whether the controller has heard this broker a moment ago, so that no other one has its place."""
        return self._plane.cluster_status()["lease_ms"] > 0

    def check(self, request: StreamRequest) -> None:
        """Refuse a stream that is not safe with several brokers yet.

        Raises:
            StateError: `cluster_unsupported`.
        """
        if request.settings.encryption:
            message = "encryption of streams is not available with several brokers yet: create the stream without it"
            raise error("cluster_unsupported", message, {"setting": "encryption"})
        if request.replication_factor != 1:
            _check_replicated(request.settings)

    def check_edit(self, stream: Stream, settings: StreamSettings) -> None:
        """Refuse settings that are not safe with several replicas yet.

        Raises:
            StateError: `cluster_unsupported`.
        """
        if any(len(item.replicas) > 1 for item in stream.partitions):
            _check_replicated(settings)

    def check_pause(self, partitions: Sequence[Partition]) -> None:
        """Refuse to pause partitions whose replicas do not know yet how to end together.

        Raises:
            StateError: `cluster_unsupported`.
        """
        if any(len(item.replicas) > 1 for item in partitions):
            message = "a stream with several replicas cannot be paused yet"
            raise error("cluster_unsupported", message, {"setting": "replicationFactor"})


def _check_replicated(settings: StreamSettings) -> None:
    """Refuse settings that work with one replica only, by name."""
    alone = {
        "natsAcks": settings.nats_acks != "off",
        "autoPauseTime": bool(settings.auto_pause_ms),
        "retentionAfterArchive": bool(settings.retention_after_archive),
        "retentionHoldMaxBytes": settings.retention_hold_max_bytes is not None,
    }
    if setting := next((name for name, asked in alone.items() if asked), ""):
        message = f"{setting} is not available with several replicas yet: leave it off, or use replicationFactor 1"
        raise error("cluster_unsupported", message, {"setting": setting})


class ClusterLog(Protocol):
    """What registering needs of the controller."""

    @property
    def state(self) -> State:
        """The state as this broker knows it."""
        ...

    def now_ns(self) -> int:
        """The time, ns since 1970."""
        ...

    async def propose(self, command: Command, timeout_s: float) -> int:
        """Have a command committed and applied."""
        ...


class Membership:
    """Makes this run known to the cluster, and another one when it is fenced. Belongs to the event loop's thread."""

    def __init__(self, log: ClusterLog, plane: ClusterPlane, identity: Identity) -> None:
        self._log = log
        self._plane = plane
        self._identity = identity
        self._last_failure = ""
        self._is_leaving = False
        self._changed = asyncio.Event()

    def on_state(self, _: State) -> None:
        """Note that the state has changed, for `keep`."""
        self._changed.set()

    async def enter(self, carry_out: Callable[[], Awaitable[None]]) -> None:
        """Register and confirm this run. `carry_out`: waits until what is applied is carried out here.

        Raises:
            BrokerError: as `register`.
        """
        while True:
            await self.register()
            await carry_out()
            if await self.confirm():
                return
            await asyncio.to_thread(self._plane.begin_run)

    async def keep(self, carry_out: Callable[[], Awaitable[None]]) -> None:
        """Enter again whenever this run is fenced, until cancelled. What it led is led again after that, if no other
        broker leads it.

        Raises:
            BrokerError: as `register`.
        """
        while True:
            self._changed.clear()
            if not self._is_leaving and is_fenced(self._log.state, self._identity, self._run()):
                emit(30, "cluster", "this broker was silent for too long and is fenced: it registers again")
                await asyncio.to_thread(self._plane.begin_run)
                await self.enter(carry_out)
                emit(20, "cluster", "this broker is registered again")
            else:
                await self._changed.wait()

    async def leave(self) -> None:
        """Say goodbye before a planned stop: this run ends itself, so that others lead what it led, and wait for it no
        more. Where that cannot be committed in time, they find out by its silence.
        """
        self._is_leaving = True
        known = self._log.state.brokers.get(self._identity.broker_id)
        status = self._plane.cluster_status()
        others = {
            name
            for name in status["connected"]
            if (other := self._log.state.brokers.get(name)) is not None and other.run == "confirmed"
        }
        if known is None or known.run != "confirmed" or not others or status["controller"] is None:
            return
        try:
            await asyncio.to_thread(self._plane.stop_leading)
            goodbye = FenceBroker(known.id, known.boot_epoch, tuple(sorted(others)), self._log.now_ns())
            await self._log.propose(goodbye, LEAVE_S)
        except (RejectedError, BrokerError) as failure:
            emit(30, "cluster", f"the others do not know that this broker stops: {failure}")

    async def register(self) -> None:
        """Become known, and have this run registered; returns when its boot epoch is durable here. Waits for a majority
        of the brokers, for ever if need be, and logs what is missing.

        Raises:
            StateError: `broker_id_in_use`; `storage_failed`: the boot epoch could not be stored.
            UnavailableError: `metadata_stopped`.
        """
        run = self._run()
        while not is_registered(self._log.state, self._identity, run):
            step = next_step(self._log.state, self._identity, run, self._log.now_ns())
            await self._try(step)
            run = self._run()
        known = self._log.state.brokers[self._identity.broker_id]
        await asyncio.to_thread(self._plane.store_boot_epoch, known.boot_epoch)

    async def confirm(self) -> bool:
        """Say that this run may lead. What it leads is in the state after that. False: it was fenced before that.

        Raises:
            UnavailableError: `metadata_stopped`.
        """
        broker_id = self._identity.broker_id
        while (known := self._log.state.brokers[broker_id]).run != "confirmed":
            if known.run == "fenced":
                return False
            await self._try(ConfirmBroker(broker_id, known.boot_epoch))
        return True

    async def _try(self, step: Command | None) -> None:
        """Propose one entry. Whether it was applied is seen in the state: a repetition is rejected by that."""
        if step is None:
            await asyncio.sleep(AGAIN_S)
            return
        try:
            await self._log.propose(step, PROPOSE_S)
        except (RejectedError, BrokerError) as failure:
            if isinstance(failure, BrokerError) and failure.code == "metadata_stopped":
                raise
            if str(failure) != self._last_failure:
                self._last_failure = str(failure)
                emit(30, "cluster", f"this broker is not registered yet, and tries again: {failure}")
            await asyncio.sleep(AGAIN_S)

    def _run(self) -> RunFacts:
        return RunFacts(**self._plane.cluster_run())
