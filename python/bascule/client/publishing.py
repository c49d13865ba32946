"""What the synchronous client does about publishing."""

# ruff: noqa: PLR0913 (everything but the subject of a call is keyword-only)

from collections.abc import Sequence
from typing import Final

from bascule import engine
from bascule.client import requests
from bascule.client.calls import Calls
from bascule.client.link import Link
from bascule.client.parts import publish_in_parts
from bascule.client.producer import OnAck, Producer
from bascule.client.routes import PartitionPlace
from bascule.client.sessions import Sessions
from bascule.client.types import Ack, Receipt
from bascule.errors import UsageError

__all__ = ["Publishing"]

MOST_RECORDS: Final = 50_000
"""Records of one call into the native core."""
PART_RECORDS: Final = 8_192
"""Records of one part of a longer list."""


class Publishing(Calls):
    """Records in."""

    def __init__(self, link: Link, *, timeout: float, reconnect: float) -> None:
        """Use `bascule.connect`."""
        super().__init__(link, timeout=timeout, reconnect=reconnect)
        self._sessions: Final = Sessions(link)

    def publish(
        self,
        stream: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: dict[str, bytes] | None = None,
        partition: int = 0,
        ack: Ack = "leader",
        expected_offset: int | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Publish one record; returns when it is acknowledged. Many are much faster with `publish_many`.

        What a broker of ours did not answer, because the connection broke or it died, is sent again within the timeout,
        and stored once all the same.

        Args:
            stream: name of the stream.
            value: any bytes, at most the stream's `max_record_bytes`.
            key: any bytes; empty is the same as `None`.
            headers: names to bytes; `subject` and `reply` are the broker's.
            partition: number, from 0.
            ack: what counts as done; with `none` the receipt's offset is −1.
            expected_offset: the offset that the record has to get in a stream that checks them (`concurrency_control`);
                `None` = any.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: codes `stream_not_found`, `partition_not_found`, `readonly`, `not_enough_replicas`,
                `encryption_key_missing`; `incorrect_offset`: `details` has the `next_offset`, if it is told.
            UsageError: codes `invalid_argument`; `too_large`: `details` has the `bytes` of the message and the `limit`.
            OutcomeUnknownError: it was sent and not acknowledged in time.
            UnavailableError: it could not be sent in time.
        """
        place = PartitionPlace(stream, requests.check_partition(partition))
        expected = -1 if expected_offset is None else requests.check_offset("expected_offset", expected_offset)
        deadline = self._deadline(timeout)
        batch = self._batch(place, ack)
        with engine.native_errors():
            batch.push(key, value, headers, expected)
        self._sessions.publish(place, batch, ack, deadline, expected_offset)
        places = batch.places()
        return Receipt._make(places[0]) if places else Receipt(-1, 0)

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
        without any. Sent again and stored once as `publish`.

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
                list are known to be stored (`acknowledged`). Up to 8,192 records behind it may be stored too.
            TypeError: no bytes. Of a list of up to 32,768 records nothing was sent then.
        """
        _same_length("keys", keys, values)
        _same_length("headers", headers, values)
        place = PartitionPlace(stream, requests.check_partition(partition))
        deadline = self._deadline(timeout)
        requests.ack_policy(ack)

        def framed(part: slice) -> engine.Outgoing:
            batch = self._batch(place, ack)
            with engine.native_errors():
                batch.fill(keys and keys[part], values[part], headers and headers[part])
            return batch

        def publish(batch: engine.Outgoing) -> None:
            self._sessions.publish(place, batch, ack, deadline)

        begins = range(0, len(values), PART_RECORDS)
        parts = map(framed, (slice(begin, begin + PART_RECORDS) for begin in begins))
        return publish_in_parts(parts, publish)

    def producer(
        self,
        stream: str,
        *,
        partition: int = 0,
        ack: Ack = "leader",
        batch_records: int = 32_768,
        max_in_flight: int = 131_072,
        max_in_flight_bytes: int = 64 << 20,
        timeout: float | None = None,
        on_ack: OnAck | None = None,
    ) -> Producer:
        """Publishes in the background, in order: `with client.producer("orders") as producer: producer.send(b"…")`.

        Args:
            stream: name of the stream.
            partition: number, from 0.
            ack: what counts as done.
            batch_records: most records that are published together, 1 to 50,000. Nothing is waited for: what has
                gathered while the last batch was published makes up the next one.
            max_in_flight: records that were taken and are not acknowledged, 1 or more; then `send` waits.
            max_in_flight_bytes: the same in bytes, 1 or more; a larger record goes alone.
            timeout: seconds for each batch; `None` = the client's.
            on_ack: called with the receipts of each batch, in order, in the producer's thread. What it raises comes out
                of the next `send`, `flush` or `close`.

        Raises:
            UsageError: code `invalid_argument`: a number out of range.
        """
        place = PartitionPlace(stream, requests.check_partition(partition))
        requests.ack_policy(ack)
        for name, value, most in (
            ("batch_records", batch_records, MOST_RECORDS),
            ("max_in_flight", max_in_flight, None),
            ("max_in_flight_bytes", max_in_flight_bytes, None),
        ):
            if value < 1 or (most is not None and value > most):
                bound = "1 or more" if most is None else f"1 to {most}"
                raise UsageError("invalid_argument", f"{name} is {bound}, not {value}")
        return Producer(
            make=lambda: self._batch(place, ack),
            publish=lambda batch: self._sessions.publish(place, batch, ack, self._deadline(timeout)),
            batch_records=batch_records,
            most=(max_in_flight, max_in_flight_bytes),
            on_ack=on_ack,
        )

    def _batch(self, place: PartitionPlace, ack: Ack) -> engine.Outgoing:
        return self._link.outgoing(place.stream, place.partition, requests.ack_policy(ack))


def _same_length(name: str, column: Sequence[object] | None, values: Sequence[bytes]) -> None:
    if column is not None and len(column) != len(values):
        raise UsageError("invalid_argument", f"there are {len(column)} {name} for {len(values)} values")
