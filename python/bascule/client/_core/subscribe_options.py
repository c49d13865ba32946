"""Options of a subscription, and its request. No I/O."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bascule._liftbridge_pb import message, number
from bascule.client._core import requests
from bascule.client._core.types import OffsetReset, Start, Stop
from bascule.errors import UsageError

__all__ = ["Member", "SubscribeOptions", "is_empty_range", "subscribe"]

_RESETS: Final = ("error", "earliest", "latest", "new")
_STARTS: Final = {"earliest": "EARLIEST", "latest": "LATEST", "new": "NEW_ONLY"}


@dataclass(frozen=True, slots=True)
class Member:
    """The group member that a subscription reads for."""

    group: str
    consumer: str
    epoch: int
    generation: int
    """As `epoch`, but unique among all groups of this id; 0 = the broker does not say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SubscribeOptions:
    """One partition and how to read it; the fields are the arguments of `Client.subscribe`."""

    stream: str
    partition: int = 0
    start: Start = "earliest"
    stop: Stop = None
    reverse: bool = False
    resume: bool = False
    from_replica: bool = False
    cursor: str | None = None
    subject: str | None = None
    """Only records whose subject matches this filter; `None` = all."""
    auto_offset_reset: OffsetReset = "error"
    """What to do when a remembered position is beyond the end."""
    is_remembered: bool = False
    """Whether `start` is a position that was stored, or reached, before."""
    batch_records: int = 8192
    member: Member | None = None
    incarnation: int = 0
    """Incarnation of the partition that `start` belongs to; 0 = the present one."""

    def __post_init__(self) -> None:
        """Check what can be checked here.

        Raises:
            UsageError: code `invalid_argument`.
        """
        requests.check_partition(self.partition)
        for name in ("start", "stop"):
            value: object = getattr(self, name)
            if isinstance(value, datetime) and value.tzinfo is None:
                object.__setattr__(self, name, value.astimezone())
        if self.auto_offset_reset not in _RESETS:
            text = f"auto_offset_reset is one of {', '.join(_RESETS)}, not {self.auto_offset_reset!r}"
            raise UsageError("invalid_argument", text)
        if self.batch_records < 1:
            raise UsageError("invalid_argument", f"batch_records is 1 or more, not {self.batch_records}")
        if self.cursor is not None:
            requests.check_id("cursor", self.cursor)
            if self.reverse:
                raise UsageError("invalid_argument", "a cursor moves forward: leave out reverse or cursor")
        if self.reverse and self.start == "new":
            raise UsageError(
                "invalid_argument", 'a reverse reader gets no new records: start is "latest", an offset or a time'
            )
        if self.reverse and not (self.stop is None or isinstance(self.stop, int)):
            raise UsageError(
                "invalid_argument", f"stop is an offset or None when reading in reverse, not {self.stop!r}"
            )
        subscribe(self, self.start, self.stop, self.incarnation)


def is_empty_range(start: Start, stop: Stop, *, reverse: bool = False) -> bool:
    """Whether no record can be between `start` and `stop`: the protocol cannot express an empty range."""
    if reverse:
        return isinstance(stop, int) and isinstance(start, int) and start <= stop
    if isinstance(stop, int):
        return stop <= 0 or (isinstance(start, int) and start >= stop)
    return isinstance(stop, datetime) and isinstance(start, datetime) and start >= stop


def subscribe(options: SubscribeOptions, start: Start, stop: Stop, incarnation: int = 0) -> bytes:
    """A SubscribeRequest. Stops are exclusive here and inclusive on the wire.

    Raises:
        UsageError: code `invalid_argument`: an invalid start or stop.
    """
    request = message("SubscribeRequest")(
        stream=options.stream,
        partition=options.partition,
        resume=options.resume,
        readISRReplica=options.from_replica,
        reverse=options.reverse,
        incarnation=incarnation,
        subject=options.subject or "",
    )
    if options.member is not None:
        member = options.member
        request.consumer.groupId, request.consumer.consumerId = member.group, member.consumer
        request.consumer.groupEpoch, request.consumer.generation = member.epoch, member.generation
    if isinstance(start, datetime):
        request.startPosition = number("StartPosition", "TIMESTAMP")
        request.startTimestamp = requests.nanoseconds(start)
    elif isinstance(start, int):
        request.startPosition = number("StartPosition", "OFFSET")
        request.startOffset = requests.check_offset("start", start)
    elif start in _STARTS:
        request.startPosition = number("StartPosition", _STARTS[start])
    else:
        text = f'start is "earliest", "latest", "new", an offset or a datetime, not {start!r}'
        raise UsageError("invalid_argument", text)
    if isinstance(stop, datetime):
        request.stopPosition = number("StopPosition", "STOP_TIMESTAMP")
        request.stopTimestamp = requests.nanoseconds(stop) - 1
    elif isinstance(stop, int):
        request.stopPosition = number("StopPosition", "STOP_OFFSET")
        stop = requests.check_offset("stop", stop)
        request.stopOffset = min(stop + 1, 2**63 - 1) if options.reverse else stop - 1
    elif stop == "latest":
        request.stopPosition = number("StopPosition", "STOP_LATEST")
    elif stop is not None:
        raise UsageError("invalid_argument", f'stop is "latest", an offset, a datetime or None, not {stop!r}')
    return request.SerializeToString()
