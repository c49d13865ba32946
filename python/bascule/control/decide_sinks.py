"""Decisions about sinks: a state and what is known in, commands out. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from bascule.control.decide import Target
from bascule.metadata import State, StreamKey
from bascule.metadata.sink_commands import DeleteSink, ExpireSink
from bascule.metadata.sinks import Attempt, Lifetime, Sink

HOUR_MS = 3_600_000
KEPT_MS: dict[Lifetime, int] = {"hour": HOUR_MS, "month": 30 * 24 * HOUR_MS}
"""How long a record stays that goes by itself, from its last use."""

UNDECIDED_MS = 24 * HOUR_MS
"""How long the record of a batch write without a key stays that published nothing, from its first task on."""

DEFAULT_STAGING_TTL_MS = HOUR_MS


@dataclass(frozen=True, slots=True)
class StagedAttempt:
    """Pieces of one attempt that a leader holds: `idle_ms` since the last of them was written to or renewed."""

    sink: int
    attempt: Attempt
    idle_ms: int
    staged_bytes: int


def idle_attempts(
    state: State, staged: Iterable[StagedAttempt], renewed: Collection[tuple[int, Attempt]]
) -> list[ExpireSink]:
    """The attempts that nobody has staged to or renewed for their time to live and that are not decided.

    Args:
        state: the present one.
        staged: what every leader holds; several entries for one attempt are several leaders.
        renewed: attempts that a task renewed within their time to live, by sink.
    """
    by_id = {sink.id: sink for sink in state.sinks.values()}
    idle: dict[tuple[int, Attempt], bool] = {}
    for item in staged:
        key = (item.sink, item.attempt)
        idle[key] = idle.get(key, True) and item.idle_ms >= DEFAULT_STAGING_TTL_MS
    found: list[ExpireSink] = []
    for (sink_id, attempt), is_idle in idle.items():
        sink = by_id.get(sink_id)
        if sink is None or not is_idle or (sink_id, attempt) in renewed:
            continue
        if sink.is_open(attempt) and attempt not in sink.expired:
            found.append(
                ExpireSink(sink.namespace, sink.name, sink.id, attempt.generation, attempt.epoch, attempt.token)
            )
    return found


def paused_targets(state: State) -> list[Target]:
    """Paused partitions to which rows are to be linked, by stream in order of identity."""
    wanted: dict[StreamKey, set[int]] = {}
    for sink in state.sinks.values():
        for target, partition in sink.waiting:
            wanted.setdefault(StreamKey(target.namespace, target.name), set()).add(partition.number)
    found: list[Target] = []
    for key in sorted(wanted):
        stream = state.streams.get(key)
        paused = tuple(item.number for item in (stream.partitions if stream else ()) if item.paused)
        numbers = tuple(number for number in paused if number in wanted[key])
        if numbers:
            found.append(Target(key.namespace, key.name, numbers))
    return found


def outlived(state: State, in_use: Collection[int], *, knows_use: bool) -> list[DeleteSink]:
    """The records whose time is over, in order of identity; what is to be linked keeps its record.

    The record of a batch write that published nothing stays while its tasks work, however long that takes: it goes
    when its attempt expires, or here when nobody ever staged to it.

    Args:
        state: the present one.
        in_use: ids of sinks for which a leader holds pieces, or which a task renewed within their time to live.
        knows_use: whether every task that works has renewed its attempt since the controller started.
    """

    def is_over(sink: Sink) -> bool:
        age_ms = state.clock_ms - sink.used_ms
        if sink.lifetime == "hour" and sink.last is None:
            return knows_use and sink.id not in in_use and age_ms >= UNDECIDED_MS
        return sink.is_finished and age_ms >= KEPT_MS[sink.lifetime]

    return [
        DeleteSink(sink.namespace, sink.name, sink.id, unused_since_ms=sink.used_ms)
        for _, sink in sorted(state.sinks.items())
        if sink.lifetime in KEPT_MS and is_over(sink)
    ]
