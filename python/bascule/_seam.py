"""What crosses the seam between the control plane and the data plane: one type for each kind. Plain data."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = [
    "EVENTS",
    "Answer",
    "Barrier",
    "Committed",
    "Event",
    "Expired",
    "Failed",
    "Installed",
    "LogLine",
    "NatsChange",
    "Office",
    "PartitionChange",
    "Rejected",
    "Reply",
    "Request",
    "Stopped",
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
        entry: as it was proposed; empty = one of the metadata group itself, which changes nothing.
        proposal_id: of the proposal; `None` = an earlier run or another broker proposed it.
    """

    log_index: int
    entry: bytes
    proposal_id: int | None


class Installed(NamedTuple):
    """A snapshot of another broker, which replaces everything up to and including an entry.

    Attributes:
        log_index: of the last entry that it covers.
        snapshot: the state, as that broker stored it.
    """

    log_index: int
    snapshot: bytes


class Expired(NamedTuple):
    """The controller has not heard a run of a broker in time: `broker` is its number in the group of voters."""

    broker: int
    boot_epoch: int


class Stopped(NamedTuple):
    """To the controller: a run of a broker, by its number in the group of voters, has stopped every role that an entry
    up to `log_index` has ended.
    """

    broker: int
    boot_epoch: int
    log_index: int


class Failed(NamedTuple):
    """A proposal that was not committed, or a barrier that is not reached: its id (0 = the log has stopped for good), a
    code of specs/errors.toml, and one sentence.
    """

    proposal_id: int
    code: str
    message: str


class Barrier(NamedTuple):
    """Everything that was committed when the barrier was asked for has come before; `log_index` is the last of it."""

    barrier_id: int
    log_index: int


class Office(NamedTuple):
    """This broker took the office of the cluster's controller in that term, or lost it."""

    term: int
    held: bool


class PartitionChange(NamedTuple):
    """The condition of a partition changed.

    Attributes:
        incarnation: the partition.
        number: of the partition in its stream.
        change: e.g. `failed`, `damaged`, `recovered`, `full`, `writable`, `resigned`, `able`.
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


Event: TypeAlias = (
    Request
    | Committed
    | Installed
    | Failed
    | Barrier
    | Office
    | Expired
    | Stopped
    | PartitionChange
    | NatsChange
    | LogLine
)

EVENTS: Final[Mapping[str, type[Event]]] = {
    "request": Request,
    "committed": Committed,
    "installed": Installed,
    "failed": Failed,
    "barrier": Barrier,
    "office": Office,
    "expired": Expired,
    "stopped": Stopped,
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
        iggy_status: status of Iggy's protocol, ≥ 1; `None` = the usual one of `status`.
    """

    request_id: int
    status: int
    message: str
    code: str | None
    details: Mapping[str, Any]
    iggy_status: int | None = None


Reply: TypeAlias = Answer | Rejected
