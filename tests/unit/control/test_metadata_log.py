"""The metadata log and the loop around it, over a data plane in memory."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from bascule._seam import Committed, Failed, Installed, LogLine
from bascule.control import MetadataLog, reconcile, reconciler
from bascule.errors import (
    BrokerError,
    CapacityError,
    CorruptionError,
    OutcomeUnknownError,
    StateError,
    UnavailableError,
    UsageError,
)
from bascule.metadata import DeleteStream, RegisterBroker, apply, digest, encode_command, encode_snapshot
from bascule.metadata.model import incarnation_of
from bascule.metadata.rejection import RejectedError, RejectionCode

from tests.unit.control.fake_plane import Disk, FakePlane, until
from tests.unit.control.rig import Rig, running, stream_request


async def test_a_created_stream_is_open_and_shown_when_the_call_returns(rig: Rig) -> None:
    await rig.controller.create_stream(stream_request(partitions=2), 5.0)
    assert sorted(rig.plane.led) == [incarnation_of(2, 0), incarnation_of(2, 1)]
    assert ("default", "orders") in rig.plane.view


async def test_of_many_creations_of_one_name_exactly_one_succeeds(rig: Rig) -> None:
    calls = [rig.controller.create_stream(stream_request(), 5.0) for _ in range(20)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    refused = [item for item in results if isinstance(item, RejectedError)]
    assert results.count(None) == 1
    assert {item.rejection.code for item in refused} == {RejectionCode.STREAM_EXISTS}
    assert len(refused) == 19


async def test_what_is_proposed_in_one_turn_goes_in_one_batch(rig: Rig) -> None:
    before = len(rig.plane.named("propose"))
    await asyncio.gather(*(rig.controller.create_stream(stream_request(f"s{n}"), 5.0) for n in range(10)))
    assert [count for count, _ in rig.plane.named("propose")[before:]] == [10]


async def test_a_deleted_stream_is_gone_when_the_call_returns(rig: Rig) -> None:
    await rig.controller.create_stream(stream_request(), 5.0)
    await rig.controller.delete_stream("default", "orders", 5.0)
    assert not rig.plane.opened
    assert not rig.plane.view
    assert not rig.plane.disk.files
    with pytest.raises(RejectedError):
        await rig.controller.delete_stream("default", "orders", 5.0)


async def test_a_restart_finds_the_same_state_and_opens_everything_at_once() -> None:
    disk = Disk()
    async with running(disk) as first:
        await first.controller.create_stream(stream_request("a", partitions=3), 5.0)
        await first.controller.create_stream(stream_request("b"), 5.0)
        expected = first.log.state.streams
    async with running(disk) as second:
        assert second.log.state.streams == expected
        assert [len(item) for item in second.plane.named("open")] == [4]
        assert set(second.plane.view) == {("default", "a"), ("default", "b")}
        assert second.log.state.brokers["a"].boot_epoch == second.log.state.index


async def test_a_restart_from_a_snapshot_and_its_tail_finds_the_same_state() -> None:
    disk = Disk()
    async with running(disk) as first:
        await first.controller.create_stream(stream_request("a"), 5.0)
        await first.log.save_snapshot(first.reconciler.done)
        await first.controller.create_stream(stream_request("b"), 5.0)
        expected = digest(first.log.state)
    assert sorted(disk.entries) == [3]
    plane = FakePlane(disk)
    index, _, _ = plane.metadata_open()
    assert index == 2
    async with running(disk) as second:
        assert digest(second.log.state.at(3)) != expected  # the broker registered again
        assert second.log.state.streams.keys() == {("default", "a"), ("default", "b")}


async def test_a_deletion_interrupted_by_a_crash_is_completed_after_the_restart() -> None:
    disk = Disk()
    async with running(disk) as first:
        await first.controller.create_stream(stream_request(), 5.0)
        await first.controller.delete_stream("default", "orders", 5.0)
    disk.files.add(incarnation_of(2, 0))
    async with running(disk) as second:
        assert second.plane.named("delete") == [[incarnation_of(2, 0)]]
    assert not disk.files


async def test_a_purge_that_a_crash_interrupted_is_carried_out_by_the_next_run() -> None:
    disk = Disk()
    async with running(disk) as first:
        await first.controller.create_stream(stream_request(), 5.0)
        await first.controller.purge_stream("default", "orders", now=False, dry_run=False, timeout_s=5.0)
    disk.files.add(incarnation_of(2, 0))
    async with running(disk) as second:
        assert second.plane.named("delete") == [[incarnation_of(2, 0)]]
    assert disk.files == {incarnation_of(3, 0)}


async def test_a_pass_that_fails_as_a_whole_is_not_done_and_is_repeated(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bascule.control.reconciler.FIRST_PAUSE_S", 0.01)
    rig.plane.exploding = OSError("the seam is gone")
    before = rig.reconciler.done
    call = asyncio.create_task(rig.controller.create_stream(stream_request(), 5.0))
    await until(lambda: len(rig.plane.named("open")) >= 3)
    assert rig.reconciler.done is before, "what failed does not count as carried out"
    assert not call.done()
    rig.plane.exploding = None
    await call
    assert sorted(rig.plane.led) == [incarnation_of(2, 0)]


async def test_a_reconciler_that_ended_by_a_defect_carries_out_what_was_wanted_when_it_runs_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, defects = reconcile.plan, [KeyError("bug"), KeyError("bug")]

    def defective(*arguments: Any) -> Any:
        if defects:
            raise defects.pop()
        return plan(*arguments)

    monkeypatch.setattr(reconciler, "plan", defective)
    await rig.controller.create_stream(stream_request(), 5.0)
    assert sorted(rig.plane.led) == [incarnation_of(2, 0)]
    assert not rig.failures


async def test_a_reconciler_that_keeps_ending_is_a_failure_of_the_broker(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defective(*_: Any) -> Any:
        raise KeyError("bug")

    monkeypatch.setattr(reconciler, "plan", defective)
    call = asyncio.create_task(rig.controller.create_stream(stream_request(), 5.0))
    await until(lambda: bool(rig.failures))
    assert not rig.plane.led
    call.cancel()


async def test_a_clean_stop_leaves_nothing_to_replay() -> None:
    disk = Disk()
    async with running(disk) as first:
        await first.controller.create_stream(stream_request("a"), 5.0)
        await first.controller.save_last_snapshot()
        assert disk.snapshot[0] == first.log.state.index == disk.last
        await first.controller.save_last_snapshot()
    async with running(disk) as second:
        assert set(second.plane.view) == {("default", "a")}


async def test_a_snapshot_at_the_stop_holds_only_what_was_carried_out(rig: Rig) -> None:
    await rig.controller.create_stream(stream_request("a"), 5.0)
    done = rig.reconciler.done
    rig.plane.exploding = OSError("the seam is gone")
    call = asyncio.create_task(rig.controller.delete_stream("default", "a", 5.0))
    await until(lambda: bool(rig.plane.named("publish_view_failed")))
    await rig.controller.save_last_snapshot()
    assert rig.plane.disk.snapshot[0] == done.index < rig.log.state.index
    call.cancel()


async def test_a_snapshot_that_cannot_be_stored_does_not_keep_the_broker_from_stopping(rig: Rig) -> None:
    await rig.controller.create_stream(stream_request("a"), 5.0)
    rig.plane.full = True
    await rig.controller.save_last_snapshot()
    assert rig.plane.disk.snapshot == (0, b"")


async def test_a_long_replay_gives_others_their_turn_and_logs_its_progress(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()
    async with running(disk) as first:
        await asyncio.gather(*(first.controller.create_stream(stream_request(f"s{n}"), 10.0) for n in range(600)))
    monkeypatch.setattr("bascule.control.metadata_log.PROGRESS_S", 0.0)
    monkeypatch.setattr("bascule.control.metadata_log.SLICE_S", 0.0)
    monkeypatch.setattr("bascule.control.pump.TURN_S", 0.0)
    logger = logging.getLogger("bascule.metadata")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    with caplog.at_level(logging.INFO, logger.name):
        async with running(disk) as second:
            assert len(second.plane.view) == 600
    counting.cancel()
    assert turns > 600, "at least one for each entry"
    lines = [record.getMessage() for record in caplog.records if "replayed" in record.getMessage()]
    assert lines[-1] == "replayed 601 of 601 entries"


async def test_a_replay_that_is_cancelled_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    async with running(disk) as first:
        await asyncio.gather(*(first.controller.create_stream(stream_request(f"s{n}"), 10.0) for n in range(50)))
    monkeypatch.setattr("bascule.control.metadata_log.SLICE_S", 0.0)
    plane = FakePlane(disk)
    log = MetadataLog(plane)
    index, snapshot, last = plane.metadata_open()
    for event in plane.poll(1000):
        assert isinstance(event, Committed)
        log.on_committed(event)
    monkeypatch.setattr(plane, "metadata_open", lambda: (index, snapshot, last))
    opening = asyncio.create_task(log.open(5.0))
    while log.state.index < 2:  # noqa: ASYNC110 - the state has no event to wait for
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert log.state.index < 51


async def test_a_partition_that_cannot_open_is_tried_again_and_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bascule.control.reconciler.FIRST_PAUSE_S", 0.01)
    async with running(broken={incarnation_of(2, 0): "disk_full"}) as rig:
        with pytest.raises(CapacityError, match="the stream exists, but") as caught:
            await rig.controller.create_stream(stream_request(partitions=2), 5.0)
        assert caught.value.code == "disk_full"
        assert sorted(rig.plane.led) == [incarnation_of(2, 1)]
        assert ("default", "orders") in rig.plane.view
        rig.plane.broken.clear()
        await until(lambda: len(rig.plane.led) == 2)


async def test_a_spec_that_cannot_be_read_holds_up_nobody(rig: Rig) -> None:
    rig.plane.unreadable = {incarnation_of(2, 0)}
    with pytest.raises(UsageError, match="partition specs: invalid value"):
        await rig.controller.create_stream(stream_request(partitions=2), 5.0)
    assert sorted(rig.plane.led) == [incarnation_of(2, 1)]


async def test_a_proposal_without_an_answer_is_an_unknown_outcome(rig: Rig) -> None:
    rig.plane.silent = True
    with pytest.raises(OutcomeUnknownError) as caught:
        await rig.controller.create_stream(stream_request(), 0.02)
    assert caught.value.code == "metadata_timeout"


async def test_a_barrier_is_asked_for_again_when_its_answer_was_dropped(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bascule.control.metadata_log.BARRIER_AGAIN_S", 0.01)
    rig.plane.silent = True
    waiting = asyncio.create_task(rig.log.barrier(5.0))
    await until(lambda: len(rig.plane.named("barrier")) >= 3)
    rig.plane.silent = False
    assert await waiting == 1


async def test_a_barrier_without_an_answer_is_an_unknown_outcome(rig: Rig) -> None:
    rig.plane.silent = True
    with pytest.raises(OutcomeUnknownError):
        await rig.log.barrier(0.02)


async def test_a_proposal_that_the_log_refuses_fails_with_its_code(rig: Rig) -> None:
    rig.plane.silent = True
    call = asyncio.create_task(rig.controller.create_stream(stream_request(), 5.0))
    await until(lambda: len(rig.plane.named("propose")) == 2)
    rig.plane.push(Failed(3, "disk_full", "no room for the entry"))
    with pytest.raises(BrokerError, match="no room for the entry") as caught:
        await call
    assert caught.value.code == "disk_full"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (b'{"v":1,"type":"merge_streams","body":{}}', "newer version"),
        (b"garbage", "damaged"),
    ],
)
async def test_an_entry_that_cannot_be_read_stops_the_log_for_good(rig: Rig, entry: bytes, words: str) -> None:
    rig.plane.push(Committed(2, entry, None))
    stopped = await asyncio.wait_for(asyncio.shield(rig.log.failed), 5.0)
    assert stopped.code == "metadata_stopped"
    assert words in str(stopped)
    with pytest.raises(UnavailableError):
        await rig.controller.create_stream(stream_request(), 5.0)
    rig.plane.push(Committed(2, encode_command(RegisterBroker("b", "h", 1, 1)), None))
    await asyncio.sleep(0.02)  # long enough for an event that must change nothing
    assert rig.log.state.index == 1


async def test_a_gap_in_the_entries_stops_the_log_and_fails_who_waits(rig: Rig) -> None:
    rig.plane.silent = True
    call = asyncio.create_task(rig.controller.create_stream(stream_request(), 5.0))
    await until(lambda: len(rig.plane.named("propose")) == 2)
    rig.plane.push(Committed(4, encode_command(RegisterBroker("b", "h", 1, 1)), None))
    with pytest.raises(UnavailableError, match="entry 4"):
        await call


async def test_an_exception_while_applying_stops_the_log(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise KeyError("bug")

    monkeypatch.setattr("bascule.control.metadata_log.apply", explode)
    with pytest.raises(UnavailableError, match="bug"):
        await rig.controller.create_stream(stream_request(), 5.0)
    assert rig.log.failed.done()


async def open_damaged(damage: Callable[[bytes], bytes]) -> None:
    disk = Disk()
    async with running(disk) as first:
        disk.snapshot = (1, damage(encode_snapshot(first.log.state)))
    await MetadataLog(FakePlane(disk)).open(1.0)


async def test_a_damaged_snapshot_is_a_clear_error() -> None:
    with pytest.raises(CorruptionError, match="checksum"):
        await open_damaged(lambda good: good[:-1])


async def test_a_snapshot_of_a_newer_version_is_a_clear_error() -> None:
    with pytest.raises(StateError, match="newer") as caught:
        await open_damaged(lambda good: good.replace(b"metadata 1", b"metadata 2"))
    assert caught.value.code == "data_directory_newer"


async def test_a_snapshot_of_another_index_is_damage() -> None:
    disk = Disk()
    async with running(disk) as first:
        disk.snapshot = (7, encode_snapshot(first.log.state))
    with pytest.raises(CorruptionError, match="entry 7"):
        await MetadataLog(FakePlane(disk)).open(1.0)


async def test_snapshots_are_stored_when_enough_entries_have_been_carried_out(rig: Rig) -> None:
    keeper = asyncio.create_task(rig.controller.keep_snapshots(3))
    for name in "abcd":
        await rig.controller.create_stream(stream_request(name), 5.0)
    await until(lambda: rig.plane.disk.snapshot[0] >= 3)
    keeper.cancel()
    await asyncio.gather(keeper, return_exceptions=True)


async def test_an_event_without_a_handler_does_not_stop_the_pump(rig: Rig) -> None:
    line = LogLine(20, "log", "nobody handles this here", b"{}")
    rig.plane.push(line)
    await rig.controller.create_stream(stream_request(), 5.0)
    assert [event for event, _ in rig.errors] == [line]


async def test_more_events_than_one_turn_takes_are_all_handled(rig: Rig) -> None:
    await asyncio.gather(*(rig.controller.create_stream(stream_request(f"s{n}"), 10.0) for n in range(600)))
    assert len(rig.plane.view) == 600


async def test_an_entry_of_the_metadata_group_moves_the_index_and_nothing_else(rig: Rig) -> None:
    before = rig.log.state
    rig.log.on_committed(Committed(before.index + 1, b"", None))
    assert rig.log.state == before.at(before.index + 1)
    await asyncio.wait_for(rig.reconciler.wait_applied(before.index + 1), 5)


async def test_a_data_plane_that_gives_up_the_log_fails_whoever_waits(rig: Rig) -> None:
    rig.plane.silent = True
    waiting: list[asyncio.Task[Any]] = [
        asyncio.create_task(rig.controller.create_stream(stream_request(), 5.0)),
        asyncio.create_task(rig.log.barrier(5.0)),
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    rig.log.on_failed(Failed(0, "broker_id_in_use", "another directory"))
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [getattr(item, "code", item) for item in results] == ["broker_id_in_use"] * 2
    assert rig.log.failed.result().code == "broker_id_in_use"


async def test_a_barrier_that_the_data_plane_refuses_fails(rig: Rig) -> None:
    rig.plane.silent = True
    waiting = asyncio.create_task(rig.log.barrier(5.0))
    await asyncio.sleep(0)
    rig.log.on_failed(Failed(rig.plane.named("barrier")[-1], "metadata_stopped", "over"))
    with pytest.raises(UnavailableError, match="over"):
        await waiting


async def test_a_snapshot_of_another_broker_replaces_the_state_and_deletes_no_files(rig: Rig) -> None:
    await rig.controller.create_stream(stream_request("gone"), 5.0)
    await rig.controller.create_stream(stream_request("kept"), 5.0)
    gone = rig.log.state.stream("default", "gone")
    assert gone is not None
    lost = gone.partitions[0].incarnation
    index = rig.log.state.index
    other, _ = apply(rig.log.state, index + 1, DeleteStream("default", "gone", gone.incarnation))
    other = other.at(index + 7)
    rig.plane.push(Installed(index + 7, encode_snapshot(other)))
    # What follows it waits until it is read, and a barrier behind that.
    rig.plane.push(Committed(index + 8, b"", None))
    rig.plane.disk.last = index + 8
    assert await rig.log.barrier(5.0) == index + 8
    assert (rig.log.state.index, rig.log.snapshot_index) == (index + 8, index + 7)
    assert rig.log.state.streams.keys() == {("default", "kept")}
    await rig.reconciler.wait_applied(index + 8)
    assert rig.plane.named("keep") == [[lost]]
    assert rig.plane.named("delete") == []
    assert lost in rig.plane.disk.files
    assert ("default", "gone") not in rig.plane.view


async def test_after_a_snapshot_of_another_broker_deletions_delete_again(rig: Rig) -> None:
    await rig.controller.create_stream(stream_request(), 5.0)
    index = rig.log.state.index
    rig.plane.push(Installed(index + 5, encode_snapshot(rig.log.state.at(index + 5))))
    await until(lambda: rig.log.state.index == index + 5)
    rig.plane.disk.last = index + 5
    await rig.reconciler.wait_applied(index + 5)
    await rig.controller.delete_stream("default", "orders", 5.0)
    assert not rig.plane.disk.files
    assert rig.plane.named("keep") == []


async def test_a_snapshot_that_is_older_than_the_state_changes_nothing(rig: Rig) -> None:
    await rig.controller.create_stream(stream_request(), 5.0)
    state = rig.log.state
    rig.plane.push(Installed(state.index, encode_snapshot(replace(state, streams={}))))
    assert await rig.log.barrier(5.0) == state.index
    assert rig.log.state is state


@pytest.mark.parametrize(
    ("snapshot", "text"), [(b"not one", "not a metadata snapshot"), (None, "came as one of entry")]
)
async def test_a_snapshot_that_cannot_be_read_stops_the_log(rig: Rig, snapshot: bytes | None, text: str) -> None:
    index = rig.log.state.index
    rig.plane.push(Installed(index + 5, encode_snapshot(rig.log.state) if snapshot is None else snapshot))
    failure = await asyncio.wait_for(asyncio.shield(rig.log.failed), 5)
    assert failure.code == "metadata_stopped"
    assert text in str(failure)
    assert rig.log.state.index == index
