"""A fake native core with scripted answers: no socket, no thread."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from bascule import engine
from bascule._liftbridge_pb import message
from bascule._native import NativeError
from bascule.client import Client
from bascule.client._core.connection_pool import ConnectionPool


def failure(code: str, text: str = "scripted failure", details: str = "{}") -> NativeError:
    return cast("Callable[..., NativeError]", NativeError)(code, text, details)


LONG_PARTITION = message("FetchPartitionMetadataResponse")(metadata={"highWatermark": 1 << 40}).SerializeToString()
"""Default answer about a partition: it is longer than every position."""


class FakeBatch:
    """n records whose values are their offsets."""

    def __init__(self, first: int, count: int) -> None:
        self.numbers = list(range(first, first + count))

    def __len__(self) -> int:
        return len(self.numbers)

    def offsets(self) -> list[int]:
        return self.numbers

    def timestamps(self) -> list[int]:
        return [1000 * offset for offset in self.numbers]

    def keys(self) -> list[bytes | None]:
        return [None for _ in self.numbers]

    def values(self) -> list[bytes]:
        return [b"%d" % offset for offset in self.numbers]

    def subjects(self) -> list[str]:
        return ["s" for _ in self.numbers]

    def headers(self) -> list[list[tuple[str, bytes]]]:
        return [[] for _ in self.numbers]

    def replies(self) -> None:
        return None

    def origin_times(self) -> None:
        return None


Step = FakeBatch | Exception | None


class FakeSubscription:
    def __init__(self, steps: Sequence[Step], incarnation: int = 0, start: int | None = None) -> None:
        self.steps = list(steps)
        self.start = start
        self.incarnation = incarnation
        self.closed = False

    def next_batch(self, _max_records: int, _timeout_ms: int) -> FakeBatch | None:
        step = self.steps.pop(0) if self.steps else failure("end_of_stream")
        if isinstance(step, Exception):
            raise step
        return step

    def close(self) -> None:
        self.closed = True


class FakeOutgoing:
    """A native batch of one partition."""

    def __init__(self, stream: str, partition: int, ack_policy: int, _max_in_flight: int) -> None:
        self.place = (stream, partition, ack_policy)
        self.keys: list[bytes | None] = []
        self.values: list[bytes] = []
        self.stored: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self.values)

    @property
    def partition(self) -> int:
        return self.place[1]

    def parts(self) -> list["FakeOutgoing"]:
        return [self]

    def position(self, _partition: int, index: int) -> int:
        return index

    def partition_of(self, _index: int) -> int:
        return self.partition

    def push(self, key: bytes | None, value: bytes, _headers: object = None, *_more: object) -> int:
        self.keys.append(key)
        self.values.append(value)
        return sum(map(len, self.values))

    def fill(
        self, keys: Sequence[bytes | None] | None, values: Sequence[bytes], _headers: object, *_more: object
    ) -> int:
        self.keys += keys or [None] * len(values)
        self.values += values
        return sum(map(len, self.values))

    def places(self) -> list[tuple[int, int, int]]:
        return self.stored if self.place[2] != 2 else []


class FakeSpread:
    """A native batch of several partitions."""

    def __init__(self, stream: str, partitioner: engine.Partitioner, ack_policy: int, max_in_flight: int) -> None:
        self.partitioner = partitioner
        self.rest = (ack_policy, max_in_flight)
        self.stream = stream
        self.batches: dict[int, FakeOutgoing] = {}
        self.order: list[tuple[int, int]] = []
        """Partition of each record, and its index in it."""
        self.bytes = 0

    def __len__(self) -> int:
        return len(self.order)

    def push(
        self, key: bytes | None, value: bytes, _headers: object = None, partition: int | None = None, *_more: object
    ) -> int:
        number = self.partitioner.choose(key, value) if partition is None else partition
        batch = self.batches.setdefault(number, FakeOutgoing(self.stream, number, *self.rest))
        self.order.append((number, len(batch)))
        batch.keys.append(key)
        batch.values.append(value)
        self.bytes += len(value)
        return self.bytes

    def fill(
        self,
        keys: Sequence[bytes | None] | None,
        values: Sequence[bytes],
        headers: object,
        partitions: Sequence[int] | None = None,
        *_more: object,
    ) -> int:
        rows = zip(keys or [None] * len(values), values, partitions or [None] * len(values), strict=True)
        return [self.push(key, value, headers, partition) for key, value, partition in rows][-1]

    def parts(self) -> list[FakeOutgoing]:
        return list(self.batches.values())

    def position(self, partition: int, index: int) -> int:
        return self.order.index((partition, index))

    def partition_of(self, index: int) -> int:
        return self.order[index][0]

    def places(self) -> list[tuple[int, int, int]]:
        stored = {number: iter(batch.places()) for number, batch in self.batches.items()}
        if self.rest[0] == 2:
            return []
        return [next(stored[number], (-1, 0, number)) for number, _ in self.order]


class FakeNative:
    """Scripted answers: each call returns the next one, or raises it if it is an exception."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.requests: list[tuple[str, bytes]] = []
        self.threads: list[tuple[str, str]] = []
        """Method and thread of each call."""
        self.published: list[list[bytes]] = []
        self.answers: list[bytes | Exception] = []
        self.acks: list[Exception | Callable[[], Exception | None] | None] = []
        """Result of each publish: an exception, a function that returns the result, or `None` = success."""
        self.refusals: dict[int, Iterator[Exception]] = {}
        """By partition: exceptions of the next publishes, used before `acks`."""
        self.partitions = 1
        """Number of partitions of every stream."""
        self.producers: list[tuple[int, int, int] | None] = []
        self.subscriptions: list[FakeSubscription | Exception] = []
        self.connecting: list[Exception | None] = []
        self.closed = 0
        self.next_offset = 0

    def connect(self, address: str, _options: bytes) -> "FakeNative":
        self.addresses.append(address)
        step = self.connecting.pop(0) if self.connecting else None
        if step is not None:
            raise step
        return self

    def call(self, method: str, request: bytes, _timeout_ms: int) -> bytes:
        self.threads.append((method, threading.current_thread().name))
        if method == "FetchMetadata" and not self.answers:
            return self.all_partitions(request)
        if method == "FetchPartitionMetadata" and not self.answers:
            return LONG_PARTITION
        self.requests.append((method, request))
        answer = self.answers.pop(0) if self.answers else b""
        if isinstance(answer, Exception):
            raise answer
        return answer

    def all_partitions(self, request: bytes) -> bytes:
        """The metadata of each requested stream."""
        answer = message("FetchMetadataResponse")()
        for name in message("FetchMetadataRequest").FromString(request).streams:
            found = answer.streamMetadata.add(name=name)
            for number in range(self.partitions):
                found.partitions[number].id = number
        return answer.SerializeToString()

    def publish(self, batch: FakeOutgoing, producer: tuple[int, int, int] | None, _timeout_ms: int) -> None:
        self.producers.append(producer)
        for refusal in self.refusals.get(batch.partition, ()):
            raise refusal
        step = self.acks.pop(0) if self.acks else None
        if callable(step):
            step = step()
        if step is not None:
            raise step
        self.published.append(batch.values)
        first, self.next_offset = self.next_offset, self.next_offset + len(batch)
        batch.stored = [(offset, 1, batch.partition) for offset in range(first, self.next_offset)]

    def publish_all(
        self, batches: Sequence[FakeOutgoing], producers: Sequence[tuple[int, int, int] | None], timeout_ms: int
    ) -> list[tuple[str, str, str] | None]:
        outcomes: list[tuple[str, str, str] | None] = []
        for batch, producer in zip(batches, producers, strict=True):
            try:
                self.publish(batch, producer, timeout_ms)
            except NativeError as failed:
                outcomes.append(cast("tuple[str, str, str]", failed.args))
            else:
                outcomes.append(None)
        return outcomes

    def subscribe(self, request: bytes, _bell: object = None) -> FakeSubscription:
        self.requests.append(("Subscribe", request))
        step = self.subscriptions.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def close(self) -> None:
        self.closed += 1


def client_of(native: FakeNative, *addresses: str, timeout: float = 2.0, wait: bool = True) -> Client:
    fakes = (cast("Any", native.connect), cast("Any", FakeOutgoing), cast("Any", FakeSpread))
    pool = ConnectionPool(addresses or ("here:1",), {}, *fakes, wait=wait)
    return Client(pool, timeout=timeout, reconnect=timeout)
