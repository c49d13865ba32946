"""Entries and snapshots as bytes: what is written is read back, and what is newer or damaged is refused."""

import json
from dataclasses import replace

import pytest
from bascule.metadata import (
    Command,
    CommandError,
    CreateStream,
    DeleteStream,
    Placement,
    RegisterBroker,
    SnapshotError,
    State,
    StreamSettings,
    apply,
    decode_command,
    decode_snapshot,
    digest,
    encode_command,
    encode_snapshot,
    initial_state,
)

CREATE = CreateStream("default", "o", "o", "", 1, StreamSettings(retention_age_ms=0), (Placement(("a",), "a"),))
COMMANDS: list[Command] = [RegisterBroker("a", "h", 1, 2), CREATE, DeleteStream("default", "o", 2)]


def sample_state() -> State:
    state = initial_state()
    for command in COMMANDS[:2]:
        state, _ = apply(state, state.index + 1, command)
    return state


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_read_back_as_it_was(command: Command) -> None:
    assert decode_command(encode_command(command)) == command


def test_the_bytes_of_an_entry_are_stable() -> None:
    expected = b'{"body":{"broker_id":"a","host":"h","port":1,"registered_ns":2},"type":"register_broker","v":1}'
    assert encode_command(COMMANDS[0]) == expected


@pytest.mark.parametrize(
    "change", [{"v": 2}, {"type": "merge_streams"}, {"extra": 1}, {"body": {"name": "o", "later": 1}}]
)
def test_an_entry_of_a_newer_version_says_so(change: dict[str, object]) -> None:
    entry = json.dumps({**json.loads(encode_command(CREATE)), **change}).encode()
    with pytest.raises(CommandError, match=r"newer|not known") as caught:
        decode_command(entry)
    assert caught.value.newer


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"v":"1","type":"create_stream","body":{}}',
        b'{"v":1,"type":"create_stream","body":{}}',
        b'{"v":1,"type":"create_stream"}',
        b'{"v":1,"type":"register_broker","body":{"broker_id":"a","host":"h","port":true,"registered_ns":2}}',
        b'{"v":1,"type":"register_broker","body":{"broker_id":"a","host":"h","port":1.0,"registered_ns":2}}',
        b'{"v":1,"type":"register_broker","body":{"broker_id":"a","host":"\\ud800","port":1,"registered_ns":2}}',
        b'{"v":1,"type":"register_broker","body":{"broker_id":"a","host":"h","port":1,"registered_ns":9223372036854775808}}',
    ],
)
def test_a_damaged_entry_is_refused_and_is_not_called_newer(entry: bytes) -> None:
    with pytest.raises(CommandError) as caught:
        decode_command(entry)
    assert not caught.value.newer


def test_a_field_with_a_default_may_be_missing() -> None:
    document = json.loads(encode_command(CREATE))
    document["body"]["settings"] = {}
    assert decode_command(json.dumps(document).encode()) == replace(CREATE, settings=StreamSettings())


@pytest.mark.parametrize(
    "command",
    [
        RegisterBroker("a", "h", 1 << 63, 0),
        RegisterBroker("\ud800", "h", 1, 0),
        DeleteStream("default", "x" * (1 << 20), 1),
    ],
)
def test_what_an_entry_cannot_hold_is_refused_before_it_is_proposed(command: Command) -> None:
    with pytest.raises(CommandError):
        encode_command(command)


def test_a_snapshot_is_read_back_as_it_was() -> None:
    state = sample_state()
    restored = decode_snapshot(encode_snapshot(state))
    assert restored == state
    assert digest(restored) == digest(state)


def test_a_snapshot_with_any_byte_changed_is_refused() -> None:
    snapshot = encode_snapshot(sample_state())
    for position in range(len(snapshot)):
        changed = bytearray(snapshot)
        changed[position] ^= 1
        with pytest.raises(SnapshotError):
            decode_snapshot(bytes(changed))


def test_a_truncated_snapshot_is_refused() -> None:
    snapshot = encode_snapshot(sample_state())
    for length in range(len(snapshot)):
        with pytest.raises(SnapshotError):
            decode_snapshot(snapshot[:length])


def test_a_snapshot_of_a_newer_version_says_so() -> None:
    snapshot = encode_snapshot(sample_state()).replace(b"bascule-metadata 1", b"bascule-metadata 2", 1)
    with pytest.raises(SnapshotError, match="newer") as caught:
        decode_snapshot(snapshot)
    assert caught.value.newer
