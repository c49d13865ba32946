"""What may be created: names outside the broker's prefix, and no more streams, partitions and groups than allowed.

What was decided and is not in the state yet counts too, so that calls at the same time do not get past a bound.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from bascule.control import StreamRequest
from bascule.control.specs import INTERNAL_STREAMS
from bascule.metadata import State, Stream, StreamKey
from bascule.metadata.rejection import RejectedError, Rejection, RejectionCode
from bascule.protocols.grpc_status import Status, StatusError

__all__ = ["Bounds", "CreationGuard", "reserved_streams"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many of each there may be; the broker's own streams do not count."""

    streams: int = 10_000
    partitions: int = 20_000
    groups: int = 10_000


class CreationGuard:
    """Asked before a stream or a group is created. Belongs to the event loop's thread."""

    def __init__(self, namespace: str = "", bounds: Bounds | None = None) -> None:
        """`namespace`: prefix of the broker's own subjects; empty = none."""
        self._namespace = namespace
        self._bounds = bounds or Bounds()
        self._streams: dict[StreamKey, int] = {}
        self._groups: set[str] = set()
        self._added = 0

    def check_stream(self, state: State, request: StreamRequest) -> None:
        """Reject a stream that may not be created; changes nothing.

        Raises:
            StatusError: INVALID_ARGUMENT: its name or a subject of it is the broker's.
            RejectedError: `no_room`.
        """
        self.check_name(request.name)
        self._check_own("subject", request.subject, request.partitions)
        key = StreamKey(request.namespace, request.name)
        if key not in state.streams:
            self._check_room(state, key, request.partitions)

    def check_name(self, name: str) -> None:
        """Reject a name that a stream may not get.

        Raises:
            StatusError: INVALID_ARGUMENT: it is the broker's.
        """
        self._check_own("name", name, 1)

    @contextmanager
    def partitions(self, state: State, count: int) -> Generator[None]:
        """Reject `count` more partitions of a stream above the limit; count them while they are made.

        Raises:
            RejectedError: `no_room`.
        """
        known = [stream for stream in state.streams.values() if stream.name not in INTERNAL_STREAMS]
        self._check_partitions(sum(len(stream.partitions) for stream in known), count)
        self._added += count
        try:
            yield
        finally:
            self._added -= count

    @contextmanager
    def stream(self, state: State, request: StreamRequest) -> Generator[None]:
        """As `check_stream`, and count the stream while it is created."""
        self.check_stream(state, request)
        key = StreamKey(request.namespace, request.name)
        is_first = key not in self._streams
        if is_first:
            self._streams[key] = request.partitions
        try:
            yield
        finally:
            if is_first:
                del self._streams[key]

    @contextmanager
    def group(self, state: State, group: str) -> Generator[None]:
        """Reject a group above the limit; count it while a member joins.

        Raises:
            RejectedError: `no_room`.
        """
        most = self._bounds.groups
        coming = self._groups - {group}
        is_new, near = group not in state.groups, len(state.groups) + len(coming) >= most
        if is_new and near and len(state.groups.keys() | coming) >= most:
            message = f"limits.groups ({most}) consumer groups exist: let members of some leave, or raise it"
            raise RejectedError(Rejection(RejectionCode.NO_ROOM, message))
        is_first = is_new and group not in self._groups
        if is_first:
            self._groups.add(group)
        try:
            yield
        finally:
            if is_first:
                self._groups.discard(group)

    def _check_room(self, state: State, key: StreamKey, partitions: int) -> None:
        known = [stream for stream in state.streams.values() if stream.name not in INTERNAL_STREAMS]
        coming = [count for other, count in self._streams.items() if other != key and other not in state.streams]
        streams = len(known) + len(coming)
        if streams >= self._bounds.streams:
            message = f"limits.streams ({self._bounds.streams}) streams exist: delete some, or raise it"
            raise RejectedError(Rejection(RejectionCode.NO_ROOM, message))
        self._check_partitions(sum(len(stream.partitions) for stream in known) + sum(coming), partitions)

    def _check_partitions(self, known: int, partitions: int) -> None:
        taken = known + self._added
        if taken + partitions > self._bounds.partitions:
            message = (
                f"{taken} partitions exist and {partitions} more would pass limits.partitions "
                f"({self._bounds.partitions}): ask for fewer, delete streams, or raise it"
            )
            raise RejectedError(Rejection(RejectionCode.NO_ROOM, message))

    def _check_own(self, what: str, text: str, partitions: int) -> None:
        if is_reserved(self._namespace, text, partitions):
            message = f"Stream is reserved: its {what} {text[:80]!r} is under {self._namespace}., the broker's own"
            raise StatusError(Status.INVALID_ARGUMENT, f"{message}: choose another")


def is_reserved(namespace: str, text: str, partitions: int) -> bool:
    """Whether a name, or a subject with so many partitions behind it, is under the broker's own prefix."""
    return bool(namespace) and (text.startswith(f"{namespace}.") or (text == namespace and partitions > 1))


def reserved_streams(state: State, namespace: str) -> list[Stream]:
    """Streams that are under the broker's own prefix, from before it was reserved, in order of identity."""
    streams = (stream for _, stream in sorted(state.streams.items()) if stream.name not in INTERNAL_STREAMS)
    return [
        stream
        for stream in streams
        if is_reserved(namespace, stream.name, 1) or is_reserved(namespace, stream.subject, len(stream.partitions))
    ]
