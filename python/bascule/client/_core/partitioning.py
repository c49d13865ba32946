"""Chooses the partition of a record whose publisher did not name one."""

import math
import threading
import time
from dataclasses import dataclass
from typing import Final

from bascule import engine
from bascule.client._core import requests
from bascule.client._core.connection_pool import ConnectionPool
from bascule.client._core.deadline import Deadline
from bascule.client._core.error_context import error_context
from bascule.client._core.types import Content, PartitionChoice
from bascule.errors import BrokerError, UsageError, error

__all__ = ["Partitioning", "check_choice", "number_of"]

MAX_AGE: Final = 30.0
"""Seconds after which the number of partitions is fetched again: the stream may have been created again."""


def check_choice(choice: PartitionChoice) -> None:
    """Check what can be checked here.

    Raises:
        UsageError: code `invalid_argument`.
    """
    if isinstance(choice, int):
        requests.check_partition(choice)
    elif choice is not None and choice != "round_robin" and not callable(choice):
        text = f'partition is a number, None, "round_robin" or a function, not {choice!r}'
        raise UsageError("invalid_argument", text)


def number_of(choice: PartitionChoice, chooser: engine.Partitioner, key: Content | None, value: Content | None) -> int:
    """The partition of one record.

    Raises:
        UsageError: code `invalid_argument`: the function returned a value that is not a partition of the stream.
    """
    if not callable(choice):
        return chooser.choose(key, value)
    found = choice(key, value, chooser.partitions)
    if not 0 <= found < chooser.partitions:
        text = f"the partition function returned {found}: it must be from 0 to {chooser.partitions - 1}"
        raise UsageError("invalid_argument", text, {"partition": found})
    return found


@dataclass(frozen=True, slots=True)
class _Known:
    chooser: engine.Partitioner
    read_at: float


class Partitioning:
    """The partitioners of one client, one for each stream and rule. Safe to share between threads."""

    def __init__(self, pool: ConnectionPool) -> None:
        """Asks over `pool`."""
        self._pool: Final = pool
        self._lock: Final = threading.Lock()
        self._known: Final[dict[tuple[str, bool], _Known]] = {}

    def of(
        self, stream: str, choice: PartitionChoice, deadline: Deadline, *, may_be_old: bool = False
    ) -> engine.Partitioner:
        """The partitioner of a stream. Asks the broker for the number of partitions if it is not known, or if it is old
        and `may_be_old` is false.

        Raises:
            StateError: code `stream_not_found`.
            AccessError: code `permission_denied`: the client may not ask for it; name a partition instead.
            UnavailableError: no broker answered in time.
        """
        place = (stream, choice == "round_robin")
        with self._lock:
            known = self._known.get(place)
        if known is not None and (may_be_old or known.read_at + MAX_AGE > time.monotonic()):
            return known.chooser
        count = self._count(stream, deadline)
        with self._lock:
            known = self._known.get(place)
            is_same = known is not None and known.chooser.partitions == count
            # an unchanged partitioner keeps its round-robin state
            chooser = known.chooser if known is not None and is_same else engine.Partitioner(count, place[1])
            self._known[place] = _Known(chooser, time.monotonic())
        return chooser

    def forget(self, stream: str) -> None:
        """Treat the number of partitions as old, after a partition was reported as missing."""
        with self._lock:
            for place, known in self._known.items():
                if place[0] == stream:
                    self._known[place] = _Known(known.chooser, -math.inf)

    def _count(self, stream: str, deadline: Deadline) -> int:
        request = requests.metadata([stream])
        try:
            with error_context(self._pool, stream):
                answer = self._pool.run(deadline, lambda native, left: native.call("FetchMetadata", request, left))
                found = requests.read_streams(answer)
        except BrokerError as failure:
            if failure.code != "permission_denied":
                raise
            text = f"{failure}: the number of partitions is not known: name a partition, or allow FetchMetadata"
            raise error(failure.code, text, failure.details) from None
        return max((len(item.partitions) for item in found), default=1) or 1
