"""Plans as values, and the documents they carry."""

from dataclasses import replace

import pytest
from bascule.control.reconcile import Plan, keeping, plan, reopen
from bascule.control.specs import Defaults, group_spec, partition_spec, stream_spec
from bascule.metadata import (
    Command,
    CreateStream,
    DeleteStream,
    EditStream,
    Group,
    JoinGroup,
    LeaveGroup,
    Placement,
    RegisterBroker,
    State,
    Stream,
    StreamKey,
    StreamSettings,
    apply,
    initial_state,
)
from bascule.metadata.model import incarnation_of

HERE, THERE = Placement(("a",), "a"), Placement(("b",), "b")


def after(*commands: Command, start: State | None = None) -> State:
    state = start or initial_state()
    for command in commands:
        state, _ = apply(state, state.index + 1, command)
    return state


def create(name: str, *placements: Placement, settings: StreamSettings | None = None) -> CreateStream:
    return CreateStream("default", name, f"{name}.in", "group", 5, settings or StreamSettings(), placements)


BROKERS = after(RegisterBroker("a", "h", 1, 1), RegisterBroker("b", "h", 1, 1))


def with_paused(state: State, name: str, paused: bool) -> State:
    stream = state.streams[StreamKey("default", name)]
    partitions = tuple(replace(item, paused=paused) for item in stream.partitions)
    changed: Stream = replace(stream, partitions=partitions)
    return replace(state, streams={**state.streams, stream.key: changed})


def test_a_new_stream_opens_and_leads_what_is_here_and_shows_all_of_it() -> None:
    steps = plan(BROKERS, after(create("s", HERE, THERE), start=BROKERS), "a")
    assert [item.incarnation for _, item in steps.open] == [incarnation_of(3, 0)]
    assert steps.lead == ((incarnation_of(3, 0), 3),)
    assert [len(item.partitions) for item in steps.streams] == [2]
    assert not steps.delete


def test_what_did_not_change_is_left_alone() -> None:
    state = after(create("s", HERE), start=BROKERS)
    assert not plan(state, state.at(9), "a")
    assert [item.name for item in plan(state, after(create("t", HERE), start=state), "a").streams] == ["t"]


def test_a_deleted_stream_leaves_the_view_and_its_files_go() -> None:
    state = after(create("s", HERE), start=BROKERS)
    steps = plan(state, after(DeleteStream("default", "s", 3), start=state), "a")
    assert steps.removed == (("default", "s"),)
    assert steps.delete == (incarnation_of(3, 0),)
    assert not steps.streams


def test_what_a_snapshot_of_another_broker_lacks_is_kept_and_not_deleted() -> None:
    state = after(create("s", HERE), start=BROKERS)
    steps = keeping(plan(state, after(DeleteStream("default", "s", 3), start=state), "a"))
    assert (steps.keep, steps.delete) == ((incarnation_of(3, 0),), ())
    assert steps.removed == (("default", "s"),)


def test_a_recreated_stream_replaces_the_old_one_in_one_plan() -> None:
    state = after(create("s", HERE), start=BROKERS)
    steps = plan(state, after(DeleteStream("default", "s", 3), create("s", HERE), start=state), "a")
    assert steps.delete == (incarnation_of(3, 0),)
    assert [item.incarnation for _, item in steps.open] == [incarnation_of(5, 0)]
    assert not steps.removed


def test_a_paused_partition_is_closed_and_its_files_stay() -> None:
    state = after(create("s", HERE), start=BROKERS)
    steps = plan(state, with_paused(state, "s", True), "a")
    assert steps.close == (incarnation_of(3, 0),)
    assert not steps.open
    assert not steps.delete
    resumed = plan(with_paused(state, "s", True), state, "a")
    assert [item.incarnation for _, item in resumed.open] == [incarnation_of(3, 0)]
    assert not resumed.close


BOTH = Placement(("a", "b"), "b")


def test_a_replica_is_opened_but_not_led_here() -> None:
    state = after(create("s", HERE, BOTH), start=BROKERS)
    steps = plan(BROKERS, state, "a")
    assert [item.incarnation for _, item in steps.open] == [incarnation_of(3, 0), incarnation_of(3, 1)]
    assert steps.lead == ((incarnation_of(3, 0), 3),)
    again = reopen(state, frozenset({incarnation_of(3, 0), incarnation_of(3, 1)}), "a")
    assert (len(again.open), again.lead) == (2, steps.lead)


def test_an_open_partition_with_other_settings_is_opened_again_and_not_closed() -> None:
    state = after(create("s", HERE), start=BROKERS)
    edited = after(EditStream("default", "s", 3, StreamSettings(retention_bytes=5)), start=state)
    steps = plan(state, edited, "a")
    assert [item.incarnation for _, item in steps.open] == [incarnation_of(3, 0)]
    assert (steps.close, steps.delete, steps.removed) == ((), (), ())


def test_a_deleted_partition_of_another_broker_is_deleted_here_too_but_not_closed() -> None:
    state = after(create("s", THERE), start=BROKERS)
    steps = plan(state, after(DeleteStream("default", "s", 3), start=state), "a")
    assert (steps.close, steps.delete) == ((), (incarnation_of(3, 0),))


def test_the_view_follows_groups_that_appear_change_are_replaced_or_disappear() -> None:
    empty = after(create("s", HERE), start=BROKERS)
    one = after(JoinGroup("g", "x", ("s",), "a"), start=empty)
    (group,) = plan(empty, one, "a").groups
    assert (group.id, group.created) == ("g", one.index)
    more = after(JoinGroup("g", "y", ("s",), "a"), start=one)
    assert plan(one, more, "a").groups == (more.groups["g"],)
    assert not plan(more, after(create("t", HERE), start=more), "a").groups, "nothing changed"
    left = after(LeaveGroup("g", "x", one.index, False), start=more)
    assert group_spec(left.groups["g"]) == {
        "id": "g",
        "created": one.index,
        "generation": left.index,
        "members": {"y": more.index},
    }
    assert group_spec(group) == {"id": "g", "created": one.index, "generation": one.index, "members": {"x": one.index}}
    gone = after(LeaveGroup("g", "x", one.index, False), start=one)
    steps = plan(one, gone, "a")
    assert (steps.groups, steps.removed_groups) == ((), ("g",))
    another = after(JoinGroup("g", "x", ("s",), "a"), start=gone)
    steps = plan(one, another, "a")
    assert [item.created for item in steps.groups] == [another.index]
    assert steps.removed_groups == ()


STREAM = after(create("s", HERE), start=BROKERS).streams[StreamKey("default", "s")]
PARTITION = STREAM.partitions[0]


@pytest.mark.parametrize(
    ("steps", "changes_view"),
    [
        (Plan(close=(1,)), False),
        (Plan(open=((STREAM, PARTITION),)), False),
        (Plan(lead=((1, 1),)), False),
        (Plan(delete=(1,)), False),
        (Plan(streams=(STREAM,)), True),
        (Plan(removed=(STREAM.key,)), True),
        (Plan(groups=(Group("g", "a", 0, ()),)), True),
        (Plan(removed_groups=("g",)), True),
    ],
)
def test_a_plan_with_any_step_is_true(steps: Plan, changes_view: bool) -> None:
    assert steps
    assert steps.changes_view is changes_view
    assert not Plan()


def test_reopening_leaves_out_what_is_not_wanted_any_more() -> None:
    state = after(create("s", HERE, HERE), start=BROKERS)
    wanted = frozenset({incarnation_of(3, 1), incarnation_of(99, 0)})
    steps = reopen(state, wanted, "a")
    assert [item.incarnation for _, item in steps.open] == [incarnation_of(3, 1)]
    assert [item.name for item in steps.streams] == ["s"]
    assert not reopen(BROKERS, wanted, "a")


def test_what_a_stream_leaves_open_takes_the_defaults() -> None:
    state = after(create("s", HERE, HERE), start=BROKERS)
    stream = state.streams[StreamKey("default", "s")]
    spec = partition_spec(stream, stream.partitions[1], Defaults(retention_age_ms=7, segment_bytes=0))
    assert spec["subject"] == "s.in.1"
    assert spec["base_subject"] == "s.in"
    assert spec["queue_group"] == "group"
    assert (spec["retention_age_ms"], spec["segment_age_ms"]) == (7, 7)
    assert (spec["segment_bytes"], spec["cleaner_interval_ms"]) == (1 << 30, 300_000)


def test_compaction_is_the_streams_choice_before_the_brokers() -> None:
    for asked, default, chosen in ((None, True, True), (False, True, False), (True, False, True)):
        state = after(create("s", HERE, settings=StreamSettings(compact_enabled=asked)), start=BROKERS)
        stream = state.streams[StreamKey("default", "s")]
        spec = partition_spec(stream, stream.partitions[0], Defaults(compact=default))
        assert (spec["compact"], spec["trimmed_to"], spec["retention_min_age_ms"]) == (chosen, 0, 900_000)


def test_an_explicit_zero_is_kept() -> None:
    asked = StreamSettings(retention_age_ms=0, retention_bytes=0, segment_age_ms=0)
    state = after(create("s", HERE, settings=asked), start=BROKERS)
    stream = state.streams[StreamKey("default", "s")]
    spec = partition_spec(
        stream, stream.partitions[0], Defaults(retention_age_ms=9, retention_bytes=9, segment_age_ms=9)
    )
    assert (spec["retention_age_ms"], spec["retention_bytes"], spec["segment_age_ms"]) == (0, 0, 0)


def test_partitions_by_subject_all_listen_on_the_streams_subject() -> None:
    state = after(create("s", HERE, HERE, settings=StreamSettings(partition_by_subject=True)), start=BROKERS)
    stream = state.streams[StreamKey("default", "s")]
    assert {partition_spec(stream, item, Defaults())["subject"] for item in stream.partitions} == {"s.in"}


def test_the_view_has_exactly_the_keys_of_the_seam() -> None:
    state = after(create("s", HERE), start=BROKERS)
    spec = stream_spec(state.streams[StreamKey("default", "s")])
    assert set(spec) == {
        "namespace", "name", "id", "subject", "created_ns", "partition_by_subject", "concurrency_control", "resume_all",
        "counts_while_paused", "topic_groups", "partitions",
    }  # fmt: skip
    assert set(spec["partitions"][0]) == {
        "number",
        "incarnation",
        "leader",
        "leader_epoch",
        "isr",
        "readonly",
        "paused",
    }
