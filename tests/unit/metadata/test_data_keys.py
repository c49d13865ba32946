"""Data keys of streams, seen through `apply` and through bytes."""

import pytest
from bascule.metadata import (
    AddDataKey,
    Applied,
    Command,
    CreateStream,
    DataKey,
    Placement,
    RegisterBroker,
    Rejection,
    RejectionCode,
    State,
    StreamSettings,
    apply,
    decode_command,
    decode_snapshot,
    encode_command,
    encode_snapshot,
    initial_state,
)

FIRST, SECOND = DataKey(1, "old", "d3JhcHBlZA=="), DataKey(2, "new", "YWdhaW4=")


def create(*data_keys: DataKey) -> CreateStream:
    settings = StreamSettings(encryption=bool(data_keys))
    return CreateStream("default", "s", "s", "", 11, settings, (Placement(("a",), "a"),), data_keys)


def after(*commands: Command) -> State:
    state = initial_state()
    for command in (RegisterBroker("a", "h", 1, 7), *commands):
        state, result = apply(state, state.index + 1, command)
        assert isinstance(result, Applied), result
    return state


def add(data_key: DataKey, incarnation: int = 2) -> AddDataKey:
    return AddDataKey("default", "s", incarnation, data_key)


def test_keys_are_kept_in_order_and_survive_a_snapshot() -> None:
    state = after(create(FIRST), add(SECOND))
    stream = state.stream("default", "s")
    assert stream is not None
    assert stream.data_keys == (FIRST, SECOND)
    assert decode_snapshot(encode_snapshot(state)) == state
    for command in (create(FIRST), create(), add(SECOND)):
        assert decode_command(encode_command(command)) == command


@pytest.mark.parametrize(
    ("before", "command", "code"),
    [
        (create(), add(FIRST), RejectionCode.INVALID),
        (create(FIRST), add(FIRST), RejectionCode.INVALID),
        (create(FIRST), add(DataKey(3, "new", "eA==")), RejectionCode.INVALID),
        (create(FIRST), add(DataKey(2, "", "eA==")), RejectionCode.INVALID),
        (create(FIRST), add(DataKey(2, "new", "x" * 256)), RejectionCode.INVALID),
        (create(FIRST), add(SECOND, incarnation=9), RejectionCode.STREAM_NOT_FOUND),
    ],
)
def test_a_key_that_does_not_follow_is_refused(before: CreateStream, command: AddDataKey, code: RejectionCode) -> None:
    state = after(before)
    changed, result = apply(state, state.index + 1, command)
    assert isinstance(result, Rejection)
    assert result.code is code
    assert changed == state.at(state.index + 1)


def test_a_stream_begins_with_key_1() -> None:
    _, result = apply(after(), 2, create(SECOND))
    assert isinstance(result, Rejection)
    assert result.code is RejectionCode.INVALID
