"""Membership in groups over a fake broker: joining, changes of the assignment, expulsion, deleted streams."""

from typing import Any

import pytest
from bascule.client._core import membership
from bascule.errors import OutcomeUnknownError, StateError, UnavailableError

from tests.unit.client.consumers import CURSOR, S0, S1, T0, RecordedCallbacks, batch_of, read_if_there, reading, settled
from tests.unit.client.fake_group import FakeGroupBroker, until
from tests.unit.client.fakes import failure


def test_revoked_positions_are_stored_and_kept_partitions_continue_under_the_new_epoch() -> None:
    broker, recorded = FakeGroupBroker(), RecordedCallbacks()
    broker.assigned, broker.ends = [S0, S1], {S0: 3, S1: 2}
    with broker.client().consumer("g", "s", commit_interval=1000, **recorded.callbacks()) as consumer:
        batch_of(consumer)
        batch_of(consumer)
        broker.change(S0)
        settled(consumer, S0)
        assert broker.cursors == {(CURSOR, *S1): 1}, "only revoked positions are stored"
        broker.ends[S0] = 5
        assert batch_of(consumer).offsets == [3, 4], "no record is repeated or skipped"
        assert broker.subscribed[-1].consumer.groupEpoch == broker.epoch
        broker.change(S0, S1)
        settled(consumer, S0, S1)
    kinds = [("assigned", [S0, S1]), ("revoked", [S1]), ("assigned", [S1]), ("revoked", [S0, S1])]
    assert recorded.events == kinds


def test_records_read_by_another_member_meanwhile_are_not_read_again() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 3}
    with broker.client().consumer("g", "s") as consumer:
        batch_of(consumer)
        broker.change(S0)
        heartbeats = len(broker.fetched)
        until(lambda: len(broker.fetched) > heartbeats + 1)
        with broker.lock:
            broker.cursors[CURSOR, *S0], broker.ends[S0] = 7, 8
        until(lambda: consumer.next_batch(0) is None and broker.subscribed[-1].consumer.groupEpoch == broker.epoch)
        assert broker.subscribed[-1].startOffset == 8


def test_an_expelled_member_loses_its_partitions_and_joins_again() -> None:
    broker, recorded = FakeGroupBroker(), RecordedCallbacks()
    broker.assigned, broker.ends = [S0], {S0: 3}
    with broker.client().consumer("g", "s", consumer="a", commit_interval=1000, **recorded.callbacks()) as consumer:
        assert batch_of(consumer).offsets == [0, 1, 2]
        with broker.lock:
            broker.expel()
            broker.cursors[CURSOR, *S0] = 0  # another member read that far and died
        assert batch_of(consumer).offsets == [1, 2], "records after the stored position are read again"
        assert list(broker.members) == ["a"]
        assert recorded.events == [("assigned", [S0]), ("lost", [S0]), ("assigned", [S0])]
        assert broker.cursors == {(CURSOR, *S0): 0}, "a lost position is not stored"
    assert broker.cursors == {(CURSOR, *S0): 2}


def test_a_missing_group_is_created_again() -> None:
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
    broker, recorded = FakeGroupBroker(), RecordedCallbacks()
    broker.version, broker.assigned, broker.ends = 1, [S0, T0], {S0: 3, T0: 2}
    broker.cursors = {(CURSOR, *S0): -1, (CURSOR, *T0): -1} if start == "earliest" else {}
    with broker.client().consumer("g", ["s", "t"], consumer="a", start=start, **recorded.callbacks()) as consumer:
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
        assert "lost" not in [kind for kind, _ in recorded.events]


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


def test_an_expelled_member_joins_again_without_deleted_streams() -> None:
    broker = FakeGroupBroker()
    broker.version, broker.assigned, broker.ends = 1, [S0, T0], {S0: 0, T0: 0}
    with broker.client().consumer("g", ["s", "t"], consumer="a") as consumer:
        settled(consumer, S0, T0)
        with broker.lock:
            broker.delete("s")
            broker.expel()
        until(lambda: (read_if_there(consumer), broker.members == {"a": ["t"]})[1])
        reading(consumer, T0)


def test_a_failed_check_for_a_deleted_stream_does_not_stop_the_others() -> None:
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


def test_joining_survives_a_lost_answer() -> None:
    broker = FakeGroupBroker()
    broker.failing["JoinConsumerGroup"] = [failure("outcome_unknown")]
    broker.members["a"] = ["s"]  # the request was executed
    broker.assigned = [S0]
    with broker.client().consumer("g", "s", consumer="a") as consumer:
        settled(consumer, S0)
        assert list(broker.members) == ["a"]


def test_a_consumer_id_that_is_already_a_member_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_JOIN_PAUSE", 1000.0)  # longer than the deadline: it asks once
    broker = FakeGroupBroker()
    broker.members["a"] = ["s"]
    consumer = broker.client().consumer("g", "s", consumer="a")
    with pytest.raises(StateError, match='consumer "a" is a member of group "g" already: choose another id'):
        consumer.open()
    consumer.close()
    assert list(broker.members) == ["a"], "the existing member stays"


def test_missing_streams_are_named() -> None:
    broker = FakeGroupBroker()
    broker.failing["JoinConsumerGroup"] = [failure("stream_not_found", "stream does not exist")]
    with pytest.raises(StateError, match='not all of the streams "s", "t" exist') as raised:
        broker.client().consumer("g", ["s", "t"]).open()
    assert raised.value.code == "stream_not_found"


def test_the_consumer_waits_for_a_broker_that_is_unavailable() -> None:
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


def test_a_partition_taken_by_another_member_is_not_read_until_the_change_is_known() -> None:
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


def test_joining_with_unknown_outcome_raises_at_the_deadline() -> None:
    broker = FakeGroupBroker()
    broker.failing["JoinConsumerGroup"] = [failure("outcome_unknown") for _ in range(10_000)]
    consumer = broker.client(timeout=0.03).consumer("g", "s")
    with pytest.raises((OutcomeUnknownError, UnavailableError)):
        consumer.open()
    consumer.close()
