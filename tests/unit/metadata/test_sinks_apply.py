"""Sinks in the state: who may open them, what may be published, and when an epoch is finished."""

from dataclasses import replace

import pytest
from bascule.metadata import (
    DeleteStream,
    PurgeStream,
    Rejection,
    SetStreamReadonly,
    State,
    StreamKey,
    apply,
    decode_command,
    decode_snapshot,
    encode_command,
    encode_snapshot,
)
from bascule.metadata.sink_commands import (
    AdvanceClock,
    DeleteSink,
    ExpireSink,
    LinkedPartition,
    LinkSink,
    OpenSink,
    SetSinkOwner,
    SetSinkQuota,
    SkipSink,
)
from bascule.metadata.sinks import (
    MAX_RETIRED_QUERIES,
    MAX_TARGETS,
    MAX_TASKS,
    Skip,
    TargetPartition,
    TargetStream,
    attempt_ids,
    pack_winners,
)

from tests.unit.metadata.sink_rig import (
    DIGEST,
    NEXT_RUN,
    OPEN,
    OTHER,
    RUN,
    TOKEN,
    TOKEN_2,
    do,
    publish,
    refused,
    replayed,
    sink_of,
    start,
)


def linked(state: State, *numbers: int) -> State:
    """The state once these partitions of the last epoch are linked; both by default."""
    sink, stream = sink_of(state), state.streams[StreamKey("default", "orders")]
    chosen = numbers or (0, 1)
    partitions = tuple(LinkedPartition(stream.partitions[number].incarnation, 5) for number in chosen)
    return do(state, LinkSink("default", "s", sink.id, sink.ordinal, partitions))


def published(state: State, *epochs: int) -> State:
    """The state with these epochs decided and linked."""
    for epoch in epochs:
        state = linked(do(state, publish(state, epoch)))
    return state


def test_opening_again_by_the_same_run_changes_nothing() -> None:
    state = start()
    assert sink_of(do(state, OPEN)) == sink_of(state)


def test_a_new_run_gets_a_new_generation_and_continues_the_epochs() -> None:
    state = published(start(), 7)
    after = do(state, replace(OPEN, run_id=NEXT_RUN))
    assert sink_of(after).generation == after.index
    assert sink_of(after).last_epoch == 7
    assert refused(after, OPEN) == "sink_fenced"
    assert refused(after, publish(state, 8)) == "sink_fenced"
    assert refused(after, publish(after, 9)) == "sink_epoch"
    published(after, 8)


def test_another_query_takes_a_sink_that_published_only_when_it_names_its_query() -> None:
    state = published(start(), 7)
    other = replace(OPEN, query_id=OTHER, run_id=NEXT_RUN)
    assert refused(state, other) == "sink_conflict"
    assert refused(state, replace(other, take_over="true")) == "sink_conflict"
    after = do(state, replace(other, take_over=OPEN.query_id))
    assert sink_of(after).last_epoch is None
    assert refused(after, replace(OPEN, run_id="r3", take_over=OTHER)) == "sink_fenced"
    published(after, 0, 1)


def test_the_refusal_of_another_query_says_what_to_choose_also_for_a_copy() -> None:
    state = published(start(), 7)
    _, result = apply(state, state.index + 1, replace(OPEN, query_id=OTHER, run_id=NEXT_RUN))
    assert isinstance(result, Rejection)
    assert result.message.endswith(
        f"set takeOver={OPEN.query_id}, and startingOffsets of its source to where that query ended, because what is "
        "read again is written again; else choose another sinkId, or for a copy another id"
    )


def test_another_query_may_take_a_sink_that_never_published() -> None:
    state = do(start(), replace(OPEN, query_id=OTHER, run_id=NEXT_RUN))
    assert refused(state, replace(OPEN, run_id="r3")) == "sink_fenced"


def test_a_sink_keeps_so_many_queries_and_refuses_the_next_one() -> None:
    state = start()
    queries = tuple(str(number) for number in range(MAX_RETIRED_QUERIES))
    sink = replace(sink_of(state), retired_queries=queries[1:])
    state = replace(state, sinks={StreamKey("default", "s"): sink})
    full = do(state, replace(OPEN, query_id=OTHER, run_id=NEXT_RUN))
    assert refused(full, replace(OPEN, query_id=queries[0], run_id="r3")) == "invalid"


def test_an_owner_is_replaced_and_nothing_else() -> None:
    state = published(start(), 3)
    sink = sink_of(state)
    given = SetSinkOwner("default", "s", sink.id, "bob")
    assert decode_command(encode_command(given)) == given
    after = do(state, given)
    assert sink_of(after) == replace(sink, owner="bob")
    assert refused(after, replace(OPEN, run_id=NEXT_RUN)) == "sink_not_owned"
    do(after, replace(OPEN, run_id=NEXT_RUN, owner="bob"))
    assert refused(state, replace(given, id=sink.id + 1)) == "sink_not_found"


def test_a_take_over_leaves_what_is_to_be_linked() -> None:
    state = do(start(), publish(start(), 7))
    after = do(state, replace(OPEN, query_id=OTHER, run_id=NEXT_RUN, take_over=OPEN.query_id))
    assert sink_of(after).last == sink_of(state).last
    assert refused(after, publish(after, 0)) == "sink_busy"
    published(linked(after), 0)


def test_a_sink_belongs_to_who_opened_it_first() -> None:
    assert refused(start(), replace(OPEN, owner="bob")) == "sink_not_owned"


def test_a_query_has_one_sink_unless_every_write_names_one() -> None:
    assert refused(start(), replace(OPEN, name="t")) == "sink_conflict"
    each = replace(OPEN, kind="foreach")
    assert refused(start(), replace(each, name="t")) == "sink_conflict"
    state = do(start(sink=each), replace(each, name="t"))
    assert set(state.sinks) == {StreamKey("default", "s"), StreamKey("default", "t")}


def test_batch_writes_have_no_query_and_streams_have_one() -> None:
    state = start(sink=None)
    assert refused(state, replace(OPEN, query_id="")) == "invalid"
    assert refused(state, replace(OPEN, kind="batch")) == "invalid"
    do(state, replace(OPEN, kind="batch", query_id=""))


def test_the_first_epoch_may_be_any_and_later_ones_follow() -> None:
    state = published(start(), 40, 41)
    assert refused(state, publish(state, 43)) == "sink_epoch"
    assert refused(state, publish(state, 40)) == "sink_epoch"
    assert refused(state, replace(publish(state, 43), accept_gap=44)) == "sink_epoch"
    do(state, replace(publish(state, 43), accept_gap=43))


def test_batches_of_foreach_batch_may_be_left_out() -> None:
    state = published(start(sink=replace(OPEN, kind="foreach")), 3)
    do(state, publish(state, 9))
    assert refused(state, publish(state, 2)) == "sink_epoch"


def test_an_epoch_waits_until_the_one_before_is_linked_everywhere() -> None:
    state = do(start(), publish(start(), 0))
    assert refused(state, publish(state, 1)) == "sink_busy"
    state = linked(state, 1)
    assert refused(state, publish(state, 1)) == "sink_busy"
    do(linked(state, 0), publish(linked(state, 0), 1))


def test_the_same_attempt_again_is_accepted_and_changes_nothing() -> None:
    state = do(start(), publish(start(), 0))
    assert sink_of(do(state, publish(start(), 0))) == sink_of(state)
    done = linked(state)
    assert sink_of(do(done, publish(start(), 0))) == sink_of(done)


def test_a_second_write_of_one_run_under_one_name_is_refused() -> None:
    state = published(start(), 0)
    assert refused(state, publish(state, 0, TOKEN_2)) == "sink_conflict"
    assert refused(state, replayed(state, 0)) == "sink_conflict"


def test_a_repeated_epoch_is_compared_and_keeps_the_first_rows() -> None:
    state = do(published(start(), 0), replace(OPEN, run_id=NEXT_RUN))
    assert refused(state, publish(state, 0, TOKEN_2)) == "invalid"
    again = replayed(state, 0)
    assert refused(state, replace(again, input_rows=21)) == "sink_replay_differs"
    assert refused(state, replace(again, input_digest="e" * 32)) == "sink_replay_differs"
    after = do(state, again)
    assert sink_of(after).last == sink_of(state).last
    assert refused(after, replayed(after, 0, "c" * 32)) == "sink_conflict"
    accepted = do(state, replace(again, input_rows=21, accept_difference=True))
    assert sink_of(accepted).last == sink_of(state).last


def test_a_repeated_epoch_over_the_same_offsets_may_have_another_digest() -> None:
    state = linked(do(start(), replace(publish(start(), 0), offsets_hash="1" * 64)))
    state = do(state, replace(OPEN, run_id=NEXT_RUN))
    again = replace(replayed(state, 0), input_digest="e" * 32)
    assert refused(state, again) == "sink_replay_differs"
    assert refused(state, replace(again, offsets_hash="2" * 64)) == "sink_replay_differs"
    assert refused(state, replace(replayed(state, 0), offsets_hash="2" * 64)) == "sink_replay_differs"
    do(state, replace(again, offsets_hash="1" * 64))


def test_another_result_under_a_key_is_refused_in_words_of_batch_jobs() -> None:
    command = replace(OPEN, kind="batch", query_id="", lifetime="month")
    state = do(published(start(sink=command), 0), replace(command, run_id=NEXT_RUN))
    again = replayed(state, 0)
    for changes, text in (
        ({"input_rows": 21}, "this one has 21"),
        ({"input_digest": "e" * 32}, "this one has others, or another"),
    ):
        _, found = apply(state, state.index + 1, replace(again, **changes))
        assert isinstance(found, Rejection)
        assert found.code == "sink_replay_differs"
        assert f"with the idempotencyKey s stored 20 rows, and {text}" in found.message
        assert "checkpoint" not in found.message


def test_a_repeated_write_within_foreach_batch_is_compared_by_its_rows_alone() -> None:
    """Its checkpoint is not known, so a plan that is not deterministic ends with this error after a crash."""
    state = published(start(sink=replace(OPEN, kind="foreach")), 0)
    state = do(state, replace(OPEN, kind="foreach", run_id=NEXT_RUN))
    again = replace(replayed(state, 0), input_digest="e" * 32)
    assert refused(state, again) == "sink_replay_differs"
    accepted = do(state, replace(again, accept_difference=True))
    assert sink_of(accepted).last == sink_of(state).last


def test_an_epoch_without_rows_is_finished_and_takes_no_ordinal() -> None:
    state = do(published(start(), 0), publish(published(start(), 0), 1, TOKEN_2, rows=0))
    assert sink_of(state).is_finished
    assert sink_of(state).ordinal == 1
    assert sink_of(published(state, 2)).ordinal == 2


def test_an_expired_attempt_cannot_be_published_and_a_decided_one_cannot_expire() -> None:
    state = start()
    sink = sink_of(state)
    expired = do(state, ExpireSink("default", "s", sink.id, sink.generation, 0, TOKEN))
    assert refused(expired, publish(expired, 0)) == "sink_expired"
    decided = do(expired, publish(expired, 0, TOKEN_2))
    assert refused(decided, ExpireSink("default", "s", sink.id, sink.generation, 0, TOKEN_2)) == "sink_published"


def test_expired_attempts_are_forgotten_once_nothing_else_could_publish_them() -> None:
    state = start()
    sink = sink_of(state)
    state = do(state, ExpireSink("default", "s", sink.id, sink.generation, 0, TOKEN))
    state = linked(do(state, publish(state, 0, TOKEN_2)))
    state = do(state, ExpireSink("default", "s", sink.id, sink.generation, 1, "c" * 32))
    assert [item.epoch for item in sink_of(state).expired] == [1]


@pytest.mark.parametrize("count", [1, 2])
def test_purged_targets_need_not_be_linked(count: int) -> None:
    state = do(start(), publish(start(), 0))
    if count == 1:
        state = linked(state, 0)
    stream = state.streams[StreamKey("default", "orders")]
    state = do(state, PurgeStream("default", "orders", stream.incarnation))
    assert sink_of(state).is_finished
    phases = [item.phase for target in sink_of(state).last.targets for item in target.partitions]  # type: ignore[union-attr]
    assert phases == (["linked", "removed"] if count == 1 else ["removed", "removed"])


def test_deleted_targets_need_not_be_linked() -> None:
    state = do(start(), publish(start(), 0))
    stream = state.streams[StreamKey("default", "orders")]
    assert sink_of(do(state, DeleteStream("default", "orders", stream.incarnation))).is_finished


def test_rows_for_a_purged_or_read_only_partition_are_refused() -> None:
    state = start()
    stream = state.streams[StreamKey("default", "orders")]
    readonly = SetStreamReadonly("default", "orders", stream.incarnation, (1,), readonly=True, changed_ns=1)
    assert refused(do(state, readonly), publish(state, 0)) == "readonly"
    purged = do(state, PurgeStream("default", "orders", stream.incarnation))
    assert refused(purged, publish(state, 0)) == "incarnation_changed"
    deleted = do(state, DeleteStream("default", "orders", stream.incarnation))
    assert refused(deleted, publish(state, 0)) == "stream_not_found"


def test_a_report_about_partitions_that_are_not_awaited_is_taken_for_the_others() -> None:
    state = linked(do(start(), publish(start(), 0)), 0)
    sink, stream = sink_of(state), state.streams[StreamKey("default", "orders")]
    both = tuple(LinkedPartition(item.incarnation, 9) for item in stream.partitions)
    after = do(state, LinkSink("default", "s", sink.id, 1, both))
    last = sink_of(after).last
    assert last is not None
    assert [item.base_offset for item in last.targets[0].partitions] == [5, 9]
    assert last.winners == ()
    assert refused(after, LinkSink("default", "s", sink.id, 2, both)) == "sink_published"


def test_skipping_finishes_a_partition_that_waits_and_no_other() -> None:
    state = linked(do(start(), publish(start(), 0)), 0)
    sink, stream = sink_of(state), state.streams[StreamKey("default", "orders")]
    skip = SkipSink("default", "s", sink.id, 1, stream.partitions[1].incarnation, "ada")
    assert refused(state, replace(skip, incarnation=stream.partitions[0].incarnation)) == "invalid"
    after = do(state, skip)
    assert sink_of(after).is_finished
    assert (sink_of(after).skipped_rows, sink_of(after).last_skip) == (10, Skip(0, "orders", 1, 10, "ada"))
    later = published(after, 1)
    assert sink_of(later).last_skip == sink_of(after).last_skip


def test_a_sink_with_something_to_link_is_not_deleted() -> None:
    state = do(start(), publish(start(), 0))
    sink = sink_of(state)
    assert refused(state, DeleteSink("default", "s", sink.id)) == "sink_busy"
    assert not do(linked(state), DeleteSink("default", "s", sink.id)).sinks


def test_an_unused_sink_is_deleted_only_while_it_is_unused() -> None:
    state = start()
    old = DeleteSink("default", "s", sink_of(state).id, unused_since_ms=0)
    used = do(do(state, AdvanceClock(5)), OPEN)
    assert refused(used, old) == "invalid"
    assert not do(state, old).sinks


def test_a_sink_that_was_created_again_is_another_one() -> None:
    state = start()
    old = publish(state, 0)
    state = do(do(state, DeleteSink("default", "s", sink_of(state).id)), OPEN)
    assert refused(state, old) == "sink_not_found"


def test_time_does_not_go_back_and_quotas_are_not_negative() -> None:
    state = start()
    assert refused(state, AdvanceClock(-1)) == "invalid"
    assert refused(state, SetSinkQuota("default", "s", sink_of(state).id, -1)) == "invalid"
    assert sink_of(do(state, SetSinkQuota("default", "s", sink_of(state).id, 7))).quota_bytes == 7


@pytest.mark.parametrize(
    "change",
    [
        {"token": "x"},
        {"input_digest": "D" * 32},
        {"input_rows": -1},
        {"offsets_hash": "1"},
        {"winners": pack_winners([5] * (MAX_TASKS + 1))},
        {"winners": (-1,)},
        {"epoch": -1},
    ],
)
def test_content_out_of_bounds_is_refused(change: dict[str, object]) -> None:
    state = start()
    assert refused(state, replace(publish(state, 0), **change)) == "invalid"  # type: ignore[arg-type]


def test_targets_out_of_bounds_are_refused() -> None:
    state = start()
    good = publish(state, 0)
    stream = good.targets[0]
    first, second = stream.partitions
    for partitions in ((), (second, first), (first, first), (replace(first, rows=0),), (replace(first, digest="?"),)):
        bad = replace(good, targets=(replace(stream, partitions=partitions),))
        assert refused(state, bad) == "invalid"
    assert refused(state, replace(good, targets=(stream, stream))) == "invalid"
    missing = replace(stream, partitions=(replace(first, number=2),))
    assert refused(state, replace(good, targets=(missing,))) == "partition_not_found"


def test_the_largest_publish_fits_its_entry_and_its_snapshot() -> None:
    state = start(partitions=MAX_TARGETS)
    stream = state.streams[StreamKey("default", "orders")]
    partitions = tuple(
        TargetPartition(item.number, item.incarnation, (1 << 32) - 1, DIGEST, (1 << 62)) for item in stream.partitions
    )
    attempts = [(1 << 40) + (item * 7919) % MAX_TASKS * 64 for item in range(MAX_TASKS)]
    command = replace(
        publish(state, (1 << 63) - 1),
        winners=pack_winners(attempts),
        targets=(TargetStream("default", "orders", partitions),),
    )
    entry = encode_command(command)
    assert len(entry) <= 256 << 10
    assert decode_command(entry) == command
    after = do(state, command)
    assert attempt_ids(sink_of(after).last.winners) == tuple(attempts)  # type: ignore[union-attr]
    assert decode_snapshot(encode_snapshot(after)) == after


def test_a_snapshot_keeps_the_sinks() -> None:
    state = do(published(start(), 0), AdvanceClock(12))
    assert decode_snapshot(encode_snapshot(state)) == state


def test_an_entry_of_a_batch_write_says_which_run_it_is() -> None:
    once = OpenSink("default", "key-1", "ada", "batch", "month", "", RUN)
    state = do(start(sink=None), once)
    state = do(state, publish(state, 0, name="key-1"))
    later = do(state, replace(once, run_id=NEXT_RUN))
    assert sink_of(later, "key-1").last_epoch == 0
    assert refused(later, publish(later, 0, TOKEN_2, name="key-1")) == "invalid"
    do(later, replace(publish(later, 0, TOKEN_2, name="key-1"), winners=(), targets=()))
