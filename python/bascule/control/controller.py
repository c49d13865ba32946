"""What protocol handlers call: requests independent of a protocol, answered when committed, applied and carried out.

Knows no protocol. Reads answer from this broker's copy of the state.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bascule.control import decide
from bascule.control.cluster import ClusterRules
from bascule.control.dataplane import DataPlane, PartitionStatus
from bascule.control.decide import StreamRequest, Target, Trim
from bascule.control.metadata_log import Change, MetadataLog
from bascule.control.reconciler import Reconciler
from bascule.control.specs import partition_spec
from bascule.errors import BrokerError, OutcomeUnknownError, StateError, error
from bascule.logs import emit
from bascule.metadata import (
    AddDataKey,
    AddPartitions,
    Applied,
    Broker,
    ChangeTopic,
    Command,
    CreateStream,
    DataKey,
    DeleteNamespace,
    DeleteStream,
    EditStream,
    Partition,
    PauseStream,
    PurgeStream,
    RegisterBroker,
    RemovePartitions,
    ResumeStream,
    SetStreamReadonly,
    State,
    Stream,
    StreamKey,
    StreamSettings,
    TrimPartition,
)
from bascule.metadata.rejection import RejectedError, Rejection

SNAPSHOT_RETRY_S = 30.0

_VERBS: dict[type[Command], str] = {
    CreateStream: "created",
    AddDataKey: "given a new data key",
    DeleteStream: "deleted",
    PauseStream: "paused",
    ResumeStream: "resumed",
    SetStreamReadonly: "made read-only or writable",
    EditStream: "given other settings",
    TrimPartition: "trimmed",
    PurgeStream: "purged",
    AddPartitions: "given more partitions",
    RemovePartitions: "given fewer partitions",
    ChangeTopic: "given another name or limits",
}
_NO_PARTITION = Partition(number=0, incarnation=0, leader="", leader_epoch=0, epoch=0, replicas=(), isr=())
"""Stands for those of a stream that has none, of whose settings are asked."""


class Controller:
    """The controller of one broker. All methods belong to the event loop's thread.

    Attributes:
        broker_id: this broker.
        rules: what is not safe with several brokers yet; `None` = the broker is alone.
    """

    def __init__(
        self,
        plane: DataPlane,
        log: MetadataLog,
        reconciler: Reconciler,
        broker_id: str,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.broker_id = broker_id
        self._plane = plane
        self._log = log
        self._reconciler = reconciler
        self._clock_ns = clock_ns
        self.rules: ClusterRules | None = None
        self._left_over: list[int] = []

    @property
    def state(self) -> State:
        """The state as this broker knows it."""
        return self._log.state

    @property
    def done(self) -> State:
        """The state that has been carried out here last."""
        return self._reconciler.done

    async def replay(self, timeout_s: float) -> None:
        """Restore the state, then carry it out, and every change from then on.

        Raises:
            BrokerError: as `MetadataLog.open`.
        """
        self._log.listen(self._collect)
        await self._log.open(timeout_s)
        self._log.listen(self._on_change)
        self._reconciler.want(self.state)
        await self._delete_left_over()

    async def settle(self) -> None:
        """Wait until all that is applied is carried out; then nothing that an earlier run left is left any more."""
        await self._reconciler.wait_applied(self.state.index)
        self._log.unlisten(self._collect)
        await self._delete_left_over()

    def _collect(self, change: Change) -> None:
        """Until the reconciler compares states, it does not know what entries remove."""
        if isinstance(change.result, Applied):
            self._left_over.extend(item.incarnation for stream in _removed(change) for item in stream.partitions)

    async def _delete_left_over(self) -> None:
        gone, self._left_over = self._left_over, []
        await self._reconciler.delete_left_over(gone)

    def now_ns(self) -> int:
        """The time by this broker's clock, ns since 1970."""
        return self._clock_ns()

    def follow(self, follower: Callable[[State], None]) -> None:
        """Have `follower` called with the state after every entry from now on."""
        self._log.listen(lambda change: follower(change.after))

    async def decide(self, decision: Callable[[int], Command | Rejection | None], timeout_s: float) -> None:
        """Have committed, applied and carried out what `decision` makes of the time; `None` = nothing is to be done.

        Raises:
            RejectedError: the decision, or the state by then, rejects it.
            BrokerError: as `MetadataLog.propose`.
        """
        await self._decide(decision, timeout_s)

    async def register_broker(self, host: str, port: int, timeout_s: float) -> Broker:
        """Make this broker known under its address; it gets a new boot epoch.

        Raises:
            RejectedError: host or port is out of bounds.
            BrokerError: as `MetadataLog.propose`.
        """
        await self.propose(RegisterBroker(self.broker_id, host, port, self._clock_ns()), timeout_s)
        return self.state.brokers[self.broker_id]

    async def create_stream(self, request: StreamRequest, timeout_s: float) -> None:
        """Create a stream. Returns when its partitions here have been opened, or when the time is over: it exists then,
        but may not take records yet.

        Raises:
            RejectedError: see `decide.create_stream`.
            StateError: `encryption_unavailable`: the stream is to be encrypted and there is no usable master key;
                `cluster_unsupported`: it is not safe with several brokers yet.
            BrokerError: as `MetadataLog.propose`; `disk_full`, `storage_failed` and others when a partition could not
                be opened: the stream exists, and opening it is tried again.
        """
        if self.rules is not None:
            self.rules.check(request)
        data_keys = (self._new_data_key(1),) if request.settings.encryption else ()
        await self._decide(
            lambda now_ns: decide.create_stream(self.state, request, now_ns, data_keys, self._reachable()), timeout_s
        )
        stream = self.state.stream(request.namespace, request.name)
        failure = self._reconciler.failure(item.incarnation for item in stream.partitions) if stream else None
        if failure is not None:
            code, sentence = failure
            raise error(code, f"the stream exists, but opening it failed and is tried again: {sentence}")

    async def rotate_data_keys(self, master: str, timeout_s: float) -> None:
        """Give every encrypted stream a new data key that has none wrapped by the master key `master`, the current one.
        Streams stay as they are, and it is said so, when that cannot be used.

        Raises:
            BrokerError: as `MetadataLog.propose`.
        """
        for stream in decide.due_for_data_key(self.state, master):
            try:
                data_key = self._new_data_key(stream.data_keys[-1].number + 1)
            except StateError as failure:
                emit(30, "control.encryption", f"data keys stay as they are: {failure}", code=failure.code)
                return
            await self.propose(AddDataKey(stream.namespace, stream.name, stream.incarnation, data_key), timeout_s)

    def _reachable(self) -> frozenset[str] | None:
        return None if self.rules is None else self.rules.reachable()

    def _new_data_key(self, number: int) -> DataKey:
        return DataKey(number, *self._plane.new_data_key(number))

    async def delete_stream(self, namespace: str, name: str, timeout_s: float) -> None:
        """Delete a stream with its data. Returns when it is gone here, or when the time is over: it is deleted, but
        readers may still be ending.

        Raises:
            RejectedError: it does not exist.
            BrokerError: as `MetadataLog.propose`.
        """
        await self._decide(lambda _: decide.delete_stream(self.state, namespace, name), timeout_s)

    async def pause_stream(self, target: Target, *, resume_all: bool, timeout_s: float) -> None:
        """Pause partitions. Returns when they are closed here, or when the time is over.

        Raises:
            RejectedError: the stream or one of the partitions does not exist.
            StateError: `cluster_unsupported`.
            BrokerError: as `MetadataLog.propose`.
        """
        stream = self.state.stream(target.namespace, target.name)
        if self.rules is not None and stream is not None:
            self.rules.check_pause(stream.partitions)
        await self._decide(
            lambda now_ns: decide.pause_stream(self.state, target, resume_all=resume_all, now_ns=now_ns), timeout_s
        )

    async def resume_partition(self, namespace: str, name: str, partition: int, timeout_s: float) -> None:
        """Resume a paused partition, or all paused partitions of its stream when the last pause asked for that. Returns
        when they are open here, or when the time is over; also when none was paused.

        Raises:
            RejectedError: the stream or the partition does not exist.
            BrokerError: as `MetadataLog.propose`.
        """
        await self._decide(
            lambda now_ns: decide.resume_partition(self.state, namespace, name, partition, now_ns), timeout_s
        )

    async def resume_stream(self, target: Target, *, dry_run: bool, timeout_s: float) -> tuple[int, ...]:
        """Resume those partitions that are paused. Returns their numbers, when they are open here or the time is over;
        with `dry_run` nothing changes.

        Raises:
            RejectedError: the stream or one of the partitions does not exist.
            BrokerError: as `MetadataLog.propose`.
        """
        command = decide.resume_stream(self.state, target, self._clock_ns())
        await self._decide_or_show(
            lambda now_ns: decide.resume_stream(self.state, target, now_ns), dry_run=dry_run, timeout_s=timeout_s
        )
        return command.partitions if isinstance(command, ResumeStream) else ()

    async def edit_stream(
        self, namespace: str, name: str, changes: Mapping[str, object], *, dry_run: bool, timeout_s: float
    ) -> tuple[StreamSettings, StreamSettings]:
        """Change settings of a stream, while it runs. Returns the settings before and after, when they are in effect
        here or the time is over; with `dry_run` nothing changes.

        Raises:
            RejectedError: see `decide.edit_stream`.
            StateError: `cluster_unsupported`.
            BrokerError: as `MetadataLog.propose`.
        """
        stream = self.state.stream(namespace, name)
        command = decide.edit_stream(self.state, namespace, name, changes)
        if self.rules is not None and stream is not None and isinstance(command, EditStream):
            self.rules.check_edit(stream, command.settings)
        await self._decide_or_show(
            lambda _: decide.edit_stream(self.state, namespace, name, changes), dry_run=dry_run, timeout_s=timeout_s
        )
        before = stream.settings if stream is not None else StreamSettings()
        return before, command.settings if isinstance(command, EditStream) else before

    def check_create_stream(self, request: StreamRequest) -> None:
        """Refuse what `create_stream` would refuse; changes nothing.

        Raises:
            RejectedError: see `decide.create_stream`.
            StateError: `encryption_unavailable`.
        """
        if self.rules is not None:
            self.rules.check(request)
        data_keys = (self._new_data_key(1),) if request.settings.encryption else ()
        command = decide.create_stream(self.state, request, self._clock_ns(), data_keys, self._reachable())
        if isinstance(command, Rejection):
            raise RejectedError(command)

    async def set_readonly(self, target: Target, *, readonly: bool, timeout_s: float) -> None:
        """Make partitions refuse publishes, or take them again. No publish that comes after the answer is taken
        against it.

        Raises:
            RejectedError: the stream or one of the partitions does not exist.
            BrokerError: as `MetadataLog.propose`.
        """
        await self._decide(
            lambda now_ns: decide.set_readonly(self.state, target, readonly=readonly, now_ns=now_ns), timeout_s
        )

    async def trim_partition(self, request: Trim, *, dry_run: bool, timeout_s: float) -> tuple[int, int]:
        """Remove a prefix of a partition. Returns its log start offset before, and what it is then; with `dry_run`
        nothing changes.

        Raises:
            RejectedError: see `decide.trim_partition`.
            BrokerError: as `MetadataLog.propose`.
        """
        stream = self.state.stream(request.namespace, request.name)
        chosen = [item.incarnation for item in stream.partitions if item.number == request.partition] if stream else []
        known = next(iter(self.status(chosen).values()), None)
        committed = known.high_watermark if known is not None else None
        was = known.log_start if known is not None else 0
        await self._decide_or_show(
            lambda _: decide.trim_partition(self.state, request, committed), dry_run=dry_run, timeout_s=timeout_s
        )
        return was, max(was, request.before)

    async def purge_stream(
        self, namespace: str, name: str, *, now: bool, dry_run: bool, timeout_s: float
    ) -> tuple[int, bool]:
        """Remove all records of a stream: its partitions begin again at offset 0, as new incarnations. With `dry_run`
        nothing changes.

        Args:
            namespace: part of the identity.
            name: part of the identity.
            now: forgo the grace period of the removed files. Forgone in any case while writes are refused for want of
                space.
            dry_run: only decide.
            timeout_s: for all of it.

        Returns:
            How many committed records its partitions here have had, and whether the grace period is forgone.

        Raises:
            RejectedError: it does not exist.
            BrokerError: as `MetadataLog.propose`.
        """
        stream = self.state.stream(namespace, name)
        incarnations = [item.incarnation for item in stream.partitions] if stream is not None else []
        known = self.status(incarnations)
        at_once = now or self._plane.is_full()
        if at_once and not dry_run:
            self._reconciler.hurry(incarnations)
        try:
            await self._decide_or_show(
                lambda _: decide.purge_stream(self.state, namespace, name), dry_run=dry_run, timeout_s=timeout_s
            )
        except (RejectedError, BrokerError) as failure:
            if not isinstance(failure, OutcomeUnknownError):
                self._reconciler.keep_grace(incarnations)
            raise
        if at_once and not dry_run:
            reason = "it was asked for" if now else "writes are refused for want of space"
            emit(
                30, "control", f"files of a purged stream are removed without their grace period: {reason}", stream=name
            )
        return sum(item.high_watermark - item.log_start for item in known.values()), at_once

    def status(self, incarnations: Sequence[int]) -> dict[int, PartitionStatus]:
        """Where those of `incarnations` stand that are open here."""
        if not incarnations:
            return {}
        return {position[0]: PartitionStatus(*position[1:]) for position in self._plane.status(incarnations)}

    def damage(self, incarnations: Sequence[int]) -> dict[int, dict[str, Any]]:
        """By incarnation, of those that are open here: `scrubbed_ns` (0 = never), `sealed_segments` and `damaged`."""
        return {item["incarnation"]: item for item in self._plane.damage(incarnations)} if incarnations else {}

    def segment_starts(self, incarnation: int) -> list[int]:
        """First offset of each segment of a partition, ascending, the active one last; empty: it is not open here."""
        return self._plane.segment_starts(incarnation)

    def nats_partitions(self, incarnations: Sequence[int]) -> dict[int, dict[str, Any]]:
        """By incarnation, how it listens on NATS: `subscription`, `text`, and `not_stored` by reason."""
        return {item["incarnation"]: item for item in self._plane.nats_partitions(incarnations)}

    def failure(self, incarnation: int) -> str:
        """Why a partition could not be opened here and is tried again: code and sentence; empty when it is not so."""
        failure = self._reconciler.failure([incarnation])
        return f"{failure[0]}: {failure[1]}" if failure is not None else ""

    def in_effect(self, stream: Stream) -> dict[str, Any]:
        """The settings of a stream's partitions here, with the broker's configuration where the stream leaves a choice,
        by the names of `specs/formats/seam.md`.
        """
        partition = stream.partitions[0] if stream.partitions else _NO_PARTITION
        return partition_spec(stream, partition, self._reconciler.defaults)

    def checks(self) -> list[dict[str, str]]:
        """What this broker needs: `name`, `outcome` (`ok`, `warning`, `failed`), `reason`. Blocks while the file system
        of the data directory does not answer.
        """
        return self._plane.checks()

    def set_group_versions(self, versions: Sequence[tuple[str, int]]) -> None:
        """Wake members that wait for another version of these groups; 0 = the group is gone."""
        if versions:
            self._plane.set_group_versions(versions)

    def cluster_status(self) -> dict[str, Any]:
        """Who is the controller, in which `term`, and which brokers are `missing`, and why; one alone is its own."""
        if self.rules is None:
            return {"controller": self.broker_id, "term": 0, "missing": {}}
        return self.rules.status()

    def statistics(self) -> dict[str, int]:
        """Counters and gauges of this broker by name (`specs/metrics.toml`)."""
        return self._plane.statistics()

    async def keep_snapshots(self, every: int) -> None:
        """Store a snapshot every `every` entries, of what has been carried out, until cancelled."""
        while True:
            await self._reconciler.wait_applied(self._log.snapshot_index + every)
            try:
                await self._log.save_snapshot(self._reconciler.done)
            except Exception as failure:  # noqa: BLE001 - the log stays longer than it must, nothing is lost
                emit(40, "metadata.snapshot", f"a snapshot could not be stored and is tried again: {failure}")
                await asyncio.sleep(SNAPSHOT_RETRY_S)

    async def save_last_snapshot(self) -> None:
        """Store what has been carried out, so that the next start has nothing to replay. For a clean stop, after the
        reconciler's.
        """
        state = self._reconciler.done
        if self._log.failed.done() or state.index <= self._log.snapshot_index:
            return
        try:
            await self._log.save_snapshot(state)
        except Exception as failure:  # noqa: BLE001 - the next start replays the log instead
            emit(30, "metadata.snapshot", f"no snapshot could be stored, the next start takes longer: {failure}")

    async def _decide_or_show(
        self, decision: Callable[[int], Command | Rejection | None], *, dry_run: bool, timeout_s: float
    ) -> None:
        """As `_decide`; with `dry_run` only the decision is made, and refused as it would be."""
        if not dry_run:
            await self._decide(decision, timeout_s)
        elif isinstance(refusal := decision(self._clock_ns()), Rejection):
            raise RejectedError(refusal)

    async def _decide(self, decision: Callable[[int], Command | Rejection | None], timeout_s: float) -> None:
        """Have what `decision` says committed, applied and carried out; None = it is so already."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        command = decision(self._clock_ns())
        if isinstance(command, Rejection):
            raise RejectedError(command)
        index = self.state.index
        if command is not None:
            index = await self.propose(command, timeout_s)
        await self.carried_out(index, deadline)

    async def carried_out(self, index: int, deadline: float) -> None:
        """Wait until entry `index` is carried out here, until `deadline` by the loop's clock at the longest."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._reconciler.wait_applied(index)
        except TimeoutError:
            emit(30, "control", "a change was answered before it was carried out", index=index)

    async def propose(self, command: Command, timeout_s: float) -> int:
        """Have `command` committed and applied; the index of its entry. It may not be carried out yet.

        Raises:
            RejectedError: it could not be applied.
            BrokerError: as `MetadataLog.propose`.
        """
        result = await self._log.propose(command, timeout_s)
        if isinstance(result, Rejection):
            raise RejectedError(result)
        return result.index

    def _on_change(self, change: Change) -> None:
        self._reconciler.want(change.after, installed=change.installed)
        command: Any = change.command
        verb = None if change.command is None else _VERBS.get(type(change.command))
        if verb is not None and isinstance(change.result, Applied):
            emit(20, "metadata", f"stream {verb}", namespace=command.namespace, stream=command.name)


def _removed(change: Change) -> list[Stream]:
    """The streams whose present partitions an entry removes."""
    command, streams = change.command, change.before.streams
    if isinstance(command, DeleteStream | PurgeStream):
        return [streams[StreamKey(command.namespace, command.name)]]
    if isinstance(command, RemovePartitions):
        stream = streams[StreamKey(command.namespace, command.name)]
        return [replace(stream, partitions=stream.partitions[-command.count :])]
    if isinstance(command, DeleteNamespace):
        return [stream for key, stream in streams.items() if key.namespace == command.name]
    return []
