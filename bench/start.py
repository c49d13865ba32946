"""The time until the `liftbridge` command, started like Liftbridge, answers a call."""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import bascule
from processes import READY_SECONDS, Watched
from session import Bench

FILE = "listen: 127.0.0.1:0\nlogging.level: info\ncursors.stream.partitions: 1\nactivity.stream.enabled: true\n"
FLAGS = ("--embedded-nats", "--raft-bootstrap-seed")


def start(bench: Bench) -> None:
    """`liftbridge -c FILE -d DIR --embedded-nats --raft-bootstrap-seed`: on an empty directory, and again."""
    rows: dict[str, list[float]] = {"empty": [], "again": []}
    for number in range(bench.runs):
        folder = bench.folder / f"start-{number}"
        folder.mkdir()
        for row in rows.values():
            row.append(_seconds(folder))
    for state, seconds in rows.items():
        median = statistics.median(seconds)
        bench.figures[f"liftbridge, ready, {state}"] = {"seconds": median, "runs": seconds}
        bench.judge(f"liftbridge answers, directory {state}, s", median, most=3)


def _seconds(folder: Path) -> float:
    file, log = folder / "liftbridge.yaml", folder / "log"
    file.write_text(FILE)
    command = [str(Path(sys.executable).with_name("liftbridge")), "-c", str(file), "-d", str(folder / "data"), *FLAGS]
    began = time.monotonic()
    with log.open("wb") as output:
        broker = Watched(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output))
    try:
        with bascule.connect(f"liftbridge://{_address(broker, log)}") as client:
            client.list_streams()
        return time.monotonic() - began
    finally:
        broker.stop()


def _address(broker: Watched, log: Path) -> str:
    limit = time.monotonic() + READY_SECONDS
    while broker.process.poll() is None and time.monotonic() < limit:
        for line in log.read_text().splitlines():
            if line.startswith("{") and line.endswith("}") and (said := json.loads(line))["message"] == "ready":
                return str(said["address"])
        time.sleep(0.01)  # there is nothing else to wait on for a line
    raise RuntimeError(f"liftbridge did not become ready: {log}")
