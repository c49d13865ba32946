"""Idempotent publishing: a batch is stored once, even if it is sent several times.

Bascule remembers the last batches of each producer of a partition by the sequence numbers of their records, and answers
a batch that it has already stored with the original offsets. A *session* is such a producer: its sequence continues
with each batch. Concurrent calls each borrow their own session. After a failure the session continues under its next
epoch: if the failed batch still arrives, the broker refuses it as outdated.

Other brokers do not support this; a batch sent to them is never sent again.
"""

import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Literal, TypeVar

from bascule import engine
from bascule.client._core.connection_pool import ConnectionPool, may_try_again
from bascule.client._core.deadline import Deadline
from bascule.client._core.error_context import error_context
from bascule.client._core.pipelined_publish import aside
from bascule.client._core.routes import PartitionPlace
from bascule.client._core.types import Ack
from bascule.errors import BrokerError, from_failure

__all__ = ["Sessions"]

_SEQUENCES: Final = 2**32
_MAX_RETRIES_AT_ONCE: Final = 32
"""Maximum number of concurrent native calls for batches that are published together."""

T = TypeVar("T")


class _Session:
    """A producer of one partition."""

    def __init__(self) -> None:
        self._start()

    @property
    def identity(self) -> tuple[int, int, int]:
        """Id, epoch, and sequence of the next record."""
        return self._id, self._epoch, self._next

    def advance(self, records: int) -> None:
        """Advance the sequence by the number of records that were stored."""
        self._next = (self._next + records) % _SEQUENCES

    def start_epoch(self) -> None:
        """Continue under the next epoch: a batch failed, or its outcome is unknown."""
        if self._epoch + 1 == _SEQUENCES:
            self._start()
        else:
            self._epoch, self._next = self._epoch + 1, 0

    def _start(self) -> None:
        self._id = secrets.randbelow((1 << 63) - 1) + 1
        self._epoch = self._next = 0


class Sessions:
    """The sessions of one client. Safe to share between threads."""

    def __init__(self, pool: ConnectionPool) -> None:
        """Publishes over `pool`."""
        self._pool: Final = pool
        self._lock: Final = threading.Lock()
        self._idle: Final[dict[PartitionPlace, list[_Session]]] = {}

    def publish(
        self,
        place: PartitionPlace,
        batch: engine.Outgoing,
        ack: Ack,
        deadline: Deadline,
        expected: int | None = None,
    ) -> None:
        """Publish a batch, made for the partition `place` and the policy `ack`; afterwards its `places` hold the
        offsets. `expected`: the offset that its only record must get; `None` = any.

        Raises:
            BrokerError: of the first record that failed; `details` has its `index` and the number of records that are
                known to be stored (`acknowledged`). `outcome_unknown`: the deadline passed.
        """
        if ack == "none":
            # no acknowledgement, so a loss cannot be noticed and nothing is retried
            self._run(place, deadline, _Attempt(batch, None), expected)
            return
        session = self._borrow(place)
        self._finish(place, session, deadline, _Attempt(batch, session.identity), expected)

    def publish_all(
        self, stream: str, batches: Sequence[engine.Outgoing], ack: Ack, deadline: Deadline
    ) -> list[BrokerError | None]:
        """Publish batches for several partitions of one stream concurrently, as `publish`. Returns the error of each.

        Raises:
            UnavailableError: no broker answered in time; nothing was sent.
        """
        places = [PartitionPlace(stream, batch.partition) for batch in batches]
        sessions = [None if ack == "none" else self._borrow(place) for place in places]
        identities = [None if session is None else session.identity for session in sessions]
        used: list[engine.Client] = []

        def publish(native: engine.Client, left_ms: int) -> list[tuple[str, str, str] | None]:
            used[:] = [native]
            return native.publish_all(batches, identities, left_ms)

        try:
            with error_context(self._pool, stream):
                outcomes = self._pool.run(deadline, publish)
        except BaseException:
            for place, session in zip(places, sessions, strict=True):
                if session is not None:
                    session.start_epoch()
                    self._give_back(place, session)
            raise
        tried = [outcome if outcome is None else (used[0], from_failure(*outcome)) for outcome in outcomes]
        attempts = list(map(_Attempt, batches, identities, tried))
        finishing = [
            partial(self._outcome, place, session, deadline, attempt)
            for place, session, attempt in zip(places, sessions, attempts, strict=True)
        ]
        # a batch that waits for its partition must not use up the time of the others
        return _at_once(finishing, [attempt.may_wait for attempt in attempts])

    def _outcome(
        self, place: PartitionPlace, session: _Session | None, deadline: Deadline, attempt: "_Attempt"
    ) -> BrokerError | None:
        try:
            if session is not None:
                self._finish(place, session, deadline, attempt, None)
            elif attempt.failed is not None:
                self._run(place, deadline, attempt, None)
        except BrokerError as failure:
            return failure
        return None

    def _finish(
        self,
        place: PartitionPlace,
        session: _Session,
        deadline: Deadline,
        attempt: "_Attempt",
        expected: int | None,
    ) -> None:
        """Publish, unless already done, with retries; then return the session to the pool."""
        batch = attempt.batch
        try:
            self._run(place, deadline, attempt, expected)
        except BaseException as failure:
            session.start_epoch()
            if not (isinstance(failure, BrokerError) and _is_refused_as_producer(failure)):
                raise
            # the broker remembers no further producer: publish without a session, and without retries
            self._run(place, deadline, _Attempt(batch, None), expected)
        else:
            session.advance(len(batch))
        finally:
            self._give_back(place, session)

    def _run(
        self,
        place: PartitionPlace,
        deadline: Deadline,
        attempt: "_Attempt",
        expected: int | None,
    ) -> None:
        if attempt.is_done:
            return
        with error_context(self._pool, place.stream, partition=place.partition, expected=expected):
            self._pool.run(deadline, attempt.publish, place)

    def _give_back(self, place: PartitionPlace, session: _Session) -> None:
        with self._lock:
            self._idle.setdefault(place, []).append(session)

    def _borrow(self, place: PartitionPlace) -> _Session:
        with self._lock:
            idle = self._idle.get(place)
            return idle.pop() if idle else _Session()


class _Attempt:
    """Publishes a batch. If it was first sent together with others, the first attempt returns that result."""

    def __init__(
        self,
        batch: engine.Outgoing,
        identity: tuple[int, int, int] | None,
        tried: tuple[engine.Client, BrokerError] | Literal["untried"] | None = "untried",
    ) -> None:
        self.batch: Final = batch
        self._identity: Final = identity
        self.is_done: Final = tried is None
        self.failed = tried if isinstance(tried, tuple) else None

    @property
    def may_wait(self) -> bool:
        """Whether it will be retried."""
        return self.failed is not None and may_try_again(self.failed[1], repeatable=False)

    def publish(self, native: engine.Client, left_ms: int) -> None:
        """Publish, or raise the known failure; retries over another connection if the error allows it."""
        failed, self.failed = self.failed, None
        if failed is not None and (native is failed[0] or not may_try_again(failed[1], repeatable=False)):
            raise failed[1]
        native.publish(self.batch, self._identity, left_ms)


def _at_once(calls: Sequence[Callable[[], T]], may_wait: Sequence[bool]) -> list[T]:
    """The results of `calls`, in order; calls that may wait for a broker run in threads if there are several."""
    if sum(may_wait) < 2:
        return [call() for call in calls]
    helpers = ThreadPoolExecutor(min(sum(may_wait), _MAX_RETRIES_AT_ONCE), "bascule-publish")
    try:
        results = [aside(helpers, call) if waits else call for call, waits in zip(calls, may_wait, strict=True)]
        return [result() for result in results]
    finally:
        helpers.shutdown(wait=False)  # interrupted: the rest ends with its deadline


def _is_refused_as_producer(failure: BrokerError) -> bool:
    return failure.code == "too_many_producers" and not failure.details.get("acknowledged")
