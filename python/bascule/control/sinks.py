"""Sinks: opens, publishes and expires them, and shows the data plane which pieces count (docs/decisions/sink.md).

The metadata log decides; this class asks it, waits for it, and turns reports of the data plane into entries. What it
keeps in memory may be lost at any time: renewals begin again, and the data plane repeats its reports.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from bascule._seam import PartitionChange
from bascule.control.controller import Controller
from bascule.control.decide import Target
from bascule.control.decide_sinks import (
    DEFAULT_STAGING_TTL_MS,
    StagedAttempt,
    idle_attempts,
    outlived,
    paused_targets,
)
from bascule.control.sink_table import table_changes
from bascule.errors import BrokerError, error
from bascule.logs import emit
from bascule.metadata import State, StreamKey, apply_publish, apply_sinks
from bascule.metadata.apply_publish import check_epoch, difference, is_answered
from bascule.metadata.rejection import RejectedError, RejectionCode, rejected
from bascule.metadata.sink_commands import (
    AdvanceClock,
    DeleteSink,
    ExpireSink,
    LinkedPartition,
    LinkSink,
    OpenSink,
    PublishSink,
    SetSinkOwner,
    SetSinkQuota,
    SkipSink,
)
from bascule.metadata.sinks import Attempt, Sink, TargetStream, attempt_ids

LOOK_S = 30.0
"""How often idle attempts are searched for."""

CLOCK_S = 600.0
"""How often the recorded clock advances while there are sinks."""

PROPOSE_S = 30.0

SINK_REPORTS = frozenset({"linked", "link_blocked"})
"""Changes of partitions that are about sinks."""


class StagePlane(Protocol):
    """The part of `bascule.engine` that stages and links."""

    def set_sinks(self, version: int, changes: dict[str, Any]) -> None:
        """Apply changes to the sink table; `version` is the index of the entry behind them."""
        ...

    def confirm_stage(self, request: dict[str, Any]) -> dict[str, Any]:
        """What this broker does not hold of a publish: `missing`; and `from_offsets` by incarnation. Blocks."""
        ...

    def staged(self) -> list[dict[str, Any]]:
        """What is staged here, by attempt: `sink`, `generation`, `epoch`, `token`, `idle_ms`, `bytes`."""
        ...


class Sinks:
    """The sinks of a cluster, from its controller. All methods belong to the event loop's thread.

    Attributes:
        controller: which has the state.

    Args:
        most_of_owner: the most sinks of one lifetime that one owner may have in a namespace; 0 = no bound of its own.
    """

    def __init__(
        self,
        controller: Controller,
        plane: StagePlane,
        clock_s: Callable[[], float] = time.monotonic,
        *,
        most_of_owner: int = 0,
    ) -> None:
        self.controller = controller
        self._most_of_owner = most_of_owner
        self._plane = plane
        self._clock_s = clock_s
        self._shown: Mapping[StreamKey, Sink] = {}
        self._waiting: frozenset[int] = frozenset()
        self._renewed: dict[tuple[int, Attempt], float] = {}
        self._blocked: dict[tuple[int, int], str] = {}
        self._changed = asyncio.Event()
        self._reports: list[LinkSink] = []
        self._linking = asyncio.Event()
        self._advanced_s = self._started_s = clock_s()

    @property
    def state(self) -> State:
        """The state as this broker knows it."""
        return self.controller.state

    def start(self) -> None:
        """Show the data plane all sinks, and every change from now on. To be called before partitions are opened."""
        self._shown = self.state.sinks
        self._waiting = frozenset(sink.id for sink in self._shown.values() if sink.waiting)
        self._plane.set_sinks(self.state.index, {**table_changes({}, self._shown), "complete": True})
        self.controller.follow(self._on_state)

    def sink(self, namespace: str, name: str) -> Sink:
        """The sink.

        Raises:
            RejectedError: `sink_not_found`.
        """
        sink = self.state.sinks.get(StreamKey(namespace, name))
        if sink is None:
            raise rejected(
                RejectionCode.SINK_NOT_FOUND,
                f"sink {name} does not exist in namespace {namespace}: see `bascule sink list`",
            )
        return sink

    def blocked(self, sink: Sink) -> dict[int, str]:
        """Why partitions are not linked yet, by incarnation; of those that a leader has reported."""
        return {incarnation: why for (sink_id, incarnation), why in self._blocked.items() if sink_id == sink.id}

    async def open(self, command: OpenSink, timeout_s: float) -> Sink:
        """Make a run the current one of a sink.

        Raises:
            RejectedError: see `apply_sinks.open_sink`.
            BrokerError: as `MetadataLog.propose`.
        """
        known = self.state.sinks.get(StreamKey(command.namespace, command.name))
        if known is None or _writer(known) != _writer(command):
            await self.controller.propose(replace(command, most_of_owner=self._most_of_owner), timeout_s)
        return self.sink(command.namespace, command.name)

    async def publish(self, command: PublishSink, timeout_s: float) -> Sink:
        """Decide an epoch, and wait until it is linked everywhere, `timeout_s` at the longest: it is decided then all
        the same. The same call again gives the same answer.

        Raises:
            RejectedError: see `apply_publish.publish`; `sink_busy`: an epoch before is not linked everywhere in time.
            StateError: `sink_pieces_missing`: a leader does not hold what is claimed, and no entry explains it; nothing
                was decided.
            BrokerError: as `MetadataLog.propose`.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        sink = self.sink(command.namespace, command.name)
        if not is_answered(sink, command) and command.epoch != sink.last_epoch:
            check_epoch(sink, command.epoch, command.accept_gap)
            await self._finished(command, deadline, needed=True)
            command = await self._confirmed(command)
        differs = _difference(sink, command)
        await self.controller.propose(command, max(1.0, deadline - asyncio.get_running_loop().time()))
        if differs:
            text = f"{differs}: the repetition was accepted, the rows of the first time stay"
            emit(30, "control.sinks", text, namespace=sink.namespace, sink=sink.name, epoch=command.epoch)
        return await self._finished(command, deadline, needed=False)

    async def _confirmed(self, command: PublishSink) -> PublishSink:
        """The command with the log end of each target, once every leader has confirmed what is claimed.

        Leaders are asked without targets too: a winner that staged rows which nobody claims would lose them.

        Raises:
            RejectedError: `sink_fenced`, `sink_expired` or `sink_conflict`, why pieces are missing.
            StateError: `sink_pieces_missing`.
        """
        targets = [
            {"incarnation": item.incarnation, "rows": item.rows, "digest": item.digest}
            for stream in command.targets
            for item in stream.partitions
        ]
        if not targets and not command.winners:
            return command  # a repeated epoch: nothing was staged for it
        request = {
            "sink": command.id,
            "generation": command.generation,
            "epoch": command.epoch,
            "token": command.token,
            "winners": attempt_ids(command.winners),
            "targets": targets,
        }
        answer = await asyncio.to_thread(self._plane.confirm_stage, request)
        if missing := answer["missing"]:
            # A newer run, an expiry, or a purge removes pieces: that is the reason to be given then.
            apply_publish.publish(self.state, self.state.index, command)
            if is_answered(self.sink(command.namespace, command.name), command):
                return command  # the same call decided it meanwhile, and its pieces are linked
            names = [_partition_name(self.state, item["incarnation"]) for item in missing]
            raise error(
                "sink_pieces_missing",
                f"epoch {command.epoch} of sink {command.name} was not published: partition {names[0]}: "
                f"{missing[0]['reason']}",
                {"partitions": names},
            )
        return replace(command, targets=_with_ends(command.targets, answer["from_offsets"]))

    async def _finished(self, command: PublishSink, deadline: float, *, needed: bool) -> Sink:
        """Wait until nothing of the sink is to be linked; after the deadline a failure if that is needed."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while self.sink(command.namespace, command.name).waiting:
                    self._changed.clear()
                    await self._changed.wait()
        sink = self.sink(command.namespace, command.name)
        if needed and sink.waiting:
            raise rejected(RejectionCode.SINK_BUSY, self._lagging(sink))
        return sink

    def _lagging(self, sink: Sink) -> str:
        """Which partitions keep the last epoch from being finished, and who leads them."""
        stream, item = sink.waiting[0]
        known = self.state.stream(stream.namespace, stream.name)
        leader = known.partitions[item.number].leader if known is not None else ""
        why = self._blocked.get((sink.id, item.incarnation), "its link has not been reported yet")
        return (
            f"epoch {sink.last.epoch if sink.last else 0} of sink {sink.name} is decided, but {len(sink.waiting)} "
            f"partitions are not linked yet, the first is {stream.name}/{item.number} on broker {leader}: {why}"
        )

    async def expire(self, sink: Sink, attempt: Attempt, timeout_s: float) -> None:
        """Give up an attempt; nothing happens when it is decided.

        Raises:
            RejectedError: `sink_published`: it is decided.
            BrokerError: as `MetadataLog.propose`.
        """
        command = ExpireSink(sink.namespace, sink.name, sink.id, attempt.generation, attempt.epoch, attempt.token)
        await self.controller.propose(command, timeout_s)

    def renew(self, sink: Sink, attempt: Attempt) -> None:
        """Somebody still works on the attempt."""
        self._renewed[sink.id, attempt] = self._clock_s()

    def staged_bytes(self) -> dict[int, int]:
        """Bytes that are staged on this broker, by id of the sink. Blocks."""
        found: dict[int, int] = {}
        for item in self._plane.staged():
            found[item["sink"]] = found.get(item["sink"], 0) + item["bytes"]
        return found

    def check_delete(self, sink: Sink) -> None:
        """Refuse what `delete` would refuse; changes nothing.

        Raises:
            RejectedError: `sink_busy`.
        """
        apply_sinks.delete(self.state, self.state.index, DeleteSink(sink.namespace, sink.name, sink.id))

    async def delete(self, sink: Sink, by: str, timeout_s: float) -> None:
        """Forget a sink; `by` is who asked for it.

        Raises:
            RejectedError: `sink_busy`: its last epoch is not linked everywhere.
            BrokerError: as `MetadataLog.propose`.
        """
        await self.controller.propose(DeleteSink(sink.namespace, sink.name, sink.id), timeout_s)
        last = "" if sink.last_epoch is None else f" with last epoch {sink.last_epoch}"
        emit(30, "control.sinks", f"a sink{last} was deleted", namespace=sink.namespace, sink=sink.name, by=by)

    async def skip(self, sink: Sink, incarnation: int, by: str, timeout_s: float) -> None:
        """Give up the decided rows for one partition.

        Raises:
            RejectedError: nothing is decided for it.
            BrokerError: as `MetadataLog.propose`.
        """
        ordinal = sink.last.ordinal if sink.last is not None else 0
        command = SkipSink(sink.namespace, sink.name, sink.id, ordinal, incarnation, by)
        await self.controller.propose(command, timeout_s)
        skipped = self.sink(sink.namespace, sink.name).last_skip
        if skipped is not None:
            text = f"{skipped.rows} rows of epoch {skipped.epoch} were given up"
            place = {"namespace": sink.namespace, "stream": skipped.stream, "partition": skipped.partition}
            emit(30, "control.sinks", text, sink=sink.name, by=by, **place)

    async def set_quota(self, sink: Sink, quota_bytes: int, timeout_s: float) -> None:
        """Bound staged bytes; 0 = the broker's default.

        Raises:
            RejectedError: it is below 0.
            BrokerError: as `MetadataLog.propose`.
        """
        await self.controller.propose(SetSinkQuota(sink.namespace, sink.name, sink.id, quota_bytes), timeout_s)

    def check_owner(self, sink: Sink, owner: str) -> None:
        """Refuse what `set_owner` would refuse; changes nothing.

        Raises:
            RejectedError: the name is too long.
        """
        apply_sinks.set_owner(self.state, self.state.index, SetSinkOwner(sink.namespace, sink.name, sink.id, owner))

    async def set_owner(self, sink: Sink, owner: str, by: str, timeout_s: float) -> None:
        """Give a sink to another client, empty = a client without a certificate; `by` is who asked for it.

        Raises:
            RejectedError: the name is too long.
            BrokerError: as `MetadataLog.propose`.
        """
        await self.controller.propose(SetSinkOwner(sink.namespace, sink.name, sink.id, owner), timeout_s)
        text = f"a sink of client {sink.owner!r} was given to client {owner!r}"
        emit(30, "control.sinks", text, namespace=sink.namespace, sink=sink.name, by=by)

    # -- reports of the data plane ------------------------------------------------------------------------------------
    def on_partition(self, event: PartitionChange) -> LinkSink | None:
        """The entry that follows from a report, if any; a report that is repeated gives none once it is known."""
        if event.change not in SINK_REPORTS:
            return None
        fields: dict[str, Any] = json.loads(event.fields)
        sink = next((item for item in self.state.sinks.values() if item.id == fields["sink"]), None)
        if sink is None:
            return None
        if event.change == "link_blocked":
            self._blocked[sink.id, event.incarnation] = event.message
            return None
        is_awaited = any(item.incarnation == event.incarnation for _, item in sink.waiting)
        if sink.last is None or sink.last.ordinal != fields["ordinal"] or not is_awaited:
            return None
        partition = LinkedPartition(event.incarnation, fields["base_offset"])
        return LinkSink(sink.namespace, sink.name, sink.id, fields["ordinal"], (partition,))

    async def link(self, commands: Iterable[LinkSink]) -> None:
        """Have reports entered, those of one epoch as one entry. What fails is reported again by the data plane."""
        gathered: dict[tuple[int, int], LinkSink] = {}
        for command in commands:
            known = gathered.get((command.id, command.ordinal))
            partitions = (*(known.partitions if known else ()), *command.partitions)
            gathered[command.id, command.ordinal] = replace(command, partitions=partitions)
        for command in gathered.values():
            try:
                await self.controller.propose(command, PROPOSE_S)
            except (RejectedError, BrokerError) as failure:
                emit(30, "control.sinks", f"a report of linked rows was not entered: {failure}", sink=command.name)

    def report(self, event: PartitionChange) -> None:
        """Take a report; `keep_linking` enters what follows from it."""
        command = self.on_partition(event)
        if command is not None:
            self._reports.append(command)
            self._linking.set()

    async def keep_linking(self) -> None:
        """Enter reports of linked rows, and resume paused partitions that wait for rows, until cancelled."""
        while True:
            await self._linking.wait()
            self._linking.clear()
            reports, self._reports = self._reports, []
            await self.link(reports)
            for target in paused_targets(self.state):
                await self._resume(target)

    async def _resume(self, target: Target) -> None:
        try:
            await self.controller.resume_stream(target, dry_run=False, timeout_s=PROPOSE_S)
        except (RejectedError, BrokerError) as failure:
            text = f"a paused stream that waits for rows was not resumed: {failure}"
            emit(30, "control.sinks", text, namespace=target.namespace, stream=target.name)

    # -- what goes by time --------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Expire idle attempts and forget old records until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.round()

    async def round(self) -> None:
        """Expire what is idle and forget what is old, once."""
        now_s = self._clock_s()
        if not self.state.sinks:
            self._advanced_s = now_s
            return
        if now_s - self._advanced_s >= CLOCK_S:
            elapsed_ms, self._advanced_s = int((now_s - self._advanced_s) * 1000), now_s
            await self._try(AdvanceClock(elapsed_ms))
        oldest_s = now_s - DEFAULT_STAGING_TTL_MS / 1000
        self._renewed = {key: at_s for key, at_s in self._renewed.items() if at_s > oldest_s}
        staged = [_staged(item) for item in await asyncio.to_thread(self._plane.staged)]
        in_use = {item.sink for item in staged} | {sink_id for sink_id, _ in self._renewed}
        old = outlived(self.state, in_use, knows_use=self._started_s <= oldest_s)
        for command in (*idle_attempts(self.state, staged, self._renewed.keys()), *old):
            await self._try(command)

    async def _try(self, command: AdvanceClock | ExpireSink | DeleteSink) -> None:
        """Propose; a failure is logged, and the next round tries again."""
        try:
            await self.controller.propose(command, PROPOSE_S)
        except (RejectedError, BrokerError) as failure:
            emit(30, "control.sinks", f"a sink was not tidied up: {failure}", command=type(command).__name__)
            return
        if isinstance(command, ExpireSink):
            text = f"an attempt of epoch {command.epoch} expired: nobody sent rows of it or renewed it for an hour"
            emit(30, "control.sinks", text, namespace=command.namespace, sink=command.name)

    def _on_state(self, state: State) -> None:
        if state.sinks is not self._shown:
            changes = table_changes(self._shown, state.sinks)
            self._shown = state.sinks
            self._plane.set_sinks(state.index, changes)
            self._changed.set()
            self._waiting = frozenset(sink.id for sink in state.sinks.values() if sink.waiting)
            self._blocked = {key: why for key, why in self._blocked.items() if key[0] in self._waiting}
        if self._waiting and paused_targets(state):
            self._linking.set()


def _difference(sink: Sink, command: PublishSink) -> str:
    """How a repeated epoch differs from what is stored, although it may be accepted; empty = it does not."""
    last = sink.last
    if last is None or command.epoch != sink.last_epoch or is_answered(sink, command):
        return ""
    found = difference(sink, command.input_rows, command.input_digest, command.offsets_hash)
    if found is None and command.input_digest != last.input_digest:
        return f"epoch {last.epoch} has other rows than it was published with, from the same offsets"
    return found or ""


def _writer(sink: Sink | OpenSink) -> tuple[str, str, str, str]:
    return sink.owner, sink.kind, sink.query_id, sink.run_id


def _partition_name(state: State, incarnation: int) -> str:
    """Stream and number of a partition; its incarnation when the stream is gone."""
    for stream in state.streams.values():
        for number, partition in enumerate(stream.partitions):
            if partition.incarnation == incarnation:
                return f"{stream.name}/{number}"
    return f"of incarnation {incarnation}"


def _with_ends(targets: tuple[TargetStream, ...], ends: Mapping[str, int]) -> tuple[TargetStream, ...]:
    return tuple(
        replace(
            stream,
            partitions=tuple(replace(item, from_offset=ends[str(item.incarnation)]) for item in stream.partitions),
        )
        for stream in targets
    )


def _staged(item: dict[str, Any]) -> StagedAttempt:
    attempt = Attempt(item["epoch"], item["token"], item["generation"])
    return StagedAttempt(item["sink"], attempt, item["idle_ms"], item["bytes"])
