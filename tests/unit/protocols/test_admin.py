"""The methods of `bascule.admin.v1`: messages in and out, through the seam."""

from dataclasses import fields
from typing import Any

import pytest
from bascule._admin_pb import message
from bascule._methods import METHODS
from bascule.metadata import CreateNamespace, CreateStream, Placement, StreamSettings
from bascule.metadata.model import incarnation_of
from bascule.protocols.grpc_status import Status

from tests.unit.control.fake_plane import until
from tests.unit.control.rig import Rig
from tests.unit.protocols.test_liftbridge import good


async def send(rig: Rig, method: str, body: bytes) -> tuple[int, str, bytes]:
    """Send one request through the seam; the reply."""
    request_id = len(rig.plane.replies) + 1000
    rig.plane.request(request_id, method, body)
    await until(lambda: request_id in rig.plane.replies, 30.0)
    return rig.plane.replies[request_id]


async def ask(rig: Rig, method: str, **fields: Any) -> Any:
    body = message(f"{method}Request")(**fields).SerializeToString()
    code, text, answer = await send(rig, f"admin/{method}", body)
    assert (code, text) == (0, ""), text
    return message(f"{method}Response").FromString(answer)


async def refused(rig: Rig, method: str, **fields: Any) -> tuple[Status, str]:
    body = message(f"{method}Request")(**fields).SerializeToString()
    code, text, answer = await send(rig, f"admin/{method}", body)
    assert answer == b""
    return Status(code), text


async def test_every_method_of_the_service_has_a_handler(rig: Rig) -> None:
    defined = {name for name, method in METHODS.items() if method.service == "bascule.admin.v1.Admin"}
    assert {name.removeprefix("admin/") for name in rig.admin if name.startswith("admin/")} == defined


def test_the_settings_are_those_of_the_metadata() -> None:
    known = [field.name for field in message("StreamSettings").DESCRIPTOR.fields]
    assert known == [item.name for item in fields(StreamSettings)]


async def test_a_change_reaches_the_open_partitions_and_a_dry_run_does_not(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s", codec="lz4", maxRecordBytes={"value": 7})
    first = incarnation_of(2, 0)
    assert (rig.plane.opened[first]["codec"], rig.plane.opened[first]["max_record_bytes"]) == ("lz4", 7)
    request = {"name": "s", "changes": {"codec": "zstd", "retention_bytes": 5, "min_isr": 0}}
    planned = await ask(rig, "EditStream", **request, dry_run=True)
    assert (planned.before.codec, planned.after.codec) == ("lz4", "zstd")
    assert not planned.before.HasField("min_isr")
    assert planned.after.HasField("min_isr"), "a present 0 is meant"
    assert rig.plane.opened[first]["codec"] == "lz4"
    assert await ask(rig, "EditStream", **request) == planned
    opened = rig.plane.opened[first]
    assert (opened["codec"], opened["retention_bytes"], opened["max_record_bytes"]) == ("zstd", 5, 7)
    await ask(rig, "EditStream", name="s", reset=["max_record_bytes"])
    assert rig.plane.opened[first]["max_record_bytes"] == 1 << 20


@pytest.mark.parametrize(("field", "value"), [("durability", "eternal"), ("codec", "gzip"), ("natsCopy", "x" * 90)])
async def test_a_creation_names_choices_that_do_not_exist(rig: Rig, field: str, value: str) -> None:
    create = {"name": "s", "subject": "s", field: value}
    body = message("CheckCreateStreamRequest")(create=create).create.SerializeToString()
    for code, text in (
        (await send(rig, "liftbridge/CreateStream", body))[:2],
        await refused(rig, "CheckCreateStream", create=create),
    ):
        assert Status(code) is Status.INVALID_ARGUMENT
        assert text.startswith(f"{field} is '{value[:80]}', not one of ")


async def test_a_check_refuses_what_a_creation_refuses_and_creates_nothing(rig: Rig) -> None:
    create: dict[str, Any] = {"name": "s", "subject": "s"}
    await ask(rig, "CheckCreateStream", create=create)
    assert rig.controller.state.stream("default", "s") is None
    await good(rig, "CreateStream", **create)
    found = await refused(rig, "CheckCreateStream", create=create)
    assert found == (Status.ALREADY_EXISTS, "stream already exists")
    rig.plane.master = None
    code, _ = await refused(rig, "CheckCreateStream", create={**create, "name": "t", "encryption": {"value": True}})
    assert code is Status.FAILED_PRECONDITION


async def test_details_hold_what_metadata_has_no_place_for(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s", group="q", partitions=2, retentionMaxAge={"value": 9})
    first, second = incarnation_of(2, 0), incarnation_of(2, 1)
    rig.plane.positions[first] = (3, 5, 7, 100, 11, 12, 1, 9)
    rig.plane.denied[first] = "Permissions Violation"
    damage = {"start": 3, "end": 4, "fault": "checksum", "path": "/f", "position": 64}
    rig.plane.damaged[first] = [damage]
    await good(rig, "PauseStream", name="s", partitions=[1], resumeAll=True)
    found = await ask(rig, "FetchStreamDetails", name="s")
    assert (found.queue_group, found.resume_all, found.encrypted) == ("q", True, False)
    assert (found.settings.retention_age_ms, found.in_effect.segment_bytes) == (9, 256 << 20)
    assert not found.settings.HasField("segment_bytes"), "left to the broker's configuration"
    one, two = found.partitions
    there = one.open
    assert (there.log_start, there.high_watermark, there.log_end, there.size_bytes) == (3, 5, 7, 100)
    assert (there.last_received_ns, there.subscribers, there.nats_dropped) == (12, 1, 9)
    assert (list(one.damaged), one.scrubbed_ns, one.failure) == ([message("Damage")(**damage)], 5, "")
    assert (one.nats.subscription, one.nats.refusal) == ("denied", "Permissions Violation")
    assert (two.nats.subscription, two.nats.not_stored["paused"]) == ("subscribed", 2)
    assert (two.incarnation, two.paused, two.HasField("open"), list(two.damaged)) == (second, True, False, [])
    assert two.paused_ns > 0
    assert list((await ask(rig, "ResumeStream", name="s")).resumed) == [1]
    assert not (await ask(rig, "FetchStreamDetails", name="s")).resume_all


async def test_streams_of_any_namespace_are_listed_by_name(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s", partitions=2)
    await rig.controller.propose(CreateNamespace("shop", 0), 5.0)
    await rig.controller.propose(CreateNamespace("empty", 0), 5.0)
    place = (Placement(("a",), "a"),)
    for name in ("t", "b"):
        await rig.controller.propose(CreateStream("shop", name, "", "", 7, StreamSettings(), place), 5.0)
    found = (await ask(rig, "FetchStreams", namespace="shop")).streams
    assert [(stream.name, len(stream.partitions), stream.creationTimestamp) for stream in found] == [
        ("b", 1, 7),
        ("t", 1, 7),
    ]
    assert [stream.name for stream in (await ask(rig, "FetchStreams")).streams] == ["s"]
    assert not (await ask(rig, "FetchStreams", namespace="empty")).streams
    status, text = await refused(rig, "FetchStreams", namespace="absent")
    assert (status, text) == (Status.NOT_FOUND, "namespace 'absent' does not exist")


async def test_details_of_groups_and_the_broker(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s", partitions=2)
    for consumer in ("two", "one"):
        await good(rig, "JoinConsumerGroup", groupId="g", consumerId=consumer, streams=["s"])
    (group,) = (await ask(rig, "FetchGroupDetails")).groups
    assert (group.id, group.coordinator, [member.id for member in group.members]) == ("g", "a", ["two", "one"])
    reads = [tuple(item.partitions) for member in group.members for item in member.assignments]
    assert sorted(number for numbers in reads for number in numbers) == [0, 1]
    assert list((await ask(rig, "FetchGroupDetails", groups=["g"])).groups) == [group]
    assert not (await ask(rig, "FetchGroupDetails", groups=["h"])).groups
    broker = await ask(rig, "FetchBrokerDetails")
    assert (broker.id, dict(broker.statistics)) == ("a", {"nats_gaps": 3})


@pytest.mark.parametrize(
    ("method", "request_fields", "code", "said"),
    [
        ("EditStream", {"name": "t"}, Status.NOT_FOUND, "stream does not exist"),
        ("EditStream", {"name": "__cursors"}, Status.INVALID_ARGUMENT, "Stream is reserved"),
        ("TrimPartition", {"name": "__cursors", "partition": 0}, Status.INVALID_ARGUMENT, "Stream is reserved"),
        ("TrimPartition", {"name": "__activity", "partition": 0}, Status.INVALID_ARGUMENT, "Stream is reserved"),
        ("TrimPartition", {"name": "t", "before": 1}, Status.INVALID_ARGUMENT, "partition is not given"),
        ("TrimPartition", {"name": "t", "partition": 0}, Status.NOT_FOUND, "stream does not exist"),
        ("PurgeStream", {"name": "__cursors"}, Status.INVALID_ARGUMENT, "Stream is reserved"),
        (
            "EditStream",
            {"name": "s", "changes": {"codec": "lz4"}, "reset": ["codec"]},
            Status.INVALID_ARGUMENT,
            "codec is both in changes and in reset",
        ),
        ("EditStream", {"name": "s", "reset": ["codec"]}, Status.INVALID_ARGUMENT, "codec is not one of none, lz4"),
        ("EditStream", {"name": "s", "reset": ["codecs"]}, Status.INVALID_ARGUMENT, "codecs is not a setting of a"),
        ("EditStream", {"name": "s", "reset": ["codec"] * 24}, Status.INVALID_ARGUMENT, "reset has 24 entries, at"),
        ("EditStream", {"name": "s", "changes": {"min_isr": 256}}, Status.INVALID_ARGUMENT, "not between 0 and 255"),
        (
            "EditStream",
            {"name": "s", "changes": {"encryption": True}},
            Status.INVALID_ARGUMENT,
            "encryption stays as the stream was created",
        ),
        ("FetchGroupDetails", {"groups": ["g"] * 10_001}, Status.INVALID_ARGUMENT, "groups has 10001 entries, at"),
        ("ResumeStream", {"name": "t"}, Status.NOT_FOUND, "stream does not exist"),
        ("ResumeStream", {"name": "s", "partitions": [7]}, Status.NOT_FOUND, "partition does not exist"),
        ("FetchStreamDetails", {"name": "t"}, Status.NOT_FOUND, "stream does not exist"),
        ("CheckCreateStream", {}, Status.INVALID_ARGUMENT, "Name cannot be empty"),
    ],
)
async def test_a_refusal_names_the_reason(
    rig: Rig, method: str, request_fields: dict[str, Any], code: Status, said: str
) -> None:
    await good(rig, "CreateStream", name="s", subject="s")
    found, text = await refused(rig, method, **request_fields)
    assert found is code
    assert said in text


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.request_bytes is not None])
async def test_an_unknown_field_is_refused_by_its_number(rig: Rig, method: str) -> None:
    body = b"\x80\x7d\x01"  # field 2000, varint 1
    code, text, _ = await send(rig, f"admin/{method}", body)
    assert Status(code) is Status.INVALID_ARGUMENT
    assert text.startswith(f"bascule.admin.v1.{method}Request has no field 2000: leave it out")


@pytest.mark.parametrize(
    ("method", "field", "kind"),
    [
        ("EditStream", "changes", "bascule.admin.v1.StreamSettings"),
        ("CheckCreateStream", "create", "proto.CreateStreamRequest"),
    ],
)
async def test_an_unknown_field_inside_another_is_refused_too(rig: Rig, method: str, field: str, kind: str) -> None:
    request = message(f"{method}Request")()
    getattr(request, field).MergeFromString(b"\x80\x7d\x01")
    code, text, _ = await send(rig, f"admin/{method}", request.SerializeToString())
    assert (Status(code), text.partition(":")[0]) == (Status.INVALID_ARGUMENT, f"{kind} has no field 2000")


async def test_groups_that_make_too_much_of_an_answer_are_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await good(rig, "CreateStream", name="s", subject="s")
    await good(rig, "JoinConsumerGroup", groupId="g", consumerId="c", streams=["s"])
    monkeypatch.setattr("bascule.protocols.admin.details.MAX_ANSWER_BYTES", 5)
    code, text = await refused(rig, "FetchGroupDetails")
    assert (code, "ask for fewer groups" in text) == (Status.RESOURCE_EXHAUSTED, True)
    assert not (await ask(rig, "FetchGroupDetails", groups=["h"])).groups
