"""Consumer groups in the state: who reads what, epochs, and what is refused."""

import time

from bascule.metadata import (
    Applied,
    Command,
    CreateStream,
    DeleteStream,
    Group,
    JoinGroup,
    LeaveGroup,
    Member,
    Placement,
    RegisterBroker,
    Rejection,
    RejectionCode,
    SetGroupCoordinator,
    State,
    StreamSettings,
    apply,
    decode_snapshot,
    encode_snapshot,
    initial_state,
)
from bascule.metadata.assignment import add_member


def create(name: str, partitions: int) -> CreateStream:
    return CreateStream("default", name, name, "", 1, StreamSettings(), (Placement(("a",), "a"),) * partitions)


def after(start: State, *commands: Command) -> State:
    state = start
    for command in commands:
        state, result = apply(state, state.index + 1, command)
        assert isinstance(result, Applied), result
    return state


def streams() -> State:
    return after(
        initial_state(),
        RegisterBroker("a", "h", 1, 1),
        RegisterBroker("b", "h", 1, 1),
        create("orders", 4),
        create("logs", 2),
        create("audit", 1),
    )


def join(consumer: str, *names: str) -> JoinGroup:
    return JoinGroup("g", consumer, names, "a")


def leave(state: State, consumer: str, *, expired: bool = False) -> LeaveGroup:
    member = state.groups["g"].member(consumer)
    assert member is not None
    return LeaveGroup("g", consumer, member.joined, expired)


def shown(group: Group) -> dict[str, dict[str, list[int]]]:
    return {item.id: {part.stream: list(part.partitions) for part in item.assignments} for item in group.members}


def refusal(state: State, command: Command) -> RejectionCode:
    changed, result = apply(state, state.index + 1, command)
    assert isinstance(result, Rejection)
    assert changed == state.at(state.index + 1)
    return result.code


def test_the_worked_example_of_the_specification() -> None:
    state = after(streams(), join("a", "orders"))
    assert shown(state.groups["g"]) == {"a": {"orders": [0, 1, 2, 3]}}
    state = after(state, join("b", "orders", "logs"))
    assert shown(state.groups["g"]) == {"a": {"orders": [0, 1, 2]}, "b": {"logs": [0, 1], "orders": [3]}}
    state = after(state, join("c", "orders", "audit"))
    assert shown(state.groups["g"]) == {
        "a": {"orders": [0, 1, 3]},
        "b": {"logs": [0, 1]},
        "c": {"audit": [0], "orders": [2]},
    }
    state = after(state, leave(state, "a"))
    assert shown(state.groups["g"]) == {
        "b": {"logs": [0, 1], "orders": [1, 3]},
        "c": {"audit": [0], "orders": [0, 2]},
    }


def test_a_new_group_has_epoch_0_and_every_change_the_index_of_its_entry() -> None:
    state = after(streams(), join("a", "orders"))
    assert (state.groups["g"].epoch, state.groups["g"].coordinator) == (0, "a")
    state = after(state, join("b", "orders"))
    assert state.groups["g"].epoch == state.index
    state = after(state, leave(state, "b", expired=True))
    assert state.groups["g"].epoch == state.index
    state = after(state, SetGroupCoordinator("g", "b", state.index))
    assert (state.groups["g"].epoch, state.groups["g"].coordinator) == (state.index, "b")
    assert "g" not in after(state, leave(state, "a")).groups


def test_the_generation_is_the_epoch_and_in_a_new_group_the_index_of_its_entry() -> None:
    state = after(streams(), join("a", "orders"))
    assert (state.groups["g"].epoch, state.groups["g"].generation) == (0, state.index)
    assert state.groups["g"].created == state.index
    state = after(state, join("b", "orders"))
    assert state.groups["g"].generation == state.groups["g"].epoch == state.index


def test_deleting_a_stream_takes_it_from_its_subscribers_and_rebalances_their_other_streams() -> None:
    state = after(streams(), join("a", "orders"), join("b", "orders", "logs"), create("other", 1))
    epoch = state.groups["g"].epoch
    unrelated = state.stream("default", "other")
    assert unrelated is not None
    state = after(state, DeleteStream("default", "other", unrelated.incarnation))
    assert state.groups["g"].epoch == epoch, "nobody reads it"
    logs = state.stream("default", "logs")
    assert logs is not None
    state = after(state, DeleteStream("default", "logs", logs.incarnation))
    assert state.groups["g"].epoch == state.index
    assert shown(state.groups["g"]) == {"a": {"orders": [0, 2]}, "b": {"orders": [1, 3]}}


def test_members_keep_their_order_and_assignments_through_a_snapshot() -> None:
    state = after(streams(), join("z", "orders"), join("a", "orders", "logs"), join("m", "logs", "audit"))
    restored = decode_snapshot(encode_snapshot(state))
    assert restored.groups == state.groups
    assert [item.id for item in restored.groups["g"].members] == ["z", "a", "m"]


def test_refusals() -> None:
    state = after(streams(), join("a", "orders"))
    assert refusal(state, join("a", "logs")) is RejectionCode.ALREADY_MEMBER
    assert refusal(state, join("b", "orders", "nothing")) is RejectionCode.STREAM_NOT_FOUND
    assert refusal(state, join("b")) is RejectionCode.INVALID
    assert refusal(state, JoinGroup("new", "b", ("logs",), "nobody")) is RejectionCode.BROKER_UNKNOWN
    assert refusal(state, LeaveGroup("none", "a", 1, False)) is RejectionCode.GROUP_NOT_FOUND
    assert refusal(state, LeaveGroup("g", "b", 1, False)) is RejectionCode.NOT_A_MEMBER
    assert refusal(state, SetGroupCoordinator("g", "b", 99)) is RejectionCode.INVALID


def test_an_expiry_of_an_earlier_membership_does_not_end_the_present_one() -> None:
    state = after(streams(), join("a", "orders"), join("b", "orders"))
    late = leave(state, "b", expired=True)
    state = after(state, leave(state, "b"), join("b", "orders"))
    assert refusal(state, late) is RejectionCode.NOT_A_MEMBER


def join_seconds(streams: int) -> float:
    """Processor time of a join to a group whose members all read `streams` streams of two partitions."""
    names = tuple(f"s{number:05}" for number in range(streams))
    members: tuple[Member, ...] = ()
    for number in range(10):
        members = add_member(members, Member(f"m{number}", names, number), lambda _: 2)
    joining = Member("last", names, 10)
    took: list[float] = []
    for _ in range(3):
        began = time.process_time()
        add_member(members, joining, lambda _: 2)
        took.append(time.process_time() - began)
    return min(took)


def test_the_time_of_a_join_grows_with_the_streams_and_no_faster() -> None:
    small, large = join_seconds(500), join_seconds(8000)
    assert large / small < 64, "16 times as many streams; with their square it would be 256"
