"""Who may read a partition while it moves from one member of a group to the next."""

from dataclasses import replace

from bascule.control.handover import Handover, Membership, Place, Sign
from bascule.metadata import Assignment, Group, Member

PATIENCE_S = 15.0


def member(name: str, *numbers: int, joined: int = 1, hands_over: bool = True) -> Member:
    assignments = (Assignment("s", numbers),) if numbers else ()
    return Member(name, ("s",), joined, assignments, hands_over)


def group(*members: Member) -> Group:
    return Group("g", "broker", 7, members, created=1)


def places(*numbers: int) -> frozenset[Place]:
    return frozenset(Place("s", number) for number in numbers)


def readable(handover: Handover, who: Member, sign: Sign | None = None) -> list[int]:
    return [number for part in handover.assignments(who, sign or Sign()) for number in part.partitions]


ALONE = member("a", 0, 1)
A, B = member("a", 0), member("b", 1, joined=2)


def moving() -> Handover:
    """`a` reads 0 and 1; then `b` joins, and 1 is to go to it."""
    handover = Handover(group(ALONE), 10, is_new=True)
    assert readable(handover, ALONE) == [0, 1]
    handover.follow(group(A, B), 11, 100.0)
    assert handover.version == 11
    return handover


def test_a_partition_is_withheld_until_its_reader_names_it_no_more() -> None:
    handover = moving()
    assert readable(handover, A) == [0]
    assert readable(handover, B) == []
    assert not handover.hear(A, Sign(places(0, 1), 11), 12, 101.0)
    assert readable(handover, B) == []
    assert handover.hear(A, Sign(places(0), 11), 12, 102.0)
    assert handover.version == 12
    assert readable(handover, B) == [1]
    assert readable(handover, A) == [0]


def test_who_has_not_seen_the_answer_that_gave_a_partition_does_not_release_it() -> None:
    handover = moving()
    assert not handover.hear(A, Sign(places(), 9), 12, 101.0)
    assert readable(handover, B) == []
    assert handover.hear(A, Sign(places(), 10), 12, 101.0)
    assert readable(handover, B) == [1]


def test_a_release_that_nobody_waits_for_changes_no_version() -> None:
    handover = Handover(group(ALONE), 10, is_new=True)
    assert readable(handover, ALONE) == [0, 1]
    assert not handover.hear(ALONE, Sign(places(0), 10), 11, 0.0)
    assert handover.version == 10
    assert readable(handover, ALONE) == [0, 1], "it is still its own"


def test_whose_membership_has_ended_is_not_waited_for() -> None:
    handover = moving()
    handover.follow(group(member("b", 0, 1, joined=2)), 12, 101.0)
    assert readable(handover, member("b", 0, 1, joined=2)) == [0, 1]


def test_a_consumer_that_left_and_joined_again_holds_nothing_of_its_former_self() -> None:
    handover = moving()
    handover.follow(group(member("a", 0, joined=3), B), 12, 101.0)
    assert readable(handover, B) == [1]


def test_a_partition_that_comes_back_before_it_was_released_is_read_on() -> None:
    handover = moving()
    handover.follow(group(ALONE), 12, 101.0)
    assert readable(handover, ALONE) == [0, 1]
    assert handover.next_due_s(PATIENCE_S) is None


def test_a_partition_that_moves_on_before_it_was_released_waits_for_its_first_reader() -> None:
    handover = moving()
    third = member("c", 1, joined=3)
    handover.follow(group(A, member("b", joined=2), third), 12, 105.0)
    assert readable(handover, third) == []
    assert handover.next_due_s(PATIENCE_S) == 115.0, "since it moved first"
    assert handover.hear(A, Sign(places(0), 12), 13, 106.0)
    assert readable(handover, third) == [1]


def test_who_does_not_release_in_time_is_waited_for_no_more() -> None:
    handover = moving()
    assert handover.next_due_s(PATIENCE_S) == 115.0
    assert handover.give_up(PATIENCE_S, 12, 114.9) == {}
    assert handover.version == 11
    assert handover.give_up(PATIENCE_S, 12, 115.0) == {Place("s", 1): Membership("g", "a", 1)}
    assert handover.version == 12
    assert readable(handover, B) == [1]
    assert handover.next_due_s(PATIENCE_S) is None
    assert handover.give_up(PATIENCE_S, 13, 200.0) == {}


def test_members_that_do_not_hand_over_neither_wait_nor_are_waited_for() -> None:
    foreign = member("f", 1, joined=2, hands_over=False)
    handover = moving()
    handover.follow(group(A, foreign), 12, 101.0)
    assert readable(handover, foreign) == [1]
    assert not handover.hear(foreign, Sign(places(), 99), 13, 101.0)
    handover = Handover(group(member("f", 0, 1, hands_over=False)), 10, is_new=True)
    assert readable(handover, member("f", 0, 1, hands_over=False)) == [0, 1]
    handover.follow(group(member("f", 0, hands_over=False), B), 11, 1.0)
    assert readable(handover, B) == [1]


def test_a_deleted_stream_is_held_by_nobody() -> None:
    handover = moving()
    handover.follow(group(replace(A, assignments=()), replace(B, assignments=())), 12, 101.0)
    assert handover.next_due_s(PATIENCE_S) is None
    handover.follow(group(A, B), 13, 102.0)
    assert readable(handover, B) == [1], "one of the same name is another one"


def test_a_new_coordinator_gives_only_what_is_read_already_until_it_has_heard_all() -> None:
    handover = Handover(group(A, B), 10, is_new=False)
    assert not handover.hear(B, Sign(places(), 0), 11, 1.0) or handover.version == 11
    assert readable(handover, B, Sign(places())) == [], "`a` may still be reading it"
    assert handover.hear(A, Sign(places(0, 1), 0), 12, 2.0)
    assert readable(handover, A, Sign(places(0, 1))) == [0]
    assert readable(handover, B) == [], "`a` is"
    assert handover.next_due_s(PATIENCE_S) == 17.0
    assert handover.hear(A, Sign(places(0), 12), 13, 3.0)
    assert readable(handover, B) == [1]


def test_a_new_coordinator_lets_members_read_on_what_they_read() -> None:
    handover = Handover(group(A, B), 10, is_new=False)
    assert readable(handover, B, Sign(places(1))) == [1]
    assert readable(handover, A, Sign(places(0))) == [0]


def test_a_new_coordinator_waits_for_no_member_that_is_gone_or_does_not_hand_over() -> None:
    handover = Handover(group(A, B), 10, is_new=False)
    handover.follow(group(B), 11, 1.0)
    assert readable(handover, B) == [1]
    foreign = member("f", 0, hands_over=False)
    assert readable(Handover(group(foreign, B), 10, is_new=False), B) == [1]


def test_of_a_stale_list_only_what_the_group_reads_is_learned() -> None:
    handover = Handover(group(A, B), 10, is_new=False)
    handover.hear(A, Sign(places(0, 7), 0), 11, 1.0)
    assert handover.next_due_s(PATIENCE_S) is None
    assert readable(handover, A) == [0]
