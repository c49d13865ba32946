"""What each command does to the state, seen through `apply`."""

from bascule.metadata import (
    MAX_PARTITIONS,
    Applied,
    Command,
    CreateStream,
    DeleteStream,
    Placement,
    PurgeStream,
    RegisterBroker,
    Rejection,
    RejectionCode,
    State,
    StreamKey,
    StreamSettings,
    TrimPartition,
    apply,
    initial_state,
)
from bascule.metadata.model import incarnation_of

HERE = Placement(("a",), "a")


def register(broker_id: str = "a", host: str = "127.0.0.1", port: int = 9292, now: int = 7) -> RegisterBroker:
    return RegisterBroker(broker_id, host, port, now)


def create(
    name: str = "orders",
    *,
    namespace: str = "default",
    subject: str = "orders.>",
    placements: tuple[Placement, ...] = (HERE,),
    settings: StreamSettings | None = None,
) -> CreateStream:
    return CreateStream(namespace, name, subject, "", 11, settings or StreamSettings(), placements)


def after(*commands: Command, start: State | None = None) -> State:
    state = start or initial_state()
    for command in commands:
        state, result = apply(state, state.index + 1, command)
        assert isinstance(result, Applied), result
    return state


def refusal(state: State, command: Command) -> Rejection:
    changed, result = apply(state, state.index + 1, command)
    assert isinstance(result, Rejection)
    assert changed == state.at(state.index + 1)
    return result


def test_registering_again_keeps_the_first_time_and_raises_the_boot_epoch() -> None:
    state = after(register(now=7), register(host="10.0.0.1", now=9))
    broker = state.brokers["a"]
    assert (broker.host, broker.registered_ns, broker.boot_epoch) == ("10.0.0.1", 7, 2)


def test_a_port_outside_its_range_is_refused() -> None:
    assert refusal(initial_state(), register(port=65536)).code is RejectionCode.INVALID
    assert refusal(initial_state(), register(port=-1)).code is RejectionCode.INVALID
    after(register(port=0), register(port=65535))


def test_a_created_stream_has_all_replicas_in_sync_and_epochs_of_its_entry() -> None:
    placements = (Placement(("a", "b"), "a"), Placement(("b", "a"), "b"))
    state = after(register("a"), register("b"), create(placements=placements))
    stream = state.stream("default", "orders")
    assert stream is not None
    assert [item.leader for item in stream.partitions] == ["a", "b"]
    assert [item.isr for item in stream.partitions] == [("a", "b"), ("b", "a")]
    assert [item.incarnation for item in stream.partitions] == [incarnation_of(3, 0), incarnation_of(3, 1)]
    assert {(item.leader_epoch, item.epoch) for item in stream.partitions} == {(3, 3)}


def test_a_stream_of_the_same_name_is_refused_and_another_namespace_is_free() -> None:
    state = after(register(), create())
    assert refusal(state, create()).code is RejectionCode.STREAM_EXISTS
    assert len(after(create(namespace="other"), start=state).streams) == 2


def test_a_stream_on_an_unknown_broker_is_refused() -> None:
    assert refusal(initial_state(), create()).code is RejectionCode.BROKER_UNKNOWN


def test_impossible_placements_are_refused() -> None:
    state = after(register("a"), register("b"))
    for placement in (Placement(("a", "a"), "a"), Placement(("a",), "b"), Placement((), "a")):
        assert refusal(state, create(placements=(placement,))).code is RejectionCode.INVALID


def test_names_are_bounded_at_both_ends() -> None:
    state = after(register())
    assert refusal(state, create("")).code is RejectionCode.INVALID
    assert refusal(state, create("é" * 128)).code is RejectionCode.INVALID
    after(create("x" * 255), create("é" * 127), start=state)


def test_partitions_are_bounded_and_may_be_none() -> None:
    state = after(register())
    assert refusal(state, create(placements=(HERE,) * (MAX_PARTITIONS + 1))).code is RejectionCode.INVALID
    after(create("most", placements=(HERE,) * MAX_PARTITIONS), create("none", placements=()), start=state)


def test_negative_settings_are_refused() -> None:
    state = after(register())
    for settings in (StreamSettings(retention_bytes=-1), StreamSettings(min_isr=-1)):
        assert refusal(state, create(settings=settings)).code is RejectionCode.INVALID


def test_deleting_names_the_incarnation() -> None:
    state = after(register(), create())
    assert refusal(state, DeleteStream("default", "orders", 1)).code is RejectionCode.STREAM_NOT_FOUND
    assert refusal(state, DeleteStream("default", "others", 2)).code is RejectionCode.STREAM_NOT_FOUND
    assert not after(DeleteStream("default", "orders", 2), start=state).streams


def test_a_recreated_stream_has_new_numbers() -> None:
    state = after(register(), create())
    first = state.stream("default", "orders")
    second = after(DeleteStream("default", "orders", 2), create(), start=state).stream("default", "orders")
    assert first is not None
    assert second is not None
    assert (first.id, second.id) == (0, 1)
    assert first.partitions[0].incarnation < second.partitions[0].incarnation


def test_namespaces_are_numbered_in_order_of_creation() -> None:
    state = after(register(), create(namespace="b"), create(namespace="a"), create("more", namespace="b"))
    numbers = {name: (item.id, item.next_stream_id) for name, item in state.namespaces.items()}
    assert numbers == {"default": (0, 0), "b": (1, 2), "a": (2, 1)}


def test_a_trim_names_the_incarnation_and_never_goes_back() -> None:
    state = after(register(), create())
    incarnation = incarnation_of(2, 0)
    trimmed = after(TrimPartition("default", "orders", 2, 0, incarnation, 7), start=state)
    again = after(TrimPartition("default", "orders", 2, 0, incarnation, 5), start=trimmed)
    assert [item.trimmed_to for item in again.streams[StreamKey("default", "orders")].partitions] == [7]
    for wrong in (
        TrimPartition("default", "orders", 2, 0, incarnation + 1, 9),
        TrimPartition("default", "orders", 2, 0, incarnation, -1),
    ):
        assert refusal(trimmed, wrong).code is RejectionCode.INVALID
    beyond = TrimPartition("default", "orders", 2, 1, incarnation, 9)
    assert refusal(trimmed, beyond).code is RejectionCode.PARTITION_NOT_FOUND


def test_a_purge_gives_every_partition_a_new_incarnation_that_begins_at_0() -> None:
    state = after(register(), create(placements=(HERE, HERE)))
    trimmed = after(TrimPartition("default", "orders", 2, 1, incarnation_of(2, 1), 7), start=state)
    purged = after(PurgeStream("default", "orders", 2), start=trimmed).streams[StreamKey("default", "orders")]
    assert [item.incarnation for item in purged.partitions] == [incarnation_of(4, 0), incarnation_of(4, 1)]
    assert [item.trimmed_to for item in purged.partitions] == [0, 0]
    assert purged.incarnation == 2
    assert refusal(trimmed, PurgeStream("default", "orders", 3)).code is RejectionCode.STREAM_NOT_FOUND
