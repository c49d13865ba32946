"""Row S10: damage to every kind of file. Nothing wrong is served, nothing crashes, and no loss is silent.

Four parts. *Logs*: `crates/log/examples/damage.rs` damages copies of partition logs, one damage each, and reads,
writes and reopens them; one flipped bit costs only its batch. *Journal*: the same program damages the journal's files
of data directories after a kill or a power cut, and the unsynced part of segments, which the journal has. If no frame
after a damaged one belongs to its log, or a whole file is missing, that log may end there, and this must be reported
(`limit`). Only a damage that restores an earlier state of the whole directory, byte for byte in all synced data, cannot
be detected: such cases are checked and counted as `earlier`. *Directory*: the metadata log, its snapshots and
`bascule.json` of a whole data directory, opened by a data plane in this process: it must replay exactly the committed
entries, or refuse to start. *Live*: segments are damaged under a running broker while it is read; every record is
returned unchanged or reported as damaged.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import bascule
from bascule._seam import Committed
from bascule.engine import Engine
from bascule.errors import BrokerError, CorruptionError
from bascule.testing import broker

from tests.torture.result import Result, Scale, SkippedError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROW = "S10"
SEED = 20_261_121
LOGS = {Scale.SHORT: 4_000, Scale.FULL: 60_000}
JOURNALS = {Scale.SHORT: 1_500, Scale.FULL: 20_000}
DIRECTORIES = {Scale.SHORT: 60, Scale.FULL: 1_500}
LIVE = {Scale.SHORT: 8, Scale.FULL: 150}
ENTRIES = 40
RECORDS = 400
AT_ONCE = 40
"""Maximum number of records of a batch: so many are published together."""
REPOSITORY = Path(__file__).resolve().parents[2]
SETTINGS = {"cluster_id": "c", "broker_id": "b", "runtime_threads": 1, "namespace": "n", "limits": {}}


def run(scale: Scale) -> Result:
    """All four parts."""
    _build()
    with _scratch() as root:
        totals, failures = _damaged(root, "logs", LOGS[scale])
        journal = _damaged(root, "journal", JOURNALS[scale])
        directory = _directories(root, DIRECTORIES[scale])
        live = _live(root, LIVE[scale])
    parts = [journal, *((part, part.pop("failures")) for part in (directory, live))]
    for counts, failed in parts:
        failures += failed
        for name, count in counts.items():
            totals[name] = totals.get(name, 0) + count
    damages = LOGS[scale] + JOURNALS[scale] + DIRECTORIES[scale] + LIVE[scale]
    bad = {name: totals.get(name, 0) for name in ("wrong", "silent", "reused", "wide", "crash", "alarm")}
    answered = sum(totals.get(name, 0) for name in ("detected", "harmless", "earlier"))
    ends = sum(count for name, count in totals.items() if name.startswith("limit "))
    for failure in failures:
        print(f"S10: {failure}")
    return Result(
        row=ROW,
        title="one damage to a file of a data directory, offline and under a running broker",
        figure=(
            f"{damages:,} damages: {totals.get('detected', 0):,} detected, "
            f"{totals.get('harmless', 0):,} without effect, "
            f"{totals.get('earlier', 0):,} that made the directory, byte for byte, what it was some rounds before; "
            f"{ends:,} took a log's last frames in the journal, whose offsets may be used again; beside these "
            f"served wrong {bad['wrong']}, lost without a word {bad['silent']}, offsets used twice {bad['reused']}, "
            f"a flipped bit that cost more than its batch {bad['wide']}, crashes {bad['crash']}, "
            f"false alarms {bad['alarm']}"
        ),
        bar=f"0 wrong, 0 silent, 0 reused, 0 wide, 0 crashes, 0 false alarms in {damages:,} damages",
        passed=not any(bad.values()) and not failures and answered == damages,
        numbers={name: float(count) for name, count in sorted(totals.items())},
    )


def _scratch() -> tempfile.TemporaryDirectory[str]:
    """A directory in memory if possible: there a damage takes a millisecond."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="bascule-damage-", dir=memory if memory.is_dir() else None)


# -- logs and the journal


def _build() -> None:
    if shutil.which("cargo") is None:
        reason = "cargo is not installed: it builds the program that damages logs"
        raise SkippedError(reason)
    build = ["cargo", "build", "--quiet", "--locked", "--profile", "fast", "-p", "bascule-log", "--example", "damage"]
    subprocess.run(build, cwd=REPOSITORY, check=True)


def _damaged(root: str, part: str, count: int) -> tuple[dict[str, int], list[str]]:
    program = REPOSITORY / "target" / "fast" / "examples" / "damage"
    command = [program, str(SEED), str(count), f"{root}/{part}", part]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{program.name} {part} ended with {done.returncode}: {done.stderr[-2_000:]}")
    document = json.loads(done.stdout)
    return document["totals"], document["failures"]


# -- metadata and manifest


def _directories(root: str, count: int) -> dict[str, Any]:
    template = Path(root, "template")
    entries = _prepare(template)
    found: dict[str, Any] = {"detected": 0, "harmless": 0, "wrong": 0, "crash": 0, "failures": []}
    for i in range(count):
        dice = random.Random(SEED + i)
        work = Path(root, "work")
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(template, work)
        path = dice.choice(sorted(_damageable(work)))
        name = f"directory {i}: {_damage(path, dice)} of {path.relative_to(work)}"
        try:
            index, state, replayed = _replay(work)
        except BrokerError as refusal:
            known = isinstance(refusal, CorruptionError) or refusal.code.startswith("data_directory_")
            found["detected" if known else "wrong"] += 1
            if not known:
                found["failures"].append(f"{name}: {refusal.code} {refusal}")
            continue
        # A snapshot replaces the entries that it covers.
        expected = entries[index:]
        right = replayed == expected and state == _state(index)
        found["harmless" if right else "wrong"] += 1
        if not right:
            found["failures"].append(f"{name}: {len(replayed)} of {len(expected)} entries behind {index}")
    return found


def _state(index: int) -> bytes:
    return f"state after {index}".encode() if index else b""


def _prepare(template: Path) -> list[bytes]:
    """A data directory with two snapshots, closed cleanly; returns its entries."""
    engine = Engine({**SETTINGS, "data_dir": str(template)})
    engine.metadata_open()
    entries = [f"entry {i} ".encode() * (1 + i % 9) for i in range(1, ENTRIES + 1)]
    for i, entry in enumerate(entries, start=1):
        engine.propose([(i, entry)], 10_000)
        while not engine.poll(8):
            time.sleep(0.001)
        if i in (10, 25):
            engine.save_snapshot(i, _state(i))
    engine.close(0)
    return entries


def _replay(work: Path) -> tuple[int, bytes, list[bytes]]:
    engine = Engine({**SETTINGS, "data_dir": str(work)})
    try:
        index, state, _ = engine.metadata_open()
        events = engine.poll(10_000)
        return index, state, [event.entry for event in events if isinstance(event, Committed)]
    finally:
        engine.close(0)


def _damageable(work: Path) -> Iterator[Path]:
    """Files such that each kind is chosen equally often."""
    yield work / "bascule.json"
    yield from (work / "metadata").glob("snapshot-*")
    yield from (path for path in (work / "metadata" / "log").iterdir() if path.is_file())


def _damage(path: Path, dice: random.Random) -> str:
    """Damage a file. Returns the name of the damage."""
    content = bytearray(path.read_bytes())
    at = dice.randrange(len(content)) if content else 0
    kind = dice.choice(["flip", "truncate", "zero", "noise", "longer", "missing"])
    if kind == "missing" and path.name != "bascule.json":
        path.unlink()
        return kind
    if kind == "flip" and content:
        content[at] ^= 1 << dice.randrange(8)
    elif kind == "truncate":
        del content[at:]
    elif kind == "zero":
        content[at : at + 64] = bytes(len(content[at : at + 64]))
    elif kind == "noise":
        content[at : at + 64] = dice.randbytes(len(content[at : at + 64]))
    else:
        content += dice.randbytes(64)
    path.write_bytes(content)
    return kind


# -- under a running broker


def _live(root: str, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {"detected": 0, "harmless": 0, "wrong": 0, "silent": 0, "wide": 0, "failures": []}
    data = Path(root, "live", "data")
    with broker(directory=Path(root, "live")) as running, bascule.connect(running.url) as client:
        for i in range(count):
            dice = random.Random(SEED * 7 + i)
            name = f"stream-{i}"
            client.create_stream(name, name, options=bascule.StreamOptions(segment_max_bytes=20_000))
            values = [f"{name} record {n} ".encode() * (1 + n % 20) for n in range(RECORDS)]
            for first in range(0, RECORDS, AT_ONCE):
                client.publish_many(name, values[first : first + AT_ONCE])
            partition = max(
                (path for path in (data / "partitions").iterdir() if path.name.isdigit()),
                key=lambda path: int(path.name),
            )
            path = dice.choice(sorted(partition.glob("*.seg")))
            damage = _damage(path, dice)
            harm = f"live {i}: {damage} of {path.name}"
            served, refused = _read(client, name)
            verdict = _judge(values, served, refused, AT_ONCE if damage == "flip" else RECORDS)
            found[verdict] += 1
            if verdict in ("wrong", "silent", "wide"):
                found["failures"].append(f"{harm}: {verdict}: {len(served)} served, refused {refused}")
            client.delete_stream(name)
    return found


def _read(client: bascule.Client, stream: str) -> tuple[dict[int, bytes], list[tuple[int, int]]]:
    """The records of a subscriber that continues after each reported damage."""
    served: dict[int, bytes] = {}
    refused: list[tuple[int, int]] = []
    start = 0
    while True:
        try:
            for record in client.subscribe(stream, start=start, stop="latest").records():
                served[record.offset] = record.value or b""
                start = record.offset + 1
        except CorruptionError as damage:
            details = cast("dict[str, int]", damage.details)
            refused.append((details["start"], details["end"]))
            if details["end"] >= RECORDS:
                return served, refused
            start = details["end"]
        else:
            return served, refused


def _judge(values: list[bytes], served: dict[int, bytes], refused: list[tuple[int, int]], most: int) -> str:
    """The check of a live damage that may cost at most so many records."""
    if any(values[offset] != value for offset, value in served.items()):
        return "wrong"
    gone = [n for n in range(len(values)) if n not in served and not any(a <= n < b for a, b in refused)]
    if gone:
        return "silent"
    if sum(end - start for start, end in refused) > most:
        return "wide"
    return "detected" if refused else "harmless"
