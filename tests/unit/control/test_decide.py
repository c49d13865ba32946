"""Decisions as values: where replicas go, and what is refused."""

from bascule.control.decide import Load, create_stream, delete_stream, loads, place
from bascule.metadata import (
    MAX_PARTITIONS,
    CreateStream,
    DeleteStream,
    RegisterBroker,
    State,
    StreamSettings,
    apply,
    initial_state,
)
from bascule.metadata.rejection import Rejection, RejectionCode

from tests.unit.control.rig import stream_request


def cluster(*brokers: str) -> State:
    state = initial_state()
    for broker in brokers:
        state, _ = apply(state, state.index + 1, RegisterBroker(broker, "h", 1, 1))
    return state


def created(state: State, *, partitions: int = 1, replication_factor: int = 1) -> State:
    request = stream_request(f"s{state.index}", partitions=partitions, replication_factor=replication_factor)
    command = create_stream(state, request, 1)
    assert isinstance(command, CreateStream)
    return apply(state, state.index + 1, command)[0]


def refused(state: State, *, subject: str = "orders", partitions: int = 1, replication_factor: int = 1) -> Rejection:
    request = stream_request(subject=subject, partitions=partitions, replication_factor=replication_factor)
    refusal = create_stream(state, request, 1)
    assert isinstance(refusal, Rejection)
    return refusal


def test_partitions_of_one_stream_spread_over_the_brokers() -> None:
    placements = place({"a": Load(0, 0), "b": Load(0, 0), "c": Load(0, 0)}, partitions=3, factor=1)
    assert [item.leader for item in placements] == ["a", "b", "c"]


def test_leaders_spread_when_every_broker_has_every_replica() -> None:
    placements = place(dict.fromkeys("abc", Load(0, 0)), partitions=6, factor=3)
    assert [item.leader for item in placements] == ["a", "b", "c", "a", "b", "c"]
    assert {frozenset(item.replicas) for item in placements} == {frozenset("abc")}


def test_the_least_loaded_broker_is_taken_first_and_equals_in_order_of_id() -> None:
    placements = place({"a": Load(2, 2), "b": Load(0, 0), "c": Load(0, 0)}, partitions=3, factor=1)
    assert [item.leader for item in placements] == ["b", "c", "b"]


def test_the_leader_is_the_first_replica() -> None:
    (placement,) = place({"a": Load(0, 5), "b": Load(0, 1)}, partitions=1, factor=2)
    assert placement.replicas == ("b", "a")


def test_loads_count_replicas_and_leaderships_as_applied() -> None:
    state = created(cluster("b", "a"), partitions=3, replication_factor=2)
    assert loads(state) == {"a": Load(3, 2), "b": Load(3, 1)}


def test_minus_one_means_every_broker() -> None:
    state = created(cluster("a", "b", "c"), replication_factor=-1)
    (stream,) = state.streams.values()
    assert len(stream.partitions[0].replicas) == 3


def test_replication_factors_out_of_range_are_refused_with_the_exact_texts() -> None:
    state = cluster("a", "b")
    low = refused(state, replication_factor=-2)
    high = refused(state, replication_factor=3)
    assert (low.code, low.message) == (RejectionCode.INVALID_REPLICATION_FACTOR, "Invalid replicationFactor -2")
    assert (high.code, high.message) == (
        RejectionCode.NOT_ENOUGH_BROKERS,
        "Invalid replicationFactor 3, cluster size 2",
    )


def test_no_partitions_are_refused_before_the_replication_factor_is_checked() -> None:
    refusal = refused(cluster("a"), partitions=0, replication_factor=9)
    assert (refusal.code, refusal.message) == (RejectionCode.NO_PARTITIONS, "no partitions provided")


def test_the_number_of_partitions_is_bounded() -> None:
    state = cluster("a")
    created(state, partitions=MAX_PARTITIONS)
    assert refused(state, partitions=MAX_PARTITIONS + 1).code is RejectionCode.TOO_MANY_PARTITIONS


def test_more_partitions_below_a_full_wildcard_need_partitioning_by_subject() -> None:
    state = cluster("a")
    for subject in (">", "a.>"):
        assert refused(state, subject=subject, partitions=2).code is RejectionCode.SUBJECT_HAS_NO_ROOM
        by_subject = StreamSettings(partition_by_subject=True)
        assert isinstance(
            create_stream(state, stream_request(subject=subject, partitions=2, settings=by_subject), 1), CreateStream
        )
        assert isinstance(create_stream(state, stream_request(subject=subject), 1), CreateStream)
    assert isinstance(create_stream(state, stream_request(subject="a.*", partitions=2), 1), CreateStream)


def test_an_existing_name_is_refused_and_deleting_names_its_incarnation() -> None:
    command = create_stream(cluster("a"), stream_request(), 1)
    assert isinstance(command, CreateStream)
    state, _ = apply(cluster("a"), 2, command)
    assert refused(state).code is RejectionCode.STREAM_EXISTS
    assert delete_stream(state, "default", "orders") == DeleteStream("default", "orders", 2)
    gone = delete_stream(state, "default", "others")
    assert isinstance(gone, Rejection)
    assert gone.code is RejectionCode.STREAM_NOT_FOUND
