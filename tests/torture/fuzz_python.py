"""Fuzz targets of the Python side, and a small driver: stored inputs, then mutations, seeded, with a time limit.

A target takes bytes and raises only if a promise is broken: a parser may only raise its own error.
Stored inputs are in `fuzz/corpus/python_<target>`, beside those of the Rust targets.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import resource
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bascule import config
from bascule._units import parse_bytes, parse_duration_ms
from bascule.cli.liftbridge import config as liftbridge_config
from bascule.client.tooling import addresses
from bascule.config import Layer
from bascule.errors import BrokerError, UsageError
from bascule.metadata import commands, snapshot
from bascule.protocols.grpc_status import StatusError
from bascule.protocols.router import AdminRequest
from bascule.spark.positions import EARLIEST, parse_offsets, parse_times

from tests.unit.control.rig import running

if TYPE_CHECKING:
    from bascule.protocols.router import Handler

CORPUS: Final = Path(__file__).resolve().parents[2] / "fuzz" / "corpus"
SLOWEST_S: Final = 5.0
"""Time limit of one input, in seconds."""
GROWTH_BYTES: Final = 512 << 20
"""Maximum growth of the process by one target."""
TOKENS: Final = (
    b"{", b"}", b"[", b"]", b": ", b"\n  ", b"&a ", b"*a ", b"<<: *a", b"!!binary ", b"!!set", b"2001-99-99",
    b"0x_", b"1_000:60", b".inf", b"-.nan", b"null", b"true", b"'", b'"', b"\\u0000", b"\xff", b"\xe2\x82",
    b"-1", b"9" * 25, b"1e999", b"\x00", b"\xc2\xb2", b"%", b",", b"@", b"30s", b"64MiB", b"\r\n", b"- ", b"--- ",
)  # fmt: skip

Target = Callable[[bytes], None]


class FuzzError(AssertionError):
    """An input broke a promise; it is stored in the file that the message names."""


def scratch_file() -> Path:
    """A file of this process that targets overwrite."""
    folder = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
    return folder / f"bascule-fuzz-{id(TARGETS)}.yaml"


def _check(refused: UsageError) -> None:
    assert refused.code == "configuration_invalid"


def config_yaml(data: bytes) -> None:
    """A configuration file."""
    file = scratch_file()
    file.write_bytes(data)
    try:
        config.combine([Layer(str(file), config.read_yaml(file))])
    except UsageError as refused:
        _check(refused)


def liftbridge_yaml(data: bytes) -> None:
    """A configuration file of Liftbridge."""
    file = scratch_file()
    file.write_bytes(data)
    try:
        liftbridge_config.translate(file, {}, {})
    except UsageError as refused:
        _check(refused)


def metadata_entries(data: bytes) -> None:
    """Entries of the metadata log: a decoded entry is encoded to the same bytes."""
    try:
        command = commands.decode_command(data)
    except commands.CommandError:
        return
    assert commands.decode_command(commands.encode_command(command)) == command


def metadata_snapshot(data: bytes) -> None:
    """Snapshots of the metadata, unchanged and with a corrected checksum."""
    body = data.partition(b"\n")[2]
    corrected = b"bascule-metadata 1 %s\n%s" % (hashlib.sha256(body).hexdigest().encode(), body)
    for document in (data, corrected):
        try:
            state = snapshot.decode_snapshot(document)
        except snapshot.SnapshotError:
            continue
        again = snapshot.encode_snapshot(state)
        assert snapshot.encode_snapshot(snapshot.decode_snapshot(again)) == again


def positions(data: bytes) -> None:
    """Positions, times, sizes and addresses of the command line."""
    text = data.decode(errors="surrogateescape")
    readers: tuple[Callable[[], object], ...] = (
        lambda: parse_offsets("startingOffsets", text, EARLIEST, words=("earliest", "latest")),
        lambda: parse_times("startingTimestamp", text, EARLIEST, lambda _: None),
        lambda: addresses(text),
    )
    for reader in readers:
        try:
            reader()
        except UsageError:
            continue
    for unit in (parse_bytes, parse_duration_ms):
        try:
            unit(text)
        except ValueError:
            continue


class AdminRequests:
    """Bodies of admin requests to a control plane in memory; the first byte selects the method."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handlers: list[tuple[str, Handler]] = []

    def __call__(self, data: bytes) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.run_until_complete(self._start())
        name, handler = self._handlers[data[0] % len(self._handlers)] if data else self._handlers[0]
        self._loop.run_until_complete(self._ask(name, handler, data[1:]))

    def close(self) -> None:
        """Stop the control plane; the next request starts another one."""
        if self._loop is not None:
            self._loop.run_until_complete(self._rig.__aexit__(None, None, None))
            self._loop.close()
            self._loop = None

    async def _start(self) -> None:
        self._rig = running()
        rig = await self._rig.__aenter__()
        # An internal request of the data plane, which clients cannot send.
        self._handlers = sorted(item for item in rig.admin.items() if item[0] != "liftbridge/ResumePartition")

    async def _ask(self, name: str, handler: Handler, body: bytes) -> None:
        try:
            answer = await asyncio.wait_for(handler(AdminRequest(name, body, "127.0.0.1:1", 1.0)), 4)
        except (StatusError, BrokerError):
            return
        assert isinstance(answer, bytes)


TARGETS: Final[dict[str, Target]] = {
    "admin_requests": AdminRequests(),
    "config_yaml": config_yaml,
    "liftbridge_yaml": liftbridge_yaml,
    "metadata_entries": metadata_entries,
    "metadata_snapshot": metadata_snapshot,
    "positions": positions,
}


@dataclass(frozen=True)
class Driven:
    """The result of one target."""

    executions: int
    failures: tuple[str, ...]


def inputs(name: str) -> list[bytes]:
    """Stored inputs of a target, at least one."""
    kept = [path.read_bytes() for path in sorted((CORPUS / f"python_{name}").iterdir())]
    assert kept, name
    return kept


def drive(name: str, seconds: float, seed: int = 1) -> Driven:
    """Run the stored inputs of a target, then mutations for the given time. The same seed gives the same mutations."""
    target, kept = TARGETS[name], inputs(name)
    executions, failures = 0, list[str]()
    limit = time.monotonic() + seconds
    for data in _with_changes(kept, random.Random(seed)):
        if executions >= len(kept) and (time.monotonic() > limit or len(failures) > 8):
            break
        executions += 1
        begun = time.monotonic()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            with _nothing_said():
                target(data)
        except Exception as bug:  # noqa: BLE001 (every exception other than the parser's own error is a finding)
            failures.append(_keep(name, data, repr(bug)))
        if time.monotonic() - begun > SLOWEST_S:
            failures.append(_keep(name, data, "took too long"))
        if (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 > GROWTH_BYTES:
            failures.append(_keep(name, data, "needed too much memory"))
    if isinstance(target, AdminRequests):
        target.close()
    return Driven(executions, tuple(failures))


@contextmanager
def _nothing_said() -> Generator[None]:
    """Ignore warnings of parsers about their input."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _keep(name: str, data: bytes, what: str) -> str:
    path = Path(tempfile.gettempdir()) / f"bascule-fuzz-{name}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return f"{name}: {what} on {path}: fix the parser and keep the input in fuzz/corpus/python_{name}"


def _with_changes(kept: list[bytes], numbers: random.Random) -> Iterator[bytes]:
    yield from kept
    while True:
        data = bytearray(numbers.choice(kept))
        for _ in range(numbers.randint(1, 4)):
            _change(data, kept, numbers)
        yield bytes(data)


def _change(data: bytearray, kept: list[bytes], numbers: random.Random) -> None:
    at = numbers.randint(0, len(data))
    match numbers.randrange(7):
        case 0:
            del data[at : at + numbers.randint(1, 8)]
        case 1:
            data[at:at] = numbers.choice(TOKENS)
        case 2:
            data[at:at] = numbers.choice(TOKENS) * numbers.choice((2, 20, 300))
        case 3:
            other = numbers.choice(kept)
            data[at:] = other[numbers.randint(0, len(other)) :]
        case 4:
            data[at : at + 1] = bytes([numbers.randrange(256)])
        case 5:
            piece = bytes(data[at : at + 40])
            data[at:at] = piece
        case _:
            data[at : at + 4] = numbers.randbytes(4)
