"""The state machine, for all inputs: total, deterministic, and equal from a snapshot and from the log."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import bascule.metadata
from bascule.metadata import (
    Applied,
    Command,
    CreateNamespace,
    CreateStream,
    DeleteStream,
    JoinGroup,
    LeaveGroup,
    PauseStream,
    Placement,
    RegisterBroker,
    Rejection,
    ResumeStream,
    SetActivity,
    SetGroupCoordinator,
    SetStreamReadonly,
    SettleActivity,
    State,
    StreamKey,
    StreamSettings,
    apply,
    decode_command,
    decode_snapshot,
    digest,
    encode_command,
    encode_snapshot,
    initial_state,
)
from bascule.metadata.iggy import IggyTopic
from bascule.metadata.sink_commands import (
    AdvanceClock,
    DeleteSink,
    ExpireSink,
    LinkedPartition,
    LinkSink,
    OpenSink,
    PublishSink,
    SetSinkOwner,
    SetSinkQuota,
    SkipSink,
)
from bascule.metadata.sinks import TargetPartition, TargetStream
from bascule.metadata.topic_commands import (
    AddPartitions,
    ChangeTopic,
    JoinTopicGroup,
    LeaveTopicGroup,
    RemovePartitions,
    RenameNamespace,
)
from bascule.metadata.user_commands import (
    CreateUser,
    CreateUserToken,
    DeleteUser,
    DeleteUserToken,
    SetUserPassword,
    SetUserRights,
    UpdateUser,
)
from bascule.metadata.users import AccessToken, Rights, StreamRights, TopicRights
from hypothesis import given, settings
from hypothesis import strategies as st

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
BROKERS = st.sampled_from(["a", "b", "c", "", "d" * 256])
NAMES = st.one_of(st.sampled_from(["x", "y", "z", "ä"]), st.text(max_size=300))
NAMESPACES = st.sampled_from(["default", "n", "m", ""])
PORTS = st.one_of(st.integers(0, 65535), INT64)

INDEXES = st.one_of(st.integers(0, 40), INT64)
NUMBER = st.integers(-1, 3)
NUMBERS = st.lists(st.integers(-1, 3), max_size=4).map(tuple)

stream_settings = st.builds(
    StreamSettings,
    durability=st.sampled_from(["disk", "memory"]),
    codec=st.sampled_from(["none", "lz4", "zstd"]),
    retention_bytes=st.one_of(st.none(), INT64),
    min_isr=st.one_of(st.none(), INT64),
    compact_enabled=st.one_of(st.none(), st.booleans()),
)
placements = st.lists(
    st.builds(Placement, replicas=st.lists(BROKERS, max_size=4).map(tuple), leader=BROKERS), max_size=4
).map(tuple)
topics = st.builds(IggyTopic, st.just(1), INT64, INT64, st.integers(0, 255))
good_placements = st.lists(st.just(Placement(("a",), "a")), max_size=3).map(tuple)
SINKS = st.sampled_from(["s", "t", ""])
OWNERS = st.sampled_from(["", "ada"])
KINDS = st.sampled_from(["stream", "foreach", "batch"])
LIFETIMES = st.sampled_from(["kept", "month", "hour"])
QUERIES = st.sampled_from(["", "q1", "q2"])
RUNS = st.sampled_from(["r1", "r2", "r3"])
EPOCHS = st.one_of(st.integers(-1, 3), st.integers(0, (1 << 53)))
TOKENS = st.sampled_from(["a" * 32, "b" * 32, "x"])
target_partitions = st.builds(TargetPartition, st.integers(-1, 3), INDEXES, EPOCHS, TOKENS, EPOCHS)
linked_partitions = st.lists(st.builds(LinkedPartition, INDEXES, EPOCHS)).map(tuple)
sink_targets = st.lists(
    st.builds(
        TargetStream,
        NAMESPACES,
        NAMES,
        st.lists(target_partitions, max_size=3).map(tuple),
    ),
    max_size=2,
).map(tuple)
USERS, BITS = st.integers(-1, 3), st.integers(-1, 1 << 10)
RIGHTS_IDS = st.integers(-1, 3)
topic_rights = st.lists(st.builds(TopicRights, RIGHTS_IDS, BITS), max_size=2)
stream_rights = st.lists(st.builds(StreamRights, RIGHTS_IDS, BITS, topic_rights.map(tuple)), max_size=2)
user_rights = st.one_of(st.none(), st.builds(Rights, BITS, stream_rights.map(tuple)))
user_commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(CreateUser, NAMES, NAMES, INT64, st.booleans(), user_rights),
    st.builds(UpdateUser, USERS, st.one_of(st.none(), NAMES), st.one_of(st.none(), st.booleans())),
    st.builds(DeleteUser, USERS),
    st.builds(SetUserRights, USERS, user_rights),
    st.builds(SetUserPassword, USERS, st.one_of(st.none(), NAMES), NAMES),
    st.builds(CreateUserToken, USERS, st.builds(AccessToken, NAMES, NAMES, EPOCHS), EPOCHS),
    st.builds(DeleteUserToken, USERS, NAMES),
)
commands: st.SearchStrategy[Command] = st.one_of(
    user_commands,
    st.builds(RegisterBroker, BROKERS, st.text(max_size=300), PORTS, INT64),
    st.just(RegisterBroker("a", "h", 1, 1)),
    st.builds(CreateStream, NAMESPACES, NAMES, NAMES, NAMES, INT64, stream_settings, placements),
    st.builds(CreateStream, NAMESPACES, NAMES, NAMES, st.just(""), INT64, st.just(StreamSettings()), good_placements),
    st.builds(DeleteStream, NAMESPACES, NAMES, INDEXES),
    st.builds(PauseStream, NAMESPACES, NAMES, INDEXES, NUMBERS, st.booleans(), INT64),
    st.builds(ResumeStream, NAMESPACES, NAMES, INDEXES, NUMBERS, st.booleans(), INT64),
    st.builds(SetStreamReadonly, NAMESPACES, NAMES, INDEXES, NUMBERS, st.booleans(), INT64),
    st.builds(AddPartitions, NAMESPACES, NAMES, INDEXES, NUMBER, good_placements, st.one_of(st.none(), INT64)),
    st.builds(RemovePartitions, NAMESPACES, NAMES, INDEXES, NUMBER, NUMBER, st.one_of(st.none(), INT64)),
    st.builds(ChangeTopic, NAMESPACES, NAMES, INDEXES, NAMES, topics, st.one_of(st.none(), INT64), st.none()),
    st.builds(JoinTopicGroup, NAMESPACES, NAMES, INDEXES, INDEXES, BROKERS, INDEXES, NUMBER),
    st.builds(LeaveTopicGroup, INDEXES, BROKERS, INDEXES, NUMBER),
    st.builds(CreateNamespace, NAMESPACES, INT64),
    st.builds(RenameNamespace, NAMESPACES, NUMBER, NAMES),
    st.builds(JoinGroup, NAMES, NAMES, st.lists(NAMES, max_size=4).map(tuple), BROKERS),
    st.builds(JoinGroup, st.just("x"), NAMES, st.sampled_from([("x",), ("x", "y"), ("z", "y")]), st.just("a")),
    st.builds(LeaveGroup, NAMES, NAMES, INDEXES, st.booleans()),
    st.builds(SetGroupCoordinator, NAMES, BROKERS, INDEXES),
    st.builds(SetActivity, st.booleans()),
    st.builds(SettleActivity, INDEXES),
    st.builds(OpenSink, NAMESPACES, SINKS, OWNERS, KINDS, LIFETIMES, QUERIES, RUNS, QUERIES, st.integers(0, 2)),
    st.builds(
        PublishSink,
        NAMESPACES,
        SINKS,
        INDEXES,
        INDEXES,
        RUNS,
        EPOCHS,
        TOKENS,
        st.lists(INDEXES, max_size=3).map(tuple),
        sink_targets,
        EPOCHS,
        TOKENS,
        accept_gap=EPOCHS,
        accept_difference=st.booleans(),
    ),
    st.builds(LinkSink, NAMESPACES, SINKS, INDEXES, EPOCHS, linked_partitions),
    st.builds(ExpireSink, NAMESPACES, SINKS, INDEXES, INDEXES, EPOCHS, TOKENS),
    st.builds(SkipSink, NAMESPACES, SINKS, INDEXES, EPOCHS, INDEXES, OWNERS),
    st.builds(DeleteSink, NAMESPACES, SINKS, INDEXES, EPOCHS),
    st.builds(SetSinkQuota, NAMESPACES, SINKS, INDEXES, INT64),
    st.builds(SetSinkOwner, NAMESPACES, SINKS, INDEXES, OWNERS),
    st.builds(AdvanceClock, EPOCHS),
)
logs = st.lists(commands, max_size=40)


def replay(log: list[Command], start: State | None = None) -> State:
    state = start or initial_state()
    for command in log:
        state, result = apply(state, state.index + 1, command)
        assert result == Applied(state.index) or isinstance(result, Rejection)
    return state


@given(logs)
def test_apply_takes_any_command_in_any_state(log: list[Command]) -> None:
    state = replay(log)
    assert state.index == len(log)
    incarnations = [item.incarnation for stream in state.streams.values() for item in stream.partitions]
    assert len(incarnations) == len(set(incarnations))
    assert {name for name, _ in state.streams} <= set(state.namespaces)
    for stream in state.streams.values():
        for partition in stream.partitions:
            assert partition.leader in partition.isr
            assert set(partition.isr) <= set(partition.replicas) <= set(state.brokers)


@given(logs)
def test_every_partition_of_a_stream_somebody_reads_is_read_by_one_member_of_the_group(log: list[Command]) -> None:
    state = replay(log)
    for group in state.groups.values():
        assert group.members
        assert len({member.id for member in group.members}) == len(group.members)
        wanted = {
            (name, number)
            for member in group.members
            for name in member.streams
            for number in range(len(state.streams[StreamKey("default", name)].partitions))
        }
        assigned = [
            (part.stream, number) for item in group.members for part in item.assignments for number in part.partitions
        ]
        assert sorted(assigned) == sorted(wanted)
        for member in group.members:
            assert {part.stream for part in member.assignments} <= set(member.streams)


@given(commands)
def test_a_command_is_read_back_as_it_was(command: Command) -> None:
    assert decode_command(encode_command(command)) == command


@given(logs, st.integers(0, 40))
def test_a_snapshot_and_the_tail_equal_the_whole_log(log: list[Command], cut: int) -> None:
    head, tail = log[:cut], log[cut:]
    restored = decode_snapshot(encode_snapshot(replay(head)))
    assert digest(replay(tail, restored)) == digest(replay(log))


REPLAY = """
import sys
from pathlib import Path
from bascule.metadata import apply, decode_command, digest, initial_state
state = initial_state()
for line in sys.stdin.buffer:
    state, _ = apply(state, state.index + 1, decode_command(line))
print(digest(state))
"""


@settings(max_examples=4, deadline=None)
@given(st.lists(commands, min_size=20, max_size=40))
def test_every_interpreter_and_hash_seed_gives_the_same_digest(log: list[Command]) -> None:
    entries = b"".join(encode_command(command) + b"\n" for command in log)
    expected = digest(replay(log))
    for seed in ("0", "1", "4242", "random"):
        done = subprocess.run(
            [sys.executable, "-c", REPLAY],
            input=entries,
            capture_output=True,
            check=True,
            timeout=60,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert done.stdout.decode().strip() == expected


def test_metadata_imports_nothing_that_could_make_it_differ() -> None:
    forbidden = {"time", "random", "logging", "socket", "os", "asyncio", "secrets", "uuid", "datetime", "threading"}
    for file in Path(bascule.metadata.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not forbidden & {name.split(".")[0] for name in names}, f"{file.name} imports {names}"
            assert all(not name.startswith("bascule") or name.startswith("bascule.metadata") for name in names)
