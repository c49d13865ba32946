"""gufo-liftbridge 0.2.0, unmodified: the calls and arguments that the other files do not use."""

import ast
import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bascule.testing import TestBroker, broker
from gufo.liftbridge.client import LiftbridgeClient
from gufo.liftbridge.types import AckPolicy, StartPosition

from tests.conformance.api import Api, values
from tests.conformance.test_gufo_liftbridge import fill, take

FILES = sorted(Path(__file__).parent.glob("test_gufo_*.py"))
NO_EFFECT = {"timeout"}
"""Arguments that the client accepts and ignores."""
NOT_NAMED = {"OFFSET", "TIMESTAMP"}
"""Positions that the client chooses itself if an offset or a time is given."""


def test_every_call_and_every_argument_is_used() -> None:
    used: dict[str, set[str]] = {}
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                used.setdefault(called, set()).update(item.arg or "" for item in node.keywords)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used.setdefault(node.value.id, set()).add(node.attr)
    for name, function in inspect.getmembers(LiftbridgeClient, inspect.isfunction):
        if name.startswith("_"):
            continue
        assert name in used, f"{name} is never called"
        positional = {"stream"} if name == "get_metadata" else set[str]()
        assert not optional(function) - used[name] - positional - NO_EFFECT, f"of {name}"
    assert not optional(LiftbridgeClient.__init__) - used["LiftbridgeClient"]
    for kind in (AckPolicy, StartPosition):
        assert not {item.name for item in kind} - used[kind.__name__] - NOT_NAMED, kind


def optional(function: Callable[..., Any]) -> set[str]:
    """Optional and keyword arguments."""
    return {
        item.name
        for item in inspect.signature(function).parameters.values()
        if item.kind is item.KEYWORD_ONLY or item.default is not item.empty
    }


async def test_waiting_for_a_stream_succeeds(running: TestBroker, stream: str) -> None:
    async with LiftbridgeClient([running.address]) as client, asyncio.timeout(90):
        await client.create_stream(stream, subject=f"on.{stream}", enable_compact=True, partitions=2)
        await client.wait_for_stream(stream)
        (created,) = (await client.get_metadata(stream, wait_for_stream=True)).metadata
        assert (created.name, created.subject) == (stream, f"on.{stream}")
        shown = await client.get_partition_metadata(stream, 1, wait_for_stream=True)
        assert (shown.high_watermark, shown.newest_offset, shown.paused) == (-1, -1, False)
        await client.publish(b"x", stream=stream, partition=1, ack_policy=AckPolicy.LEADER, wait_for_stream=True)
        await client.publish(b"quiet", stream=stream, partition=1, ack_policy=AckPolicy.NONE)
        found = await take(client.subscribe(stream, partition=1, start_position=StartPosition.EARLIEST), 2)
        assert [message.value for message in found] == [b"x", b"quiet"]
        assert (found[0].partition, found[0].subject) == (1, f"on.{stream}.1")
        names = {item.name for item in (await client.get_metadata()).metadata}
        assert stream in names


async def test_bulk_without_waiting_still_stores_everything(running: TestBroker, stream: str) -> None:
    client = LiftbridgeClient(
        [running.address],
        max_message_size=1 << 20,
        enable_http_proxy=False,
        compression_method="lzma",
        compression_threshold=10,
        encoding_header="X-Encoding",
        publish_async_ack_timeout=30.0,
        metadata_leader_timeout=5.0,
        metadata_leader_dev=0.5,
    )
    async with asyncio.timeout(90):
        await client.create_stream(stream, wait_for_stream=True)
        requests = [
            client.get_publish_request(
                b"again and again %d" % number,
                stream=stream,
                key=b"k%d" % number,
                partition=0,
                headers={"h": b"%d" % number},
                ack_policy=AckPolicy.ALL,
                auto_compress=True,
            )
            for number in range(50)
        ]
        _ = [ack async for ack in client.publish_bulk(requests, wait=False)]
        await client.publish(
            b"last", stream=stream, headers={"h": b"last"}, correlation_id="c", ack_inbox=f"inbox.{stream}"
        )
        with Api(running.address) as api:
            headers = api.read(stream)[0].headers
            assert headers["X-Encoding"] == b"lzma"
        found = await take(client.subscribe(stream, start_position=StartPosition.EARLIEST), 51)
        await client.close()
    sent = {(b"k%d" % number, b"again and again %d" % number) for number in range(50)}
    assert {(item.key, item.value) for item in found} == {*sent, (b"", b"last")}


async def test_a_subscriber_continues_where_it_was_after_a_kill() -> None:
    got: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()

    async def listen(client: Any) -> None:
        async for message in client.subscribe("s", start_position=StartPosition.EARLIEST):
            got.put_nowait((message.offset, message.value))

    with broker(durability="disk") as running:
        async with LiftbridgeClient([running.address]) as client, asyncio.timeout(120):
            await client.create_stream("s", wait_for_stream=True)
            await fill(client, "s", 20)
            listening = asyncio.create_task(listen(client))
            before = [await got.get() for _ in range(20)]
            await asyncio.to_thread(running.kill)
            await asyncio.to_thread(running.start)
            with Api(running.address) as api:
                api.publish("s", b"later")
                stored = values(api.read("s"))
            after = await got.get()
            listening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await listening
    assert stored == [*(b"%d" % number for number in range(20)), b"later"]
    assert [*before, after] == list(enumerate(stored))
