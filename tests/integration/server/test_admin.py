"""Admin requests over real sockets: an unmodified client, concurrent callers, malformed bytes."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from bascule._liftbridge_pb import message, methods
from bascule._methods import METHODS
from gufo.liftbridge.client import LiftbridgeClient

from tests.integration.server.process import LIMIT_S, Process, call, raw_call, started


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncGenerator[Process]:
    async with started(tmp_path) as it:
        yield it


async def test_an_unmodified_client_creates_sees_and_deletes_a_stream(broker: Process) -> None:
    async with cast("Any", LiftbridgeClient)([broker.addresses["address"]]) as client:
        await client.create_stream("lift", subject="lift.>", wait_for_stream=True)
        metadata = await client.get_metadata()
        assert [item.name for item in metadata.metadata] == ["lift"]
        assert [f"{item.host}:{item.port}" for item in metadata.brokers] == [broker.addresses["address"]]
        await client.delete_stream("lift")
        assert not (await client.get_metadata()).metadata


async def test_of_many_concurrent_creations_exactly_one_succeeds(broker: Process) -> None:
    async with broker.channel() as channel:
        calls = [call(channel, "CreateStream", name="s", subject="s") for _ in range(50)]
        results = await asyncio.gather(*calls, return_exceptions=True)
    refused = [item for item in results if isinstance(item, grpc.aio.AioRpcError)]
    assert len(refused) == 49
    assert {item.code() for item in refused} == {grpc.StatusCode.ALREADY_EXISTS}


async def test_a_stream_can_be_deleted_and_created_again_at_once(broker: Process) -> None:
    async with broker.channel() as channel:
        for _ in range(10):
            await call(channel, "CreateStream", name="s", subject="s", partitions=3)
            await call(channel, "DeleteStream", name="s")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(channel, "DeleteStream", name="s")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert caught.value.details() == "stream does not exist"


async def test_statuses_reach_the_client_with_code_and_text(broker: Process) -> None:
    async with broker.channel() as channel:
        for fields, code, text in (
            ({}, grpc.StatusCode.INVALID_ARGUMENT, "Name cannot be empty"),
            ({"name": "s", "subject": "a b"}, grpc.StatusCode.INVALID_ARGUMENT, "Subject is invalid"),
            ({"name": "__cursors", "subject": "a"}, grpc.StatusCode.INVALID_ARGUMENT, "Stream is reserved"),
            (
                {"name": "s", "subject": "a", "replicationFactor": 3},
                grpc.StatusCode.INVALID_ARGUMENT,
                "Invalid replicationFactor 3, cluster size 1",
            ),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(channel, "CreateStream", **fields)
            assert (caught.value.code(), caught.value.details()) == (code, text)


async def test_a_request_damaged_at_any_byte_is_answered_and_the_broker_lives(broker: Process) -> None:
    good: bytes = message("CreateStreamRequest")(
        name="stream", subject="a.b", group="g", partitions=1, retentionMaxAge={"value": 5}, minIsr={"value": 1}
    ).SerializeToString()
    async with broker.channel() as channel:
        codes: set[grpc.StatusCode] = set()

        async def send(body: bytes) -> None:
            try:
                await raw_call(channel, "CreateStream", body)
            except grpc.aio.AioRpcError as refused:
                codes.add(refused.code())

        for position in range(len(good)):
            for change in (0x01, 0x80, 0xFF):
                damaged = bytearray(good)
                damaged[position] ^= change
                await send(bytes(damaged))
            await send(good[:position])
        await call(channel, "FetchMetadata")
    expected = {"INVALID_ARGUMENT", "INTERNAL", "ALREADY_EXISTS"}
    assert {code.name for code in codes} == expected


async def test_every_admin_method_answers_an_empty_request(broker: Process) -> None:
    served: dict[str, Any] = {}
    hot = {"Subscribe", "Publish", "PublishAsync", "PublishToSubject"}
    async with broker.channel() as channel:
        for name in methods().keys() - hot:
            try:
                await raw_call(channel, name, b"")
                served[name] = "OK"
            except grpc.aio.AioRpcError as refused:
                served[name] = refused.code().name
    assert served == {
        "CreateStream": "INVALID_ARGUMENT",
        "DeleteStream": "NOT_FOUND",
        "FetchMetadata": "OK",
        "FetchPartitionMetadata": "NOT_FOUND",
        **dict.fromkeys(["PauseStream", "SetStreamReadonly"], "NOT_FOUND"),
        **dict.fromkeys(["SetCursor", "FetchCursor"], "INVALID_ARGUMENT"),
        **dict.fromkeys(["JoinConsumerGroup", "LeaveConsumerGroup"], "INVALID_ARGUMENT"),
        **dict.fromkeys(["FetchConsumerGroupAssignments", "ReportConsumerGroupCoordinator"], "INVALID_ARGUMENT"),
    }


async def test_every_method_of_the_admin_service_answers_an_empty_request(broker: Process) -> None:
    served: dict[str, str] = {}
    async with broker.channel() as channel:
        for name, method in METHODS.items():
            if method.service == "bascule.admin.v1.Admin":
                stub = cast("Any", channel).unary_unary(f"/{method.service}/{name}")
                try:
                    await stub(b"", timeout=LIMIT_S)
                    served[name] = "OK"
                except grpc.aio.AioRpcError as refused:
                    served[name] = refused.code().name
        for path in ("/proto.API/TrimPartition", "/bascule.admin.v1.Admin/CreateStream"):
            with pytest.raises(grpc.aio.AioRpcError) as unknown:
                await cast("Any", channel).unary_unary(path)(b"", timeout=LIMIT_S)
            service, name = path[1:].split("/")
            assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
            assert unknown.value.details() == f"unknown method {name} for service {service}"
    assert served == {
        "TrimPartition": "INVALID_ARGUMENT",
        "CheckCreateStream": "INVALID_ARGUMENT",
        **dict.fromkeys(["PurgeStream", "EditStream", "ResumeStream", "FetchStreamDetails"], "NOT_FOUND"),
        **dict.fromkeys(
            [
                "FetchStreams",
                "FetchGroupDetails",
                "FetchBrokerDetails",
                "FetchClusterStatus",
                "FetchLags",
                "FetchSinks",
            ],
            "OK",
        ),
        **dict.fromkeys(
            ["OpenSink", "FetchSinkStreams", "ReportQuery", "ReportArchived", "ReleaseHold"], "INVALID_ARGUMENT"
        ),
        **dict.fromkeys(
            ["PublishSink", "AbortSink", "RenewSink", "DeleteSink", "SkipSink", "SetSinkQuota", "SetSinkOwner"],
            "NOT_FOUND",
        ),
        **dict.fromkeys(
            [
                "FetchUsers",
                "CreateUser",
                "DeleteUser",
                "SetUserPassword",
                "SetUserStatus",
                "SetUserRights",
                "CreateUserToken",
                "DeleteUserToken",
            ],
            "FAILED_PRECONDITION",
        ),
    }
