"""Several brokers as separate processes on this machine."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import bascule
import grpc.aio

from tests.integration.server.process import Process, call, free_port, launch

NAMES = ("b1", "b2", "b3")
LIMIT_S = 60.0


class Brokers:
    """Brokers of one cluster, by name. Each has a directory and ports of its own."""

    def __init__(self, directory: Path, names: tuple[str, ...] = NAMES, **flags: Any) -> None:
        self.directory = directory
        self.flags = flags
        """Settings of all of them."""
        self.names = names
        self.peers = {name: f"127.0.0.1:{free_port()}" for name in names}
        self.running: dict[str, Process] = {}
        self._nats = f"nats://127.0.0.1:{free_port()}"
        """Nobody is there: metadata needs no NATS."""

    async def launch(self, name: str, **flags: Any) -> Process:
        """Start a broker; does not wait."""
        directory = self.directory / flags.pop("directory", name)
        directory.mkdir(exist_ok=True)
        given: dict[str, Any] = {
            "broker__broker_id": name,
            "cluster__peers": self.peers,
            "nats__servers": [self._nats],
            **self.flags,
            **flags,
        }
        return await launch(directory, **given)

    async def start(self, *names: str) -> None:
        """Start brokers and wait until they serve."""
        launched = {name: await self.launch(name) for name in names}
        self.running |= launched
        await self.ready()

    async def ready(self) -> None:
        """Wait until all that run serve."""
        for life in self.running.values():
            await until(lambda life=life: _is_ready(life))
            await life.ready()

    async def kill(self, name: str) -> None:
        """End a broker as a crash does."""
        await self.running.pop(name).end(signal.SIGKILL)

    async def stop(self) -> None:
        """End those that run."""
        for name in tuple(self.running):
            with contextlib.suppress(ProcessLookupError):
                await self.running.pop(name).end(signal.SIGTERM)

    async def call(self, broker: str, method: str, /, **fields: Any) -> Any:
        """One call to one broker."""
        async with self.running[broker].channel() as channel:
            return await call(channel, method, **fields)

    async def streams(self, name: str) -> list[str]:
        """The streams that a broker knows."""
        answer = await self.call(name, "FetchMetadata")
        return sorted(item.name for item in answer.streamMetadata)

    async def created(self, name: str, stream: str, factor: int = 1, **settings: Any) -> str:
        """Create a stream through a broker, again while there is no controller; the broker that leads it."""

        async def create() -> bool:
            try:
                await self.call(name, "CreateStream", name=stream, subject=stream, replicationFactor=factor, **settings)
            except grpc.aio.AioRpcError as failure:
                if "already exists" in str(failure.details()):
                    return True
                if failure.code() not in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL}:
                    raise
                return False
            return True

        await until(create)
        answer = await self.call(name, "FetchMetadata", streams=[stream])
        return str(answer.streamMetadata[0].partitions[0].leader)

    async def seen(self, stream: str) -> None:
        """Wait until every running broker knows the stream."""
        for name in self.running:
            await until(lambda name=name: self._knows(name, stream))

    async def _knows(self, name: str, stream: str) -> bool:
        return stream in await self.streams(name)

    async def status(self, name: str) -> bascule.ClusterStatus:
        """The cluster as a broker knows it."""
        async with self.client(name) as client:
            return await client.describe_cluster()

    async def shown(self, name: str) -> tuple[int, dict[str, Any]]:
        """`bascule cluster status` of a broker: exit code and result."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bascule.cli", "cluster", "status", "--url", self.url(name), "--output", "json",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        printed, _ = await process.communicate()
        return await process.wait(), json.loads(printed)

    def url(self, *names: str) -> str:
        """For the SDK and the command line: the addresses of these brokers, in this order."""
        return "liftbridge://" + ",".join(self.running[name].addresses["address"] for name in names)

    def client(self, *names: str, **options: Any) -> AbstractAsyncContextManager[bascule.AsyncClient]:
        """A client that is given these brokers."""
        return bascule.connect_async(self.url(*names), **options)

    async def reached(self, name: str, **states: str) -> None:
        """Wait until a broker knows these states of others, and of itself."""

        async def is_reached() -> bool:
            known = {item.id: item.state for item in (await self.status(name)).brokers}
            return all(known[other] == state for other, state in states.items())

        await until(is_reached)

    def heard(self, name: str, text: str) -> int:
        """How many messages with this text a broker has logged."""
        return sum(text in line.get("message", "") for line in self.running[name].lines())

    async def said(self, name: str, text: str, before: int = 0) -> None:
        """Wait until a broker has logged more than `before` messages with this text."""

        async def is_said() -> bool:
            return self.heard(name, text) > before

        await until(is_said)

    async def settled(self) -> str:
        """Wait until a running broker has taken the office; its name."""

        async def is_taken() -> bool:
            return bool(self.controller())

        await until(is_taken)
        return self.controller()

    def controller(self) -> str:
        """The running broker that reported last that it took the office; empty = none did."""
        taken: list[tuple[int, str]] = []
        for name, life in self.running.items():
            lines = [line for line in life.lines() if line.get("message") == "this broker is the controller"]
            taken.extend((int(line["term"]), name) for line in lines)
        return max(taken, default=(0, ""))[1]


async def _is_ready(life: Process) -> bool:
    return life.ready_file.exists() or life.process.returncode is not None


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(LIMIT_S):
        while not await condition():  # noqa: ASYNC110 - another process has no event of this one
            await asyncio.sleep(0.05)


@asynccontextmanager
async def cluster(directory: Path, **flags: Any) -> AsyncGenerator[Brokers]:
    """Three brokers that serve, with these settings; those that run at the end are stopped."""
    brokers = Brokers(directory, **flags)
    try:
        await brokers.start(*NAMES)
        yield brokers
    finally:
        await brokers.stop()
