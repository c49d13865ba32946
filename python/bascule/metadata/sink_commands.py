"""Commands about sinks; part of `commands`."""

from dataclasses import dataclass

from bascule.metadata.sinks import Lifetime, SinkKind, TargetStream


@dataclass(frozen=True, slots=True)
class OpenSink:
    """A run of a query or a batch job begins to write to the sink, which is created when it is not there.

    Attributes:
        namespace: part of the identity.
        name: part of the identity.
        owner: who asks; empty on a broker without identities.
        kind: who writes.
        lifetime: of a new record.
        query_id: of the query; empty for batch jobs.
        run_id: of the run, or of the batch write.
        take_over: the current query id of a sink that has published, to be replaced by `query_id`; empty = none.
        most_of_owner: most sinks of this lifetime that the owner may have in the namespace; 0 = no bound of its own.
    """

    namespace: str
    name: str
    owner: str
    kind: SinkKind
    lifetime: Lifetime
    query_id: str
    run_id: str
    take_over: str = ""
    most_of_owner: int = 0


@dataclass(frozen=True, slots=True)
class PublishSink:
    """One attempt of an epoch is the one that counts; or, for the last decided epoch, the same once more.

    Attributes:
        namespace: of the sink.
        name: of the sink.
        id: of the sink's record.
        generation: of the sink.
        run_id: of the run that asks.
        epoch: Spark's batch id.
        token: of the attempt, 32 hexadecimal digits.
        winners: as `Published.winners`; empty for a repeated epoch.
        targets: what is decided, all `decided`; empty for a repeated epoch.
        input_rows: rows of the query's result.
        input_digest: of these.
        offsets_hash: of the checkpoint's file for this epoch; empty = not known.
        accept_gap: an epoch that may follow the last one although others lie between them; −1 = none.
        accept_difference: a repeated epoch may have other rows than it had; the first ones stay.
    """

    namespace: str
    name: str
    id: int
    generation: int
    run_id: str
    epoch: int
    token: str
    winners: tuple[int, ...]
    targets: tuple[TargetStream, ...]
    input_rows: int
    input_digest: str
    offsets_hash: str = ""
    accept_gap: int = -1
    accept_difference: bool = False


@dataclass(frozen=True, slots=True)
class LinkedPartition:
    """A partition whose rows are all below its high watermark; the first one is at `base_offset`."""

    incarnation: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class LinkSink:
    """Rows of the decided epoch with this ordinal are linked; partitions that are linked already stay as they are."""

    namespace: str
    name: str
    id: int
    ordinal: int
    partitions: tuple[LinkedPartition, ...]


@dataclass(frozen=True, slots=True)
class ExpireSink:
    """An attempt will not be published: nobody has staged to it for long, or its driver gave it up."""

    namespace: str
    name: str
    id: int
    generation: int
    epoch: int
    token: str


@dataclass(frozen=True, slots=True)
class SkipSink:
    """Rows of a decided epoch for one partition are given up; `skipped_by` is who decided that."""

    namespace: str
    name: str
    id: int
    ordinal: int
    incarnation: int
    skipped_by: str


@dataclass(frozen=True, slots=True)
class DeleteSink:
    """Forget the sink.

    Attributes:
        namespace: of the sink.
        name: of the sink.
        id: of the sink's record.
        unused_since_ms: only while `Sink.used_ms` is this; −1 = in any case.
    """

    namespace: str
    name: str
    id: int
    unused_since_ms: int = -1


@dataclass(frozen=True, slots=True)
class SetSinkQuota:
    """Bound the staged bytes of the sink; 0 = the broker's default."""

    namespace: str
    name: str
    id: int
    quota_bytes: int


@dataclass(frozen=True, slots=True)
class SetSinkOwner:
    """Give the sink to another client; its epochs, pieces and writer stay. Empty = a client without a certificate."""

    namespace: str
    name: str
    id: int
    owner: str


@dataclass(frozen=True, slots=True)
class AdvanceClock:
    """So much time has passed for the controller, by its monotonic clock, since its last entry of this type."""

    elapsed_ms: int
