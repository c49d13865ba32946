"""Namespaces and users: numbers that are chosen and those that are not, and what goes with a namespace."""

from dataclasses import replace

import pytest
from bascule.metadata import (
    MAX_NUMBERS,
    Applied,
    Command,
    CreateNamespace,
    CreateStream,
    CreateTopicGroup,
    CreateUser,
    DeleteNamespace,
    DeleteTopicGroup,
    IggyTopic,
    Placement,
    RegisterBroker,
    Rejection,
    RejectionCode,
    State,
    StreamKey,
    StreamSettings,
    apply,
    decode_snapshot,
    digest,
    encode_snapshot,
    initial_state,
)


def after(*commands: Command) -> State:
    state = initial_state()
    for command in (RegisterBroker("a", "h", 1, 2), *commands):
        state, result = apply(state, state.index + 1, command)
        assert isinstance(result, Applied), result
    return state


def refusal(state: State, command: Command) -> RejectionCode:
    changed, result = apply(state, state.index + 1, command)
    assert isinstance(result, Rejection)
    assert changed == state.at(state.index + 1)
    return result.code


def stream(namespace: str, name: str, number: int | None = None, iggy: IggyTopic | None = None) -> CreateStream:
    place = (Placement(("a",), "a"),)
    return CreateStream(namespace, name, "", "", 1, StreamSettings(), place, id=number, iggy=iggy)


def test_the_next_number_is_above_all_that_were_used() -> None:
    state = after(CreateNamespace("n", 5), CreateNamespace("m", 5, 7), DeleteNamespace("m", 7), CreateNamespace("o", 5))
    assert {name: item.id for name, item in state.namespaces.items()} == {"default": 0, "n": 1, "o": 8}
    assert state.namespaces["n"].created_ns == 5


def test_a_number_is_refused_only_if_something_has_it_now() -> None:
    state = after(CreateNamespace("n", 5, 7), DeleteNamespace("n", 7), CreateNamespace("m", 5, 7))
    assert refusal(state, CreateNamespace("o", 5, 7)) is RejectionCode.NUMBER_IN_USE
    assert refusal(state, CreateNamespace("m", 5)) is RejectionCode.NAMESPACE_EXISTS
    for number in (0, -1, MAX_NUMBERS):
        assert refusal(state, CreateNamespace("o", 5, number)) is RejectionCode.INVALID


def test_numbers_of_streams_follow_the_same_rules() -> None:
    state = after(CreateNamespace("n", 5), stream("n", "a", 8), stream("n", "b"), stream("default", "a"))
    assert {key.name: item.id for key, item in state.streams.items() if key.namespace == "n"} == {"a": 8, "b": 9}
    assert state.streams[StreamKey("default", "a")].id == 0
    assert refusal(state, stream("n", "c", 8)) is RejectionCode.NUMBER_IN_USE
    for number in (-1, MAX_NUMBERS):
        assert refusal(state, stream("n", "c", number)) is RejectionCode.INVALID


def test_a_namespace_goes_with_its_streams_and_no_others() -> None:
    state = after(CreateNamespace("n", 5), stream("n", "a"), stream("n", "b"), stream("default", "a"))
    state, result = apply(state, state.index + 1, DeleteNamespace("n", 1))
    assert result == Applied(state.index)
    assert set(state.namespaces) == {"default"}
    assert set(state.streams) == {("default", "a")}
    assert refusal(state, DeleteNamespace("n", 1)) is RejectionCode.NAMESPACE_NOT_FOUND
    assert refusal(state, DeleteNamespace("default", 0)) is RejectionCode.INVALID


def test_a_namespace_of_another_number_is_another_one() -> None:
    state = after(CreateNamespace("n", 5), DeleteNamespace("n", 1), CreateNamespace("n", 5))
    assert refusal(state, DeleteNamespace("n", 1)) is RejectionCode.NAMESPACE_NOT_FOUND


def test_users_have_numbers_from_zero_and_names_of_their_own() -> None:
    state = after(CreateUser("iggy", "hash", 5), CreateUser("other", "hash", 6))
    assert [(user.name, user.id) for user in state.users.values()] == [("iggy", 0), ("other", 1)]
    assert refusal(state, CreateUser("iggy", "else", 7)) is RejectionCode.USER_EXISTS
    assert refusal(state, CreateUser("third", "", 7)) is RejectionCode.INVALID


@pytest.mark.parametrize("with_users", [False, True])
def test_a_snapshot_brings_all_of_it_back(with_users: bool) -> None:
    topic = IggyTopic(compression=2, expiry_us=-1, max_size=5, replication=3)
    state = after(CreateNamespace("n", 5, 7), stream("n", "a", iggy=topic))
    if with_users:
        state, _ = apply(state, state.index + 1, CreateUser("iggy", "hash", 5))
    restored = decode_snapshot(encode_snapshot(state))
    assert restored == state
    assert digest(restored) == digest(state)
    assert restored.streams[StreamKey("n", "a")].iggy == topic


def test_what_was_written_before_keeps_its_bytes() -> None:
    written = encode_snapshot(
        after(CreateStream("default", "a", "", "", 1, StreamSettings(), (Placement(("a",), "a"),)))
    )
    assert b"users" not in written
    assert b"iggy" not in written


def group(state: State, name: str, number: int | None = None) -> CreateTopicGroup:
    made = state.streams[StreamKey("n", "a")]
    return CreateTopicGroup("n", "a", made.incarnation, name, number)


def test_groups_of_a_topic_have_numbers_of_their_own() -> None:
    state = after(CreateNamespace("n", 5), stream("n", "a"))
    before = digest(state)
    for name, number in (("x", None), ("y", 7), ("z", None)):
        state, result = apply(state, state.index + 1, group(state, name, number))
        assert result == Applied(state.index)
    made = state.streams[StreamKey("n", "a")]
    assert [(item.id, item.name) for item in made.topic_groups] == [(0, "x"), (7, "y"), (8, "z")]
    assert refusal(state, group(state, "x")) is RejectionCode.GROUP_EXISTS
    assert refusal(state, group(state, "w", 7)) is RejectionCode.NUMBER_IN_USE
    for wrong in (-1, MAX_NUMBERS):
        assert refusal(state, group(state, "w", wrong)) is RejectionCode.INVALID
    assert refusal(state, replace(group(state, "w"), incarnation=1)) is RejectionCode.STREAM_NOT_FOUND
    assert decode_snapshot(encode_snapshot(state)) == state
    assert digest(state) != before
    deletion = DeleteTopicGroup("n", "a", made.incarnation, made.topic_groups[1].created)
    state, _ = apply(state, state.index + 1, deletion)
    assert [item.id for item in state.streams[StreamKey("n", "a")].topic_groups] == [0, 8]
    assert refusal(state, deletion) is RejectionCode.GROUP_NOT_FOUND
