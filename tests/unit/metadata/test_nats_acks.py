"""Which streams may acknowledge JetStream publishers: in a request, in a command, and when the log is read again."""

from itertools import product

import pytest
from bascule.control.decide import StreamRequest, create_stream, edit_stream
from bascule.metadata import (
    Applied,
    Command,
    CreateStream,
    DeleteStream,
    EditStream,
    Placement,
    RegisterBroker,
    State,
    StreamSettings,
    apply,
    initial_state,
)
from bascule.metadata.json_codec import DecodeError, from_plain, to_plain
from bascule.metadata.nats_acks import subjects_overlap
from bascule.metadata.rejection import Rejection, RejectionCode

ON, OFF = StreamSettings(nats_acks="jetstream"), StreamSettings()


def after(*commands: Command, state: State | None = None) -> State:
    state = state or apply(initial_state(), 1, RegisterBroker("a", "h", 1, 1))[0]
    for command in commands:
        state, result = apply(state, state.index + 1, command)
        assert isinstance(result, Applied), result
    return state


def create(
    name: str, subject: str, settings: StreamSettings, namespace: str = "default", partitions: int = 1
) -> CreateStream:
    return CreateStream(namespace, name, subject, "", 1, settings, (Placement(("a",), "a"),) * partitions)


def request(name: str, subject: str, settings: StreamSettings, partitions: int = 1) -> StreamRequest:
    return StreamRequest("default", name, subject, "", partitions, 1, settings)


def refused_by_both(state: State, name: str, subject: str, partitions: int = 1) -> str:
    """The sentence of the decision; applying the command anyway is refused too and changes nothing."""
    decided = create_stream(state, request(name, subject, ON, partitions), 1)
    assert isinstance(decided, Rejection)
    assert decided.code is RejectionCode.INVALID
    same, result = apply(state, state.index + 1, create(name, subject, ON, partitions=partitions))
    assert isinstance(result, Rejection)
    assert result.code is RejectionCode.INVALID
    assert same == state.at(state.index + 1)
    return decided.message


def matches(pattern: str, subject: str) -> bool:
    """By the definition of NATS."""
    tokens, parts = pattern.split("."), subject.split(".")
    if tokens[-1] == ">":
        return len(parts) >= len(tokens) and matches(
            ".".join(tokens[:-1]) or "*", ".".join(parts[: max(len(tokens) - 1, 1)])
        )
    return len(tokens) == len(parts) and all(token in ("*", part) for token, part in zip(tokens, parts, strict=True))


def test_subjects_overlap_exactly_when_a_message_can_have_both() -> None:
    # A token of neither pattern stands for all others; depth 4 is deeper than every pattern.
    words = ["a", "b", "other"]
    subjects = [".".join(parts) for depth in range(1, 5) for parts in product(words, repeat=depth)]
    ends = ["a", "b", "*", ">"]
    patterns = [".".join((*start, end)) for depth in range(3) for start in product("ab*", repeat=depth) for end in ends]
    seen = {pattern: {subject for subject in subjects if matches(pattern, subject)} for pattern in patterns}
    for one, other in product(patterns, repeat=2):
        assert subjects_overlap(one, other) == bool(seen[one] & seen[other]), (one, other)
    assert not subjects_overlap("", "")
    assert not subjects_overlap(">", "")


def test_a_stream_with_several_partitions_has_no_one_sequence() -> None:
    message = refused_by_both(after(), "s", "s", partitions=3)
    assert "3 partitions" in message
    assert "use a stream with one" in message


@pytest.mark.parametrize("subject", ["orders.eu", "orders.*", "orders.>", ">", "*.eu"])
def test_two_streams_that_would_answer_one_message_are_refused(subject: str) -> None:
    state = after(create("first", "orders.eu", ON, namespace="other"))
    message = refused_by_both(state, "second", subject)
    assert f"subject {subject} overlaps with orders.eu of stream other/first" in message
    assert "nats_acks of one of them to off" in message
    # Without the option on both of them nothing is in the way.
    after(create("second", subject, OFF), state=state)
    after(create("second", "orders.us", ON), state=state)


def test_an_edit_is_checked_as_a_creation_is() -> None:
    state = after(
        create("first", "orders.*", ON), create("second", "orders.eu", OFF), create("three", "t", OFF, partitions=3)
    )
    for name, reason in (("second", "overlaps with orders.* of stream default/first"), ("three", "3 partitions")):
        decided = edit_stream(state, "default", name, {"nats_acks": "jetstream"})
        assert isinstance(decided, Rejection)
        assert reason in decided.message
        stream = state.stream("default", name)
        assert stream is not None
        same, result = apply(state, state.index + 1, EditStream("default", name, stream.incarnation, ON))
        assert isinstance(result, Rejection)
        assert same.streams == state.streams
    first = state.stream("default", "first")
    assert first is not None
    state = after(EditStream("default", "first", first.incarnation, OFF), state=state)
    command = edit_stream(state, "default", "second", {"nats_acks": "jetstream"})
    assert isinstance(command, EditStream)
    state = after(command, state=state)
    # An edit of another setting of a stream that has the option is not refused by the stream itself.
    other = edit_stream(state, "default", "second", {"codec": "zstd"})
    assert isinstance(other, EditStream)
    after(other, state=state)


def test_of_two_requests_at_once_the_second_command_is_refused() -> None:
    state = after()
    commands = [create_stream(state, request(name, "s.>", ON), 1) for name in ("one", "two")]
    assert all(isinstance(command, CreateStream) for command in commands)
    results: list[object] = []
    for command in commands:
        assert isinstance(command, CreateStream)
        state, result = apply(state, state.index + 1, command)
        results.append(type(result))
    assert results == [Applied, Rejection]
    gone = state.stream("default", "one")
    assert gone is not None
    state = after(DeleteStream("default", "one", gone.incarnation), state=state)
    after(create("two", "s.>", ON), state=state)


def test_settings_that_an_older_broker_wrote_mean_off() -> None:
    written = to_plain(OFF)
    assert written.pop("nats_acks") == "off"
    assert from_plain(StreamSettings, written) == OFF
    with pytest.raises(DecodeError):
        from_plain(StreamSettings, {**written, "nats_acks": "kafka"})
