"""Members of groups that were expelled, replaced or refused: what they claim, store and release. Over a fake broker."""

import threading
from typing import Any

import pytest
from bascule.client._core import membership as membership_module
from bascule.client._core.deadline import Deadline
from bascule.client._core.dropped import DroppedStreams
from bascule.client._core.membership import Assignment, Membership
from bascule.errors import StateError

from tests.unit.client.consumers import CURSOR, S0, S1, RecordedCallbacks, batch_of, settled
from tests.unit.client.fake_group import PATIENCE, FakeGroupBroker, until
from tests.unit.client.fakes import failure


def test_a_position_claims_the_generation_in_which_the_partition_was_read() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 3}
    with broker.client().consumer("g", "s", commit_interval=None) as consumer:
        batch, before = batch_of(consumer), broker.epoch
        assert broker.subscribed[-1].consumer.generation == before
        broker.change(S0)
        heartbeats = len(broker.fetched)
        until(lambda: len(broker.fetched) > heartbeats + 1)
        consumer.commit(batch)  # the application has not seen the change
        assert [request.consumer.generation for request in broker.stored] == [before]
        settled(consumer, S0)
        until(lambda: consumer.next_batch(0) is None and broker.subscribed[-1].consumer.generation == broker.epoch)
        broker.ends[S0] = 4
        consumer.commit(batch_of(consumer))
        assert broker.stored[-1].consumer.generation == broker.epoch


def rejoined(broker: FakeGroupBroker) -> None:
    """Expel the member, and wait until it has joined again. The application has not seen it."""
    joins, heartbeats = broker.calls.count("JoinConsumerGroup"), len(broker.fetched)
    broker.expel()
    until(lambda: broker.calls.count("JoinConsumerGroup") > joins and len(broker.fetched) > heartbeats)


def test_a_batch_from_before_an_expulsion_is_not_stored() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 3}
    with broker.client().consumer("g", "s", consumer="a", commit_interval=None) as consumer:
        old = batch_of(consumer)
        rejoined(broker)
        for batch in (old, None):
            with pytest.raises(StateError) as raised:
                consumer.commit(batch)
            assert raised.value.code == "failed_precondition"
        broker.ends[S0] = 5
        new = batch_of(consumer)
        assert new.offsets == [0, 1, 2, 3, 4], "nothing was stored"
        with pytest.raises(StateError, match="no longer assigned"):
            consumer.commit(old)
        assert not broker.stored
        consumer.commit(new)
        assert broker.cursors == {(CURSOR, *S0): 4}


def test_an_expelled_member_stores_nothing_at_its_end() -> None:
    broker, recorded = FakeGroupBroker(), RecordedCallbacks()
    broker.assigned, broker.ends = [S0], {S0: 3}
    with broker.client().consumer("g", "s", consumer="a", commit_interval=1000, **recorded.callbacks()) as consumer:
        batch_of(consumer)
        rejoined(broker)
    assert not broker.stored
    assert recorded.events == [("assigned", [S0]), ("lost", [S0])]


def test_a_refused_position_is_an_error_unless_heartbeats_explain_it() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 3}
    consumer = broker.client().consumer("g", "s", consumer="a", commit_interval=0.001)
    consumer.open()
    batch_of(consumer)
    broker.fenced.add(S0)
    with pytest.raises(StateError, match='consumer "a" of group "g" is fenced off from partition 0') as raised:
        until(lambda: consumer.next_batch(0) is not None)
    assert raised.value.code == "failed_precondition"
    with pytest.raises(StateError, match="is fenced off from partition 0"):
        consumer.close()
    assert not broker.members


def test_a_refused_position_is_not_an_error_before_heartbeats_can_explain_it() -> None:
    broker, recorded = FakeGroupBroker(consumer_timeout=1000), RecordedCallbacks()
    broker.assigned, broker.ends = [S0], {S0: 3}
    with broker.client().consumer("g", "s", consumer="a", commit_interval=0.001, **recorded.callbacks()) as consumer:
        batch_of(consumer)
        broker.fenced.add(S0)
        refused = broker.calls.count("SetCursor") + 2
        until(lambda: consumer.next_batch(0) is None and broker.calls.count("SetCursor") > refused)
        broker.fenced.clear()


def test_a_refused_subscription_is_an_error_unless_heartbeats_explain_it() -> None:
    broker = FakeGroupBroker()
    broker.assigned, broker.ends = [S0], {S0: 1}
    with broker.client().consumer("g", "s", commit_interval=None) as consumer:
        batch_of(consumer)
        with broker.lock:
            request = type(broker.subscribed[0])()
            request.CopyFrom(broker.subscribed[0])
            request.consumer.groupEpoch += 5
            broker.subscribe(request.SerializeToString(), None)
        with pytest.raises(StateError, match="is fenced off from partition 0"):
            until(lambda: consumer.next_batch(0) is not None)


def test_revoked_partitions_whose_positions_were_refused_are_lost() -> None:
    broker, recorded = FakeGroupBroker(), RecordedCallbacks()
    broker.assigned, broker.ends = [S0, S1], {S0: 3, S1: 2}
    with broker.client().consumer("g", "s", commit_interval=1000, **recorded.callbacks()) as consumer:
        batch_of(consumer)
        batch_of(consumer)
        broker.fenced.add(S1)
        broker.change()
        settled(consumer)
    assert recorded.events == [("assigned", [S0, S1]), ("lost", [S1]), ("revoked", [S0])]
    assert broker.cursors == {(CURSOR, *S0): 2}


def test_what_a_member_may_begin_to_read_counts_as_held() -> None:
    broker = FakeGroupBroker()
    broker.assigned = [S0, S1]
    membership = Membership(broker.client()._pool, "g", "a", ("s",), lambda: None)  # pyright: ignore[reportPrivateUsage]
    membership.join(deadline())
    try:
        until(lambda: membership.state.assigned)
        membership.follow()
        broker.change(S1)
        until(lambda: membership.state.assigned == frozenset({Assignment(*S1)}))
        heartbeats = len(broker.fetched)
        until(lambda: len(broker.fetched) > heartbeats)
        assert held(broker.fetched[-1]) == {S0, S1}
        membership.release(frozenset())
        until(lambda: held(broker.fetched[-1]) == {S1})
    finally:
        membership.end(deadline())


class UnreleasedBroker(FakeGroupBroker):
    """Answers nobody but the thread of a member while `is_deaf`."""

    is_deaf = False

    def call(self, method: str, body: bytes, _timeout_ms: int) -> bytes:
        if self.is_deaf and method.startswith("FetchConsumerGroup") and threading.current_thread().name == "MainThread":
            raise failure("unavailable")
        return super().call(method, body, _timeout_ms)


def test_a_heartbeat_that_releases_a_partition_does_not_wait() -> None:
    broker = UnreleasedBroker()
    broker.version, broker.assigned = 1, [S0, S1]
    with broker.client().consumer("g", "s") as consumer:
        settled(consumer, S0, S1)
        until(lambda: broker.fetched[-1].waitMillis and held(broker.fetched[-1]) == {S0, S1})
        broker.is_deaf = True
        with broker.lock:
            broker.version += 1
            broker.change(S0)
        settled(consumer, S0)
        until(lambda: held(broker.fetched[-1]) == {S0})
        releases = [request for request in broker.fetched if held(request) == {S0}]
        assert releases[0].waitMillis == 0
        broker.is_deaf = False


class SlowJoinBroker(FakeGroupBroker):
    """The second join is executed after the first leave."""

    def __init__(self) -> None:
        super().__init__()
        self.is_joining, self.has_left = threading.Event(), threading.Event()

    def call(self, method: str, body: bytes, _timeout_ms: int) -> bytes:
        if method == "JoinConsumerGroup" and "JoinConsumerGroup" in self.calls:
            self.is_joining.set()
            assert self.has_left.wait(PATIENCE)
        try:
            return super().call(method, body, _timeout_ms)
        finally:
            if method == "LeaveConsumerGroup":
                self.has_left.set()


def test_a_member_that_joins_again_while_it_leaves_has_left_afterwards() -> None:
    broker = SlowJoinBroker()
    consumer = broker.client().consumer("g", "s", consumer="a")
    consumer.open()
    broker.expel()
    assert broker.is_joining.wait(PATIENCE)
    consumer.close()
    assert broker.calls.count("JoinConsumerGroup") == 2
    assert not broker.members


def test_an_expelled_member_does_not_replace_another_consumer_of_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_module, "_JOIN_PAUSE", 1000.0)  # longer than the deadline: it asks once
    broker = FakeGroupBroker()
    consumer = broker.client().consumer("g", "s", consumer="a")
    consumer.open()
    joined = broker.epoch
    until(lambda: broker.fetched)
    assert {request.joined for request in broker.fetched} == {joined}
    with broker.lock:
        broker.expel()
        broker.replaced.add(joined)
        broker.members["a"] = ["s"]
    with pytest.raises(StateError, match='consumer "a" is a member of group "g" already'):
        until(lambda: consumer.next_batch(0) is not None)
    consumer.close()
    assert list(broker.members) == ["a"]


def test_streams_that_were_dropped_once_are_remembered() -> None:
    dropped = DroppedStreams(("s", "t"))
    dropped.learn(frozenset({"s", "t"}))
    assert dropped.ever == frozenset()
    dropped.learn(frozenset({"s"}))
    dropped.learn(frozenset({"s", "t"}))
    assert (dropped.missing, dropped.ever) == ((), {"t"})
    dropped.learn(frozenset({"t"}))
    assert (dropped.missing, dropped.ever) == (("s",), {"s", "t"})


def held(request: Any) -> set[tuple[str, int]]:
    return {(part.stream, number) for part in request.held for number in part.partitions}


def deadline() -> Deadline:
    return Deadline(PATIENCE)
