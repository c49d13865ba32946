"""Streams that get other partitions and names, and what keeps theirs."""

from dataclasses import replace

import pytest
from bascule.metadata import (
    MAX_TOPIC_PARTITIONS,
    AddPartitions,
    Applied,
    ArchivedEnd,
    ChangeTopic,
    Command,
    CreateNamespace,
    CreateStream,
    IggyTopic,
    Placement,
    RegisterBroker,
    Rejection,
    RejectionCode,
    RemovePartitions,
    RenameNamespace,
    ReportArchived,
    State,
    Stream,
    StreamKey,
    StreamSettings,
    apply,
    decode_snapshot,
    digest,
    encode_snapshot,
    initial_state,
)
from bascule.metadata.commands import decode_command, encode_command
from bascule.metadata.sink_commands import OpenSink

from tests.unit.metadata.cluster_rig import Cluster

HERE = Placement(("a",), "a")
TOPIC = IggyTopic(compression=1, expiry_us=0, max_size=0, replication=0)
KEY = StreamKey("n", "t")


def start(*commands: Command, partitions: int = 2, namespace: str = "n", subject: str = "") -> State:
    create = CreateStream(namespace, "t", subject, "", 1, StreamSettings(), (HERE,) * partitions, iggy=TOPIC)
    state = initial_state()
    for command in (RegisterBroker("a", "h", 1, 2), CreateNamespace("n", 5), create, *commands):
        state = done(state, command)
    return state


def done(state: State, command: Command) -> State:
    assert decode_command(encode_command(command)) == command
    state, result = apply(state, state.index + 1, command)
    assert isinstance(result, Applied), result
    restored = decode_snapshot(encode_snapshot(state))
    assert (restored, digest(restored)) == (state, digest(state))
    return state


def refusal(state: State, command: Command) -> RejectionCode:
    changed, result = apply(state, state.index + 1, command)
    assert isinstance(result, Rejection)
    assert changed == state.at(state.index + 1)
    return result.code


def topic(state: State, key: StreamKey = KEY) -> Stream:
    return state.streams[key]


def add(stream: Stream, count: int = 1, place: Placement = HERE) -> AddPartitions:
    return AddPartitions(*stream.key, stream.incarnation, len(stream.partitions), (place,) * count, 7)


def remove(stream: Stream, count: int = 1) -> RemovePartitions:
    return RemovePartitions(*stream.key, stream.incarnation, len(stream.partitions), count, 8)


def rename(stream: Stream, name: str = "u") -> ChangeTopic:
    return ChangeTopic(*stream.key, stream.incarnation, name, TOPIC, None, None)


def test_partitions_are_added_and_removed_at_the_end() -> None:
    state = start()
    before = topic(state)
    state = done(state, add(before, 2))
    more = topic(state)
    assert more.partitions[:2] == before.partitions
    assert [item.incarnation for item in more.partitions[2:]] == [(state.index << 16) + 2, (state.index << 16) + 3]
    assert more.settings.retention_bytes == 7
    state = done(state, remove(more, 4))
    assert topic(state).partitions == ()
    assert topic(state).settings.retention_bytes == 8
    again = topic(done(state, add(topic(state))))
    assert again.partitions[0].incarnation not in {item.incarnation for item in more.partitions}


def test_what_does_not_fit_the_stream_is_refused() -> None:
    state = start()
    stream = topic(state)
    assert refusal(state, replace(add(stream), seen=1)) is RejectionCode.INCARNATION_CHANGED
    assert refusal(state, replace(remove(stream), seen=3)) is RejectionCode.INCARNATION_CHANGED
    assert refusal(state, replace(add(stream), incarnation=99)) is RejectionCode.STREAM_NOT_FOUND
    assert refusal(state, add(stream, 0)) is RejectionCode.NO_PARTITIONS
    assert refusal(state, add(stream, place=Placement(("x",), "x"))) is RejectionCode.BROKER_UNKNOWN
    assert refusal(state, add(stream, place=Placement(("a",), ""))) is RejectionCode.INVALID
    assert refusal(state, replace(add(stream), retention_bytes=-1)) is RejectionCode.INVALID
    for count in (0, 3):
        assert refusal(state, remove(stream, count)) is RejectionCode.INVALID


def test_a_stream_has_at_most_so_many_partitions() -> None:
    state = start(partitions=1000)
    while (missing := MAX_TOPIC_PARTITIONS - len(topic(state).partitions)) > 0:
        state, _ = apply(state, state.index + 1, add(topic(state), min(missing, 3000)))
    assert len(topic(state).partitions) == MAX_TOPIC_PARTITIONS
    assert refusal(state, add(topic(state))) is RejectionCode.TOO_MANY_PARTITIONS


@pytest.mark.parametrize(("namespace", "subject"), [("default", ""), ("n", "in")])
def test_partitions_and_names_that_other_clients_rely_on_stay(namespace: str, subject: str) -> None:
    state = start(namespace=namespace, subject=subject)
    stream = topic(state, StreamKey(namespace, "t"))
    assert refusal(state, add(stream)) is RejectionCode.PARTITIONS_FIXED
    assert refusal(state, remove(stream)) is RejectionCode.PARTITIONS_FIXED
    assert refusal(state, rename(stream)) is RejectionCode.NAME_IN_USE


def test_a_stream_keeps_everything_but_its_name() -> None:
    state = start()
    before = topic(state)
    state = done(state, ChangeTopic(*KEY, before.incarnation, "u", replace(TOPIC, compression=2), 3, 4))
    after = topic(state, StreamKey("n", "u"))
    settings = replace(before.settings, retention_age_ms=3, retention_bytes=4)
    assert after == replace(before, name="u", iggy=replace(TOPIC, compression=2), settings=settings)
    assert KEY not in state.streams
    assert refusal(state, rename(before, "v")) is RejectionCode.STREAM_NOT_FOUND
    assert refusal(state, rename(after, "")) is RejectionCode.INVALID
    state = done(state, CreateStream("n", "t", "", "", 1, StreamSettings(), ()))
    assert refusal(state, rename(after, "t")) is RejectionCode.STREAM_EXISTS


def test_a_namespace_keeps_everything_but_its_name() -> None:
    state = start(CreateNamespace("o", 5))
    before = topic(state)
    after = done(state, RenameNamespace("n", 1, "m"))
    assert after.namespaces == {"default": state.namespaces["default"], "o": state.namespaces["o"]} | {
        "m": replace(state.namespaces["n"], name="m")
    }
    assert after.streams == {StreamKey("m", "t"): replace(before, namespace="m")}
    assert done(state, RenameNamespace("n", 1, "n")).streams == state.streams
    assert refusal(state, RenameNamespace("n", 2, "m")) is RejectionCode.NAMESPACE_NOT_FOUND
    assert refusal(state, RenameNamespace("x", 1, "m")) is RejectionCode.NAMESPACE_NOT_FOUND
    assert refusal(state, RenameNamespace("n", 1, "o")) is RejectionCode.NAMESPACE_EXISTS
    assert refusal(state, RenameNamespace("n", 1, "")) is RejectionCode.INVALID
    assert refusal(state, RenameNamespace("default", 0, "m")) is RejectionCode.NAME_IN_USE


def test_a_sink_or_an_archive_keeps_the_names_that_it_knows() -> None:
    state = done(start(), OpenSink("n", "s", "ada", "batch", "kept", "", "r1"))
    assert refusal(state, rename(topic(state))) is RejectionCode.NAME_IN_USE
    assert refusal(state, RenameNamespace("n", 1, "m")) is RejectionCode.NAME_IN_USE
    assert topic(done(state, rename(topic(state), "t"))) == topic(state), "nothing is moved"
    state = start()
    end = ArchivedEnd(0, topic(state).partitions[0].incarnation, 5)
    state = done(state, ReportArchived(*KEY, topic(state).incarnation, "s3", (end,)))
    assert refusal(state, rename(topic(state))) is RejectionCode.NAME_IN_USE
    assert refusal(state, RenameNamespace("n", 1, "m")) is RejectionCode.NAME_IN_USE


def test_at_level_2_added_partitions_begin_with_the_brokers_that_are_there() -> None:
    cluster = Cluster()
    cluster.do(CreateStream("n", "t", "", "", 1, StreamSettings(), (Placement(("a", "b"), "a"),), iggy=TOPIC))
    before = topic(cluster.state)
    index = cluster.do(add(before, place=Placement(("b", "c"), "b")))
    first, added = topic(cluster.state).partitions
    assert first == before.partitions[0]
    assert (added.leader, added.isr, added.eligible, added.leader_epoch) == ("b", ("b", "c"), ("b", "c"), index)
    assert added.min_isr == before.partitions[0].min_isr
