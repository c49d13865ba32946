"""Clients of Liftbridge's, unmodified, publish and read while the leader of their partition is killed."""

import asyncio
import itertools
import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from gufo.liftbridge.client import LiftbridgeClient
from gufo.liftbridge.error import LiftbridgeError
from gufo.liftbridge.types import AckPolicy, StartPosition

from tests.integration.cluster.brokers import NAMES, Brokers, cluster, until
from tests.integration.cluster.test_failover import led_in_sync
from tests.integration.cluster.test_replicate import created

HERE = Path(__file__).parent
GO_PAGE = HERE.parents[2] / "docs" / "how-to" / "go.md"
STREAM = "orders"
ENOUGH = 100
"""Records that are acknowledged, and read, before and after the kill."""


class Seen:
    """What a client has seen.

    Attributes:
        acked: value by offset.
        settled: those of them that must have been read.
        read: offset and value, in order.
        failures: texts.
    """

    def __init__(self) -> None:
        self.acked: dict[int, bytes] = {}
        self.settled: dict[int, bytes] = {}
        self.read: list[tuple[int, bytes]] = []
        self.failures: list[str] = []

    def check(self) -> None:
        """Every offset was read once, in order, and every acknowledged record with what was published."""
        offsets = [offset for offset, _ in self.read]
        assert offsets == list(range(len(offsets)))
        found = dict(self.read)
        lost = {offset: value for offset, value in self.settled.items() if found.get(offset) != value}
        assert len(self.settled) >= 2 * ENOUGH
        assert not lost, f"{len(lost)} of {len(self.settled)} acknowledged records are lost; {self.failures[-3:]}"
        values = [value for _, value in self.read if value != b"first"]
        assert len(values) == len(set(values)), "a record is stored twice"


async def through_a_kill(brokers: Brokers, seen: Seen, leader: str, is_over: Callable[[], bool]) -> None:
    """Kill the leader once enough is published and read; return when as much was after it, and read."""

    async def grows(by: int) -> None:
        acked, read = len(seen.acked) + by, len(seen.read) + by

        async def is_enough() -> bool:
            return is_over() or (len(seen.acked) >= acked and len(seen.read) >= read)

        await until(is_enough)
        assert not is_over(), seen.failures[-3:]

    await grows(ENOUGH)
    await brokers.kill(leader)
    await grows(ENOUGH)
    acked = dict(seen.acked)
    last = max(acked)

    async def is_read() -> bool:
        return is_over() or seen.read[-1][0] >= last

    await until(is_read)
    seen.settled = acked


async def gufo_publishes(client: LiftbridgeClient, seen: Seen) -> None:
    """Publish ten records over each call, until cancelled; none is published twice."""
    number = 0
    while True:
        values = {str(number + more): b"gufo-%d" % (number + more) for more in range(10)}
        number += len(values)
        requests = (
            client.get_publish_request(value, stream=STREAM, ack_policy=AckPolicy.ALL, correlation_id=name)
            for name, value in values.items()
        )
        try:
            async for answer in client.publish_bulk(requests):
                shown: Any = answer
                if shown.asyncError.message:
                    seen.failures.append(shown.asyncError.message)
                else:
                    seen.acked[shown.ack.offset] = values[shown.correlationId]
        except (LiftbridgeError, TimeoutError) as failure:
            seen.failures.append(repr(failure))
            await asyncio.sleep(0.05)


async def gufo_reads(client: LiftbridgeClient, seen: Seen) -> None:
    async for record in client.subscribe(STREAM, start_position=StartPosition.EARLIEST):
        seen.read.append((record.offset, record.value))


async def test_an_unmodified_gufo_client_continues_when_the_leader_is_killed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        await created(brokers, STREAM)
        leader = await led_in_sync(brokers)
        seeds = [brokers.running[name].addresses["address"] for name in NAMES if name != leader]
        seen = Seen()
        async with LiftbridgeClient(seeds) as client:
            tasks = [asyncio.create_task(run(client, seen)) for run in (gufo_publishes, gufo_reads)]
            await through_a_kill(brokers, seen, leader, lambda: any(task.done() for task in tasks))
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
    seen.check()


def go_program(directory: Path) -> Path:
    """The program in `go_client`, with the client that the how-to page names; skips where modules cannot be had."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    (module,) = re.findall(r"go get (\S+)", GO_PAGE.read_text())
    shutil.copytree(HERE / "go_client", directory)
    for command in (["mod", "init", "example.com/probe"], ["get", module], ["build", "-o", "probe"]):
        done = subprocess.run(["go", *command], cwd=directory, capture_output=True, text=True, check=False, timeout=900)
        if done.returncode and command[0] == "get":
            pytest.skip(f"Go modules cannot be had here: {done.stderr.strip()[-300:]}")
        assert done.returncode == 0, done.stderr
    return directory / "probe"


async def go_output(process: asyncio.subprocess.Process, seen: Seen) -> None:
    assert process.stdout is not None
    while line := (await process.stdout.readline()).decode():
        kind, first, *rest = line.split()
        match kind:
            case "acked":
                seen.acked[int(first)] = rest[0].encode()
            case "read":
                seen.read.append((int(first), rest[0].encode()))
            case _:
                seen.failures.append(line.strip())


async def ended(process: asyncio.subprocess.Process, reading: Awaitable[None]) -> None:
    """Close its input and wait for its end."""
    assert process.stdin is not None
    process.stdin.close()
    await asyncio.wait_for(process.wait(), 30)
    await reading


async def sdk_publishes(brokers: Brokers, names: list[str], seen: Seen) -> None:
    """Publish one record after the other through these brokers, until cancelled."""
    async with brokers.client(*names, timeout=60) as client:
        for number in itertools.count():
            value = b"sdk-%d" % number
            seen.acked[(await client.publish(STREAM, value, ack="all")).offset] = value


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("killed", ["the one that it asks", "another one"])
async def test_an_unmodified_go_client_continues_when_the_leader_is_killed(tmp_path: Path, killed: str) -> None:
    """The client keeps the addresses that it was given among those that it hashes partitions onto, and never dials a
    lost one again. Given the leader alone, its subscription continues; its publishes do if the hash chose another one.
    """
    program = await asyncio.to_thread(go_program, tmp_path / "go")
    async with cluster(tmp_path) as brokers:
        await created(brokers, STREAM)
        leader = await led_in_sync(brokers)
        others = [name for name in NAMES if name != leader]
        is_asked = killed == "the one that it asks"
        seeds = ",".join(brokers.running[name].addresses["address"] for name in ([leader] if is_asked else others))
        process = await asyncio.create_subprocess_exec(
            str(program), seeds, STREAM, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        seen = Seen()
        reading = asyncio.create_task(go_output(process, seen))
        tasks = [reading, *([asyncio.create_task(sdk_publishes(brokers, others, seen))] if is_asked else [])]
        try:
            await through_a_kill(brokers, seen, leader, lambda: any(task.done() for task in tasks))
        finally:
            for task in tasks[1:]:
                task.cancel()
            await ended(process, reading)
    seen.check()
