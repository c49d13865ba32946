"""A broker as a separate process, so that a test can kill it like a crash; and calls to it."""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import grpc.aio
from bascule._liftbridge_pb import message

LIMIT_S = 30.0

PROGRAM = """
import json, os, sys
from pathlib import Path
from bascule import config, logs
from bascule.errors import BrokerError
from bascule.server import run
settings = config.load(None, json.loads(sys.argv[1]), {})
logs.configure("debug", "json")
def on_ready(broker):
    text = json.dumps({"address": broker.address, "nats_url": broker.nats_url, "nats_pid": broker.nats_pid,
        "http_address": broker.http_address, "iggy_address": broker.iggy_address})
    Path(sys.argv[2] + ".new").write_text(text)
    os.replace(sys.argv[2] + ".new", sys.argv[2])
try:
    sys.exit(run(settings, on_ready))
except BrokerError as failure:
    print(f"{failure.code}: {failure}", file=sys.stderr)
    sys.exit(failure.exit_code)
"""


@dataclass
class Process:
    """One run of a broker."""

    process: asyncio.subprocess.Process
    ready_file: Path
    log_file: Path
    addresses: dict[str, Any] = field(default_factory=dict[str, Any])

    async def ready(self) -> "Process":
        """Wait until it serves."""
        async with asyncio.timeout(LIMIT_S):
            while not self.ready_file.exists():
                assert self.process.returncode is None, self.log_file.read_text()
                await asyncio.sleep(0.005)
        self.addresses = json.loads(self.ready_file.read_text())
        return self

    async def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end. Returns the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await asyncio.wait_for(self.process.wait(), LIMIT_S)

    def channel(self) -> grpc.aio.Channel:
        """A connection to the broker."""
        return grpc.aio.insecure_channel(self.addresses["address"])

    def lines(self) -> list[dict[str, Any]]:
        """Its log."""
        return [json.loads(line) for line in self.log_file.read_text().splitlines() if line.startswith("{")]


async def launch(directory: Path, **flags: Any) -> Process:
    """Start a broker on `directory`, standalone unless `nats.servers` is given; does not wait. `prelude`: code that the
    process runs before the broker, to plant a bug.
    """
    prelude = flags.pop("prelude", "")
    given = {
        "data_dir": str(directory / "data"),
        "broker.port": 0,
        "http.listen": "off",
        "nats.first_port": 0,
        "cursors.partitions": 0,
        **{k.replace("__", "."): v for k, v in flags.items()},
    }
    given.setdefault("nats.standalone", "nats.servers" not in given)
    ready_file = directory / f"ready-{os.urandom(4).hex()}.json"
    log_file = ready_file.with_suffix(".log")
    with log_file.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", f"{prelude}\n{PROGRAM}", json.dumps(given), str(ready_file),
            stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    return Process(process, ready_file, log_file)


@asynccontextmanager
async def started(directory: Path, **flags: Any) -> AsyncGenerator[Process]:
    """A serving broker, which is stopped when the block ends, unless the block has ended it."""
    life = await launch(directory, **flags)
    try:
        yield await life.ready()
    finally:
        with contextlib.suppress(ProcessLookupError):
            await life.end(signal.SIGTERM)


async def call(channel: grpc.aio.Channel, method: str, **fields: Any) -> Any:
    """One Liftbridge call; raises an error status."""
    return await raw_call(channel, method, message(f"{method}Request")(**fields).SerializeToString())


async def raw_call(channel: grpc.aio.Channel, method: str, body: bytes) -> Any:
    """One Liftbridge call with the bytes of the request."""
    stub = cast("Any", channel).unary_unary(
        f"/proto.API/{method}", response_deserializer=message(f"{method}Response").FromString
    )
    return await stub(body, timeout=LIMIT_S)


async def end_offset(channel: grpc.aio.Channel, stream: str) -> int:
    """Number of committed records in partition 0."""
    answer = await call(channel, "FetchPartitionMetadata", stream=stream, partition=0)
    return int(answer.metadata.highWatermark) + 1


def free_port() -> int:
    """A free port below those that the system gives to connections, which could take it before it is listened on."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def is_alive(pid: int) -> bool:
    """Whether the process runs and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
