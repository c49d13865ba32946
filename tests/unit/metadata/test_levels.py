"""Feature levels: what level 1 writes keeps its bytes, and what level 2 adds is written only where it says something.

`golden/level1.log` and `golden/level1.snapshot` were written by the program before level 2 was thought of.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bascule.metadata import (
    Command,
    CommandError,
    Partition,
    Rejection,
    RejectionCode,
    SetActivity,
    SnapshotError,
    State,
    apply,
    decode_command,
    decode_snapshot,
    digest,
    encode_command,
    encode_snapshot,
    initial_state,
)
from bascule.metadata.commands import Proposed
from bascule.metadata.json_codec import canonical
from bascule.metadata.model import Broker, StreamKey
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
    ReplicaCommand,
    ReplicaReport,
    ReportLeader,
    ReportReplicas,
    Resign,
    Resigned,
    StoppedLeading,
    Verified,
)
from bascule.metadata.replicas import Answer, Ending, Loss, Position, Proposal, Reported, Versions

GOLDEN = Path(__file__).parent / "golden"
AT = Position(7, 90, 80)
ENTRIES: list[tuple[ReplicaCommand, str]] = [
    (Finalize(2, "c"), '{"cluster_id":"c","level":2}'),
    (
        JoinBroker("b", "d", Addresses("h", 1, "p", 2), Versions(1, 2), "r", 5),
        (
            '{"addresses":{"host":"h","peer_host":"p","peer_port":2,"port":1},"broker_id":"b","directory_id":"d",'
            '"joined_ns":5,"rack":"r","versions":{"high":2,"low":1}}'
        ),
    ),
    (
        Register("b", 9, "d", 4, "k", "m", Addresses("h", 1), Versions(1, 2)),
        (
            '{"addresses":{"host":"h","peer_host":"","peer_port":0,"port":1},"broker_id":"b","directory_id":"d",'
            '"kernel_boot_id":"k","mount_id":"m","nonce":9,"stored":4,"versions":{"high":2,"low":1}}'
        ),
    ),
    (
        ConfirmBroker("b", 6, (ReplicaReport(65536, ("unclean", "cut"), AT),)),
        (
            '{"boot_epoch":6,"broker_id":"b","reports":[{"broker_boot_epoch":0,"broker_id":"","durable_past":-1,'
            '"flags":["unclean","cut"],"incarnation":65536,"leader_epoch":0,"position":{"end":90,"epoch":7,"hw":80}}]}'
        ),
    ),
    (
        ReportReplicas("b", 6, (ReplicaReport(65536, ("unclean",), None, 7, "c", 8, 0),)),
        (
            '{"boot_epoch":6,"broker_id":"b","reports":[{"broker_boot_epoch":8,"broker_id":"c","durable_past":0,'
            '"flags":["unclean"],"incarnation":65536,"leader_epoch":7,"position":null}]}'
        ),
    ),
    (FenceBroker("b", 6, ("a", "c")), '{"boot_epoch":6,"broker_id":"b","live":["a","c"]}'),
    (
        ChangeIsr("b", 6, (IsrChange(65536, 7, 8, ("b", "c"), (Verified("c", 9),)),)),
        (
            '{"boot_epoch":6,"broker_id":"b","changes":[{"incarnation":65536,"isr":["b","c"],"leader_epoch":7,'
            '"partition_epoch":8,"verified":[{"boot_epoch":9,"broker_id":"c"}]}]}'
        ),
    ),
    (
        Resign("b", 6, (Resigned(65536, 7, 8, True),), "standstill"),
        (
            '{"boot_epoch":6,"broker_id":"b","partitions":[{"hw_moved":true,"incarnation":65536,"leader_epoch":7,'
            '"partition_epoch":8}],"reason":"standstill","target":""}'
        ),
    ),
    (
        ReportLeader(65536, 7, "c", 9, AT),
        '{"boot_epoch":9,"incarnation":65536,"leader_epoch":7,"position":{"end":90,"epoch":7,"hw":80},"reporter":"c"}',
    ),
    (EndLeader(65536, 8), '{"incarnation":65536,"partition_epoch":8}'),
    (StoppedLeading("b", 6, 11), '{"boot_epoch":6,"broker_id":"b","index":11}'),
    (
        ChooseLeader(65536, 8, "c", "operator", "ada"),
        '{"by":"ada","incarnation":65536,"leader":"c","partition_epoch":8,"reason":"operator"}',
    ),
    (AcceptLoss(65536, 10, 20, "ada"), '{"by":"ada","end":20,"incarnation":65536,"start":10}'),
]


def golden_log() -> list[bytes]:
    return (GOLDEN / "level1.log").read_bytes().splitlines()


def golden_state() -> State:
    return decode_snapshot((GOLDEN / "level1.snapshot").read_bytes())


def test_entries_of_level_1_keep_their_bytes() -> None:
    for entry in golden_log():
        assert encode_command(decode_command(entry)) == entry


def test_the_log_of_level_1_gives_the_digest_that_it_gave() -> None:
    state = initial_state()
    for entry in golden_log():
        state, _ = apply(state, state.index + 1, decode_command(entry))
    assert state == golden_state()
    assert encode_snapshot(state) == (GOLDEN / "level1.snapshot").read_bytes()


@pytest.mark.parametrize(("command", "body"), ENTRIES)
def test_an_entry_of_level_2_has_these_bytes(command: ReplicaCommand, body: str) -> None:
    entry = encode_command(command)
    name = json.loads(entry)["type"]
    assert entry.decode() == f'{{"body":{body},"type":"{name}","v":1}}'
    assert decode_command(entry) == command


@pytest.mark.parametrize("command", [*(item for item, _ in ENTRIES), SetActivity(True)])
def test_an_entry_has_the_id_of_its_proposal(command: ReplicaCommand) -> None:
    proposed = Proposed(Proposal(3, 4), command)
    entry = encode_command(proposed)
    assert json.loads(entry)["proposal"] == {"counter": 4, "nonce": 3}
    assert decode_command(entry) == proposed


@pytest.mark.parametrize("proposal", [7, {}, {"nonce": 1}, {"nonce": 1, "counter": "2"}])
def test_a_damaged_proposal_is_refused(proposal: object) -> None:
    document = {**json.loads(encode_command(SetActivity(True))), "proposal": proposal}
    with pytest.raises(CommandError, match="proposal") as caught:
        decode_command(canonical(document))
    assert not caught.value.newer


def test_a_proposal_that_does_not_fit_an_entry_is_refused() -> None:
    with pytest.raises(CommandError):
        encode_command(Proposed(Proposal(1 << 63, 1), SetActivity(True)))


LEVEL_2_ENTRIES: list[Command] = [
    *(item for item, _ in ENTRIES if not isinstance(item, Finalize)),
    Proposed(Proposal(1, 1), SetActivity(True)),
]


@pytest.mark.parametrize("command", LEVEL_2_ENTRIES)
def test_an_entry_of_level_2_is_refused_at_level_1(command: Command) -> None:
    before = golden_state()
    after, result = apply(before, before.index + 1, command)
    assert isinstance(result, Rejection)
    assert result.code == RejectionCode.CLUSTER_VERSION
    assert after == before.at(before.index + 1)


def test_a_snapshot_of_level_2_is_read_back_as_it_was() -> None:
    before = golden_state()
    stream = before.streams[StreamKey("default", "o")]
    partition: Partition = replace(
        stream.partitions[0],
        eligible=("a",),
        unclean=("b",),
        ending=Ending("a", 3, 4),
        reports=(Reported("a", 3, AT),),
        losses=(Loss(7, 90, 0, "cut"),),
        min_isr=2,
    )
    broker: Broker = replace(before.brokers["a"], run="fenced", versions=Versions(1, 2), nonce=5)
    state = replace(
        before,
        level=2,
        cluster_id="c",
        voters=(1, 2),
        answers=(Answer(Proposal(1, 2), 3, "invalid", "text"),),
        answered_to=(Proposal(1, 1),),
        brokers={**before.brokers, "a": broker},
        streams={**before.streams, stream.key: replace(stream, compacted=True, partitions=(partition,))},
    )
    restored = decode_snapshot(encode_snapshot(state))
    assert restored == state
    assert digest(restored) == digest(state) != digest(before)


@pytest.mark.parametrize(("level", "newer"), [(0, False), (-1, False), (3, True)])
def test_a_snapshot_of_a_level_that_is_not_spoken_is_refused(level: int, newer: bool) -> None:
    with pytest.raises(SnapshotError, match=f"feature level {level}") as caught:
        decode_snapshot(encode_snapshot(replace(initial_state(), level=level)))
    assert caught.value.newer is newer
