"""Sinks: what the exactly-once sink of Spark queries keeps in the state. `docs/decisions/sink.md` explains it.

Immutable values, like `model`. Epochs are Spark's batch ids, 0 ≤ epoch ≤ 2^63 − 1; row counts are below 2^32 for each
target partition; digests are 32 hexadecimal digits.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal, TypeAlias

MAX_SINKS = 10_000
"""Most sinks of one namespace, of each lifetime."""

MAX_TARGETS = 1_000
"""Most target partitions of one epoch."""

MAX_TASKS = 10_000
"""Most tasks of one epoch."""

MAX_ROWS = (1 << 32) - 1
"""Most rows of one epoch for one target partition."""

MAX_ORDINAL = (1 << 32) - 1
"""Most epochs with rows of one sink."""

MAX_RETIRED_RUNS = 1_000
MAX_RETIRED_QUERIES = 1_000
MAX_EXPIRED = 1_000

FIRST_PRODUCER_ID = 1 << 63
"""Producer ids from here on are those of sinks; clients may not use them."""

SinkKind: TypeAlias = Literal["stream", "foreach", "batch"]
"""Who writes: a streaming query through `writeStream`, a write within `foreachBatch`, a batch job."""

Lifetime: TypeAlias = Literal["kept", "month", "hour"]
"""When the record goes by itself: never; after 30 unused days; 1 hour after its last use."""

Phase: TypeAlias = Literal["decided", "linked", "removed", "skipped"]
"""Of a target partition: to be linked; linked; purged or deleted before that; skipped by an administrator."""


@dataclass(frozen=True, slots=True)
class TargetPartition:
    """What one epoch brings to one partition.

    Attributes:
        number: of the partition, 0-based.
        incarnation: of the partition.
        rows: at least 1.
        digest: of these rows.
        from_offset: end of what the log had committed and synced when its leader confirmed the rows: none lies below.
        phase: where it stands.
        base_offset: of the first row; 0 unless linked.
    """

    number: int
    incarnation: int
    rows: int
    digest: str
    from_offset: int
    phase: Phase = "decided"
    base_offset: int = 0


@dataclass(frozen=True, slots=True)
class TargetStream:
    """The target partitions of one stream, ascending by number, each once."""

    namespace: str
    name: str
    partitions: tuple[TargetPartition, ...]


@dataclass(frozen=True, slots=True)
class Published:
    """The last decided epoch.

    Attributes:
        generation: of the sink when it was decided.
        query_id: of the query that wrote it; epochs of another query are not compared with it.
        epoch: Spark's batch id.
        token: of the attempt, 32 hexadecimal digits.
        ordinal: producer epoch of its batches; 0 = it has no rows.
        winners: attempt id of task 0, then the difference of each task's to the one before; empty once it is finished.
        targets: ascending by namespace and name.
        input_rows: rows of the query's result, before rows were dropped or diverted.
        input_digest: of these.
        offsets_hash: SHA-256 of the checkpoint's file of offsets for this epoch, hexadecimal; empty = not known.
    """

    generation: int
    query_id: str
    epoch: int
    token: str
    ordinal: int
    winners: tuple[int, ...]
    targets: tuple[TargetStream, ...]
    input_rows: int
    input_digest: str
    offsets_hash: str = ""

    @property
    def waiting(self) -> tuple[tuple[TargetStream, TargetPartition], ...]:
        """The target partitions that are to be linked, in order, each with its stream."""
        return tuple((stream, item) for stream in self.targets for item in stream.partitions if item.phase == "decided")


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to write one epoch: `run_id` for accepted ones, `generation` for expired ones."""

    epoch: int
    token: str
    generation: int
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class Skip:
    """Decided rows that an administrator gave up.

    Attributes:
        epoch: of the rows.
        stream: that they were for, in the sink's namespace.
        partition: number.
        rows: how many.
        by: who decided it.
    """

    epoch: int
    stream: str
    partition: int
    rows: int
    by: str


@dataclass(frozen=True, slots=True)
class Sink:
    """An exactly-once writer.

    Attributes:
        namespace: part of the identity.
        name: part of the identity.
        owner: who writes, by certificate: who opened it first, or whom an administrator named; empty = a client without
            a certificate.
        kind: who writes.
        lifetime: when the record goes by itself.
        id: index of the entry that created it.
        generation: index of the entry that opened it last for another run or query.
        query_id: the current query; empty for batch jobs.
        run_id: the current run.
        retired_queries: ids that may not come back.
        retired_runs: the last ids of runs that may not come back.
        ordinal: epochs with rows that were decided.
        last: the last decided epoch.
        accepted: the attempt that the current run had accepted last.
        expired: attempts that may not be published any more, the newest last.
        quota_bytes: most staged bytes; 0 = the broker's default.
        skipped_rows: rows of all its epochs that administrators gave up.
        last_skip: the last rows that were given up.
        used_ms: by `State.clock_ms`, when it was opened or published last.
    """

    namespace: str
    name: str
    owner: str
    kind: SinkKind
    lifetime: Lifetime
    id: int
    generation: int
    query_id: str
    run_id: str
    retired_queries: tuple[str, ...] = ()
    retired_runs: tuple[str, ...] = ()
    ordinal: int = 0
    last: Published | None = None
    accepted: Attempt | None = None
    expired: tuple[Attempt, ...] = ()
    quota_bytes: int = 0
    used_ms: int = 0
    skipped_rows: int = 0
    last_skip: Skip | None = None

    @property
    def producer_id(self) -> int:
        """Producer id of what is linked: unique for ever, and none that a client may have."""
        return FIRST_PRODUCER_ID + self.id

    @property
    def waiting(self) -> tuple[tuple[TargetStream, TargetPartition], ...]:
        """The target partitions that are to be linked, in order, each with its stream."""
        return self.last.waiting if self.last is not None else ()

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to be linked."""
        return not self.waiting

    @property
    def last_epoch(self) -> int | None:
        """The last decided epoch of the current query; None = it has none yet."""
        return self.last.epoch if self.last is not None and self.last.query_id == self.query_id else None

    def is_open(self, attempt: Attempt) -> bool:
        """Whether nothing but its expiry keeps the attempt from being published."""
        is_new = self.last_epoch is None or attempt.epoch > self.last_epoch
        return attempt.generation == self.generation and is_new


def pack_winners(attempts: Iterable[int]) -> tuple[int, ...]:
    """Attempt ids by task as `Published.winners` has them."""
    ids = tuple(attempts)
    return ids[:1] + tuple(after - before for before, after in pairwise(ids))


def attempt_ids(winners: tuple[int, ...]) -> tuple[int, ...]:
    """The attempt id of each task: the inverse of `pack_winners`."""
    return tuple(accumulate(winners))
