"""The metadata and the controller with many partitions, on one processor and without a data plane.

30 brokers, streams of 100 partitions with three replicas. Every figure is what one broker spends on one entry.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from bascule.control import decide
from bascule.control.decide import StreamRequest
from bascule.control.reconcile import plan
from bascule.control.roles import Roles
from bascule.control.specs import stream_spec
from bascule.metadata import Command, RegisterBroker, Rejection, State, StreamSettings, apply, initial_state
from bascule.metadata.replica_commands import (
    Addresses,
    ChangeIsr,
    ConfirmBroker,
    FenceBroker,
    Finalize,
    IsrChange,
    JoinBroker,
    Register,
)
from bascule.metadata.replicas import Versions
from bascule.metadata.snapshot import decode_snapshot, encode_snapshot
from session import Bench

BROKERS: Final = 30
PARTITIONS: Final = 100
"""Of each stream."""
SIZES: Final = (1_000, 10_000, 100_000)
"""Partitions of the cluster."""
HERE: Final = Addresses("127.0.0.1", 9292, "127.0.0.1", 7101)
ISR_CHANGES: Final = 1_000
"""The most that one entry has."""


class Plane:
    """Takes roles, as the data plane does: their bytes are counted."""

    def __init__(self) -> None:
        self.bytes = 0

    def set_roles(self, index: int, changes: Mapping[str, Any]) -> None:
        """Take over roles."""
        self.bytes = len(json.dumps({"index": index, **changes}))


class Cluster:
    """A state that entries change, each of which is accepted."""

    def __init__(self) -> None:
        self.state: State = initial_state()
        self.do(RegisterBroker("b00", HERE.host, HERE.port, 1))
        self.do(Finalize(2, "scaling", 1))
        for number in range(BROKERS):
            name = f"b{number:02}"
            if number:
                self.do(JoinBroker(name, f"dir-{name}", HERE, Versions(1, 2), "", 1, raft_id=number + 1))
            self.do(Register(name, 100 + number, f"dir-{name}", 0, "k", "m", HERE, Versions(1, 2)))
            self.do(ConfirmBroker(name, self.state.brokers[name].boot_epoch))

    def do(self, command: Command) -> None:
        """Apply an entry."""
        self.state, result = apply(self.state, self.state.index + 1, command)
        if isinstance(result, Rejection):
            raise RuntimeError(f"{command}: {result}")  # noqa: TRY004 - an answer, not a type

    def create(self, number: int) -> None:
        """Place and create one stream."""
        settings = StreamSettings(min_isr=2)
        request = StreamRequest("default", f"s{number:05}", f"s{number:05}", "", PARTITIONS, 3, settings)
        command = decide.create_stream(self.state, request, 1)
        if isinstance(command, Rejection):
            raise RuntimeError(str(command))  # noqa: TRY004 - an answer, not a type
        self.do(command)


def scaling(bench: Bench) -> None:
    """Entries, snapshots and views with 1,000 to 100,000 partitions."""
    for size in SIZES[: 2 if bench.quick else None]:
        _measure(bench, size)


def _measure(bench: Bench, size: int) -> None:
    def keep(what: str, seconds: float, **more: float) -> None:
        name = f"scaling, {size} partitions: {what}"
        bench.figures[name] = {"ms": seconds * 1e3, **more}
        extra = "".join(f", {key} {value:,.0f}" for key, value in more.items())
        print(f"{name:70} {seconds * 1e3:12,.2f} ms{extra}", flush=True)

    cluster = Cluster()
    streams = size // PARTITIONS
    for number in range(streams - 1):
        cluster.create(number)
    seconds, _ = _timed(lambda: cluster.create(streams - 1))
    keep("create a stream of 100 partitions", seconds)
    _roles(keep, cluster)
    _isr(keep, cluster)
    _fence(keep, cluster)
    seconds, snapshot = _timed(lambda: encode_snapshot(cluster.state))
    keep("encode a snapshot", seconds, bytes=len(snapshot))
    seconds, decoded = _timed(lambda: decode_snapshot(snapshot))
    if decoded != cluster.state:
        raise RuntimeError("the snapshot has another state")
    keep("decode a snapshot", seconds)
    seconds, view = _timed(lambda: json.dumps([stream_spec(item) for item in cluster.state.streams.values()]))
    keep("encode the whole view", seconds, bytes=len(view))


Keep = Callable[..., None]


def _roles(keep: Keep, cluster: Cluster) -> None:
    """What a broker does when it starts: it learns all of its roles."""
    plane = Plane()
    roles = Roles(plane, "b00")
    seconds, _ = _timed(lambda: roles.follow(cluster.state))
    keep("show a broker all of its roles", seconds, bytes=plane.bytes)


def _isr(keep: Keep, cluster: Cluster) -> None:
    """One leader shrinks an ISR; then one has many changes at once."""
    for count, what in ((1, "an entry with one ISR"), (ISR_CHANGES, f"an entry with {ISR_CHANGES:,} ISRs")):
        leader = cluster.state.brokers["b00"]
        led = [part for stream in cluster.state.streams.values() for part in stream.partitions if part.leader == "b00"]
        changes = tuple(
            IsrChange(part.incarnation, part.leader_epoch, part.epoch, part.isr[:2])
            for part in [item for item in led if len(item.isr) == 3 and item.isr[0] == "b00"][:count]
        )
        _entry(keep, cluster, f"{what} ({len(changes)} here)", ChangeIsr("b00", leader.boot_epoch, changes))


def _fence(keep: Keep, cluster: Cluster) -> None:
    """A broker dies with all that it leads."""
    dead = cluster.state.brokers["b01"]
    live = tuple(sorted(name for name in cluster.state.brokers if name != dead.id))
    led = sum(part.leader == dead.id for stream in cluster.state.streams.values() for part in stream.partitions)
    _entry(keep, cluster, f"fence a broker with {led:,} leaders", FenceBroker(dead.id, dead.boot_epoch, live))


def _entry(keep: Keep, cluster: Cluster, what: str, command: Command) -> None:
    """Apply an entry, and carry it out at another broker."""
    plane, before = Plane(), cluster.state
    roles = Roles(plane, "b00")
    roles.follow(before)
    seconds, _ = _timed(lambda: cluster.do(command))
    keep(f"{what}: apply", seconds)
    seconds, steps = _timed(lambda: plan(before, cluster.state, "b00"))
    keep(f"{what}: plan", seconds)
    seconds, _ = _timed(lambda: roles.follow(cluster.state))
    keep(f"{what}: roles", seconds, bytes=plane.bytes)
    seconds, view = _timed(lambda: json.dumps([stream_spec(item) for item in steps.streams]))
    keep(f"{what}: encode the change of the view", seconds, bytes=len(view))


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result
