"""The synchronous client. Every method blocks its caller and releases the interpreter meanwhile."""

# ruff: noqa: PLR0913 (everything but the subject of a call is keyword-only)

import json
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from bascule.client import requests
from bascule.client.deadline import Deadline
from bascule.client.link import Link
from bascule.client.naming import naming
from bascule.client.producer import Producer
from bascule.client.requests import StreamOptions
from bascule.client.subscription import Subscription
from bascule.client.types import Ack, Partition, Receipt, Start, Stop, Stream
from bascule.errors import BrokerError, StateError, UsageError

__all__ = ["Client", "Producer", "Subscription"]

MOST_RECORDS: Final = 50_000
"""Records of one call into the native core; longer batches go in parts."""


class Client:
    """A connection to a broker, made by `bascule.connect`. Safe to share between threads."""

    def __init__(self, link: Link, *, timeout: float, reconnect: float) -> None:
        """Use `bascule.connect`."""
        self._link: Final = link
        self._timeout: Final = timeout
        self._reconnect: Final = reconnect

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

    def create_stream(
        self,
        name: str,
        subject: str | None = None,
        *,
        options: StreamOptions | None = None,
        exist_ok: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Create a stream; when this returns, it can be published to.

        Args:
            name: unique in the cluster; at most 255 bytes, without spaces, slashes and wildcards.
            subject: NATS subject whose messages it stores, wildcards allowed; `None` = the name.
            options: partitions, retention and the like; `None` = one partition, the broker's defaults.
            exist_ok: whether a stream of that name that is there already is fine.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: code `stream_exists`.
            UsageError: code `invalid_argument`: the name, the subject or an option.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        subject = name if subject is None else subject
        request = requests.create_stream(name, subject, options or StreamOptions())
        try:
            with naming(name, subject=subject):
                self._call("CreateStream", request, timeout)
        except StateError as failure:
            if not (exist_ok and failure.code == "stream_exists"):
                raise

    def delete_stream(self, name: str, *, missing_ok: bool = False, timeout: float | None = None) -> None:
        """Delete a stream and all its records.

        Args:
            name: of the stream.
            missing_ok: whether it is fine when there is none.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: code `stream_not_found`.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        try:
            with naming(name):
                self._call("DeleteStream", requests.delete_stream(name), timeout)
        except StateError as failure:
            if not (missing_ok and failure.code == "stream_not_found"):
                raise

    def trim_partition(
        self, stream: str, partition: int, before: int, *, dry_run: bool = False, timeout: float | None = None
    ) -> tuple[int, int]:
        """Remove everything below offset `before` of a partition, for good. Offsets of what stays do not change.

        Args:
            stream: name of the stream.
            partition: its number.
            before: first offset that stays; from 0 to the high watermark, inclusive.
            dry_run: only ask what would happen.
            timeout: seconds; `None` = the client's.

        Returns:
            The log start offset as it was, and as it is (or would be).

        Raises:
            UsageError: `before` is out of range.
            StateError: code `stream_not_found` or `partition_not_found`.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        request = requests.trim_partition(stream, partition, before, dry_run=dry_run)
        with naming(stream, partition=partition):
            answer = json.loads(self._call("TrimPartition", request, timeout))
        return answer["log_start_before"], answer["log_start"]

    def purge_stream(self, name: str, *, dry_run: bool = False, timeout: float | None = None) -> int:
        """Remove all records of a stream, for good. The stream stays; its partitions begin again at offset 0, and no
        stored position points into what was there.

        Args:
            name: of the stream.
            dry_run: only ask what would happen.
            timeout: seconds; `None` = the client's.

        Returns:
            Records that are (or would be) removed, about.

        Raises:
            StateError: code `stream_not_found`.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        with naming(name):
            answer = json.loads(self._call("PurgeStream", requests.purge_stream(name, dry_run=dry_run), timeout))
        return answer["records"]

    def list_streams(self, *, timeout: float | None = None) -> list[Stream]:
        """Every stream, by name.

        Raises:
            UnavailableError: no broker answered in time.
        """
        return sorted(
            requests.read_streams(self._call("FetchMetadata", requests.metadata([]), timeout)),
            key=lambda stream: stream.name,
        )

    def get_stream(self, name: str, *, timeout: float | None = None) -> Stream:
        """One stream.

        Raises:
            StateError: code `stream_not_found`.
            UnavailableError: no broker answered in time.
        """
        return requests.read_streams(self._call("FetchMetadata", requests.metadata([name]), timeout))[0]

    def get_partition(self, stream: str, partition: int = 0, *, timeout: float | None = None) -> Partition:
        """One partition as its leader knows it.

        Raises:
            StateError: code `partition_not_found` or `stream_not_found`.
            UnavailableError: its leader did not answer in time.
        """
        request = requests.partition_metadata(stream, partition)
        with naming(stream, partition=partition):
            return requests.read_partition(self._call("FetchPartitionMetadata", request, timeout))

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
                with naming(stream, partition=partition):
                    stored = self._link.run(
                        deadline,
                        lambda native, left, k=some_keys, v=some_values, h=some_headers: native.publish(
                            stream, partition, k, v, h, policy, left
                        ),
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
        resume: bool = False,
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
            resume: whether a paused partition is to be resumed.
            batch_records: most records of one batch, 1 or more.

        Raises:
            UsageError: code `invalid_argument`: a start or stop that means nothing.
        """
        if batch_records < 1:
            raise UsageError("invalid_argument", f"batch_records is 1 or more, not {batch_records}")
        requests.subscribe(stream, partition, start, stop)
        return Subscription(
            self._link,
            stream,
            partition=partition,
            start=start,
            stop=stop,
            resume=resume,
            batch_records=batch_records,
            patience=(self._timeout, self._reconnect),
        )

    def _call(self, method: str, request: bytes, timeout: float | None) -> bytes:
        return self._link.run(self._deadline(timeout), lambda native, left: native.call(method, request, left))

    def _deadline(self, timeout: float | None) -> Deadline:
        return Deadline(self._timeout if timeout is None else timeout)


def _same_length(name: str, column: Sequence[object] | None, values: Sequence[bytes]) -> None:
    if column is not None and len(column) != len(values):
        raise UsageError("invalid_argument", f"there are {len(column)} {name} for {len(values)} values")
