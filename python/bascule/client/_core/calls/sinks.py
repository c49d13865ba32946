"""Calls of the client about sinks, the exactly-once writers of Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from bascule._admin_pb import message
from bascule.client._core import requests
from bascule.client._core.calls.unary import Calls

__all__ = ["Sink", "SinkPartition", "SinkSkip", "Sinks"]

NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class SinkPartition:
    """What the last decided epoch of a sink brings to one partition."""

    stream: str
    partition: int
    rows: int
    phase: str
    """`decided` = still to be linked; `linked` = readable; `removed` = purged or deleted before it was linked;
    `skipped` = given up by an administrator."""
    base_offset: int | None
    """Offset of the first row; `None` unless linked."""
    blocked: str
    """Why it is not linked yet, as its leader reported last; empty = not reported, or not `decided`."""


@dataclass(frozen=True, slots=True)
class SinkSkip:
    """Rows of a sink that an administrator gave up."""

    epoch: int
    stream: str
    partition: int
    rows: int
    by: str
    """Client that asked for it, by its certificate or else its address."""


@dataclass(frozen=True, slots=True)
class Sink:
    """An exactly-once writer: a streaming query, or a batch job."""

    name: str
    owner: str
    """Name of the client that may write, from its certificate: the one that opened it first, or the one that
    `set_sink_owner` named. Empty = clients without a certificate."""
    kind: str
    """`stream` = `writeStream`; `foreach` = a write in `foreachBatch`; `batch` = a batch job."""
    lifetime: str
    """When the broker forgets it: `kept` = never; `month` = after 30 unused days; `hour` = one hour after its last
    use."""
    id: int
    """Of the record: another one after the sink was deleted and created again."""
    generation: int
    """Rises whenever another query or run begins to write; earlier ones are fenced."""
    query_id: str
    """UUID of the current query; empty = a batch job."""
    run_id: str
    """UUID of the current run."""
    last_epoch: int | None
    """The last decided epoch of the current query; `None` = it has none yet."""
    input_rows: int
    """Rows of the query's result in the last decided epoch; 0 if there is none."""
    finished: bool
    """Whether nothing is left to be linked."""
    staged_bytes: int
    """Bytes that are staged and not linked yet, on the broker that answered."""
    quota_bytes: int
    """Most bytes that may be staged; 0 = the broker's default."""
    skipped_rows: int
    """Rows of all its epochs that administrators gave up."""
    last_skip: SinkSkip | None
    """The last of them; `None` = none."""
    partitions: tuple[SinkPartition, ...]
    """Targets of the last decided epoch, also of an earlier query, by stream and number."""

    @classmethod
    def of(cls, found: Any) -> Self:
        """From a Sink of FetchSinks."""
        return cls(
            name=found.name,
            owner=found.owner,
            kind=found.kind,
            lifetime=found.lifetime,
            id=found.id,
            generation=found.generation,
            query_id=found.query_id,
            run_id=found.run_id,
            last_epoch=_last_epoch(found),
            input_rows=found.input_rows,
            finished=found.finished,
            staged_bytes=found.staged_bytes,
            quota_bytes=found.quota_bytes,
            skipped_rows=found.skipped_rows,
            last_skip=_last_skip(found),
            partitions=tuple(_partition(item) for item in found.partitions),
        )


class Sinks(Calls):
    """Sinks: what they wrote last, and what an administrator may do about them."""

    def sinks(
        self, names: Sequence[str] = (), *, namespace: str = NAMESPACE, timeout: float | None = None
    ) -> list[Sink]:
        """Sinks with what they wrote last and what is still to be linked, ordered by name.

        Args:
            names: at most 1,000, returned once each; none = all sinks of the namespace.
            namespace: of the sinks.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: code `sink_not_found`: one of `names`.
            UsageError: code `invalid_argument`: too many names.
            CapacityError: code `busy`: the answer would be too large; name fewer sinks at once.
            UnavailableError: no broker answered in time.
        """
        answer = self._call("FetchSinks", requests.fetch_sinks(names, namespace), timeout)
        found = (Sink.of(item) for item in message("FetchSinksResponse").FromString(answer).sinks)
        return sorted(found, key=lambda sink: sink.name)

    def sink(self, name: str, *, namespace: str = NAMESPACE, timeout: float | None = None) -> Sink:
        """One sink.

        Raises:
            StateError: code `sink_not_found`.
            UnavailableError: no broker answered in time.
        """
        return self.sinks([name], namespace=namespace, timeout=timeout)[0]

    def delete_sink(
        self, name: str, *, namespace: str = NAMESPACE, dry_run: bool = False, timeout: float | None = None
    ) -> int | None:
        """Forget a sink. Its records stay in their streams, but the next epoch of any query counts as the first one: if
        a query runs its last epoch again, the rows of that epoch are written once more.

        Args:
            name: of the sink.
            namespace: of the sink.
            dry_run: only return what would happen.
            timeout: seconds; `None` = the client's.

        Returns:
            The last decided epoch of its query; `None` = it has none.

        Raises:
            StateError: code `sink_not_found`.
            UnavailableError: code `sink_busy`: its last epoch is not linked everywhere. Or no broker answered in time.
            OutcomeUnknownError: it was sent and not answered.
        """
        request = requests.delete_sink(name, namespace, dry_run=dry_run)
        return _last_epoch(message("DeleteSinkResponse").FromString(self._call("DeleteSink", request, timeout)))

    def skip_sink(  # noqa: PLR0913 (everything but the subject of a call is keyword-only)
        self,
        name: str,
        stream: str,
        partition: int,
        *,
        namespace: str = NAMESPACE,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Give up the decided rows of a sink for one partition that cannot be linked. They are lost.

        Args:
            name: of the sink.
            stream: name of the target stream.
            partition: its number.
            namespace: of the sink and the stream.
            dry_run: only return what would happen.
            timeout: seconds; `None` = the client's.

        Returns:
            The number of rows that are given up.

        Raises:
            StateError: code `sink_not_found`.
            UsageError: code `invalid_argument`: nothing is to be linked to this partition.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        request = requests.skip_sink(name, namespace, stream, partition, dry_run=dry_run)
        answer = message("SkipSinkResponse").FromString(self._call("SkipSink", request, timeout))
        rows: int = answer.rows
        return rows

    def set_sink_quota(
        self, name: str, quota_bytes: int, *, namespace: str = NAMESPACE, timeout: float | None = None
    ) -> None:
        """Bound the bytes that a sink may have staged.

        Args:
            name: of the sink.
            quota_bytes: 0 to 2⁶³ − 1; 0 = the broker's default.
            namespace: of the sink.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: code `sink_not_found`.
            UsageError: code `invalid_argument`: the quota is out of range.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        self._call("SetSinkQuota", requests.set_sink_quota(name, namespace, quota_bytes), timeout, repeatable=True)

    def set_sink_owner(
        self, name: str, owner: str, *, namespace: str = NAMESPACE, dry_run: bool = False, timeout: float | None = None
    ) -> str:
        """Give a sink to another client, which alone may write then. Its epochs and its query stay, so nothing is
        written twice.

        Args:
            name: of the sink.
            owner: name of the client, as in its certificate; empty = clients without a certificate.
            namespace: of the sink.
            dry_run: decide, and change nothing.
            timeout: seconds; `None` = the client's.

        Returns:
            The owner until now.

        Raises:
            StateError: code `sink_not_found`.
            UsageError: code `invalid_argument`: no client can have that name.
            UnavailableError: no broker answered in time.
        """
        request = requests.set_sink_owner(name, namespace, owner, dry_run=dry_run)
        answer = self._call("SetSinkOwner", request, timeout, repeatable=dry_run)
        return message("SetSinkOwnerResponse").FromString(answer).before


def _last_epoch(found: Any) -> int | None:
    return found.last_epoch if found.HasField("last_epoch") else None


def _last_skip(found: Any) -> SinkSkip | None:
    if not found.HasField("last_skip"):
        return None
    skip = found.last_skip
    return SinkSkip(skip.epoch, skip.stream, skip.partition, skip.rows, skip.by)


def _partition(found: Any) -> SinkPartition:
    base_offset = found.base_offset if found.HasField("base_offset") else None
    return SinkPartition(found.stream, found.partition, found.rows, found.phase, base_offset, found.blocked)
