"""A fake broker that serves one consumer group: no socket, no thread."""

import threading
import time
from collections.abc import Callable
from typing import Any, cast

from bascule._liftbridge_pb import message
from bascule.client import Client
from bascule.client._core.connection_pool import ConnectionPool

from tests.unit.client.fakes import FakeBatch, failure

PATIENCE = 60.0


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds that another thread makes true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the condition did not hold in time"
        time.sleep(0.002)


class GroupSubscription:
    """Returns the existing batches of its partition, from its start."""

    def __init__(self, broker: "FakeGroupBroker", request: Any) -> None:
        self.broker = broker
        self.request = request
        self.place = (request.stream, request.partition)
        self.next = request.startOffset
        self.start = None
        self.closed = False
        self.is_gone = False

    def next_batch(self, max_records: int, _timeout_ms: int) -> FakeBatch | None:
        with self.broker.lock:
            if self.is_gone:
                raise failure("stream_not_found", "commit log was deleted", '{"reason": "deleted"}')
            if self.broker.readers.get(self.place) is not self:
                raise failure("end_of_stream", "the broker ended the subscription")
            count = min(max_records, self.broker.ends.get(self.place, 0) - self.next)
        if count <= 0:
            return None
        self.next += count
        return FakeBatch(self.next - count, count)

    def close(self) -> None:
        self.closed = True


class FakeGroupBroker:
    """Group `g`. A test sets `assigned` and `ends`, and calls `change`, `expel` and others."""

    def __init__(self, consumer_timeout: float = 0.05) -> None:
        self.lock = threading.RLock()
        self.consumer_timeout = consumer_timeout
        self.epoch = 10
        self.members: dict[str, list[str]] = {}
        self.assigned: list[tuple[str, int]] = []
        self.ends: dict[tuple[str, int], int] = {}
        self.incarnations: dict[tuple[str, int], int] = {}
        self.cursors: dict[tuple[str, str, int], int] = {}
        self.readers: dict[tuple[str, int], GroupSubscription] = {}
        self.subscribed: list[Any] = []
        self.fetched: list[Any] = []
        """Heartbeats that were answered."""
        self.stored: list[Any] = []
        self.replaced: set[int] = set()
        """Generations in which members joined that were expelled, and whose ids others have now."""
        self.fenced: set[tuple[str, int]] = set()
        """Partitions for which no member may store a position."""
        self.calls: list[str] = []
        self.failing: dict[str, list[Exception]] = {}
        self.coordinator = "b"
        self.version = 0
        """Version of its answers; above 0 they contain the streams that the group reads for the member."""
        self.missing: set[str] = set()
        """Streams that do not exist."""

    def connect(self, _address: str, _options: bytes) -> "FakeGroupBroker":
        return self

    def close(self) -> None:
        pass

    def client(self, timeout: float = 30.0) -> Client:
        pool = ConnectionPool(["here:1"], {}, cast("Any", self.connect))
        return Client(pool, timeout=timeout, reconnect=timeout)

    def change(self, *assigned: tuple[str, int]) -> None:
        """Simulates that another member joined or left."""
        with self.lock:
            self.epoch += 1
            self.assigned = list(assigned)

    def expel(self) -> None:
        """Simulates that the member is expelled."""
        with self.lock:
            self.members.clear()
            self.epoch += 1

    def delete(self, stream: str) -> None:
        """Deletes the stream, and removes it from the group."""
        with self.lock:
            self.missing.add(stream)
            for streams in self.members.values():
                streams.remove(stream)
            for place in [place for place in self.ends if place[0] == stream]:
                self.purge(place, 0)
            self.version += 1
            self.change(*[place for place in self.assigned if place[0] != stream])

    def create(self, place: tuple[str, int], end: int) -> None:
        """Creates the stream of a partition again with `end` records; it is not in the group."""
        with self.lock:
            self.missing.discard(place[0])
            self.ends[place] = end

    def purge(self, place: tuple[str, int], end: int) -> None:
        """Purges the partition; it has `end` new records."""
        with self.lock:
            self.incarnations[place] = self._incarnation(place) + 1
            self.ends[place] = end
            self.cursors = {key: offset for key, offset in self.cursors.items() if key[1:] != place}
            reader = self.readers.pop(place, None)
            if reader is not None:
                reader.is_gone = True

    def _incarnation(self, place: tuple[str, int]) -> int:
        return self.incarnations.get(place, 1)

    def call(self, method: str, body: bytes, _timeout_ms: int) -> bytes:
        with self.lock:
            self.calls.append(method)
            if self.failing.get(method):
                raise self.failing[method].pop(0)
            request = message(f"{method}Request").FromString(body)
            response = message(f"{method}Response")()
            getattr(self, f"_{method}")(request, response)
            return response.SerializeToString()

    def subscribe(self, body: bytes, _bell: object) -> GroupSubscription:
        with self.lock:
            request = message("SubscribeRequest").FromString(body)
            place = (request.stream, request.partition)
            self._check(place, request.incarnation)
            present = self.readers.get(place)
            if present is not None and present.request.consumer.groupEpoch > request.consumer.groupEpoch:
                raise failure(
                    "failed_precondition",
                    "Consumer is not currently assigned this partition",
                    '{"reason": "not_assigned"}',
                )
            self.subscribed.append(request)
            self.readers[place] = GroupSubscription(self, request)
            return self.readers[place]

    def _JoinConsumerGroup(self, request: Any, response: Any) -> None:  # noqa: N802 (the method's name)
        if request.consumerId in self.members:
            raise failure(
                "failed_precondition",
                "consumer is already a member of the consumer group",
                '{"reason": "already_member"}',
            )
        if self.missing.intersection(request.streams):
            raise failure("stream_not_found", "stream does not exist")
        self.members[request.consumerId] = list(request.streams)
        self.epoch += 1
        response.coordinator, response.epoch = self.coordinator, self.epoch
        response.generation = response.joined = self.epoch
        response.consumerTimeout = response.coordinatorTimeout = round(self.consumer_timeout * 1e9)

    def _LeaveConsumerGroup(self, request: Any, _response: Any) -> None:  # noqa: N802
        if request.joined in self.replaced or self.members.pop(request.consumerId, None) is None:
            raise failure("not_found", "consumer group does not exist", '{"reason": "group_not_found"}')
        self.epoch += 1

    def _FetchConsumerGroupAssignments(self, request: Any, response: Any) -> None:  # noqa: N802
        if not self.members:
            raise failure("not_found", "consumer group does not exist", '{"reason": "group_not_found"}')
        if request.joined in self.replaced:
            raise failure(
                "failed_precondition", "consumer is not a member of the consumer group", '{"reason": "not_a_member"}'
            )
        if request.epoch != self.epoch:
            raise failure(
                "failed_precondition",
                "client-provided group epoch differs from broker group epoch",
                '{"reason": "stale_epoch"}',
            )
        if request.consumerId not in self.members:
            raise failure(
                "failed_precondition", "consumer is not a member of the consumer group", '{"reason": "not_a_member"}'
            )
        self.fetched.append(request)
        response.epoch = self.epoch
        response.version = self.version
        response.streams.extend(self.members[request.consumerId] if self.version else ())
        for stream, partition in self.assigned:
            response.assignments.add(stream=stream, partitions=[partition])

    def _ReportConsumerGroupCoordinator(self, _request: Any, _response: Any) -> None:  # noqa: N802
        raise failure("failed_precondition", "No group coordinator candidates")

    def _FetchMetadata(self, request: Any, response: Any) -> None:  # noqa: N802
        for stream in request.streams:
            response.streamMetadata.add(name=stream, error=int(stream in self.missing))
        for group in request.groups:
            if self.members:
                response.groupMetadata.add(
                    groupId=group, coordinator=self.coordinator, epoch=self.epoch, generation=self.epoch
                )
            else:
                response.groupMetadata.add(groupId=group, error=1)

    def _FetchPartitionMetadata(self, request: Any, response: Any) -> None:  # noqa: N802
        response.metadata.highWatermark = self.ends.get((request.stream, request.partition), 1 << 40) - 1

    def _check(self, place: tuple[str, int], incarnation: int) -> None:
        if incarnation not in (0, self._incarnation(place)):
            raise failure("stream_not_found", "commit log was deleted", '{"reason": "deleted"}')

    def _SetCursor(self, request: Any, _response: Any) -> None:  # noqa: N802
        self._check((request.stream, request.partition), request.incarnation)
        if (request.stream, request.partition) in self.fenced:
            raise failure(
                "failed_precondition",
                "Consumer is not currently assigned this partition",
                '{"reason": "not_assigned"}',
            )
        self.stored.append(request)
        self.cursors[request.cursorId, request.stream, request.partition] = request.offset

    def _FetchCursor(self, request: Any, response: Any) -> None:  # noqa: N802
        response.incarnation = self._incarnation((request.stream, request.partition))
        response.offset = self.cursors.get((request.cursorId, request.stream, request.partition), -1)
