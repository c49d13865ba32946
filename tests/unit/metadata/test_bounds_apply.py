"""Commands at both ends of every bound, and the parts of the state that they leave unchanged."""

from dataclasses import replace

import pytest
from bascule.metadata import (
    Applied,
    Command,
    CreateStream,
    DeleteStream,
    JoinGroup,
    PauseStream,
    Placement,
    RegisterBroker,
    Rejection,
    RejectionCode,
    ResumeStream,
    SetActivity,
    SetGroupCoordinator,
    State,
    StreamKey,
    StreamSettings,
    apply,
    apply_groups,
    apply_streams,
    initial_state,
)

HERE = Placement(("a",), "a")


def create(name: str, *, namespace: str = "default", partitions: int = 1) -> CreateStream:
    return CreateStream(namespace, name, name, "", 1, StreamSettings(), (HERE,) * partitions)


def after(start: State, *commands: Command) -> State:
    state = start
    for command in commands:
        state, result = apply(state, state.index + 1, command)
        assert isinstance(result, Applied), result
    return state


BROKERS = after(initial_state(), RegisterBroker("a", "h", 1, 1), RegisterBroker("b", "h", 1, 1))
STREAMS = after(BROKERS, create("s", partitions=2), create("t"), create("s", namespace="other"))


def code(state: State, command: Command) -> RejectionCode | None:
    """The code of the refusal, None = it is applied. A refused command changes nothing but the index."""
    changed, result = apply(state, state.index + 1, command)
    if isinstance(result, Applied):
        return None
    assert isinstance(result, Rejection)
    assert changed == state.at(state.index + 1)
    return result.code


INVALID = RejectionCode.INVALID
LONGEST, TOO_LONG = "x" * 255, "x" * 256


@pytest.mark.parametrize(("name", "expected"), [("", INVALID), ("x", None), (LONGEST, None), (TOO_LONG, INVALID)])
def test_names_have_1_to_255_bytes(name: str, expected: RejectionCode | None) -> None:
    for command in (
        RegisterBroker(name, "h", 1, 1),
        RegisterBroker("c", name, 1, 1),
        JoinGroup(name, "c", ("s",), "a"),
        JoinGroup("g", name, ("s",), "a"),
        create(name),
        create("new", namespace=name),
    ):
        assert code(STREAMS, command) is expected, command
    queue_group = replace(create("new"), queue_group=name)
    assert code(STREAMS, queue_group) is (None if name != TOO_LONG else INVALID)


@pytest.mark.parametrize(("port", "expected"), [(-1, INVALID), (0, None), (65535, None), (65536, INVALID)])
def test_ports(port: int, expected: RejectionCode | None) -> None:
    assert code(BROKERS, RegisterBroker("a", "h", port, 1)) is expected


def test_a_broker_that_registers_again_keeps_its_first_time_and_gets_a_new_epoch() -> None:
    again = after(BROKERS, RegisterBroker("a", "elsewhere", 2, 99))
    broker = again.brokers["a"]
    assert (broker.host, broker.port, broker.boot_epoch, broker.registered_ns) == ("elsewhere", 2, again.index, 1)
    assert again.brokers["b"] is BROKERS.brokers["b"]


def test_the_members_of_a_group_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_groups, "MAX_MEMBERS", 2)
    two = after(STREAMS, JoinGroup("g", "x", ("s",), "a"), JoinGroup("g", "y", ("s",), "a"))
    assert code(two, JoinGroup("g", "z", ("s",), "a")) is INVALID
    assert code(two, JoinGroup("h", "z", ("s",), "a")) is None


def test_the_streams_of_a_member_are_distinct_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_groups, "MAX_MEMBER_STREAMS", 2)
    state = after(STREAMS, create("u"))
    assert code(state, JoinGroup("g", "x", (), "a")) is INVALID
    assert code(state, JoinGroup("g", "x", ("s", "t"), "a")) is None
    assert code(state, JoinGroup("g", "x", ("s", "s"), "a")) is INVALID
    assert code(state, JoinGroup("g", "x", ("s", "t", "u"), "a")) is INVALID


def test_a_coordinator_is_a_registered_broker() -> None:
    assert code(STREAMS, JoinGroup("g", "x", ("s",), "nobody")) is RejectionCode.BROKER_UNKNOWN
    one = after(STREAMS, JoinGroup("g", "x", ("s",), "a"))
    assert code(one, JoinGroup("g", "y", ("s",), "nobody")) is None, "the group has one already"
    assert code(one, SetGroupCoordinator("g", "nobody", 0)) is RejectionCode.BROKER_UNKNOWN
    assert code(one, SetGroupCoordinator("g", "b", 0)) is None
    assert code(one, SetGroupCoordinator("h", "b", 0)) is RejectionCode.GROUP_NOT_FOUND


def test_a_membership_keeps_whether_it_hands_over() -> None:
    state = after(STREAMS, JoinGroup("g", "x", ("s",), "a"), JoinGroup("g", "y", ("s",), "a", hands_over=True))
    assert [item.hands_over for item in state.groups["g"].members] == [False, True]


def test_deleting_a_stream_of_another_namespace_leaves_groups_unchanged() -> None:
    state = after(STREAMS, JoinGroup("g", "x", ("s",), "a"))
    other = state.streams[StreamKey("other", "s")]
    gone = after(state, DeleteStream("other", "s", other.incarnation))
    assert gone.groups is state.groups
    assert StreamKey("default", "s") in gone.streams


def test_activity_is_recorded_in_the_default_namespace_while_it_is_on() -> None:
    on = after(STREAMS, SetActivity(True))
    assert after(on, create("v", namespace="other")).activity == ()
    kept = after(on, create("v"))
    assert [item.name for item in kept.activity] == ["v"]
    assert after(kept, SetActivity(True)).activity == kept.activity, "on again is on"
    assert after(kept, SetActivity(False)).activity == ()
    assert after(STREAMS, create("v")).activity == ()


@pytest.mark.parametrize("clear", [False, True])
def test_a_resume_clears_resume_all_on_request(clear: bool) -> None:
    incarnation = STREAMS.streams[StreamKey("default", "s")].incarnation
    paused = after(STREAMS, PauseStream("default", "s", incarnation, (0, 1), True, 5))
    resumed = after(paused, ResumeStream("default", "s", incarnation, (0,), clear, 6))
    stream = resumed.streams[StreamKey("default", "s")]
    assert stream.resume_all is not clear
    assert [item.paused for item in stream.partitions] == [False, True]
    assert [item.last_paused_ns for item in stream.partitions] == [6, 5]
    assert [item.first_paused_ns for item in stream.partitions] == [5, 5]


def test_a_creation_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_streams, "MAX_PARTITIONS", 2)
    assert code(STREAMS, create("new", partitions=2)) is None
    assert code(STREAMS, create("new", partitions=3)) is INVALID
    subject = replace(create("new"), subject="x" * 1024)
    assert code(STREAMS, subject) is None
    assert code(STREAMS, replace(subject, subject="x" * 1025)) is INVALID


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (Placement(("a", "b"), "b"), None),
        (Placement(("a", "a"), "a"), INVALID),
        (Placement(("a",), "b"), INVALID),
        (Placement((), "a"), INVALID),
        (Placement(("c",), "c"), RejectionCode.BROKER_UNKNOWN),
    ],
)
def test_placements(placement: Placement, expected: RejectionCode | None) -> None:
    assert code(STREAMS, replace(create("new"), placements=(placement,))) is expected
