"""Publishing once, however often it has to be sent.

A broker of ours remembers the last batches of each producer of a partition by the sequence of their records, and
answers one that it has stored before with the offsets of the first time. A *session* is such a producer: its sequence
goes on with each batch. Calls that run at the same time each borrow a session of their own. After anything but success
the session goes on under its next epoch: should the failed batch still arrive, it is refused as one of the past.

Other brokers skip all of that, and what they were sent is never sent twice.
"""

import secrets
import threading
from typing import Final

from bascule import engine
from bascule.client.deadline import Deadline
from bascule.client.link import Link
from bascule.client.naming import naming
from bascule.client.routes import PartitionPlace
from bascule.client.types import Ack
from bascule.errors import BrokerError

__all__ = ["Sessions"]

_SEQUENCES: Final = 2**32


class _Session:
    """A producer of one partition."""

    def __init__(self) -> None:
        self._start()

    @property
    def identity(self) -> tuple[int, int, int]:
        """Id, epoch, and sequence of the next record."""
        return self._id, self._epoch, self._next

    def advance(self, records: int) -> None:
        """So many records were stored."""
        self._next = (self._next + records) % _SEQUENCES

    def begin_anew(self) -> None:
        """Something was not stored, or nobody knows."""
        if self._epoch + 1 == _SEQUENCES:
            self._start()
        else:
            self._epoch, self._next = self._epoch + 1, 0

    def _start(self) -> None:
        self._id = secrets.randbits(63) + 1
        self._epoch = self._next = 0


class Sessions:
    """The sessions of one client. Safe to share between threads."""

    def __init__(self, link: Link) -> None:
        """Publishes over `link`."""
        self._link: Final = link
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
        """Publish a batch for the partition `place`, made for the policy `ack`; then its `places` say where it is. Its
        one record is to get the offset `expected`, if that is said.

        Raises:
            BrokerError: of the first record that failed; `details` has its `index`, and how many of the batch are known
                to be stored (`acknowledged`). `outcome_unknown`: the deadline came.
        """
        if ack == "none":
            # nobody answers, so there is nothing to send again for
            self._run(place, batch, deadline, None, expected)
            return
        session = self._borrow(place)
        try:
            self._run(place, batch, deadline, session, expected)
        except BaseException as failure:
            session.begin_anew()
            if not (isinstance(failure, BrokerError) and _is_refused_as_producer(failure)):
                raise
            # so many others publish that one more cannot be remembered: it is stored all the same, but sent only once
            self._run(place, batch, deadline, None, expected)
        else:
            session.advance(len(batch))
        finally:
            with self._lock:
                self._idle.setdefault(place, []).append(session)

    def _run(
        self,
        place: PartitionPlace,
        batch: engine.Outgoing,
        deadline: Deadline,
        session: _Session | None,
        expected: int | None,
    ) -> None:
        identity = None if session is None else session.identity
        with naming(self._link, place.stream, partition=place.partition, expected=expected):
            self._link.run(deadline, lambda native, left: native.publish(batch, identity, left), place)

    def _borrow(self, place: PartitionPlace) -> _Session:
        with self._lock:
            idle = self._idle.get(place)
            return idle.pop() if idle else _Session()


def _is_refused_as_producer(failure: BrokerError) -> bool:
    return failure.code == "too_many_producers" and not failure.details.get("acknowledged")
