"""ReportQuery, FetchLags and ReleaseHold over a data plane in memory."""

from typing import Any

import pytest
from bascule.control.decide import Target
from bascule.control.decide_queries import Here, judge_report
from bascule.control.query_table import EXPIRE_S, SILENT_S, Position
from bascule.errors import AccessError
from bascule.metadata import StreamKey
from bascule.protocols.admin import queries as handlers
from bascule.protocols.grpc_status import Status

from tests.unit.control.rig import running
from tests.unit.protocols.sink_service import Service, serving


def at(service: Service, number: int, following: int, stream: str = "orders") -> dict[str, Any]:
    incarnation = service.targets(stream)[number]["incarnation"]
    return {"partition": number, "incarnation": incarnation, "next": following}


def reporting(*positions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"query": "totals", "streams": [{"name": "orders", "positions": positions}], **more}


def ends(service: Service, high_watermark: int) -> None:
    for item in service.targets():
        service.rig.plane.positions[item["incarnation"]] = (0, high_watermark, high_watermark, 0, 0, 0, 0, 0)


async def test_a_report_is_shown_with_its_lag_and_owner(service: Service) -> None:
    ends(service, 100)
    assert not (await service.ask("ReportQuery", **reporting(at(service, 0, 95), at(service, 1, 100)))).unknown
    assert not (await service.ask("ReportQuery", **reporting())).unknown
    found = (await service.ask("FetchLags")).lags
    assert [(item.kind, item.reader, item.stream, item.partition, item.next) for item in found] == [
        ("query", "totals", "orders", 0, 95), ("query", "totals", "orders", 1, 100),
    ]  # fmt: skip
    first = found[0]
    assert (first.lag.records, first.lag.bytes, first.lag.age_ms) == (5, 500, 2500)
    assert (first.owner, first.report_age_ms, first.state) == ("ada", 7, "reporting")


async def test_lags_are_found_by_reader_and_by_stream(service: Service) -> None:
    await service.ask("ReportQuery", **reporting(at(service, 0, 0)))
    other = {"partition": 0, "incarnation": service.targets(namespace="other")[0]["incarnation"], "next": 0}
    await service.ask(
        "ReportQuery", query="audit", namespace="other", streams=[{"name": "orders", "positions": [other]}]
    )
    cases: tuple[tuple[dict[str, Any], list[str]], ...] = (
        ({}, ["audit", "totals"]),
        ({"reader": "totals"}, ["totals"]),
        ({"stream": "other/orders"}, ["audit"]),
        ({"stream": "orders", "reader": "audit"}, []),
    )
    for asked, readers in cases:
        found = (await service.ask("FetchLags", **asked)).lags
        assert [item.reader for item in found] == readers, asked


async def test_a_wrong_report_is_refused_and_changes_nothing(service: Service) -> None:
    ends(service, 100)
    good = at(service, 0, 100)
    cases: list[tuple[dict[str, Any], Status, str]] = [
        ({**reporting(good), "query": ""}, Status.INVALID_ARGUMENT, "the name of a query is empty"),
        ({"query": "totals"}, Status.INVALID_ARGUMENT, "streams is empty"),
        (reporting({**good, "next": 101}), Status.INVALID_ARGUMENT, "the high watermark 100"),
        (reporting({**good, "next": -1}), Status.INVALID_ARGUMENT, "offset -1 is not between 0 and"),
        (reporting({**good, "partition": 9}), Status.NOT_FOUND, "partition 9 of stream orders does not exist"),
        (reporting(good, good), Status.INVALID_ARGUMENT, "a partition of stream orders is named twice"),
        (reporting({**good, "incarnation": 1}), Status.FAILED_PRECONDITION, "it was created again"),
        ({"query": "totals", "streams": [{"name": "gone"}]}, Status.NOT_FOUND, "stream default/gone does not exist"),
        ({"query": "q", "streams": [{"name": "__cursors"}]}, Status.INVALID_ARGUMENT, "__cursors is reserved"),
        ({"query": "q", "streams": [{"name": "orders"}] * 2}, Status.INVALID_ARGUMENT, "orders is named twice"),
        ({"query": "q", "streams": [{"name": "s"}] * 1001}, Status.INVALID_ARGUMENT, "1001"),
    ]
    for asked, status, text in cases:
        found, _, sentence = await service.refused("ReportQuery", **asked)
        assert (found, text in sentence) == (status, True), sentence
    assert not (await service.ask("FetchLags")).lags
    await service.ask("ReportQuery", **reporting(good))
    status, code, _ = await service.refused("ReportQuery", "eve", **reporting(good))
    assert (status, code) == (Status.PERMISSION_DENIED, "query_not_owned")


async def test_reports_need_the_right_to_read_and_lags_that_to_list() -> None:
    async with running() as rig:
        service = await serving(rig, ("ada", "Subscribe", "orders"), ("ops", "FetchMetadata", "*"))
        await service.ask("ReportQuery", **reporting(at(service, 0, 0)))
        assert (await service.ask("FetchLags", "ops")).lags[0].owner == "ada"
        with pytest.raises(AccessError):
            await service.ask("FetchLags", "ada")
        for who, streams in (("eve", ["orders"]), ("ada", ["orders", "payments"]), ("ada", [])):
            with pytest.raises(AccessError):
                await service.ask("ReportQuery", who, query="q", streams=[{"name": name} for name in streams])


async def holding(service: Service, most_bytes: int | None = 1 << 30, expiry_ms: int | None = None) -> None:
    changes = {"retention_hold_max_bytes": most_bytes, "retention_hold_expiry_ms": expiry_ms}
    await service.rig.controller.edit_stream("default", "orders", changes, dry_run=False, timeout_s=5.0)


async def test_a_query_holds_records_of_streams_that_let_it(service: Service) -> None:
    await holding(service, expiry_ms=60_000)
    names = ("orders", "payments")
    streams = [{"name": name, "positions": [at(service, 0, 0, name)]} for name in names]
    answer = await service.ask("ReportQuery", query="totals", streams=streams, hold=True)
    assert (list(answer.unknown), list(answer.not_held)) == ([], ["payments"])
    holds = service.rig.plane.holds
    assert holds == {("totals", "default", "orders"): 60_000, ("totals", "default", "payments"): 0}
    found = (await service.ask("FetchLags")).lags
    assert [(item.stream, item.HasField("hold_left_ms"), item.hold_left_ms) for item in found] == [
        ("orders", True, 60_000), ("payments", False, 0),
    ]  # fmt: skip
    await holding(service)
    await service.ask("ReportQuery", **reporting(), hold=True)
    assert holds["totals", "default", "orders"] == 3_600_000, "an hour, if the stream names no time"
    await holding(service, None)
    assert not any(item.HasField("hold_left_ms") for item in (await service.ask("FetchLags")).lags)
    assert list((await service.ask("ReportQuery", **reporting(), hold=True)).not_held) == ["orders"]
    await holding(service)
    await service.ask("ReportQuery", **reporting(), hold=True)
    assert not (await service.ask("ReportQuery", **reporting())).not_held
    assert holds["totals", "default", "orders"] == 0, "a report without it ends the hold"


async def test_a_part_that_is_refused_does_not_keep_others_from_being_taken(service: Service) -> None:
    await holding(service, expiry_ms=60_000)
    ends(service, 100)
    first, second = at(service, 0, 50), at(service, 1, 50)
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({**second, "incarnation": 3}, "incarnation_changed", "it was created again"),
        ({**second, "partition": 7}, "partition_not_found", "partition 7 of stream orders does not exist"),
        ({**second, "next": 101}, "invalid", "not between 0 and the high watermark 100"),
    ]
    for wrong, code, text in cases:
        answer = await service.ask("ReportQuery", **reporting(wrong, first), hold=True)
        assert [(each.stream, each.partition, each.code, text in each.message) for each in answer.refused] == [
            ("orders", wrong["partition"], code, True)
        ]
        assert service.rig.plane.queries["totals", "default", "orders"] == [(0, first["incarnation"], 50)]


async def test_a_stream_that_is_gone_does_not_end_the_holds_in_others(service: Service) -> None:
    await holding(service, expiry_ms=60_000)
    names = ("orders", "payments")
    streams = [{"name": name, "positions": [at(service, 0, 0, name)]} for name in names]
    await service.ask("ReportQuery", query="totals", streams=streams, hold=True)
    await service.rig.controller.delete_stream("default", "payments", 5.0)
    for again in ([{"name": name} for name in names], [streams[1], {"name": "orders"}]):
        service.rig.plane.holds.clear()
        answer = await service.ask("ReportQuery", query="totals", streams=again, hold=True)
        assert service.rig.plane.holds == {("totals", "default", "orders"): 60_000}
        assert list(answer.unknown) == list(answer.not_held) == []
        assert [(each.stream, each.HasField("partition"), each.code, each.message) for each in answer.refused] == [
            ("payments", False, "stream_not_found", "stream default/payments does not exist")
        ]


async def test_nothing_is_held_in_a_partition_that_is_not_open_here_or_led_elsewhere(service: Service) -> None:
    await holding(service, expiry_ms=60_000)
    plane = service.rig.plane
    first, second = at(service, 0, 0), at(service, 1, 0)
    whole = reporting(first, second)
    assert not (await service.ask("ReportQuery", **whole, hold=True)).refused
    spec = plane.opened.pop(second["incarnation"])
    for asked in (whole, reporting(first, {**second, "next": 10**15}), reporting()):
        answer = await service.ask("ReportQuery", **asked, hold=True)
        assert [(each.partition, each.code) for each in answer.refused] == ([(1, "not_open")])
        assert plane.queries["totals", "default", "orders"] == [(0, first["incarnation"], 0)]
        await service.ask("ReportQuery", **whole)
    assert not (await service.ask("ReportQuery", **whole)).refused, "without a hold it is shown, with an unknown lag"
    status, _, text = await service.refused("ReportQuery", **reporting(second), hold=True)
    assert (status, "partition 1 of stream orders is not led by this broker" in text) == (Status.UNAVAILABLE, True)
    plane.opened[second["incarnation"]] = spec
    assert not (await service.ask("ReportQuery", **whole, hold=True)).refused
    await service.rig.controller.pause_stream(Target("default", "orders", (1,)), resume_all=False, timeout_s=5.0)
    answer = await service.ask("ReportQuery", **reporting(), hold=True)
    assert [each.message for each in answer.refused] == [
        "partition 1 of stream orders is paused: nothing is held there"
    ]


async def test_nothing_is_held_in_a_replica(service: Service) -> None:
    stream = service.state.streams[StreamKey("default", "orders")]
    position = Position(0, stream.partitions[0].incarnation, 0)
    status = service.rig.controller.status([position.incarnation])
    for broker, held, refused in (("here", {}, False), ("else", None, False), ("else", {}, True)):
        here = Here(service.rig.controller.broker_id if broker == "here" else broker, status)
        found = judge_report(service.state, "default", {"orders": (position,)}, here, held)
        assert bool(found.refused) == refused
        assert found.streams == ({} if refused else {"orders": (position,)})


async def test_a_hold_needs_a_right_of_its_own_that_the_refusal_names() -> None:
    async with running() as rig:
        reads = [(who, "Subscribe", name) for who in ("ada", "eve") for name in ("orders", "payments")]
        service = await serving(rig, *reads, ("eve", "HoldRetention", "orders"))
        await holding(service)
        await service.ask("ReportQuery", **reporting(at(service, 0, 0)))
        with pytest.raises(AccessError, match="call HoldRetention on resource orders"):
            await service.ask("ReportQuery", **reporting(at(service, 0, 0)), hold=True)
        more = {"name": "payments", "positions": [at(service, 0, 0, "payments")]}
        with pytest.raises(AccessError, match="call HoldRetention on resource payments"):
            await service.ask("ReportQuery", "eve", query="q", streams=[more], hold=True)
        held = {"name": "orders", "positions": [at(service, 0, 0)]}
        await service.ask("ReportQuery", "eve", query="q", streams=[held], hold=True)
        assert rig.plane.holds["q", "default", "orders"] == 3_600_000


async def test_a_query_is_forgotten_here_and_in_the_data_plane_when_it_is_silent(service: Service) -> None:
    await service.ask("ReportQuery", **reporting(at(service, 0, 0)))
    service.now_s += EXPIRE_S
    service.queries.look()
    assert service.rig.plane.queries == {}
    assert not (await service.ask("FetchLags")).lags
    assert list((await service.ask("ReportQuery", **reporting())).unknown) == ["orders"]


async def test_the_hold_of_a_query_that_is_gone_is_released(service: Service) -> None:
    await holding(service)
    await service.ask("ReportQuery", **reporting(at(service, 0, 0), at(service, 1, 0)), hold=True)
    asked: dict[str, Any] = {"query": "totals", "stream": "orders"}
    status, code, text = await service.refused("ReleaseHold", "ops", **asked)
    assert (status, code) == (Status.FAILED_PRECONDITION, "query_active")
    assert "reported 0 s ago and would hold its records again: stop it" in text
    service.now_s += SILENT_S
    for dry_run in (True, False):
        answer = await service.ask("ReleaseHold", "ops", **asked, dry_run=dry_run)
        assert [(each.partition, each.next) for each in answer.positions] == [(0, 0), (1, 0)]
        assert answer.hold_left_ms == 3_540_000
        assert len((await service.ask("FetchLags")).lags) == (2 if dry_run else 0)
    assert service.rig.plane.queries == {}
    assert service.rig.plane.holds["totals", "default", "orders"] == 0
    assert (await service.refused("ReleaseHold", **asked))[1] == "hold_not_found"
    assert list((await service.ask("ReportQuery", **reporting(), hold=True)).unknown) == ["orders"]
    await service.ask("ReportQuery", "eve", **reporting(at(service, 0, 0)), hold=True, ended=True)
    assert (await service.ask("ReleaseHold", **asked)).hold_left_ms == 3_600_000, "one that has ended is not waited for"


async def test_what_is_not_held_is_not_released(service: Service) -> None:
    await service.ask("ReportQuery", **reporting(at(service, 0, 0)), ended=True)
    await holding(service)
    await service.ask("ReportQuery", query="held", streams=reporting(at(service, 0, 0))["streams"], hold=True)
    service.now_s += SILENT_S
    cases: list[tuple[dict[str, Any], Status, str]] = [
        ({"query": "totals", "stream": "orders"}, Status.NOT_FOUND, "query totals holds no records of stream orders"),
        ({"query": "held", "stream": "payments"}, Status.NOT_FOUND, "query held holds no records of stream payments"),
        ({"query": "held", "stream": "orders", "namespace": "other"}, Status.NOT_FOUND, "in namespace other"),
        ({"query": "held", "stream": "order"}, Status.NOT_FOUND, "stream default/order does not exist"),
        ({"query": "", "stream": "orders"}, Status.INVALID_ARGUMENT, "query is empty"),
        ({"query": "held"}, Status.INVALID_ARGUMENT, "stream is empty"),
    ]
    for asked, status, text in cases:
        found, _, sentence = await service.refused("ReleaseHold", **asked)
        assert (found, text in sentence) == (status, True), sentence
    await holding(service, None)
    found, _, sentence = await service.refused("ReleaseHold", query="held", stream="orders")
    assert (found, "lets no query hold records any more" in sentence) == (Status.NOT_FOUND, True)
    await holding(service)
    service.now_s += 3_600
    assert (await service.refused("ReleaseHold", query="held", stream="orders"))[1] == "hold_not_found", "it has ended"


async def test_a_release_needs_the_right_to_edit_the_stream() -> None:
    async with running() as rig:
        service = await serving(rig, ("ada", "HoldRetention", "orders"), ("ops", "EditStream", "orders"))
        asked: dict[str, Any] = {"query": "totals", "stream": "orders"}
        assert (await service.refused("ReleaseHold", "ops", **asked))[1] == "hold_not_found"
        elsewhere: dict[str, Any] = {**asked, "namespace": "other"}
        for who, given in (("ada", asked), ("ops", elsewhere)):
            with pytest.raises(AccessError, match="call EditStream on resource"):
                await service.ask("ReleaseHold", who, **given)


async def test_an_answer_that_would_be_too_large_is_refused(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    await service.ask("ReportQuery", **reporting(at(service, 0, 0)))
    monkeypatch.setattr(handlers, "MAX_ANSWER_BYTES", 5)
    status, _, text = await service.refused("FetchLags")
    assert (status, text.endswith("name a reader or a stream")) == (Status.RESOURCE_EXHAUSTED, True)
