"""The data plane reports a blocked event loop, continues to serve and handles signals."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from tests.integration.server.process import LIMIT_S, Process, call, free_port, started
from tests.integration.server.test_http import get

BLOCKING = """
import re, time
from bascule.control import controller
from bascule.server import broker as broker_module
broker_module.LIMIT_S = 1.0
create_stream = controller.decide.create_stream
def sleeping(seconds):
    time.sleep(seconds)
def computing(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
def matching(seconds):
    re.match("(a+)+$", "a" * 40 + "b")  # runs for hours without releasing the interpreter
def perhaps_blocking(state, request, *arguments):
    how, _, seconds = request.name.partition("-for-")
    if seconds:
        globals()[how](float(seconds))
    return create_stream(state, request, *arguments)
controller.decide.create_stream = perhaps_blocking
"""

SERVING, NOT_SERVING = 1, 2


async def health(channel: grpc.aio.Channel, service: str) -> int:
    stub = cast("Any", channel).unary_unary("/grpc.health.v1.Health/Check")
    answer = await stub(b"\x0a%c%s" % (len(service), service.encode()), timeout=LIMIT_S)
    assert answer[:1] == b"\x08"
    return int(answer[1])


async def until_health(channel: grpc.aio.Channel, service: str, expected: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while await health(channel, service) != expected:  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.05)


def watchdog_lines(broker: Process) -> list[dict[str, Any]]:
    return [line for line in broker.lines() if line["target"] == "bascule.watchdog"]


@contextlib.asynccontextmanager
async def blocking(broker: Process, name: str) -> AsyncGenerator[asyncio.Task[Any]]:
    """Sends a request that blocks the event loop."""
    async with broker.channel() as other:
        asking = asyncio.create_task(call(other, "CreateStream", name=name, subject="s"))
        yield asking
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.parametrize("how", ["sleeping", "computing", "matching"])
async def test_a_signal_ends_a_broker_with_a_blocked_event_loop_and_acked_records_stay(
    tmp_path: Path, how: str
) -> None:
    port = free_port()
    flags = {"http__listen": f"127.0.0.1:{port}"}
    async with started(tmp_path, prelude=BLOCKING, **flags) as broker, broker.channel() as channel:
        await call(channel, "CreateStream", name="s", subject="s")
        assert await health(channel, "bascule.admin") == SERVING
        async with blocking(broker, f"{how}-for-600"):
            await until_health(channel, "bascule.admin", NOT_SERVING)
            assert await health(channel, "proto.API") == SERVING
            status, text = await asyncio.to_thread(get, f"127.0.0.1:{port}", "/readyz")
            assert (status, text.partition(":")[0]) == (200, "[!] control plane")
            assert (await call(channel, "Publish", stream="s", value=b"kept", ackPolicy=1)).ack.offset == 0
            async with asyncio.timeout(LIMIT_S):
                while not watchdog_lines(broker):  # noqa: ASYNC110 - a line of a file
                    await asyncio.sleep(0.05)
            line = watchdog_lines(broker)[0]
            assert line["level"] == "error"
            assert "event loop" in line["message"]
            assert f"in {how}" in line["stack"], "the blocking function"
            assert "in perhaps_blocking" in line["stack"]
            began = time.monotonic()
            assert await broker.end(signal.SIGTERM) == 0
            assert time.monotonic() - began < 15
        assert any("SIGTERM" in line["message"] for line in watchdog_lines(broker))
    async with started(tmp_path) as again, again.channel() as channel:
        assert (await call(channel, "Publish", stream="s", value=b"next", ackPolicy=1)).ack.offset == 1


async def test_an_event_loop_that_runs_again_is_reported_and_healthy(tmp_path: Path) -> None:
    async with started(tmp_path, prelude=BLOCKING) as broker, broker.channel() as channel:
        async with blocking(broker, "sleeping-for-4") as asking:
            await until_health(channel, "bascule.admin", NOT_SERVING)
            await asking
        await until_health(channel, "bascule.admin", SERVING)
        assert any("runs again" in line["message"] for line in watchdog_lines(broker))
        assert await broker.end(signal.SIGTERM) == 0
        assert broker.lines()[-1]["message"] == "stopped"


async def test_a_second_signal_ends_a_blocked_broker_at_once(tmp_path: Path) -> None:
    prelude = f"{BLOCKING}\nbroker_module.LIMIT_S = 60.0"
    async with started(tmp_path, prelude=prelude) as broker, blocking(broker, "sleeping-for-600"):
        await asyncio.sleep(1.5)  # until no beat can be pending
        broker.process.send_signal(signal.SIGINT)
        await asyncio.sleep(1.5)  # an earlier signal would count as the same one
        assert broker.process.returncode is None
        assert await broker.end(signal.SIGINT) == 130


async def test_the_stack_signal_alone_has_no_effect(tmp_path: Path) -> None:
    async with started(tmp_path) as broker, broker.channel() as channel:
        for _ in range(200):
            broker.process.send_signal(signal.SIGUSR2)
        await call(channel, "CreateStream", name="s", subject="s")
        assert await broker.end(signal.SIGTERM) == 0
