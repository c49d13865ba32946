"""Members of groups over a fake broker: joining, changes, positions, callbacks, the end."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from bascule import Assignment, AsyncClient, Batch, Consumer
from bascule.errors import InternalError, OutcomeUnknownError, StateError, UnavailableError, UsageError

from tests.unit.client.fake_group import FakeGroupBroker, until
from tests.unit.client.fakes import failure

S0, S1, T0 = ("s", 0), ("s", 1), ("t", 0)
CURSOR = "__group:g"


class Told:
    """What the callbacks were told, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[tuple[str, int]]]] = []

    def of(self, kind: str) -> Callable[[Sequence[Assignment]], None]:
        return lambda partitions: self.events.append((kind, [(found.stream, found.partition) for found in partitions]))

    def callbacks(self) -> dict[str, Any]:
        return {f"on_{kind}": self.of(kind) for kind in ("assigned", "revoked", "lost")}


def batch_of(consumer: Consumer) -> Batch:
    """The next batch, however long it takes."""
    found: list[Batch] = []

    def more() -> bool:
        batch = consumer.next_batch(0)
        if batch is not None:
            found.append(batch)
        return bool(found)

    until(more)
    return found[0]


def read_if_there(consumer: Consumer) -> None:
    """Take the next batch, if one is there; a history that has ended is reported while it lasts."""
    try:
        consumer.next_batch(0)
    except StateError as failure:
        if failure.code != "stream_not_found":
            raise


def reading(consumer: Consumer, *assigned: tuple[str, int]) -> None:
    """Read until it reads exactly these, while histories may end."""
    expected = {Assignment(*place) for place in assigned}
    until(lambda: (read_if_there(consumer), set(consumer.assignment) == expected)[1])


def settled(consumer: Consumer, *assigned: tuple[str, int]) -> None:
    """Read on, nothing coming, until it reads exactly these."""

    def there() -> bool:
        assert consumer.next_batch(0) is None
        return set(consumer.assignment) == {Assignment(*place) for place in assigned}

    until(there)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("bascule-consumer")}


def test_a_member_reads_what_it_is_assigned_and_stores_and_leaves_at_the_end() -> None:
    broker, told = FakeGroupBroker(), Told()
    broker.assigned, broker.ends = [S0, S1], {S0: 3, S1: 2}
    with broker.client().consumer("g", "s", consumer="a", **told.callbacks()) as consumer:
        assert broker.members == {"a": ["s"]}
        batches = [batch_of(consumer), batch_of(consumer)]
        assert sorted((batch.partition, batch.offsets) for batch in batches) == [(0, [0, 1, 2]), (1, [0, 1])]
        assert consumer.assignment == {Assignment("s", 0), Assignment("s", 1)}
    assert told.events == [("assigned", [S0, S1]), ("revoked", [S0, S1])]
    assert broker.cursors == {(CURSOR, *S0): 2, (CURSOR, *S1): 1}
    assert broker.members == {}
    assert threads() == set()
    with pytest.raises(UsageError, match="the consumer is closed"):
        consumer.next_batch()


@pytest.mark.parametrize("start", ["earliest", "new"])
def test_after_a_purge_the_new_history_is_read_from_its_beginning_and_nothing_old_is_stored(start: Any) -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends, broker.cursors = [S0], {S0: 10}, {(CURSOR, *S0): 4}
    with broker.client().consumer("g", "s", start=start) as consumer:
        old = batch_of(consumer)
        assert old.offsets == [5, 6, 7, 8, 9]
        broker.purge(S0, 3)
        with pytest.raises(StateError, match="deleted or purged; read it from its beginning"):
            consumer.next_batch(0)
        assert batch_of(consumer).offsets == [0, 1, 2]
        with pytest.raises(StateError, match="what this batch holds is gone"):
            consumer.commit(old)
        assert broker.cursors == {}
    assert broker.cursors == {(CURSOR, *S0): 2}


def test_a_position_of_a_history_that_is_gone_is_not_stored() -> None:
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


def test_a_position_that_is_stored_now_and_then_is_not_one_of_a_history_that_is_gone() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 10}
    with broker.client().consumer("g", "s", commit_interval=0.001) as consumer:
        batch_of(consumer)
        broker.purge(S0, 3)
        broker.readers.clear()  # its end is not noticed: the broker of the partition is out of reach
        told: list[str] = []

        def more() -> bool:
            try:
                found = consumer.next_batch(0)
            except StateError as failure:
                told.append(failure.code)
                return False
            return found is not None and found.offsets == [0, 1, 2]

        until(more)
        assert told == ["stream_not_found"]
    assert broker.cursors == {(CURSOR, *S0): 2}


def test_a_change_of_the_group_after_a_purge_does_not_go_on_at_the_old_position() -> None:
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


def test_reading_goes_on_behind_the_stored_position() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends, broker.cursors = [S0], {S0: 10}, {(CURSOR, *S0): 6}
    with broker.client().consumer("g", "s") as consumer:
        assert batch_of(consumer).offsets == [7, 8, 9]


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest", 4), ("new", 5)])
def test_without_a_stored_position_it_begins_where_it_was_told(start: Any, first: int) -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 5}
    with broker.client().consumer("g", "s", start=start) as consumer:
        until(lambda: consumer.next_batch(0) is not None or consumer.assignment)
        until(lambda: consumer.next_batch(0) is not None or broker.subscribed)
        assert broker.subscribed[0].startOffset == first


def test_to_start_at_error_is_to_refuse_by_name() -> None:
    broker = FakeGroupBroker()
    broker.assigned = [S0]
    with broker.client().consumer("g", "s", start="error") as consumer:
        with pytest.raises(StateError, match='group "g" has no stored position in partition 0 of stream "s"'):
            until(lambda: consumer.next_batch(0))
        broker.cursors[CURSOR, *S0] = 3
        settled(consumer, S0)


def test_what_goes_is_stored_first_and_what_stays_is_read_on_under_the_new_epoch() -> None:
    broker, told = FakeGroupBroker(), Told()
    broker.assigned, broker.ends = [S0, S1], {S0: 3, S1: 2}
    with broker.client().consumer("g", "s", commit_interval=1000, **told.callbacks()) as consumer:
        batch_of(consumer)
        batch_of(consumer)
        broker.change(S0)
        settled(consumer, S0)
        assert broker.cursors == {(CURSOR, *S1): 1}, "only what goes is stored"
        broker.ends[S0] = 5
        assert batch_of(consumer).offsets == [3, 4], "nothing twice, nothing left out"
        assert broker.subscribed[-1].consumer.groupEpoch == broker.epoch
        broker.change(S0, S1)
        settled(consumer, S0, S1)
    kinds = [("assigned", [S0, S1]), ("revoked", [S1]), ("assigned", [S1]), ("revoked", [S0, S1])]
    assert told.events == kinds


def test_what_another_member_read_meanwhile_is_not_read_again() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 3}
    with broker.client().consumer("g", "s") as consumer:
        batch_of(consumer)
        with broker.lock:
            broker.cursors[CURSOR, *S0], broker.ends[S0] = 7, 8
            broker.change(S0)
        until(lambda: consumer.next_batch(0) is None and broker.subscribed[-1].consumer.groupEpoch == broker.epoch)
        assert broker.subscribed[-1].startOffset == 8


def test_an_expelled_member_loses_everything_and_joins_anew() -> None:
    broker, told = FakeGroupBroker(), Told()
    broker.assigned, broker.ends = [S0], {S0: 3}
    with broker.client().consumer("g", "s", consumer="a", commit_interval=1000, **told.callbacks()) as consumer:
        assert batch_of(consumer).offsets == [0, 1, 2]
        with broker.lock:
            broker.expel()
            broker.cursors[CURSOR, *S0] = 0  # another one read that far, and died
        assert batch_of(consumer).offsets == [1, 2], "what was lost is read again behind the stored position"
        assert list(broker.members) == ["a"]
        assert told.events == [("assigned", [S0]), ("lost", [S0]), ("assigned", [S0])]
        assert broker.cursors == {(CURSOR, *S0): 0}, "a lost position is not stored"
    assert broker.cursors == {(CURSOR, *S0): 2}


def test_a_group_that_is_gone_is_made_anew() -> None:
    broker = FakeGroupBroker()
    broker.assigned = [S0]
    with broker.client().consumer("g", "s", consumer="a") as consumer:
        settled(consumer, S0)
        joins = broker.calls.count("JoinConsumerGroup")
        with broker.lock:
            broker.members.clear()
        until(lambda: broker.calls.count("JoinConsumerGroup") > joins and consumer.next_batch(0) is None)
        settled(consumer, S0)


@pytest.mark.parametrize("start", ["earliest", "new"])
def test_a_stream_that_was_created_again_is_read_from_its_beginning_after_joining_again(start: Any) -> None:
    broker, told = FakeGroupBroker(), Told()
    broker.version, broker.assigned, broker.ends = 1, [S0, T0], {S0: 3, T0: 2}
    broker.cursors = {(CURSOR, *S0): -1, (CURSOR, *T0): -1} if start == "earliest" else {}
    with broker.client().consumer("g", ["s", "t"], consumer="a", start=start, **told.callbacks()) as consumer:
        reading(consumer, S0, T0)
        broker.delete("s")
        reading(consumer, T0)
        looks = broker.calls.count("FetchMetadata")
        until(lambda: (read_if_there(consumer), broker.calls.count("FetchMetadata") > looks + 2)[1])
        assert broker.members == {"a": ["t"]}, "it stays a member while the stream does not exist"
        assert broker.calls.count("JoinConsumerGroup") == 1
        broker.create(S0, 5)
        until(lambda: (read_if_there(consumer), broker.members == {"a": ["s", "t"]})[1])
        assert broker.cursors.get((CURSOR, *T0), -1) == (1 if start == "earliest" else -1), "stored before it left"
        broker.change(S0, T0)
        assert batch_of(consumer).offsets == [0, 1, 2, 3, 4]
        assert "lost" not in [kind for kind, _ in told.events]


def test_a_member_whose_streams_were_all_deleted_reads_the_one_that_is_created_again() -> None:
    broker = FakeGroupBroker()
    broker.version, broker.assigned, broker.ends = 1, [S0, T0], {S0: 0, T0: 0}
    with broker.client().consumer("g", ["s", "t"], consumer="a") as consumer:
        settled(consumer, S0, T0)
        broker.delete("s")
        broker.delete("t")
        reading(consumer)
        broker.create(T0, 2)
        until(lambda: (consumer.next_batch(0), broker.members == {"a": ["t"]})[1])
        broker.change(T0)
        assert batch_of(consumer).offsets == [0, 1]
        assert "ReportConsumerGroupCoordinator" not in broker.calls


def test_an_expelled_member_joins_again_without_a_stream_that_was_deleted_meanwhile() -> None:
    broker = FakeGroupBroker()
    broker.version, broker.assigned, broker.ends = 1, [S0, T0], {S0: 0, T0: 0}
    with broker.client().consumer("g", ["s", "t"], consumer="a") as consumer:
        settled(consumer, S0, T0)
        with broker.lock:
            broker.delete("s")
            broker.expel()
        until(lambda: (read_if_there(consumer), broker.members == {"a": ["t"]})[1])
        reading(consumer, T0)


def test_a_stream_that_cannot_be_looked_for_leaves_the_others_read() -> None:
    broker = FakeGroupBroker()
    broker.version, broker.assigned, broker.ends = 1, [S0, T0], {S0: 0, T0: 0}
    with broker.client().consumer("g", ["s", "t"], consumer="a") as consumer:
        settled(consumer, S0, T0)
        broker.failing["FetchMetadata"] = [failure("permission_denied", "not allowed") for _ in range(3)]
        broker.delete("s")
        until(lambda: (read_if_there(consumer), not broker.failing["FetchMetadata"])[1])
        reading(consumer, T0)
        broker.create(T0, 1)
        assert batch_of(consumer).offsets == [0]
        assert "ReportConsumerGroupCoordinator" not in broker.calls


@pytest.mark.parametrize("kind", ["assigned", "revoked", "lost"])
def test_what_a_callback_raises_comes_out_and_the_change_takes_effect(kind: str) -> None:
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


def test_what_a_callback_raises_at_the_end_comes_out_and_everything_is_let_go() -> None:
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
    with (  # noqa: PT012 (the failure is the body's)
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
        with pytest.raises(StateError, match=f'partition {second.partition} of stream "s" is not assigned'):
            consumer.commit(second)
        consumer.commit()
    assert broker.cursors == {(CURSOR, "s", first.partition): 0}


def test_positions_are_stored_now_and_then() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 1}
    with broker.client().consumer("g", "s", commit_interval=0.001) as consumer:
        batch_of(consumer)
        until(lambda: consumer.next_batch(0) is None and broker.cursors == {(CURSOR, *S0): 0})


def test_a_lost_answer_to_joining_is_not_the_end() -> None:
    broker = FakeGroupBroker()
    broker.failing["JoinConsumerGroup"] = [failure("outcome_unknown")]
    broker.members["a"] = ["s"]  # it was heard
    broker.assigned = [S0]
    with broker.client().consumer("g", "s", consumer="a") as consumer:
        settled(consumer, S0)
        assert list(broker.members) == ["a"]


def test_a_name_that_is_taken_is_said() -> None:
    broker = FakeGroupBroker()
    broker.members["a"] = ["s"]
    consumer = broker.client(timeout=0.03).consumer("g", "s", consumer="a")
    with pytest.raises(StateError, match='consumer "a" is a member of group "g" already: choose another id'):
        consumer.open()
    consumer.close()
    assert list(broker.members) == ["a"], "who is there stays"


def test_a_stream_that_is_missing_is_said() -> None:
    broker = FakeGroupBroker()
    broker.failing["JoinConsumerGroup"] = [failure("failed_precondition", "stream does not exist")]
    with pytest.raises(StateError, match='not all of the streams "s", "t" exist') as raised:
        broker.client().consumer("g", ["s", "t"]).open()
    assert raised.value.code == "stream_not_found"


def test_a_broker_that_is_away_for_a_while_is_waited_for() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 1}
    away: list[Exception] = [failure("unavailable") for _ in range(3)]
    broker.failing = {"FetchConsumerGroupAssignments": list(away), "FetchMetadata": list(away)}
    with broker.client().consumer("g", "s") as consumer:
        assert batch_of(consumer).offsets == [0]
        assert not broker.failing["FetchConsumerGroupAssignments"]


def test_a_coordinator_that_does_not_answer_is_reported() -> None:
    broker = FakeGroupBroker(consumer_timeout=0.005)
    broker.failing["FetchConsumerGroupAssignments"] = [failure("internal") for _ in range(20)]
    broker.assigned = [S0]
    with broker.client().consumer("g", "s") as consumer:
        until(lambda: "ReportConsumerGroupCoordinator" in broker.calls)
        settled(consumer, S0)


def test_a_partition_that_another_member_has_taken_is_left_alone_until_the_change_is_known() -> None:
    broker = FakeGroupBroker(consumer_timeout=1000)
    broker.assigned, broker.ends = [S0], {S0: 1}
    with broker.client().consumer("g", "s") as consumer:
        batch_of(consumer)
        with broker.lock:
            request = type(broker.subscribed[0])()
            request.CopyFrom(broker.subscribed[0])
            request.consumer.groupEpoch += 5
            broker.subscribe(request.SerializeToString(), None)
        assert consumer.next_batch(0) is None
        assert consumer.next_batch(0) is None


def test_positions_that_cannot_be_stored_when_partitions_go_are_said_afterwards() -> None:
    broker, told = FakeGroupBroker(), Told()
    broker.assigned, broker.ends = [S0], {S0: 1}
    with broker.client().consumer("g", "s", commit_interval=1000, **told.callbacks()) as consumer:
        batch_of(consumer)
        broker.failing["SetCursor"] = [failure("internal", "it cannot")]
        broker.change()
        with pytest.raises(InternalError, match="it cannot"):
            until(lambda: consumer.next_batch(0))
        assert told.events[-1] == ("revoked", [S0])
        settled(consumer)


def test_what_goes_wrong_at_the_end_is_raised_and_everything_is_let_go() -> None:
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
def test_what_cannot_be_is_refused_before_anything_is_sent(wrong: dict[str, Any], reason: str) -> None:
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
    loop, told = asyncio.get_running_loop(), list[str]()

    async def assigned(_partitions: Sequence[Assignment]) -> None:
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is loop
        told.append("assigned")

    def revoked(_partitions: Sequence[Assignment]) -> None:
        assert asyncio.get_running_loop() is loop
        told.append("revoked")

    client = AsyncClient(broker.client())
    async with client, client.consumer("g", "s", on_assigned=assigned, on_revoked=revoked) as consumer:
        async for batch in consumer:
            assert batch.offsets == [0, 1, 2]
            break
    assert told == ["assigned", "revoked"]
    assert broker.cursors == {(CURSOR, *S0): 2}
    assert threads() == set()


async def test_a_batch_that_nobody_took_does_not_count_as_given() -> None:
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


def test_an_outcome_that_is_unknown_until_the_deadline_is_said() -> None:
    broker = FakeGroupBroker()
    broker.failing["JoinConsumerGroup"] = [failure("outcome_unknown") for _ in range(10_000)]
    consumer = broker.client(timeout=0.03).consumer("g", "s")
    with pytest.raises((OutcomeUnknownError, UnavailableError)):
        consumer.open()
    consumer.close()
