"""Entries of level 2, for all inputs: total, the same from a snapshot, and the state stays well formed."""

from bascule.metadata import (
    Applied,
    Command,
    CreateStream,
    PauseStream,
    Placement,
    Rejection,
    ResumeStream,
    State,
    StreamSettings,
    apply,
    decode_command,
    decode_snapshot,
    digest,
    encode_command,
    encode_snapshot,
)
from bascule.metadata.commands import Proposed
from bascule.metadata.replica_commands import (
    AcceptLoss,
    Addresses,
    ChangeIsr,
    ChooseLeader,
    ConfirmBroker,
    EndLeader,
    FenceBroker,
    Finalize,
    IsrChange,
    JoinBroker,
    Register,
    ReplicaReport,
    ReportLeader,
    ReportReplicas,
    Resign,
    Resigned,
    StoppedLeading,
    Verified,
)
from bascule.metadata.replicas import Position, Proposal, Versions
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.metadata.cluster_rig import Cluster

START = Cluster(partitions=2, leaders=("a", "b")).state
STREAM = st.just(next(item.incarnation for item in START.streams.values()))
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
IDS = st.sampled_from(["a", "b", "c", "c", "d", ""])
SOME = st.lists(IDS, max_size=3).map(tuple)
RUNS = st.one_of(st.sampled_from([item.boot_epoch for item in START.brokers.values()]), st.integers(9, 30))
EPOCHS = st.one_of(st.integers(9, 30), INT64)
KNOWN = st.sampled_from([part.incarnation for item in START.streams.values() for part in item.partitions])
INCARNATIONS = st.one_of(KNOWN, KNOWN, KNOWN, INT64)
positions = st.builds(Position, st.integers(-1, 9), st.integers(0, 9), st.integers(0, 1))
flags = st.lists(st.sampled_from(["unclean", "cut", "unable", "able"]), max_size=2).map(tuple)
own_reports = st.builds(ReplicaReport, INCARNATIONS, flags, st.one_of(st.none(), positions), EPOCHS)
first_reports = st.builds(ReplicaReport, INCARNATIONS, flags, st.one_of(st.none(), positions))
reports = st.one_of(
    own_reports,
    st.builds(ReplicaReport, INCARNATIONS, st.just(("unclean",)), st.none(), EPOCHS, IDS, RUNS),
    st.builds(ReplicaReport, INCARNATIONS, flags, st.none(), EPOCHS, IDS, RUNS, EPOCHS),
)
addresses = st.builds(Addresses, st.sampled_from(["h", ""]), INT64 | st.just(1))
versions = st.sampled_from([Versions(1, 2), Versions(1, 1), Versions(2, 1)])
changes = st.builds(
    IsrChange, INCARNATIONS, EPOCHS, EPOCHS, SOME, st.lists(st.builds(Verified, IDS, RUNS), max_size=3).map(tuple)
)
resigned = st.builds(Resigned, INCARNATIONS, EPOCHS, EPOCHS, st.booleans())
reasons = st.sampled_from(["transfer", "standstill", "failed", "disk_full", "nats_lost"])


def some(items: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(items, max_size=3).map(tuple)


plain = st.one_of(
    st.builds(Finalize, st.integers(0, 4), IDS),
    st.builds(JoinBroker, IDS, IDS, addresses, versions, IDS, INT64),
    st.builds(Register, IDS, EPOCHS, st.sampled_from(["dir-a", "dir-b", "x"]), RUNS, IDS, IDS, addresses, versions),
    st.builds(
        Register,
        IDS,
        st.integers(200, 999),
        st.just("dir-c"),
        RUNS,
        st.just("k"),
        st.just("m"),
        st.just(Addresses("h", 1)),
        st.just(Versions(1, 2)),
    ),
    st.builds(ConfirmBroker, IDS, RUNS, some(first_reports)),
    st.builds(ReportReplicas, IDS, RUNS, some(reports)),
    st.builds(FenceBroker, IDS, RUNS, SOME),
    st.builds(ChangeIsr, IDS, RUNS, some(changes)),
    st.builds(Resign, IDS, RUNS, some(resigned), reasons, IDS),
    st.builds(ReportLeader, INCARNATIONS, EPOCHS, IDS, RUNS, positions),
    st.builds(EndLeader, INCARNATIONS, EPOCHS),
    st.builds(StoppedLeading, IDS, RUNS, EPOCHS),
    st.builds(ChooseLeader, INCARNATIONS, EPOCHS, IDS, st.sampled_from(["waited", "operator", "rescue"]), IDS),
    st.builds(AcceptLoss, INCARNATIONS, st.integers(-1, 9), st.integers(0, 9), IDS),
    st.builds(PauseStream, st.just("default"), st.just("o"), STREAM, st.just((0, 1)), st.booleans(), INT64),
    st.builds(ResumeStream, st.just("default"), st.just("o"), STREAM, st.just((0, 1)), st.booleans(), INT64),
    st.builds(
        CreateStream,
        st.just("default"),
        st.sampled_from(["p", "q"]),
        st.just(""),
        st.just(""),
        INT64,
        st.builds(StreamSettings, min_isr=st.sampled_from([None, 1, 2])),
        some(st.builds(Placement, SOME, IDS)),
    ),
)
commands: st.SearchStrategy[Command] = st.one_of(  # type: ignore[assignment]  # tuples of `some` are of what they hold
    plain,
    st.builds(Proposed, st.builds(Proposal, st.integers(0, 104), st.integers(0, 3)), plain),
)


def replay(log: list[Command], start: State = START) -> State:
    state = start
    for command in log:
        state, result = apply(state, state.index + 1, command)
        assert isinstance(result, Applied | Rejection)
    return state


@given(st.lists(commands, max_size=30))
def test_the_state_stays_well_formed_whatever_is_applied(log: list[Command]) -> None:
    state = replay(log)
    assert state.index == START.index + len(log)
    for stream in state.streams.values():
        for partition in stream.partitions:
            replicas = set(partition.replicas)
            assert not partition.leader or partition.leader in partition.isr
            assert not partition.leader or state.brokers[partition.leader].run == "confirmed"
            assert not partition.leader or (not partition.reports and partition.ending is None)
            assert not set(partition.isr) & set(partition.unclean)
            assert max(partition.leader_epoch, partition.epoch) <= state.index
            sets = (partition.isr, partition.eligible, partition.unclean, partition.unable, partition.cut)
            for members in (*sets, partition.tried, partition.volatile):
                assert set(members) <= replicas
                assert members == tuple(item for item in partition.replicas if item in members)
            assert len(partition.isr) < partition.min_isr or partition.eligible == partition.isr
            assert len(partition.losses) <= 8


@given(st.lists(commands, max_size=30), st.integers(0, 30))
def test_a_snapshot_and_the_tail_equal_the_whole_log(log: list[Command], cut: int) -> None:
    restored = decode_snapshot(encode_snapshot(replay(log[:cut])))
    assert digest(replay(log[cut:], restored)) == digest(replay(log))


@given(commands)
def test_a_command_is_read_back_as_it_was(command: Command) -> None:
    assert decode_command(encode_command(command)) == command
