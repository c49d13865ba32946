"""What crosses the seam between the control plane and the data plane: one type for each kind. Plain data."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = [
    "EVENTS",
    "Answer",
    "Barrier",
    "Committed",
    "Event",
    "Failed",
    "LogLine",
    "NatsChange",
    "PartitionChange",
    "Rejected",
    "Reply",
    "Request",
]


class Request(NamedTuple):
    """An admin request, which wants a reply.

    Attributes:
        request_id: unique in this run.
        method: protocol and method, e.g. `liftbridge/CreateStream`.
        body: the request message as it came.
        peer: `host:port` of the caller; empty = the data plane.
        client: common name of the caller's certificate; `None` = it showed none.
        timeout_ms: what is left until the caller's deadline; `None` = it set none.
    """

    request_id: int
    method: str
    body: bytes
    peer: str
    client: str | None
    timeout_ms: int | None


class Committed(NamedTuple):
    """An entry of the metadata log.

    Attributes:
        log_index: from 1, without gaps.
        entry: as it was proposed.
        proposal_id: of the proposal; `None` = an earlier run proposed it.
    """

    log_index: int
    entry: bytes
    proposal_id: int | None


class Failed(NamedTuple):
    """A proposal that was not committed: its id, a code of specs/errors.toml, and one sentence."""

    proposal_id: int
    code: str
    message: str


class Barrier(NamedTuple):
    """Everything that was committed when the barrier was asked for has come before; `log_index` is the last of it."""

    barrier_id: int
    log_index: int


class PartitionChange(NamedTuple):
    """The condition of a partition changed.

    Attributes:
        incarnation: the partition.
        number: of the partition in its stream.
        change: e.g. `failed`, `damaged`, `recovered`, `full`, `writable`.
        message: one sentence.
        fields: JSON object.
    """

    incarnation: int
    number: int
    change: str
    message: str
    fields: bytes


class NatsChange(NamedTuple):
    """The condition of the connection to NATS changed.

    Attributes:
        change: `connected`, `disconnected`, `slow_consumer` or `error`.
        message: one sentence.
        fields: JSON object.
        total: how many of this change there were in this run.
    """

    change: str
    message: str
    fields: bytes
    total: int


class LogLine(NamedTuple):
    """A line for the log: level as in `logging`, logger, sentence, JSON object."""

    level: int
    target: str
    message: str
    fields: bytes


Event: TypeAlias = Request | Committed | Failed | Barrier | PartitionChange | NatsChange | LogLine

EVENTS: Final[Mapping[str, type[Event]]] = {
    "request": Request,
    "committed": Committed,
    "failed": Failed,
    "barrier": Barrier,
    "partition": PartitionChange,
    "nats": NatsChange,
    "log": LogLine,
}
"""Type by the name of the kind on the seam."""


class Answer(NamedTuple):
    """A request that succeeded: its id and the response message."""

    request_id: int
    body: bytes


class Rejected(NamedTuple):
    """A request that failed.

    Attributes:
        request_id: of the request.
        status: gRPC status code.
        message: status message.
        code: code of specs/errors.toml; `None` = the usual one of the status.
        details: values of the message, by name.
    """

    request_id: int
    status: int
    message: str
    code: str | None
    details: Mapping[str, Any]


Reply: TypeAlias = Answer | Rejected
