"""Consumer groups against a real broker: sharing, moving, expelling, restarts, slow consumers."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from bascule import Assignment, AsyncConsumer, Batch, Client, Consumer, StreamOptions, group_cursor
from bascule.client._core.membership import Membership
from bascule.errors import StateError
from bascule.testing import TestBroker, broker

PATIENCE = 120.0
SLOW_MS = 10_000
"""How long the broker of the slow consumer waits for a heartbeat; the others wait for the usual 15 s."""


@pytest.fixture(scope="module")
def grouped() -> Iterator[TestBroker]:
    """A broker with cursors."""
    with broker(settings={"cursors.partitions": 3}) as started:
        yield started


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the condition did not hold in time"


def read(consumer: Consumer, into: Counter[tuple[int, int]]) -> bool:
    """Read the available records. Returns whether there were any."""
    batch = consumer.next_batch(0.05)
    if batch is not None:
        into.update((batch.partition, offset) for offset in batch.offsets)
    return batch is not None


def fill(client: Client, stream: str, records: int, partitions: int) -> set[tuple[int, int]]:
    """Publish `records` to each partition. Returns partition and offset of all records."""
    for partition in range(partitions):
        client.publish_many(stream, [b"v"] * records, partition=partition)
    ends = [client.get_partition(stream, partition).high_watermark for partition in range(partitions)]
    return {(partition, offset) for partition, end in enumerate(ends) for offset in range(end)}


def no_thread_is_left() -> bool:
    return not [thread for thread in threading.enumerate() if thread.name.startswith("bascule-consumer")]


def test_one_member_reads_all_and_the_next_one_continues(grouped: TestBroker, stream: str) -> None:
    with grouped.connect() as client:
        client.create_stream(stream, options=StreamOptions(partitions=3))
        there, seen = fill(client, stream, 100, 3), Counter[tuple[int, int]]()
        with client.consumer(stream, stream) as consumer:
            until(lambda: (read(consumer, seen), set(seen) == there)[1])
            assert consumer.assignment == {Assignment(stream, partition) for partition in range(3)}
        assert client.fetch_cursor(group_cursor(stream), stream, partition=1) == 99
        with pytest.raises(StateError, match="does not exist: it has no members"):
            client.get_group(stream)
        there = fill(client, stream, 10, 3)
        with client.consumer(stream, stream) as consumer:
            until(lambda: (read(consumer, seen), set(seen) == there)[1])
    assert set(seen.values()) == {1}, "no record is repeated"
    assert no_thread_is_left()


@pytest.mark.parametrize("how", ["purged", "deleted and created again"])
def test_after_a_purge_the_group_reads_all_new_records(grouped: TestBroker, stream: str, how: str) -> None:
    def values(consumer: Consumer, into: list[bytes]) -> None:
        try:
            batch = consumer.next_batch(0.05)
        except StateError as failure:
            assert failure.code == "stream_not_found"  # noqa: PT017 (reported at least once, while it lasts)
        else:
            into.extend(value or b"" for value in (batch.values if batch is not None else []))

    with grouped.connect() as client:
        client.create_stream(stream)
        client.publish_many(stream, [b"old-%d" % number for number in range(10)])
        before: list[bytes] = []
        after: list[bytes] = []
        with client.consumer(stream, stream, commit_interval=None) as consumer:
            until(lambda: (values(consumer, before), len(before) == 10)[1])
            if how == "purged":
                client.purge_stream(stream)
            else:
                client.delete_stream(stream)
                client.create_stream(stream)
            with pytest.raises(StateError, match="deleted or purged"):
                consumer.commit()
            assert client.fetch_cursor(group_cursor(stream), stream) is None
            client.publish_many(stream, [b"new-%d" % number for number in range(3)])
            # The group drops a deleted stream (liftbridge §3.15): the member joins again.
            until(lambda: (values(consumer, after), len(after) == 3)[1])
            consumer.commit()
        assert after == [b"new-0", b"new-1", b"new-2"]
        assert client.fetch_cursor(group_cursor(stream), stream) == 2


def test_members_read_a_stream_that_was_deleted_and_is_created_again_later(grouped: TestBroker, stream: str) -> None:
    def values(consumers: Sequence[Consumer], into: list[bytes]) -> None:
        for consumer in consumers:
            try:
                batch = consumer.next_batch(0.05)
            except StateError as failure:
                assert failure.code == "stream_not_found"  # noqa: PT017 (reported at least once)
            else:
                into.extend(value or b"" for value in (batch.values if batch is not None else []))

    def exactly(found: list[bytes], expected: list[bytes]) -> None:
        until(lambda: (values(members, found), len(found) >= len(expected))[1])
        assert sorted(found) == expected, "in order, each once"

    other, lost = f"{stream}-other", list[Assignment]()
    with grouped.connect() as client, grouped.connect() as second:
        for name in (stream, other):
            client.create_stream(name, options=StreamOptions(partitions=2))
        a = client.consumer(stream, [stream, other], consumer="a", start="new", on_lost=lost.extend)
        b = second.consumer(stream, [stream, other], consumer="b", start="new", on_lost=lost.extend)
        with a, b:
            members, found = (a, b), list[bytes]()
            until(lambda: (values(members, found), len(a.assignment) == len(b.assignment) == 2)[1])
            client.delete_stream(stream)
            until(
                lambda: (values(members, found), {place.stream for m in members for place in m.assignment} == {other})[
                    1
                ]
            )
            for number in range(20):
                client.publish(other, b"other-%02d" % number, partition=number % 2)
            exactly(found, [b"other-%02d" % number for number in range(20)])
            # more partitions than before; members that began at "new" read them from their beginning
            client.create_stream(stream, options=StreamOptions(partitions=4))
            for number in range(20):
                client.publish(stream, b"again-%02d" % number, partition=number % 4)
            found.clear()
            exactly(found, [b"again-%02d" % number for number in range(20)])
            until(lambda: (values(members, found), len(a.assignment) == len(b.assignment) == 3)[1])
        assert (len(found), lost) == (20, [])
        assert client.fetch_cursor(group_cursor(stream), stream, partition=3) == 4
    assert no_thread_is_left()


def test_two_members_share_and_the_remaining_one_takes_over(grouped: TestBroker, stream: str) -> None:
    calls: list[tuple[str, tuple[Assignment, ...]]] = []

    def tell(kind: str) -> Callable[[Sequence[Assignment]], None]:
        return lambda partitions: calls.append((kind, tuple(partitions)))

    with grouped.connect() as client, grouped.connect() as other:
        client.create_stream(stream, options=StreamOptions(partitions=4))
        seen = Counter[tuple[int, int]]()
        everything = {Assignment(stream, partition) for partition in range(4)}
        with client.consumer(stream, stream, consumer="a", on_revoked=tell("a gave"), on_lost=tell("a lost")) as a:
            # 1. one reads all
            there = fill(client, stream, 50, 4)
            until(lambda: (read(a, seen), set(seen) == there)[1])
            # 2. two share
            with other.consumer(stream, stream, consumer="b", on_assigned=tell("b got")) as b:
                until(lambda: (read(a, seen), read(b, seen), len(a.assignment) == len(b.assignment) == 2)[2])
                assert a.assignment | b.assignment == everything
                there = fill(client, stream, 50, 4)
                until(lambda: (read(a, seen), read(b, seen), set(seen) == there)[2])
            # 3. the remaining one takes over
            there = fill(client, stream, 50, 4)
            until(lambda: (read(a, seen), set(seen) == there)[1])
            assert a.assignment == everything
        assert "a lost" not in [kind for kind, _ in calls]
        assert [kind for kind, _ in calls[:2]] in (["a gave", "b got"], ["b got", "a gave"])
    taken_over = {count for (_, offset), count in seen.items() if offset >= 50}
    assert taken_over == {1}, "a leaving member stores its positions, and no record comes again"
    assert set(seen.values()) <= {1, 2}, "at least once, if the new member read before the old one stored its position"
    assert no_thread_is_left()


def test_a_silent_member_is_expelled_and_joins_again(grouped: TestBroker, stream: str) -> None:
    lost: list[Assignment] = []
    with grouped.connect() as client:
        client.create_stream(stream, options=StreamOptions(partitions=2))
        there, seen = fill(client, stream, 20, 2), Counter[tuple[int, int]]()
        with client.consumer(stream, stream, consumer="a", commit_interval=1000, on_lost=lost.extend) as consumer:
            until(lambda: (read(consumer, seen), set(seen) == there)[1])
            # as after missing heartbeats: the broker expels the member
            client.leave_group(stream, "a")
            until(lambda: (read(consumer, seen), len(lost) == 2)[1])
            assert set(lost) == {Assignment(stream, 0), Assignment(stream, 1)}
            # no position was stored, so reading begins at the first record
            until(lambda: (read(consumer, seen), set(seen.values()) == {2})[1])
            assert client.fetch_cursor(group_cursor(stream), stream) is None
        assert client.fetch_cursor(group_cursor(stream), stream) == 19


def test_a_member_of_a_former_group_stores_nothing(
    grouped: TestBroker, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stay_out(membership: Any, *_: object, **__: object) -> None:
        membership._stop.wait()

    monkeypatch.setattr(Membership, "_join_again", stay_out)
    with grouped.connect() as client:
        client.create_stream(stream)
        fill(client, stream, 10, 1)
        with client.consumer(stream, stream, consumer="a", commit_interval=None) as a:
            old = batch_of(a)
            # as if it had been silent: the broker ends the membership, and so the group
            client.leave_group(stream, "a")
            fill(client, stream, 10, 1)
            with client.consumer(stream, stream, consumer="b", commit_interval=None) as b:
                until(
                    lambda: (batch := b.next_batch(0.05)) is not None and (b.commit(batch), batch.offsets[-1] == 19)[1]
                )
                for batch in (old, None):
                    with pytest.raises(StateError) as refused:
                        a.commit(batch)
                    assert refused.value.code == "failed_precondition"
            with pytest.raises(StateError):
                a.commit(old)
            assert client.fetch_cursor(group_cursor(stream), stream) == 19


def batch_of(consumer: Consumer) -> Batch:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        batch = consumer.next_batch(0.05)
        if batch is not None:
            return batch
    raise AssertionError("no record came in time")


def test_a_slow_consumer_keeps_its_membership(stream: str) -> None:
    lost: list[Assignment] = []
    settings = {"cursors.partitions": 1, "groups.consumer_timeout_ms": SLOW_MS}
    with broker(settings=settings) as running, running.connect() as client:
        client.create_stream(stream)
        there, seen = fill(client, stream, 1000, 1), Counter[tuple[int, int]]()
        with client.consumer(stream, stream, batch_records=100, on_lost=lost.extend) as consumer:
            until(lambda: read(consumer, seen))
            epoch = client.get_group(stream).epoch
            time.sleep(1.2 * SLOW_MS / 1000)  # processing takes longer than the broker waits for a heartbeat
            until(lambda: (read(consumer, seen), set(seen) == there)[1])
            assert client.get_group(stream).epoch == epoch
    assert lost == []
    assert set(seen.values()) == {1}


def test_members_continue_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    with (
        broker(durability="disk", directory=tmp_path, settings={"cursors.partitions": 1}) as running,
        running.connect(timeout=60, reconnect=60) as client,
    ):
        client.create_stream("s", options=StreamOptions(partitions=2))
        there, seen = fill(client, "s", 100, 2), Counter[tuple[int, int]]()
        with client.consumer("g", "s") as consumer:
            until(lambda: (read(consumer, seen), set(seen) == there)[1])
            running.kill()
            running.start()
            there = fill(client, "s", 100, 2)
            until(lambda: (read(consumer, seen), set(seen) == there)[1])
        assert client.fetch_cursor(group_cursor("g"), "s") == 199
    assert set(seen.values()) <= {1, 2}, "at least once"
    assert no_thread_is_left()


async def test_asynchronous_members_share_too(grouped: TestBroker, stream: str) -> None:
    seen = Counter[tuple[int, int]]()
    changes: list[str] = []

    async def take(consumer: AsyncConsumer, there: set[tuple[int, int]]) -> None:
        while set(seen) != there:
            batch = await consumer.next_batch(0.05)
            if batch is not None:
                seen.update((batch.partition, offset) for offset in batch.offsets)

    async def assigned(partitions: Sequence[Assignment]) -> None:
        await asyncio.sleep(0)
        changes.extend(partition.stream for partition in partitions)

    async with grouped.connect_async() as client:
        await client.create_stream(stream, options=StreamOptions(partitions=2))
        for partition in (0, 1):
            await client.publish_many(stream, [b"v"] * 50, partition=partition)
        there = {(partition, offset) for partition in (0, 1) for offset in range(50)}
        first = client.consumer(stream, stream, on_assigned=assigned)
        second = client.consumer(stream, stream, on_assigned=assigned)
        async with first, second, asyncio.timeout(PATIENCE):
            await asyncio.gather(take(first, there), take(second, there))
    assert set(changes) == {stream}
    assert no_thread_is_left()


def test_a_missing_stream_is_reported(grouped: TestBroker) -> None:
    with grouped.connect() as client, pytest.raises(StateError) as raised:
        client.consumer("nobody", "no-such-stream").open()
    assert raised.value.code == "stream_not_found"
