"""Supervision of the control plane: after it has ended, and before it is ready, no client is served."""

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from bascule import config
from bascule._seam import Committed
from bascule.engine import Engine
from bascule.metadata import Command, CreateStream, JoinGroup, Placement, RegisterBroker, StreamSettings, encode_command
from bascule.server import Broker

from tests.integration.server.process import LIMIT_S, call, free_port, launch, started

DEFECT = """
from pathlib import Path
from bascule.control import {module}
original = {module}.{name}
def defective(*arguments):
    if Path({flag!r}).exists():
        raise KeyError("planted defect")
    return original(*arguments)
{module}.{name} = defective
"""


def planted(directory: Path, module: str, name: str) -> tuple[Path, str]:
    """A file that enables the bug, and the code that plants it."""
    flag = directory / "defective"
    return flag, DEFECT.format(module=module, name=name, flag=str(flag))


@pytest.mark.parametrize(
    ("module", "name", "task"), [("reconciler", "plan", "reconciler"), ("autopause", "watched", "auto-pause")]
)
async def test_a_background_task_that_keeps_failing_ends_the_broker(
    tmp_path: Path, module: str, name: str, task: str
) -> None:
    flag, prelude = planted(tmp_path, module, name)
    broker = await (await launch(tmp_path, prelude=prelude)).ready()
    flag.touch()
    async with broker.channel() as channel:
        with contextlib.suppress(grpc.aio.AioRpcError):
            for number in range(100):
                await call(channel, "CreateStream", name=f"s{number}", subject="s")
                await asyncio.sleep(0.1)
            pytest.fail("the broker served all the while")
    assert await asyncio.wait_for(broker.process.wait(), LIMIT_S) == 1
    errors = [line for line in broker.lines() if line.get("task") == task]
    assert [line["ends"] for line in errors] == [1, 2, 3, 4]
    assert all("planted defect" in line["exception"] for line in errors)
    assert errors[-1]["message"].endswith("the broker ends")


async def test_a_background_task_that_ends_while_the_broker_starts_ends_it(tmp_path: Path) -> None:
    flag, prelude = planted(tmp_path, "reconciler", "plan")
    flag.touch()
    broker = await launch(tmp_path, prelude=prelude)
    assert await asyncio.wait_for(broker.process.wait(), LIMIT_S) == 1
    assert not broker.ready_file.exists()


async def test_connections_are_refused_until_every_partition_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    flags = {"data_dir": tmp_path / "data", "broker.port": port, "nats.standalone": True}
    settings = config.load(None, flags, {})
    first = Broker(settings)
    await first.start()
    async with grpc.aio.insecure_channel(first.address) as channel:
        await call(channel, "CreateStream", name="s", subject="s")
    await first.stop()
    opening, gate, original = threading.Event(), threading.Event(), Engine.open

    def slow(self: Engine, partitions: bytes) -> list[tuple[int, str, str]]:
        opening.set()
        assert gate.wait(LIMIT_S)
        return original(self, partitions)

    monkeypatch.setattr(Engine, "open", slow)
    second = Broker(settings)
    starting = asyncio.create_task(second.start())
    assert await asyncio.to_thread(opening.wait, LIMIT_S)
    for _ in range(20):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        assert not starting.done()
        await asyncio.sleep(0.01)
    gate.set()
    await starting
    async with grpc.aio.insecure_channel(second.address) as channel:
        assert (await call(channel, "Publish", stream="s", ackPolicy=1)).ack.offset == 0
    await second.stop()


async def test_clients_that_wait_for_the_port_are_served(tmp_path: Path) -> None:
    port = free_port()
    async with started(tmp_path, broker__port=port) as first, first.channel() as channel:
        for number in range(20):
            await call(channel, "CreateStream", name=f"s{number}", subject=f"s{number}", partitions=20)
        await first.end(signal.SIGKILL)
    second = await launch(tmp_path, broker__port=port)
    try:
        async with asyncio.timeout(LIMIT_S):
            while not await _is_open(port):  # noqa: ASYNC110 - another process opens it
                await asyncio.sleep(0.001)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert (await call(channel, "Publish", stream="s7", partition=19, ackPolicy=1)).ack.offset == 0
    finally:
        assert await second.end(signal.SIGTERM) == 0


async def _is_open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


STREAMS, MEMBERS = 1000, 110


def history() -> list[Command]:
    """Members of a group with many streams each; the partitions belong to another broker, so none is opened."""
    names = tuple(f"stream-{number:04}" for number in range(STREAMS))
    there = (Placement(("there",), "there"),)
    creations = (CreateStream("default", name, name, "", 1, StreamSettings(), there) for name in names)
    joins = (JoinGroup("g", f"consumer-{number}", names, "here") for number in range(MEMBERS))
    return [RegisterBroker("here", "h", 1, 1), RegisterBroker("there", "h", 1, 1), *creations, *joins]


def write_history(directory: Path, commands: Sequence[Command]) -> None:
    """A data directory whose metadata log has these entries and no snapshot."""
    settings: dict[str, Any] = {
        "data_dir": str(directory / "data"),
        "cluster_id": "bascule-default",
        "broker_id": "here",
        "runtime_threads": 1,
        "namespace": "liftbridge-default",
        "limits": {},
    }
    engine = Engine(settings)
    engine.metadata_open()
    entries = list(enumerate(map(encode_command, commands), start=1))
    for start in range(0, len(entries), 500):
        part = entries[start : start + 500]
        engine.propose(part, 30_000)
        committed = 0
        deadline = time.monotonic() + LIMIT_S
        while committed < len(part):
            assert time.monotonic() < deadline
            committed += sum(isinstance(event, Committed) for event in engine.poll(1000))
            time.sleep(0.001)
    engine.close(0)


async def test_many_joins_with_many_streams_are_replayed_once_and_in_time(
    tmp_path: Path,
) -> None:
    write_history(tmp_path, history())
    async with started(tmp_path, broker__broker_id="here") as first, first.channel() as channel:
        answer = await call(channel, "FetchMetadata", groups=["g"])
        assert answer.groupMetadata[0].epoch == STREAMS + MEMBERS + 2
        assert processor_s(first.process.pid) < 5, "the limit of a restart on a shared machine"
        assert await first.end(signal.SIGTERM) == 0
    prelude = "from bascule.control import metadata_log; metadata_log.PROGRESS_S = 0.0"
    async with started(tmp_path, prelude=prelude, broker__broker_id="here") as second, second.channel() as channel:
        answer = await call(channel, "FetchMetadata", groups=["g"])
        assert answer.groupMetadata[0].epoch == STREAMS + MEMBERS + 2
        messages = [line["message"] for line in second.lines()]
        assert not any(message.startswith("replayed") for message in messages), "the clean stop left a snapshot"


def processor_s(pid: int) -> float:
    """Processor time of a process so far, in seconds."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / 100


async def test_a_signal_ends_a_long_replay_at_once(tmp_path: Path) -> None:
    write_history(tmp_path, history()[:500])
    slow = """
import time
from bascule.control import metadata_log
apply = metadata_log.apply
def slowly(*arguments):
    time.sleep(0.05)
    return apply(*arguments)
metadata_log.apply = slowly
"""
    broker = await launch(tmp_path, prelude=slow, broker__broker_id="here")
    async with asyncio.timeout(LIMIT_S):
        while not any(line["message"].startswith("replayed") for line in broker.lines()):
            assert broker.process.returncode is None
            await asyncio.sleep(0.01)
    began = time.monotonic()
    assert await broker.end(signal.SIGTERM) == 130
    assert time.monotonic() - began < 5, "the rest of the replay takes over 20 s"
