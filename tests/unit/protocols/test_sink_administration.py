"""The methods about sinks for administrators: list, delete, skip, quota."""

import json
from typing import Any

import pytest
from bascule._seam import PartitionChange
from bascule.metadata import StreamKey, decode_snapshot, encode_snapshot
from bascule.protocols.admin import sinks as handlers_of_sinks
from bascule.protocols.grpc_status import Status

from tests.unit.metadata.sink_rig import NEXT_RUN, QUERY, RUN
from tests.unit.protocols.sink_service import OPEN, Service, opening


async def test_sinks_are_shown_with_what_is_staged_and_what_blocks(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.ask("OpenSink", **OPEN)
    await service.ask("OpenSink", **opening(name="a", kind="batch", lifetime="hour", query_id=""))
    await service.ask("PublishSink", **service.epoch(3))
    await service.link(0)
    await service.ask("SetSinkQuota", name="s", quota_bytes=1 << 40)
    blocked = json.dumps({"sink": service.sink().id}).encode()
    incarnation = service.targets()[1]["incarnation"]
    service.sinks.report(PartitionChange(incarnation, 1, "link_blocked", "the disk is full", blocked))
    staged = [{"sink": service.sink().id, "bytes": size} for size in (4096, 10)]
    monkeypatch.setattr(service.rig.plane, "staged", lambda: staged)
    batch, shown = (await service.ask("FetchSinks")).sinks
    assert (batch.name, batch.kind, batch.lifetime, batch.query_id, batch.finished) == ("a", "batch", "hour", "", True)
    assert not batch.HasField("last_epoch")
    assert not batch.partitions
    sink = service.sink()
    assert (shown.name, shown.owner, shown.kind, shown.lifetime) == ("s", "ada", "stream", "kept")
    assert (shown.id, shown.generation, shown.query_id, shown.run_id) == (sink.id, sink.generation, QUERY, RUN)
    assert (shown.last_epoch, shown.input_rows, shown.finished) == (3, 20, False)
    assert (shown.staged_bytes, shown.quota_bytes) == (4106, 1 << 40)
    assert [(item.phase, item.blocked) for item in shown.partitions] == [
        ("linked", ""),
        ("decided", "the disk is full"),
    ]


async def test_sinks_are_found_by_name(service: Service) -> None:
    await service.ask("OpenSink", **OPEN)
    assert [item.name for item in (await service.ask("FetchSinks", names=["s", "s"])).sinks] == ["s"]
    status, code, text = await service.refused("FetchSinks", names=["s", "gone"])
    assert (status, code) == (Status.NOT_FOUND, "sink_not_found")
    assert text == "sink gone does not exist in namespace default: see `bascule sink list`"
    status, _, text = await service.refused("FetchSinks", names=["s"] * 1001)
    assert status is Status.INVALID_ARGUMENT
    assert text.startswith("names has 1001 entries, at most 1000 are accepted")


async def test_an_answer_that_would_be_too_large_is_refused(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    await service.ask("OpenSink", **OPEN)
    monkeypatch.setattr(handlers_of_sinks, "MAX_ANSWER_BYTES", 50)
    status, _, text = await service.refused("FetchSinks")
    assert status is Status.RESOURCE_EXHAUSTED
    assert text.endswith("name fewer sinks at once")


async def test_a_deletion_answers_the_last_epoch_and_a_dry_run_changes_nothing(service: Service) -> None:
    await service.ask("OpenSink", **OPEN)
    assert not (await service.ask("DeleteSink", name="s", dry_run=True)).HasField("last_epoch")
    await service.ask("PublishSink", **service.epoch())
    for dry_run in (True, False):
        status, code, _ = await service.refused("DeleteSink", name="s", dry_run=dry_run)
        assert (status, code) == (Status.UNAVAILABLE, "sink_busy")
    await service.link()
    for dry_run in (True, False):
        known = service.sink()
        answer = await service.ask("DeleteSink", name="s", dry_run=dry_run)
        assert answer.HasField("last_epoch")
        assert answer.last_epoch == 0
        assert (service.state.sinks.get(StreamKey("default", "s")) == known) is dry_run
    again = await service.ask("OpenSink", **OPEN)
    assert again.id != known.id


async def test_skipped_rows_are_counted_and_a_dry_run_skips_none(service: Service) -> None:
    await service.ask("OpenSink", **OPEN)
    nothing = (Status.INVALID_ARGUMENT, None)
    status, code, text = await service.refused("SkipSink", name="s", stream="orders", partition=0)
    assert (status, code) == nothing
    assert text == "sink s has nothing to link to partition 0 of stream orders"
    await service.ask("PublishSink", **service.epoch())
    await service.link(0)
    assert (await service.refused("SkipSink", name="s", stream="orders"))[2].startswith("partition is missing")
    for stream, partition in (("orders", 0), ("payments", 1)):
        assert (await service.refused("SkipSink", name="s", stream=stream, partition=partition))[:2] == nothing
    known = service.sink()
    place: dict[str, Any] = {"name": "s", "stream": "orders", "partition": 1}
    assert (await service.ask("SkipSink", **place, dry_run=True)).rows == 10
    assert service.sink() == known
    assert (await service.ask("SkipSink", **place)).rows == 10
    (shown,) = (await service.ask("FetchSinks")).sinks
    assert [item.phase for item in shown.partitions] == ["linked", "skipped"]
    assert shown.finished
    assert not shown.partitions[1].HasField("base_offset")
    assert (await service.refused("SkipSink", **place))[:2] == nothing


async def test_rows_that_were_given_up_stay_known_after_the_next_epoch_and_a_snapshot(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    await service.ask("OpenSink", **OPEN)
    await service.ask("PublishSink", **service.epoch(4))
    await service.link(0)
    assert not (await service.ask("FetchSinks")).sinks[0].HasField("last_skip")
    with caplog.at_level(30, "bascule.control.sinks"):
        await service.ask("SkipSink", name="s", stream="orders", partition=1)
    assert [record.getMessage() for record in caplog.records] == ["10 rows of epoch 4 were given up"]
    await service.ask("PublishSink", **service.epoch(5))
    await service.link()
    await service.ask("PublishSink", **service.epoch(6))
    await service.ask("SkipSink", name="s", stream="orders", partition=0)
    (shown,) = (await service.ask("FetchSinks")).sinks
    skip = shown.last_skip
    assert (shown.skipped_rows, skip.epoch, skip.stream, skip.partition, skip.rows, skip.by) == (
        20, 6, "orders", 0, 10, "ada",
    )  # fmt: skip
    assert decode_snapshot(encode_snapshot(service.state)).sinks == service.state.sinks


async def test_what_administrators_do_to_a_sink_is_logged_with_who_did_it(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    await service.ask("OpenSink", **OPEN)
    await service.ask("PublishSink", **service.epoch(4))
    await service.link()
    with caplog.at_level(30, "bascule.control.sinks"):
        await service.ask("SetSinkOwner", "oncall", name="s", owner="bob")
        await service.ask("DeleteSink", None, name="s")
    said = [(record.getMessage(), record.fields["by"]) for record in caplog.records]  # type: ignore[attr-defined]
    assert said == [
        ("a sink of client 'ada' was given to client 'bob'", "oncall"),
        ("a sink with last epoch 4 was deleted", "127.0.0.1:5"),
    ]


async def test_an_administrator_gives_a_sink_to_another_client_with_its_epochs(service: Service) -> None:
    await service.ask("OpenSink", None, **OPEN)
    await service.ask("PublishSink", None, **service.epoch())
    await service.link()
    assert (await service.refused("OpenSink", "ada", **OPEN))[1] == "sink_not_owned"
    status, _, text = await service.refused("SetSinkOwner", name="s")
    assert (status, text.split(":")[0]) == (Status.INVALID_ARGUMENT, "owner is missing")
    status, _, text = await service.refused("SetSinkOwner", name="s", owner="a" * 256, dry_run=True)
    assert (status, text) == (Status.INVALID_ARGUMENT, "name of an owner is not between 1 and 255 bytes long")
    for dry_run in (True, False):
        assert (await service.ask("SetSinkOwner", name="s", owner="ada", dry_run=dry_run)).before == ""
        assert (service.sink().owner == "ada") is not dry_run
    opened = await service.ask("OpenSink", "ada", **opening(run_id=NEXT_RUN))
    assert opened.last_epoch == 0, "the epochs stay, so the last one is not written again"
    assert (await service.refused("OpenSink", None, **OPEN))[1] == "sink_not_owned"
    assert (await service.ask("SetSinkOwner", name="s", owner="")).before == "ada"
    await service.ask("RenewSink", None, **service.attempt())


async def test_a_quota_below_zero_is_refused(service: Service) -> None:
    await service.ask("OpenSink", **OPEN)
    status, _, text = await service.refused("SetSinkQuota", name="s", quota_bytes=-1)
    assert (status, text) == (Status.INVALID_ARGUMENT, "quota -1 is below 0")
    await service.ask("SetSinkQuota", name="s", quota_bytes=7)
    assert service.sink().quota_bytes == 7
    await service.ask("SetSinkQuota", name="s")
    assert service.sink().quota_bytes == 0


@pytest.mark.parametrize(
    "method", ["PublishSink", "AbortSink", "RenewSink", "DeleteSink", "SkipSink", "SetSinkQuota", "SetSinkOwner"]
)
async def test_a_sink_that_does_not_exist_is_named(service: Service, method: str) -> None:
    status, code, text = await service.refused(method, name="gone")
    assert (status, code) == (Status.NOT_FOUND, "sink_not_found")
    is_writing = method in ("PublishSink", "AbortSink", "RenewSink")
    other = ", or belongs to another client" * is_writing
    assert text == f"sink gone does not exist in namespace default{other}: see `bascule sink list`"
