"""The synchronous client. Every method blocks its caller and releases the interpreter meanwhile."""

# ruff: noqa: PLR0913 (everything but the subject of a call is keyword-only)

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from bascule.client import requests
from bascule.client.administration import Administration
from bascule.client.deadline import Deadline
from bascule.client.naming import naming
from bascule.client.positions import Positions
from bascule.client.producer import Producer
from bascule.client.reading import Reading
from bascule.client.routes import PartitionPlace
from bascule.client.subscription import Subscription
from bascule.client.types import Ack, Receipt, Start, Stop
from bascule.errors import BrokerError, UsageError

__all__ = ["Client", "Producer", "Subscription"]

MOST_RECORDS: Final = 50_000
"""Records of one call into the native core; longer batches go in parts."""


class Client(Administration, Positions):
    """A connection to a broker, made by `bascule.connect`. Safe to share between threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def reconnects(self) -> int:
        """How often the client has come back after a broker went away or did not lead."""
        return self._link.reconnects

    def open(self) -> None:
        """Connect now instead of at the first call.

        Raises:
            UnavailableError: no broker answered in time.
        """
        self._link.run(Deadline(self._timeout), lambda _native, _left: None)

    def close(self) -> None:
        """Let go of the connection. Idempotent; later calls raise `closed`. Producers are to be closed before."""
        self._link.close()

    def publish(
        self,
        stream: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: dict[str, bytes] | None = None,
        partition: int = 0,
        ack: Ack = "leader",
        timeout: float | None = None,
    ) -> Receipt:
        """Publish one record; returns when it is acknowledged. Many are much faster with `publish_many`.

        Args:
            stream: name of the stream.
            value: any bytes, at most the stream's `max_record_bytes`.
            key: any bytes; empty is the same as `None`.
            headers: names to bytes; `subject` and `reply` are the broker's.
            partition: number, from 0.
            ack: what counts as done; with `none` the receipt's offset is −1.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: codes `stream_not_found`, `partition_not_found`, `readonly`.
            UsageError: codes `invalid_argument`, `too_large`.
            OutcomeUnknownError: it was sent and not acknowledged in time.
            UnavailableError: it could not be sent in time.
        """
        keys = None if key is None else [key]
        wanted = None if headers is None else [headers]
        receipts = self.publish_many(
            stream, [value], keys=keys, headers=wanted, partition=partition, ack=ack, timeout=timeout
        )
        return receipts[0] if receipts else Receipt(-1, 0)

    def publish_many(
        self,
        stream: str,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[dict[str, bytes] | None] | None = None,
        partition: int = 0,
        ack: Ack = "leader",
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Publish records in order; returns when all are acknowledged, with one receipt each, in order; with ack `none`
        without any.

        Args:
            stream: name of the stream.
            values: n ≥ 0 values.
            keys: as many keys, or `None` for records without.
            headers: as many sets of headers, or `None` for records without.
            partition: number, from 0.
            ack: what counts as done.
            timeout: seconds for all of them; `None` = the client's.

        Raises:
            BrokerError: as `publish`, of the first record that failed; `details` has its `index`, and how many of the
                batch are known to be stored (`acknowledged`). Records behind it may be stored too.
        """
        _same_length("keys", keys, values)
        _same_length("headers", headers, values)
        deadline = self._deadline(timeout)
        policy = requests.ack_policy(ack)
        receipts: list[Receipt] = []
        for begin in range(0, len(values), MOST_RECORDS):
            part = slice(begin, begin + MOST_RECORDS)
            some_keys, some_headers = keys and keys[part], headers and headers[part]
            some_values = values[part]
            try:
                with naming(self._link, stream, partition=partition):
                    stored = self._link.run(
                        deadline,
                        lambda native, left, k=some_keys, v=some_values, h=some_headers: native.publish(
                            stream, partition, k, v, h, policy, left
                        ),
                        PartitionPlace(stream, partition),
                    )
            except BrokerError as failure:
                failure.details["index"] = begin + failure.details.get("index", 0)
                failure.details["acknowledged"] = len(receipts) + failure.details.get("acknowledged", 0)
                raise
            receipts += map(Receipt._make, stored)
        return receipts

    def producer(
        self,
        stream: str,
        *,
        partition: int = 0,
        ack: Ack = "leader",
        batch_records: int = 4096,
        timeout: float | None = None,
    ) -> Producer:
        """A buffer in front of `publish_many`: `with client.producer("orders") as producer: producer.send(b"…")`.

        Args:
            stream: name of the stream.
            partition: number, from 0.
            ack: what counts as done.
            batch_records: records that are published together, 1 or more.
            timeout: seconds for each batch; `None` = the client's.
        """
        requests.ack_policy(ack)
        return Producer(self, stream, partition=partition, ack=ack, batch_records=batch_records, timeout=timeout)

    def subscribe(
        self,
        stream: str,
        *,
        partition: int = 0,
        start: Start = "earliest",
        stop: Stop = None,
        reverse: bool = False,
        cursor: str | None = None,
        resume: bool = False,
        from_replica: bool = False,
        batch_records: int = 8192,
    ) -> Subscription:
        """Read one partition: `for batch in client.subscribe("orders", stop="latest")`.

        The subscription opens when it is entered or first iterated. One that waits for new records (`stop=None`) comes
        back by itself after its broker went away, behind the last record that it gave.

        Args:
            stream: name of the stream.
            partition: number, from 0.
            start: "earliest", "latest", "new", an offset (inclusive), or a time (inclusive). An offset below the log
                start means the log start, one behind the end means the next record.
            stop: "latest" = what is stored when it opens; an offset or a time (both exclusive); `None` = never.
            reverse: read towards lower offsets, from `start` down to the first record or to `stop`, an offset that is
                not given any more. Nothing is waited for.
            cursor: id of a cursor: reading goes on behind it; `start` counts only when it was never set. What was read
                is stored there by `Subscription.commit`, not by itself.
            resume: whether a paused partition is to be resumed.
            from_replica: whether any in-sync replica may answer, not only the leader.
            batch_records: most records of one batch, 1 or more.

        Raises:
            UsageError: code `invalid_argument`: a start or stop that means nothing.
        """
        reading = Reading(
            stream=stream,
            partition=partition,
            start=start,
            stop=stop,
            reverse=reverse,
            cursor=cursor,
            resume=resume,
            from_replica=from_replica,
            batch_records=batch_records,
        )
        return Subscription(self._link, reading, timeout=self._timeout, reconnect=self._reconnect)


def _same_length(name: str, column: Sequence[object] | None, values: Sequence[bytes]) -> None:
    if column is not None and len(column) != len(values):
        raise UsageError("invalid_argument", f"there are {len(column)} {name} for {len(values)} values")
