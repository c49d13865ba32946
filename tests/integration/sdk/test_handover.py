"""Partitions move between members of a group without duplicate reads, and at once when a member leaves."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest
from bascule import Assignment, StreamOptions
from bascule.testing import TestBroker, broker

PATIENCE: Final = 120.0
PARTITIONS: Final = 4
RATE: Final = 250
"""Records per second."""


@pytest.fixture(scope="module")
def grouped() -> Iterator[TestBroker]:
    """A broker with cursors."""
    with broker(settings={"cursors.partitions": 3}) as started:
        yield started


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the condition did not hold in time"
        time.sleep(0.005)


class Load:
    """Publishes to the partitions in turn until it is stopped."""

    def __init__(self, grouped: TestBroker, stream: str) -> None:
        self.sent = set[tuple[int, int]]()
        self._grouped, self._stream = grouped, stream
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def stop(self) -> set[tuple[int, int]]:
        self._stop.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.sent

    def _publish(self) -> None:
        with self._grouped.connect() as client:
            due, number = time.monotonic(), 0
            while not self._stop.is_set():
                partition = number % PARTITIONS
                receipt = client.publish(self._stream, b"v", partition=partition)
                self.sent.add((partition, receipt.offset))
                number, due = number + 1, due + 1 / RATE
                time.sleep(max(0.0, due - time.monotonic()))


class Member:
    """A consumer on a thread of its own, which records its batches, and its callbacks with their times."""

    def __init__(self, grouped: TestBroker, stream: str, name: str, *, is_async: bool, slow_s: float = 0.0) -> None:
        self.name = name
        self.seen = Counter[tuple[int, int]]()
        self.callbacks: list[tuple[str, float, tuple[Assignment, ...]]] = []
        self.assignment = frozenset[Assignment]()
        self._grouped, self._stream, self._slow_s = grouped, stream, slow_s
        self._stop = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._live, args=(is_async,), daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def _live(self, is_async: bool) -> None:
        try:
            if is_async:
                asyncio.run(self._read_async())
            else:
                self._read()
        except BaseException as failure:  # noqa: BLE001 - raised in `leave`
            self.failure = failure

    def _callbacks(self) -> dict[str, Any]:
        return {
            "on_assigned": lambda partitions: self._tell("assigned", partitions),
            "on_revoked": lambda partitions: (time.sleep(self._slow_s), self._tell("revoked", partitions)),
            "on_lost": lambda partitions: self._tell("lost", partitions),
        }

    def _tell(self, kind: str, partitions: Sequence[Assignment]) -> None:
        self.callbacks.append((kind, time.monotonic(), tuple(partitions)))

    def _note(self, batch: Any) -> None:
        if batch is not None:
            self.seen.update((batch.partition, offset) for offset in batch.offsets)

    def _read(self) -> None:
        with (
            self._grouped.connect() as client,
            client.consumer(self._stream, self._stream, consumer=self.name, **self._callbacks()) as consumer,
        ):
            while not self._stop.is_set():
                self._note(consumer.next_batch(0.05))
                self.assignment = consumer.assignment

    async def _read_async(self) -> None:
        async with self._grouped.connect_async() as client:
            consumer = client.consumer(self._stream, self._stream, consumer=self.name, **self._callbacks())
            async with consumer:
                while not self._stop.is_set():
                    self._note(await consumer.next_batch(0.05))
                    self.assignment = consumer.assignment


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_no_record_is_read_twice_when_members_come_and_leave(grouped: TestBroker, stream: str, is_async: bool) -> None:
    with grouped.connect() as client:
        client.create_stream(stream, options=StreamOptions(partitions=PARTITIONS))
    everything = frozenset(Assignment(stream, partition) for partition in range(PARTITIONS))
    load = Load(grouped, stream)
    a = Member(grouped, stream, "a", is_async=is_async, slow_s=0.3)
    until(lambda: a.assignment == everything and a.seen)
    members, leaves = [a], list[tuple[float, Member]]()
    for round_number in range(3):
        # 1. another one joins and gets half of the partitions after the first has released them
        b = Member(grouped, stream, f"b{round_number}", is_async=is_async)
        members.append(b)
        until(lambda b=b: len(a.assignment) == len(b.assignment) == 2 and len(b.seen) > 50)
        # 2. it leaves, and the first one takes over
        leaves.append((time.monotonic(), b))
        b.leave()
        until(lambda: a.assignment == everything)
    sent = load.stop()
    read = Counter[tuple[int, int]]()
    until(lambda: sent <= {place for member in members for place in member.seen})
    a.leave()
    for member in members:
        read.update(member.seen)
    doubled = {place: count for place, count in read.items() if count > 1}
    assert not doubled, f"{len(doubled)} of {len(sent)} records were read twice"
    assert set(read) == sent
    for member in members:
        assert "lost" not in [kind for kind, _, _ in member.callbacks]
    check_order(members)
    for left_at, b in leaves:
        revoked_at = next(at for kind, at, _ in b.callbacks if kind == "revoked" and at >= left_at)
        assigned_at = next(at for kind, at, _ in a.callbacks if kind == "assigned" and at >= left_at)
        assert assigned_at - revoked_at <= 1, "a leave hands over within a second"


def check_order(members: list[Member]) -> None:
    """For each partition: no member gets `assigned` before its former reader got `revoked`."""
    callbacks = sorted((at, kind, member.name, places) for member in members for kind, at, places in member.callbacks)
    owners = dict[Assignment, str]()
    for _, kind, name, places in callbacks:
        for place in places:
            if kind == "assigned":
                assert place not in owners, f"{place} was given to {name} while {owners[place]} had it"
                owners[place] = name
            else:
                assert owners.pop(place) == name


def test_a_member_that_does_not_release_delays_others_at_most_by_the_timeout(stream: str) -> None:
    with (
        broker(settings={"cursors.partitions": 3, "groups.consumer_timeout_ms": 2000}) as grouped,
        grouped.connect() as client,
        grouped.connect() as other,
    ):
        client.create_stream(stream, options=StreamOptions(partitions=2))
        with client.consumer(stream, stream, consumer="a") as a:
            until(lambda: (a.next_batch(0.05), len(a.assignment) == 2)[1])
            with other.consumer(stream, stream, consumer="b") as b:
                # `a` is not polled, so that it does not notice the change; it stays a member
                until(lambda: (b.next_batch(0.05), len(b.assignment) == 1)[1])
                until(lambda: (a.next_batch(0.05), len(a.assignment) == 1)[1])
                assert not a.assignment & b.assignment


def test_closing_is_not_delayed_by_a_waiting_heartbeat(grouped: TestBroker, stream: str) -> None:
    with grouped.connect() as client:
        client.create_stream(stream)
        consumer = client.consumer(stream, stream)
        consumer.open()
        until(lambda: (consumer.next_batch(0.05), consumer.assignment)[1])
        time.sleep(0.3)  # the next heartbeat waits at the broker by now
        began = time.monotonic()
        consumer.close()
        assert time.monotonic() - began < 1.5
