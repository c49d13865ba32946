"""Other settings for a stream that is there."""

from dataclasses import replace

import pytest
from bascule.control.decide import Target, edit_stream, resume_stream
from bascule.metadata import (
    Applied,
    Command,
    CreateStream,
    EditStream,
    PauseStream,
    Placement,
    RegisterBroker,
    ResumeStream,
    State,
    Stream,
    StreamSettings,
    apply,
    decode_command,
    encode_command,
    initial_state,
)
from bascule.metadata.rejection import Rejection, RejectionCode

STREAM = ("default", "s", 2)
CHANGED = StreamSettings(codec="zstd", retention_age_ms=5, min_isr=0)


def after(state: State, *commands: Command) -> State:
    for command in commands:
        state, result = apply(state, state.index + 1, command)
        assert isinstance(result, Applied), result
    return state


def start() -> State:
    create = CreateStream("default", "s", "s", "", 1, StreamSettings(), (Placement(("a",), "a"),) * 3)
    return after(initial_state(), RegisterBroker("a", "h", 1, 1), create)


def stream(state: State) -> Stream:
    found = state.stream("default", "s")
    assert found is not None
    return found


def test_settings_are_these_from_now_on_and_the_rest_stays() -> None:
    before = start()
    command = EditStream(*STREAM, CHANGED)
    assert decode_command(encode_command(command)) == command
    changed = after(before, command)
    assert stream(changed) == replace(stream(before), settings=CHANGED)
    assert stream(after(changed, command)) is stream(changed)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (EditStream("default", "s", 9, CHANGED), RejectionCode.STREAM_NOT_FOUND),
        (EditStream("default", "t", 2, CHANGED), RejectionCode.STREAM_NOT_FOUND),
        (EditStream(*STREAM, replace(CHANGED, min_isr=-1)), RejectionCode.INVALID),
        (EditStream(*STREAM, replace(CHANGED, encryption=True)), RejectionCode.INVALID),
        (EditStream(*STREAM, replace(CHANGED, partition_by_subject=True)), RejectionCode.INVALID),
    ],
)
def test_what_cannot_be_applied_changes_nothing(command: EditStream, code: RejectionCode) -> None:
    state = start()
    changed, result = apply(state, state.index + 1, command)
    assert isinstance(result, Rejection)
    assert (result.code, changed) == (code, state.at(state.index + 1))


def test_a_request_names_the_changes_and_none_restores_the_default() -> None:
    state = after(start(), EditStream(*STREAM, CHANGED))
    command = edit_stream(state, "default", "s", {"codec": "lz4", "retention_age_ms": None})
    assert command == EditStream(*STREAM, replace(CHANGED, codec="lz4", retention_age_ms=None))
    assert edit_stream(state, "default", "s", {"codec": "zstd"}) is None
    assert edit_stream(state, "default", "s", {}) is None


@pytest.mark.parametrize(
    ("name", "changes", "code", "said"),
    [
        ("t", {}, RejectionCode.STREAM_NOT_FOUND, "stream default/t does not exist"),
        ("s", {"encryption": True}, RejectionCode.INVALID, "encryption stays as the stream was created"),
        (
            "s",
            {"codek": "lz4"},
            RejectionCode.INVALID,
            "codek is not a setting of a stream, which has durability, codec",
        ),
        ("s", {"codec": "gzip"}, RejectionCode.INVALID, "the settings are not valid"),
        ("s", {"min_isr": True}, RejectionCode.INVALID, "the settings are not valid"),
        ("s", {"min_isr": -2}, RejectionCode.INVALID, "min_isr is -2, not between 0 and 255"),
        ("s", {"min_isr": 256}, RejectionCode.INVALID, "min_isr is 256, not between 0 and 255"),
        ("s", {"max_record_bytes": 0}, RejectionCode.INVALID, "max_record_bytes is 0, not between 1 and 67108864"),
        ("s", {"segment_bytes": 1 << 63}, RejectionCode.INVALID, "segment_bytes is 9223372036854775808, not between 0"),
    ],
)
def test_a_rejected_request_names_the_setting(
    name: str, changes: dict[str, object], code: RejectionCode, said: str
) -> None:
    refusal = edit_stream(start(), "default", name, changes)
    assert isinstance(refusal, Rejection)
    assert refusal.code is code
    assert said in refusal.message


def test_resuming_some_keeps_the_request_to_resume_all_together() -> None:
    state = after(start(), PauseStream(*STREAM, (0, 2), True, 10))
    some = resume_stream(state, Target("default", "s", (1, 2)), 20)
    assert isinstance(some, ResumeStream)
    assert some == ResumeStream(*STREAM, (2,), False, 20)
    rest = resume_stream(after(state, some), Target("default", "s"), 30)
    assert isinstance(rest, ResumeStream)
    assert rest == ResumeStream(*STREAM, (0,), True, 30)
    assert resume_stream(after(state, some, rest), Target("default", "s"), 40) is None
    missing = resume_stream(state, Target("default", "s", (3,)), 50)
    assert isinstance(missing, Rejection)
    assert missing.code is RejectionCode.PARTITION_NOT_FOUND
