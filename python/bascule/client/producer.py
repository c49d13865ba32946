"""A buffer in front of `publish_many`."""

# ruff: noqa: PLR0913 (everything but the subject of a call is keyword-only)

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from bascule.client.types import Ack, Receipt
from bascule.errors import BrokerError, UsageError

__all__ = ["Producer", "Publisher"]


class Publisher(Protocol):
    """What a producer needs of its client."""

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
        """As `Client.publish_many`."""
        ...


class Producer:
    """Gathers records and publishes them in batches, in order. For one thread.

    Leaving its context publishes what is left, or raises; so does `close`. A batch that failed is dropped: the error
    says how many of its records are stored.
    """

    def __init__(
        self, client: Publisher, stream: str, *, partition: int, ack: Ack, batch_records: int, timeout: float | None
    ) -> None:
        """Use `Client.producer`.

        Raises:
            UsageError: code `invalid_argument`: `batch_records` below 1.
        """
        if batch_records < 1:
            raise UsageError("invalid_argument", f"batch_records is 1 or more, not {batch_records}")
        self._client: Final = client
        self._stream: Final = stream
        self._partition: Final = partition
        self._ack: Final[Ack] = ack
        self._batch_records: Final = batch_records
        self._timeout: Final = timeout
        self._values: list[bytes] = []
        self._keys: list[bytes | None] = []
        self._headers: list[dict[str, bytes] | None] = []
        self._closed = False
        self.published = 0
        """Records published so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BrokerError as second:
            if failure is None:
                raise
            failure.add_note(f"and what the producer still held could not be published: {second}")

    def send(self, value: bytes, *, key: bytes | None = None, headers: dict[str, bytes] | None = None) -> None:
        """Take one record; publishes when a batch is full.

        Raises:
            BrokerError: as `Client.publish_many`, when it published.
            UsageError: code `closed`.
        """
        if self.take(value, key=key, headers=headers):
            self.flush()

    def take(self, value: bytes, *, key: bytes | None = None, headers: dict[str, bytes] | None = None) -> bool:
        """Hold one record; true when a batch is full and `flush` is due.

        Raises:
            UsageError: code `closed`.
        """
        if self._closed:
            raise UsageError("closed", "the producer is closed")
        self._values.append(value)
        self._keys.append(key)
        self._headers.append(headers)
        return len(self._values) >= self._batch_records

    def flush(self) -> list[Receipt]:
        """Publish what is held; returns its receipts, in order.

        Raises:
            BrokerError: as `Client.publish_many`.
        """
        if not self._values:
            return []
        values, keys, headers = self._values, self._keys, self._headers
        self._values, self._keys, self._headers = [], [], []
        receipts = self._client.publish_many(
            self._stream,
            values,
            keys=keys if any(keys) else None,
            headers=headers if any(headers) else None,
            partition=self._partition,
            ack=self._ack,
            timeout=self._timeout,
        )
        self.published += len(values)
        return receipts

    def close(self) -> None:
        """Publish what is held and refuse more. Idempotent.

        Raises:
            BrokerError: as `Client.publish_many`.
        """
        self._closed = True
        self.flush()
