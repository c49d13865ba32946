"""The methods of ours beside Liftbridge's: JSON objects in and out (`specs/formats/admin.md`)."""

import json
from typing import Any

import pytest
from bascule._liftbridge_pb import message
from bascule.metadata.model import incarnation_of
from bascule.protocols.grpc_status import Status

from tests.unit.control.fake_plane import until
from tests.unit.control.rig import Rig
from tests.unit.protocols.test_liftbridge import good


async def send(rig: Rig, method: str, body: bytes) -> tuple[int, str, bytes]:
    """Send one request through the seam; the reply."""
    request_id = len(rig.plane.replies) + 1000
    rig.plane.request(request_id, f"liftbridge/{method}", body)
    await until(lambda: request_id in rig.plane.replies, 30.0)
    return rig.plane.replies[request_id]


async def ask(rig: Rig, method: str, **fields: Any) -> Any:
    code, text, body = await send(rig, method, json.dumps(fields).encode())
    assert (code, text) == (0, ""), text
    return json.loads(body)


async def refused(rig: Rig, method: str, body: object) -> tuple[Status, str]:
    code, text, answer = await send(rig, method, json.dumps(body).encode())
    assert answer == b""
    return Status(code), text


async def test_a_change_reaches_the_open_partitions_and_a_dry_run_does_not(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s", codec="lz4", maxRecordBytes={"value": 7})
    first = incarnation_of(2, 0)
    assert (rig.plane.opened[first]["codec"], rig.plane.opened[first]["max_record_bytes"]) == ("lz4", 7)
    request = {"name": "s", "changes": {"codec": "zstd", "retention_bytes": 5}}
    planned = await ask(rig, "EditStream", **request, dry_run=True)
    assert (planned["before"]["codec"], planned["after"]["codec"]) == ("lz4", "zstd")
    assert rig.plane.opened[first]["codec"] == "lz4"
    assert await ask(rig, "EditStream", **request, dry_run=False) == planned
    opened = rig.plane.opened[first]
    assert (opened["codec"], opened["retention_bytes"], opened["max_record_bytes"]) == ("zstd", 5, 7)
    await ask(rig, "EditStream", name="s", changes={"max_record_bytes": None}, dry_run=False)
    assert rig.plane.opened[first]["max_record_bytes"] == 1 << 20


@pytest.mark.parametrize(("field", "value"), [("durability", "eternal"), ("codec", "gzip"), ("natsCopy", "x" * 90)])
async def test_a_creation_names_choices_that_do_not_exist(rig: Rig, field: str, value: str) -> None:
    body = message("CreateStreamRequest")(name="s", subject="s", **{field: value}).SerializeToString()
    for method in ("CreateStream", "CheckCreateStream"):
        code, text, _ = await send(rig, method, body)
        assert Status(code) is Status.INVALID_ARGUMENT
        assert text.startswith(f"{field} is '{value[:80]}', not one of ")


async def test_a_check_refuses_what_a_creation_refuses_and_creates_nothing(rig: Rig) -> None:
    request = message("CreateStreamRequest")(name="s", subject="s")
    code, text, body = await send(rig, "CheckCreateStream", request.SerializeToString())
    assert (code, text, body) == (0, "", b"")
    assert rig.controller.state.stream("default", "s") is None
    await good(rig, "CreateStream", name="s", subject="s")
    code, text, _ = await send(rig, "CheckCreateStream", request.SerializeToString())
    assert (Status(code), text) == (Status.ALREADY_EXISTS, "stream already exists")
    rig.plane.master = None
    request.name, request.encryption.value = "t", True
    code, _, _ = await send(rig, "CheckCreateStream", request.SerializeToString())
    assert Status(code) is Status.FAILED_PRECONDITION


async def test_details_hold_what_metadata_has_no_place_for(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s", group="q", partitions=2, retentionMaxAge={"value": 9})
    first, second = incarnation_of(2, 0), incarnation_of(2, 1)
    rig.plane.positions[first] = (3, 5, 7, 100, 11, 12, 1, 9)
    rig.plane.denied[first] = "Permissions Violation"
    damage = {"start": 3, "end": 4, "fault": "checksum", "path": "/f", "position": 64}
    rig.plane.damaged[first] = [damage]
    await good(rig, "PauseStream", name="s", partitions=[1], resumeAll=True)
    found = await ask(rig, "FetchStreamDetails", name="s")
    assert (found["queue_group"], found["resume_all"], found["encrypted"]) == ("q", True, False)
    assert (found["settings"]["retention_age_ms"], found["in_effect"]["segment_bytes"]) == (9, 256 << 20)
    one, two = found["partitions"]
    assert (one["log_start"], one["high_watermark"], one["log_end"], one["size_bytes"]) == (3, 5, 7, 100)
    assert (one["subscribers"], one["damaged"], one["scrubbed_ns"], one["failure"]) == (1, [damage], 5, "")
    assert (one["nats_dropped"], two["nats_dropped"]) == (9, None)
    assert (one["nats_subscription"], one["nats_refusal"]) == ("denied", "Permissions Violation")
    assert (two["nats_subscription"], two["nats_not_stored"]["paused"]) == ("subscribed", 2)
    assert (two["incarnation"], two["paused"], two["log_end"], two["damaged"]) == (second, True, None, [])
    assert two["paused_ns"] > 0
    assert await ask(rig, "ResumeStream", name="s", partitions=[], dry_run=False) == {"resumed": [1]}
    assert not (await ask(rig, "FetchStreamDetails", name="s"))["resume_all"]


async def test_details_of_groups_and_the_broker(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s", partitions=2)
    for consumer in ("two", "one"):
        await good(rig, "JoinConsumerGroup", groupId="g", consumerId=consumer, streams=["s"])
    (group,) = (await ask(rig, "FetchGroupDetails", groups=[]))["groups"]
    assert (group["id"], group["coordinator"], [member["id"] for member in group["members"]]) == (
        "g", "a", ["two", "one"],
    )  # fmt: skip
    reads = [tuple(item["partitions"]) for member in group["members"] for item in member["assignments"]]
    assert sorted(number for numbers in reads for number in numbers) == [0, 1]
    assert (await ask(rig, "FetchGroupDetails", groups=["g"]))["groups"] == [group]
    assert (await ask(rig, "FetchGroupDetails", groups=["h"]))["groups"] == []
    broker = await ask(rig, "FetchBrokerDetails")
    assert (broker["id"], broker["statistics"]) == ("a", {"nats_gaps": 3})


@pytest.mark.parametrize(
    ("method", "body", "code", "said"),
    [
        ("EditStream", {"name": "t", "changes": {}, "dry_run": True}, Status.NOT_FOUND, "stream does not exist"),
        ("EditStream", {"name": "__cursors", "changes": {}, "dry_run": True}, Status.INVALID_ARGUMENT, "reserved"),
        (
            "TrimPartition",
            {"name": "__cursors", "partition": 0, "before": 1, "dry_run": True},
            Status.INVALID_ARGUMENT,
            "Stream is reserved",
        ),
        (
            "TrimPartition",
            {"name": "__activity", "partition": 0, "before": 1, "dry_run": False},
            Status.INVALID_ARGUMENT,
            "Stream is reserved",
        ),
        (
            "EditStream",
            {"name": "t", "changes": [], "dry_run": True},
            Status.INVALID_ARGUMENT,
            "not a JSON object of name",
        ),
        ("EditStream", {"name": "t"}, Status.INVALID_ARGUMENT, "not a JSON object of name, changes, dry_run"),
        (
            "EditStream",
            {"name": "t", "changes": {"\ud800": 1}, "dry_run": True},
            Status.INVALID_ARGUMENT,
            "not a JSON object of name",
        ),
        ("FetchGroupDetails", {"groups": ["g"] * 10_001}, Status.INVALID_ARGUMENT, "10001 groups are asked for, at"),
        ("ResumeStream", {"name": "t", "partitions": [], "dry_run": False}, Status.NOT_FOUND, "stream does not exist"),
        (
            "ResumeStream",
            {"name": "t", "partitions": ["0"], "dry_run": False},
            Status.INVALID_ARGUMENT,
            "not a list of num",
        ),
        ("FetchStreamDetails", {"name": "t"}, Status.NOT_FOUND, "stream does not exist"),
        ("FetchStreamDetails", [], Status.INVALID_ARGUMENT, "not a JSON object of name"),
        ("FetchGroupDetails", {}, Status.INVALID_ARGUMENT, "not a JSON object of groups"),
        ("FetchBrokerDetails", {"more": 1}, Status.INVALID_ARGUMENT, "not a JSON object"),
    ],
)
async def test_what_is_wrong_is_said(rig: Rig, method: str, body: object, code: Status, said: str) -> None:
    found, text = await refused(rig, method, body)
    assert found is code
    assert said in text


async def test_groups_that_make_too_much_of_an_answer_are_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await good(rig, "CreateStream", name="s", subject="s")
    await good(rig, "JoinConsumerGroup", groupId="g", consumerId="c", streams=["s"])
    monkeypatch.setattr("bascule.protocols.liftbridge.details.MAX_ANSWER_BYTES", 20)
    code, text = await refused(rig, "FetchGroupDetails", {"groups": []})
    assert (code, "ask for fewer groups" in text) == (Status.RESOURCE_EXHAUSTED, True)
    assert (await ask(rig, "FetchGroupDetails", groups=["h"]))["groups"] == []
