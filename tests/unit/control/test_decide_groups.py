"""Decisions about consumer groups, and what is refused."""

import pytest
from bascule.control import decide_groups
from bascule.metadata import (
    Command,
    CreateStream,
    Group,
    JoinGroup,
    LeaveGroup,
    Placement,
    RegisterBroker,
    SetGroupCoordinator,
    State,
    StreamSettings,
    apply,
    initial_state,
)
from bascule.metadata.rejection import Rejection, RejectionCode


def after(start: State, *commands: Command) -> State:
    state = start
    for command in commands:
        state, _ = apply(state, state.index + 1, command)
    return state


ALONE = after(
    initial_state(),
    RegisterBroker("a", "h", 1, 1),
    CreateStream("default", "s", "s", "", 1, StreamSettings(), (Placement(("a",), "a"),)),
    CreateStream("default", "t", "t", "", 1, StreamSettings(), (Placement(("a",), "a"),)),
)
TWO = after(ALONE, RegisterBroker("b", "h", 1, 1))


def joined(state: State, *consumers: str) -> State:
    for consumer in consumers:
        command = decide_groups.join_group(state, "g", consumer, ("s",), hands_over=False)
        assert isinstance(command, JoinGroup)
        state = after(state, command)
    return state


def refused(outcome: object, code: RejectionCode, *words: str) -> None:
    assert isinstance(outcome, Rejection)
    assert outcome.code is code
    for word in words:
        assert word in outcome.message


def test_a_join_names_each_stream_once_in_order_and_the_idlest_broker() -> None:
    command = decide_groups.join_group(ALONE, "g", "x", ("t", "s", "t"), hands_over=True)
    assert command == JoinGroup("g", "x", ("s", "t"), "a", hands_over=True)
    busy = joined(TWO, "x")
    assert busy.groups["g"].coordinator == "a", "equals in order of their ids"
    other = decide_groups.join_group(busy, "h", "y", ("s",), hands_over=False)
    assert other == JoinGroup("h", "y", ("s",), "b", hands_over=False)
    again = decide_groups.join_group(busy, "g", "y", ("s",), hands_over=False)
    assert again == JoinGroup("g", "y", ("s",), "a", hands_over=False), "a group keeps its coordinator"


def test_a_join_of_a_present_member_or_for_a_missing_stream_is_refused() -> None:
    state = joined(ALONE, "x")
    outcome = decide_groups.join_group(state, "g", "x", ("s",), hands_over=False)
    refused(outcome, RejectionCode.ALREADY_MEMBER, "consumer x", "group g")
    outcome = decide_groups.join_group(state, "g", "y", ("s", "nothing"), hands_over=False)
    refused(outcome, RejectionCode.STREAM_NOT_FOUND, "nothing")


@pytest.mark.parametrize("expired", [False, True])
def test_a_leave_names_the_present_membership(expired: bool) -> None:
    state = joined(ALONE, "x")
    command = decide_groups.leave_group(state, "g", "x", expired=expired)
    assert command == LeaveGroup("g", "x", state.index, expired)


def test_a_leave_without_a_membership_is_refused() -> None:
    state = joined(ALONE, "x")
    refused(decide_groups.leave_group(state, "h", "x", expired=False), RejectionCode.GROUP_NOT_FOUND, "h")
    refused(decide_groups.leave_group(state, "g", "y", expired=False), RejectionCode.NOT_A_MEMBER, "y", "g")


def test_a_report_must_name_the_present_coordinator_and_come_from_a_member() -> None:
    state = joined(TWO, "x", "y")
    epoch = state.index
    assert decide_groups.check_report(state, "g", "x", "a", epoch) is state.groups["g"]
    outcome = decide_groups.check_report(state, "h", "x", "a", epoch)
    refused(outcome, RejectionCode.STALE_COORDINATOR, "No such consumer group h")
    for coordinator, wrong in (("b", epoch), ("a", epoch - 1)):
        outcome = decide_groups.check_report(state, "g", "x", coordinator, wrong)
        refused(outcome, RejectionCode.STALE_COORDINATOR, f"got coordinator: {coordinator} epoch: {wrong}")
    outcome = decide_groups.check_report(state, "g", "z", "a", epoch)
    refused(outcome, RejectionCode.STALE_COORDINATOR, "Consumer z is not a member of consumer group g")


def test_another_coordinator_is_the_idlest_of_the_other_brokers() -> None:
    def replaced(state: State) -> SetGroupCoordinator | Rejection:
        group: Group = state.groups["g"]
        return decide_groups.replace_coordinator(state, group)

    refused(replaced(joined(ALONE, "x")), RejectionCode.NO_COORDINATOR, "No group coordinator candidates")
    state = joined(TWO, "x", "y")
    assert replaced(state) == SetGroupCoordinator("g", "b", state.groups["g"].epoch)
    third = after(state, RegisterBroker("c", "h", 1, 1), JoinGroup("h", "x", ("s",), "b"))
    assert replaced(third) == SetGroupCoordinator("g", "c", state.groups["g"].epoch)


@pytest.mark.parametrize(
    ("reports", "members", "enough"),
    [(0, 1, False), (1, 1, True), (1, 2, False), (2, 2, True), (2, 3, True), (2, 4, False)],
)
def test_more_than_half_of_the_members_are_enough(reports: int, members: int, enough: bool) -> None:
    assert decide_groups.is_quorum(reports, members) is enough
