"""ReportArchived over a data plane in memory."""

import asyncio
from typing import Any

import pytest
from bascule._seam import PartitionChange
from bascule.control.archives import Archives
from bascule.errors import AccessError
from bascule.metadata import Partition, StreamKey
from bascule.protocols.grpc_status import Status

from tests.unit.control.fake_plane import until
from tests.unit.control.rig import running
from tests.unit.protocols.sink_service import Service, serving


def stands(service: Service, log_start: int, high_watermark: int) -> None:
    for item in service.targets():
        service.rig.plane.positions[item["incarnation"]] = (log_start, high_watermark, high_watermark, 0, 0, 0, 0, 0)


def partition(service: Service, number: int = 0) -> Partition:
    return service.state.streams[StreamKey("default", "orders")].partitions[number]


def report(service: Service, first: int, end: int, number: int = 0, **more: Any) -> dict[str, Any]:
    incarnation = service.targets()[number]["incarnation"]
    item = {"partition": number, "incarnation": incarnation, "first": first, "end": end, **more.pop("item", {})}
    return {"name": "orders", "archive": "lake", "partitions": [item], **more}


async def test_what_an_archive_has_reaches_the_partition_and_is_shown(service: Service) -> None:
    stands(service, 10, 100)
    await service.ask("ReportArchived", **report(service, 10, 60))
    assert (partition(service).archived_to, partition(service).archive) == (60, "lake")
    assert service.rig.plane.opened[partition(service).incarnation]["archived_to"] == 60
    index = service.state.index
    await service.ask("ReportArchived", **report(service, 0, 60))
    assert service.state.index == index, "what is known is not stored again"
    await service.ask("ReportArchived", **report(service, 10, 30))
    assert service.rig.plane.opened[partition(service).incarnation]["archived_to"] == 30, "a table that was made again"
    await service.ask("ReportArchived", **report(service, 10, 100))
    shown = (await service.ask("FetchStreamDetails", name="orders")).partitions
    assert [(item.archived_to, item.archive) for item in shown] == [(100, "lake"), (0, "")]


async def test_reports_that_would_lose_records_are_refused(service: Service) -> None:
    stands(service, 10, 100)
    own = report(service, 10, 60)
    cases: list[tuple[dict[str, Any], Status, str | None, str]] = [
        (report(service, 11, 60), Status.FAILED_PRECONDITION, "archive_gap", "lacks those from 10 on"),
        (report(service, 0, 101), Status.INVALID_ARGUMENT, None, "not between 0 and the high watermark 100"),
        (report(service, 20, 10), Status.INVALID_ARGUMENT, None, "not between 0 and the high watermark 100"),
        (
            report(service, 0, 5, item={"incarnation": 3}),
            Status.FAILED_PRECONDITION, "incarnation_changed", "purged or created again",
        ),
        (report(service, 0, 5, item={"partition": 7}), Status.NOT_FOUND, "partition_not_found", "partition 7"),
        ({**own, "name": "gone"}, Status.NOT_FOUND, "stream_not_found", "gone"),
        ({**own, "archive": ""}, Status.INVALID_ARGUMENT, None, "archive is empty"),
        ({**own, "archive": "x" * 1025}, Status.INVALID_ARGUMENT, None, "1025 bytes"),
        ({**own, "partitions": []}, Status.INVALID_ARGUMENT, None, "partitions is empty"),
        ({**own, "partitions": own["partitions"] * 2}, Status.INVALID_ARGUMENT, None, "named twice"),
        ({**own, "name": "__cursors"}, Status.INVALID_ARGUMENT, None, "reserved"),
    ]  # fmt: skip
    for asked, status, code, text in cases:
        found = await service.refused("ReportArchived", **asked)
        assert (found[0], found[1] if code else None, text in found[2]) == (status, code, True), found
    assert partition(service).archived_to == 0
    await service.ask("ReportArchived", **own)
    other = report(service, 0, 90, archive="other")
    status, code, _ = await service.refused("ReportArchived", **other)
    assert (status, code) == (Status.FAILED_PRECONDITION, "archive_conflict")
    other = report(service, 60, 90, archive="other", take_over=True)
    status, code, _ = await service.refused("ReportArchived", **other)
    assert code == "archive_gap", "what another archive has does not count for it"
    await service.ask("ReportArchived", **report(service, 0, 50, archive="other", take_over=True))
    assert (partition(service).archived_to, partition(service).archive) == (50, "other")
    own = report(service, 50, 90, archive="other", take_over=True)
    status, code, _ = await service.refused("ReportArchived", **own)
    assert code == "archive_gap", "who takes over has nothing of the table that had this name before"


async def test_a_table_that_was_made_again_and_begins_later_is_refused_and_ends_what_its_name_had(
    service: Service,
) -> None:
    stands(service, 10, 100)
    await service.ask("ReportArchived", **report(service, 10, 60))
    index = service.state.index
    for _ in range(2):
        status, code, text = await service.refused("ReportArchived", **report(service, 60, 100))
        assert (status, code) == (Status.FAILED_PRECONDITION, "archive_gap")
        assert "begins at offset 60 of partition 0 of stream orders and lacks those from 10 on" in text
        assert (partition(service).archived_to, service.state.index) == (0, index + 1), (
            "what the broker alone has stays"
        )
    assert service.rig.plane.opened[partition(service).incarnation]["archived_to"] == 0
    await service.ask("ReportArchived", **report(service, 10, 60))
    both = [report(service, first, 90, number)["partitions"][0] for number, first in ((0, 60), (1, 10))]
    answer = await service.ask("ReportArchived", name="orders", archive="lake", partitions=both)
    assert [(each.partition, each.code) for each in answer.refused] == [(0, "archive_gap")]
    assert [partition(service, number).archived_to for number in (0, 1)] == [0, 90]
    stands(service, 60, 100)
    await service.ask("ReportArchived", **report(service, 60, 100))
    assert partition(service).archived_to == 100, "the broker has nothing before the table"


async def test_another_table_that_lacks_records_changes_nothing(service: Service) -> None:
    stands(service, 10, 100)
    await service.ask("ReportArchived", **report(service, 10, 60))
    for more in ({}, {"take_over": True}):
        assert (await service.refused("ReportArchived", **report(service, 60, 90, archive="other", **more)))[1] in {
            "archive_gap",
            "archive_conflict",
        }
        assert (partition(service).archived_to, partition(service).archive) == (60, "lake")


async def test_a_partition_that_is_refused_does_not_keep_others_from_being_stored(service: Service) -> None:
    stands(service, 10, 100)
    first, second = (report(service, 10, 60, number)["partitions"][0] for number in (0, 1))
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({**second, "incarnation": 3}, "incarnation_changed", "purged or created again"),
        ({**second, "partition": 7}, "partition_not_found", "partition 7"),
        ({**second, "first": 11}, "archive_gap", "lacks those from 10 on"),
        ({**second, "end": 101}, "invalid", "not between 0 and the high watermark 100"),
    ]
    for number, (wrong, code, text) in enumerate(cases):
        items = [wrong, {**first, "end": 20 + number}]
        answer = await service.ask("ReportArchived", name="orders", archive="lake", partitions=items)
        assert [(each.partition, each.code, text in each.message) for each in answer.refused] == [
            (wrong["partition"], code, True)
        ]
        assert (partition(service).archived_to, partition(service, 1).archived_to) == (20 + number, 0)
    closed = service.rig.plane.opened.pop(second["incarnation"])
    answer = await service.ask("ReportArchived", name="orders", archive="lake", partitions=[first, second])
    assert [(each.partition, each.code) for each in answer.refused] == [(1, "not_open")]
    assert (partition(service).archived_to, partition(service, 1).archived_to) == (60, 0)
    service.rig.plane.opened.pop(second["incarnation"], None)  # the storing of the report has opened it again
    index = service.state.index
    answer = await service.ask("ReportArchived", name="orders", archive="lake", partitions=[second, first])
    assert [each.partition for each in answer.refused] == [1]
    assert service.state.index == index, "what is known is not stored again"
    service.rig.plane.opened.pop(second["incarnation"], None)
    status, code, _ = await service.refused("ReportArchived", name="orders", archive="lake", partitions=[second])
    assert (status, code) == (Status.UNAVAILABLE, None)
    service.rig.plane.opened[second["incarnation"]] = closed
    await service.ask("ReportArchived", name="orders", archive="other", partitions=[second])
    answer = await service.ask("ReportArchived", name="orders", archive="other", partitions=[first, second])
    assert [(each.partition, each.code) for each in answer.refused] == [(0, "archive_conflict")]
    assert [partition(service, number).archive for number in (0, 1)] == ["lake", "other"]


async def test_streams_of_another_namespace_have_archives_and_rights_of_their_own(service: Service) -> None:
    for item in (*service.targets(), *service.targets(namespace="other")):
        service.rig.plane.positions[item["incarnation"]] = (0, 100, 100, 0, 0, 0, 0, 0)
    incarnation = service.targets(namespace="other")[0]["incarnation"]
    item = {"partition": 0, "incarnation": incarnation, "first": 0, "end": 60}
    asked: dict[str, Any] = {"name": "orders", "archive": "lake", "partitions": [item]}
    await service.ask("ReportArchived", namespace="other", **asked)
    other = service.state.streams[StreamKey("other", "orders")].partitions[0]
    assert (other.archived_to, partition(service).archived_to) == (60, 0)
    status, code, _ = await service.refused("ReportArchived", **asked)
    assert (status, code) == (Status.FAILED_PRECONDITION, "incarnation_changed")
    _, _, text = await service.refused("ReportArchived", namespace="other", **{**asked, "name": "payments"})
    assert "stream other/payments does not exist" in text
    async with running() as rig:
        service = await serving(rig, ("ada", "EditStream", "orders"), ("ben", "EditStream", "other/orders"))
        for item in service.targets(namespace="other"):
            service.rig.plane.positions[item["incarnation"]] = (0, 100, 100, 0, 0, 0, 0, 0)
        item: dict[str, Any] = {
            **asked["partitions"][0],
            "incarnation": service.targets(namespace="other")[0]["incarnation"],
        }
        allowed: dict[str, Any] = {"namespace": "other", "name": "orders", "archive": "lake", "partitions": [item]}
        with pytest.raises(AccessError):
            await service.ask("ReportArchived", **allowed)
        await service.ask("ReportArchived", "ben", **allowed)


async def test_a_report_needs_the_right_to_edit_the_stream() -> None:
    async with running() as rig:
        service = await serving(rig, ("ada", "EditStream", "orders"), ("eve", "Subscribe", "orders"))
        stands(service, 0, 100)
        await service.ask("ReportArchived", **report(service, 0, 5))
        with pytest.raises(AccessError):
            await service.ask("ReportArchived", "eve", **report(service, 0, 6))
        assert partition(service).archived_to == 5


async def test_what_a_log_does_not_have_is_void_in_the_metadata_too(service: Service) -> None:
    stands(service, 0, 100)
    await service.ask("ReportArchived", **report(service, 0, 60))
    archives = Archives(service.rig.controller)
    running_archives = asyncio.create_task(archives.run())
    incarnation = partition(service).incarnation
    archives.void(PartitionChange(incarnation, 0, "archive_void", "shorter", b'{"archived_to": 60}'))
    await until(lambda: partition(service).archived_to == 0)
    archives.void(PartitionChange(incarnation, 0, "archive_void", "shorter", b'{"archived_to": 60}'))
    archives.void(PartitionChange(12345, 0, "archive_void", "gone", b'{"archived_to": 60}'))
    await service.ask("ReportArchived", **report(service, 0, 40))
    assert partition(service).archived_to == 40
    running_archives.cancel()
