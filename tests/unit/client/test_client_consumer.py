"""Consumers over a fake broker: reading, stored positions, callbacks, closing."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from bascule import Assignment, AsyncClient
from bascule.errors import InternalError, StateError, UsageError

from tests.unit.client.consumers import CURSOR, S0, S1, RecordedCallbacks, batch_of, settled, threads
from tests.unit.client.fake_group import FakeGroupBroker, until
from tests.unit.client.fakes import failure


def test_a_member_reads_what_it_is_assigned_and_stores_and_leaves_at_the_end() -> None:
    broker, recorded = FakeGroupBroker(), RecordedCallbacks()
    broker.assigned, broker.ends = [S0, S1], {S0: 3, S1: 2}
    with broker.client().consumer("g", "s", consumer="a", **recorded.callbacks()) as consumer:
        assert broker.members == {"a": ["s"]}
        batches = [batch_of(consumer), batch_of(consumer)]
        assert sorted((batch.partition, batch.offsets) for batch in batches) == [(0, [0, 1, 2]), (1, [0, 1])]
        assert consumer.assignment == {Assignment("s", 0), Assignment("s", 1)}
    assert recorded.events == [("assigned", [S0, S1]), ("revoked", [S0, S1])]
    assert broker.cursors == {(CURSOR, *S0): 2, (CURSOR, *S1): 1}
    assert broker.members == {}
    assert threads() == set()
    with pytest.raises(UsageError, match="the consumer is closed"):
        consumer.next_batch()


@pytest.mark.parametrize("start", ["earliest", "new"])
def test_after_a_purge_reading_starts_at_the_beginning_and_no_old_position_is_stored(start: Any) -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends, broker.cursors = [S0], {S0: 10}, {(CURSOR, *S0): 4}
    with broker.client().consumer("g", "s", start=start) as consumer:
        old = batch_of(consumer)
        assert old.offsets == [5, 6, 7, 8, 9]
        broker.purge(S0, 3)
        with pytest.raises(StateError, match="deleted or purged; read it from its beginning"):
            consumer.next_batch(0)
        assert batch_of(consumer).offsets == [0, 1, 2]
        with pytest.raises(StateError, match="the records of this batch no longer exist"):
            consumer.commit(old)
        assert broker.cursors == {}
    assert broker.cursors == {(CURSOR, *S0): 2}


def test_a_position_of_an_ended_incarnation_is_not_stored() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 10}
    with broker.client().consumer("g", "s", commit_interval=None) as consumer:
        batch = batch_of(consumer)
        broker.purge(S0, 3)
        with pytest.raises(StateError, match="deleted or purged"):
            consumer.commit(batch)
        assert broker.cursors == {}
        assert batch_of(consumer).offsets == [0, 1, 2]
        consumer.commit()
    assert broker.cursors == {(CURSOR, *S0): 2}


def test_periodic_stores_skip_positions_of_an_ended_incarnation() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 10}
    with broker.client().consumer("g", "s", commit_interval=0.001) as consumer:
        batch_of(consumer)
        broker.purge(S0, 3)
        broker.readers.clear()  # the end is not noticed: the broker of the partition cannot be reached
        recorded: list[str] = []

        def more() -> bool:
            try:
                found = consumer.next_batch(0)
            except StateError as failure:
                recorded.append(failure.code)
                return False
            return found is not None and found.offsets == [0, 1, 2]

        until(more)
        assert recorded == ["stream_not_found"]
    assert broker.cursors == {(CURSOR, *S0): 2}


def test_a_group_change_after_a_purge_does_not_continue_at_the_old_position() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 10}
    with broker.client().consumer("g", "s", commit_interval=None) as consumer:
        assert batch_of(consumer).offsets[-1] == 9
        broker.purge(S0, 3)
        broker.readers.clear()
        broker.change(S0)
        found: list[int] = []

        def more() -> bool:
            try:
                batch = consumer.next_batch(0)
            except StateError:
                return False
            found.extend(batch.offsets if batch is not None else [])
            return bool(found)

        until(more)
        assert found == [0, 1, 2]


def test_reading_continues_after_the_stored_position() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends, broker.cursors = [S0], {S0: 10}, {(CURSOR, *S0): 6}
    with broker.client().consumer("g", "s") as consumer:
        assert batch_of(consumer).offsets == [7, 8, 9]


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest", 4), ("new", 5)])
def test_without_a_stored_position_reading_begins_at_start(start: Any, first: int) -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 5}
    with broker.client().consumer("g", "s", start=start) as consumer:
        until(lambda: consumer.next_batch(0) is not None or consumer.assignment)
        until(lambda: consumer.next_batch(0) is not None or broker.subscribed)
        assert broker.subscribed[0].startOffset == first


def test_start_error_raises_and_names_the_partition() -> None:
    broker = FakeGroupBroker()
    broker.assigned = [S0]
    with broker.client().consumer("g", "s", start="error") as consumer:
        with pytest.raises(StateError, match='group "g" has no stored position in partition 0 of stream "s"'):
            until(lambda: consumer.next_batch(0))
        broker.cursors[CURSOR, *S0] = 3
        settled(consumer, S0)


@pytest.mark.parametrize("kind", ["assigned", "revoked", "lost"])
def test_an_exception_of_a_callback_is_raised_and_the_change_takes_effect(kind: str) -> None:
    def raises(_partitions: Sequence[Assignment]) -> None:
        raise KeyError(kind)

    broker = FakeGroupBroker()
    broker.assigned = [S0]
    callback: dict[str, Any] = {f"on_{kind}": raises}
    consumer = broker.client().consumer("g", "s", **callback)
    if kind != "assigned":
        settled(consumer, S0)
        broker.change() if kind == "revoked" else broker.expel()
    with pytest.raises(KeyError, match=kind):
        until(lambda: consumer.next_batch(0))
    assert consumer.assignment == ({Assignment("s", 0)} if kind == "assigned" else set())
    consumer.close()
    assert threads() == set()


def test_an_exception_of_a_callback_at_close_is_raised_and_resources_are_released() -> None:
    def raises(_partitions: Sequence[Assignment]) -> None:
        raise KeyError("mine")

    broker = FakeGroupBroker()
    broker.assigned = [S0]
    consumer = broker.client().consumer("g", "s", on_revoked=raises)
    settled(consumer, S0)
    with pytest.raises(KeyError, match="mine"):
        consumer.close()
    assert broker.members == {}
    assert threads() == set()


def test_after_a_failure_the_last_batch_does_not_count_as_processed() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 4}
    with (  # noqa: PT012 (the body raises)
        pytest.raises(KeyError, match="mine"),
        broker.client().consumer("g", "s", batch_records=2) as consumer,
    ):
        assert batch_of(consumer).offsets == [0, 1]
        assert batch_of(consumer).offsets == [2, 3]
        raise KeyError("mine")
    assert broker.cursors == {(CURSOR, *S0): 1}


def test_records_count_one_by_one() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 4}
    with broker.client().consumer("g", "s") as consumer:
        for record in consumer.records():
            if record.offset == 2:
                break
    assert broker.cursors == {(CURSOR, *S0): 2}


def test_without_an_interval_only_commit_stores() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0, S1], {S0: 1, S1: 1}
    with broker.client().consumer("g", "s", commit_interval=None) as consumer:
        first, second = batch_of(consumer), batch_of(consumer)
        consumer.commit(first)
        assert broker.cursors == {(CURSOR, "s", first.partition): 0}
        broker.change((first.stream, first.partition))
        settled(consumer, (first.stream, first.partition))
        with pytest.raises(StateError, match=f'partition {second.partition} of stream "s" is no longer assigned'):
            consumer.commit(second)
        consumer.commit()
    assert broker.cursors == {(CURSOR, "s", first.partition): 0}


def test_positions_are_stored_periodically() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 1}
    with broker.client().consumer("g", "s", commit_interval=0.001) as consumer:
        batch_of(consumer)
        until(lambda: consumer.next_batch(0) is None and broker.cursors == {(CURSOR, *S0): 0})


def test_failed_position_stores_at_revocation_are_raised_afterwards() -> None:
    broker, recorded = FakeGroupBroker(), RecordedCallbacks()
    broker.assigned, broker.ends = [S0], {S0: 1}
    with broker.client().consumer("g", "s", commit_interval=1000, **recorded.callbacks()) as consumer:
        batch_of(consumer)
        broker.failing["SetCursor"] = [failure("internal", "it cannot")]
        broker.change()
        with pytest.raises(InternalError, match="it cannot"):
            until(lambda: consumer.next_batch(0))
        assert recorded.events[-1] == ("revoked", [S0])
        settled(consumer)


def test_errors_at_close_are_raised_and_resources_are_released() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 1}
    consumer = broker.client().consumer("g", "s")
    batch_of(consumer)
    broker.failing = {
        "SetCursor": [failure("internal", "first")],
        "LeaveConsumerGroup": [failure("internal", "second")],
    }
    with pytest.raises(InternalError, match="first") as raised:
        consumer.close()
    assert raised.value.__notes__ == ["and: second"]
    consumer.close()
    assert threads() == set()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"group": ""}, "group is empty: give it 1 to 255 bytes"),
        ({"streams": []}, "a consumer reads 1 stream or more, not none"),
        ({"streams": [""]}, "stream is empty"),
        ({"consumer": "x" * 256}, "has 256 bytes: give it 1 to 255 bytes"),
        ({"start": "sometime"}, 'start is "earliest", "latest", "new" or "error"'),
        ({"commit_interval": 0}, "commit_interval is a number of seconds above 0, or None, not 0"),
        ({"batch_records": 0}, "batch_records is 1 or more, not 0"),
    ],
)
def test_invalid_arguments_are_rejected_before_anything_is_sent(wrong: dict[str, Any], reason: str) -> None:
    broker = FakeGroupBroker()
    arguments: dict[str, Any] = {"group": "g", "streams": "s", **wrong}
    with pytest.raises(UsageError, match=reason):
        broker.client().consumer(**arguments)
    assert broker.calls == []


def test_a_closed_client_ends_its_consumers() -> None:
    broker = FakeGroupBroker()
    broker.assigned = [S0]
    client = broker.client()
    consumer = client.consumer("g", "s", commit_interval=None)
    settled(consumer, S0)
    client.close()
    with pytest.raises(UsageError, match="the client is closed"):
        until(lambda: consumer.next_batch(0))
    with pytest.raises(UsageError, match="the client is closed"):
        consumer.close()
    assert threads() == set()


async def test_the_asynchronous_form_awaits_its_callbacks_in_the_loop() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 3}
    loop, recorded = asyncio.get_running_loop(), list[str]()

    async def assigned(_partitions: Sequence[Assignment]) -> None:
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is loop
        recorded.append("assigned")

    def revoked(_partitions: Sequence[Assignment]) -> None:
        assert asyncio.get_running_loop() is loop
        recorded.append("revoked")

    client = AsyncClient(broker.client())
    async with client, client.consumer("g", "s", on_assigned=assigned, on_revoked=revoked) as consumer:
        async for batch in consumer:
            assert batch.offsets == [0, 1, 2]
            break
    assert recorded == ["assigned", "revoked"]
    assert broker.cursors == {(CURSOR, *S0): 2}
    assert threads() == set()


async def test_a_batch_of_a_cancelled_call_does_not_count_as_given() -> None:
    broker = FakeGroupBroker()
    broker.assigned = [S0]
    client = AsyncClient(broker.client())
    async with client, client.consumer("g", "s") as consumer:
        waiting = asyncio.create_task(consumer.next_batch(timeout=60))
        await asyncio.to_thread(until, lambda: broker.subscribed)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        broker.ends[S0] = 3
    assert broker.cursors == {}
    assert threads() == set()


def test_the_highest_position_that_can_be_stored_is_reported_as_beyond_the_end() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 3}
    broker.cursors[CURSOR, *S0] = 2**63 - 1
    with broker.client().consumer("g", "s") as consumer:
        with pytest.raises(StateError, match="beyond its end 3") as raised:
            until(lambda: consumer.next_batch(0) is not None)
        assert raised.value.code == "offset_out_of_range"
