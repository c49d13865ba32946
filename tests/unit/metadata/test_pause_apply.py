"""Pausing, resuming and read-only in the state."""

from bascule.metadata import (
    Applied,
    Command,
    CreateStream,
    PauseStream,
    Placement,
    RegisterBroker,
    Rejection,
    RejectionCode,
    ResumeStream,
    SetActivity,
    SetStreamReadonly,
    SettleActivity,
    State,
    Stream,
    StreamSettings,
    apply,
    initial_state,
)

STREAM = ("default", "s", 2)


def after(start: State, *commands: Command) -> State:
    state = start
    for command in commands:
        state, result = apply(state, state.index + 1, command)
        assert isinstance(result, Applied), result
    return state


def refusal(state: State, command: Command) -> RejectionCode:
    changed, result = apply(state, state.index + 1, command)
    assert isinstance(result, Rejection)
    assert changed == state.at(state.index + 1)
    return result.code


def start() -> State:
    create = CreateStream("default", "s", "s", "", 1, StreamSettings(), (Placement(("a",), "a"),) * 3)
    return after(initial_state(), RegisterBroker("a", "h", 1, 1), create)


def stream(state: State) -> Stream:
    found = state.stream("default", "s")
    assert found is not None
    return found


def test_pausing_again_moves_only_the_latest_time() -> None:
    state = after(start(), PauseStream(*STREAM, (0, 2), False, 10), PauseStream(*STREAM, (0,), True, 20))
    assert [item.paused for item in stream(state).partitions] == [True, False, True]
    assert stream(state).resume_all
    first = stream(state).partitions[0]
    assert (first.first_paused_ns, first.last_paused_ns) == (10, 20)


def test_resuming_touches_only_what_is_paused() -> None:
    paused = after(start(), PauseStream(*STREAM, (0, 1), True, 10))
    state = after(paused, ResumeStream(*STREAM, (0, 2), True, 30))
    assert [item.paused for item in stream(state).partitions] == [False, True, False]
    assert [item.last_paused_ns for item in stream(state).partitions] == [30, 10, 0]
    assert not stream(state).resume_all
    again = after(state, ResumeStream(*STREAM, (0, 2), False, 40))
    assert stream(again) is stream(state), "nothing changes, so nothing has to be carried out"


def test_read_only_is_set_and_cleared_with_its_times() -> None:
    state = after(start(), SetStreamReadonly(*STREAM, (1,), True, 5), SetStreamReadonly(*STREAM, (0, 1), False, 6))
    times = [(item.readonly, item.first_readonly_ns, item.last_readonly_ns) for item in stream(state).partitions]
    assert times == [(False, 6, 6), (False, 5, 6), (False, 0, 0)]


def test_refusals() -> None:
    for command in (
        PauseStream("default", "s", 1, (0,), False, 1),
        ResumeStream("default", "x", 2, (0,), False, 1),
        SetStreamReadonly("other", "s", 2, (0,), True, 1),
    ):
        assert refusal(start(), command) is RejectionCode.STREAM_NOT_FOUND
    assert refusal(start(), PauseStream(*STREAM, (3,), False, 1)) is RejectionCode.PARTITION_NOT_FOUND
    assert refusal(start(), PauseStream(*STREAM, (-1,), False, 1)) is RejectionCode.PARTITION_NOT_FOUND
    assert refusal(start(), PauseStream(*STREAM, (1, 1), False, 1)) is RejectionCode.INVALID


def test_events_are_kept_while_they_are_wanted_and_until_they_are_settled() -> None:
    state = after(start(), PauseStream(*STREAM, (0,), False, 1), SetActivity(True), PauseStream(*STREAM, (1,), True, 1))
    (event,) = state.activity
    assert (event.id, event.operation, event.name, event.partitions, event.flag) == (5, "pause_stream", "s", (1,), True)
    state = after(state, ResumeStream(*STREAM, (1,), False, 1))
    assert [item.id for item in after(state, SettleActivity(5)).activity] == [6]
    assert after(state, SetActivity(False)).activity == ()
