"""Members of consumer groups of Iggy's clients in a cluster."""

from bascule.metadata import (
    AddPartitions,
    Applied,
    Command,
    CreateNamespace,
    CreateStream,
    CreateTopicGroup,
    JoinTopicGroup,
    LeaveTopicGroup,
    Placement,
    Rejection,
    RejectionCode,
    RemovePartitions,
    StreamKey,
    StreamSettings,
    TopicGroup,
    apply,
)
from bascule.metadata.iggy import MAX_TOPIC_MEMBERS
from bascule.metadata.replica_commands import FenceBroker
from bascule.metadata.snapshot import decode_snapshot, encode_snapshot

from tests.unit.metadata.cluster_rig import ABC, Cluster

KEY = StreamKey("n", "t")


class Members:
    """A group of a topic with one partition on three brokers."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.do(CreateNamespace("n", 1))
        self.cluster.do(CreateStream("n", "t", "", "", 1, StreamSettings(), (Placement(ABC, "a"),)))
        self.created = self.cluster.do(CreateTopicGroup("n", "t", self.incarnation, "g"))

    @property
    def incarnation(self) -> int:
        return self.cluster.state.streams[KEY].incarnation

    @property
    def group(self) -> TopicGroup:
        (group,) = self.cluster.state.streams[KEY].topic_groups
        return group

    @property
    def shown(self) -> list[tuple[str, int]]:
        return [(item.broker, item.client) for item in self.group.members]

    def joining(self, broker: str, client: int, boot_epoch: int | None = None) -> JoinTopicGroup:
        epoch = self.cluster.boot(broker) if boot_epoch is None else boot_epoch
        return JoinTopicGroup("n", "t", self.incarnation, self.created, broker, epoch, client)

    def leaving(self, broker: str, client: int) -> LeaveTopicGroup:
        return LeaveTopicGroup(self.created, broker, self.cluster.boot(broker), client)

    def refusal(self, command: Command) -> RejectionCode:
        after, result = apply(self.cluster.state, self.cluster.state.index + 1, command)
        assert isinstance(result, Rejection)
        assert after.streams == self.cluster.state.streams
        return result.code


def test_members_stand_in_the_order_of_joining_and_each_change_is_counted() -> None:
    members = Members()
    assert members.group.changed == 0
    for broker, client in (("b", 5), ("a", 5), ("b", 6)):
        assert members.cluster.do(members.joining(broker, client)) == members.group.changed
    assert members.shown == [("b", 5), ("a", 5), ("b", 6)]
    before = members.group
    members.cluster.do(members.joining("a", 5))
    assert members.group == before, "it was a member already"
    last = members.cluster.do(members.leaving("b", 5))
    assert (members.shown, members.group.changed) == ([("a", 5), ("b", 6)], last)
    assert members.refusal(members.leaving("b", 5)) is RejectionCode.NOT_A_MEMBER
    state = members.cluster.state
    assert decode_snapshot(encode_snapshot(state)) == state


def test_memberships_end_with_the_run_of_their_broker() -> None:
    members = Members()
    for broker in ABC:
        members.cluster.do(members.joining(broker, 1))
    fenced = members.cluster.do(FenceBroker("b", members.cluster.boot("b"), ("a", "c"), 5))
    assert (members.shown, members.group.changed) == ([("a", 1), ("c", 1)], fenced)
    assert members.refusal(members.joining("b", 1)) is RejectionCode.STALE_EPOCH
    earlier = members.cluster.boot("c")
    members.cluster.restart("c")
    assert members.shown == [("a", 1)]
    assert members.refusal(members.joining("c", 1, earlier)) is RejectionCode.STALE_EPOCH


def test_another_number_of_partitions_changes_what_members_read() -> None:
    members = Members()
    added = AddPartitions("n", "t", members.incarnation, 1, (Placement(ABC, "a"),), None)
    members.cluster.do(added)
    assert members.group.changed == 0, "it has no members"
    joined = members.cluster.do(members.joining("a", 1))
    removed = members.cluster.do(RemovePartitions("n", "t", members.incarnation, 2, 1, None))
    assert joined < members.group.changed == removed


def test_what_cannot_be_a_member_is_refused() -> None:
    members = Members()
    for wrong in (0, 1 << 32):
        assert members.refusal(members.joining("a", wrong)) is RejectionCode.INVALID
    members.created += 1
    assert members.refusal(members.joining("a", 1)) is RejectionCode.GROUP_NOT_FOUND
    members.created -= 1
    for client in range(1, MAX_TOPIC_MEMBERS + 1):
        state, result = apply(members.cluster.state, members.cluster.state.index + 1, members.joining("a", client))
        assert result == Applied(state.index)
        members.cluster.state = state
    assert members.refusal(members.joining("b", 1)) is RejectionCode.NO_ROOM
