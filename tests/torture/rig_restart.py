"""S13: the time until a broker with many partitions and much data serves again, after kill -9 and after a power cut.

The data is on an ext4 image on the machine's disk, so that a power cut also empties the page cache. Records are being
published to many partitions when the broker ends. Serving means: it is ready, and a publish to each of a sample of
partitions was acked. Full scale is 10 GiB, or as much as fits on the disk; the figure has the size.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from bascule import BrokerError, StreamOptions, testing
from bascule.engine import Client, native_errors

from tests.torture import volume
from tests.torture.publishers import publish
from tests.torture.result import Result, Scale, SkippedError

ROW = "S13"
STREAMS = 10
VALUE_BYTES = 64 << 10
ROUNDS = 3
"""Number of kills and of power cuts at full scale; the slowest one counts."""
BAR_SECONDS = {"kill -9": 5.0, "power cut": 15.0}
SHORT_SLACK = 4
"""Factor of the bars at short scale, because other tests may run on the machine."""
SAMPLE = 20
LOAD_SECONDS = 1.0


class Filled:
    """A running broker with so many partitions of so many bytes each."""

    def __init__(self, broker: testing.TestBroker, partitions: int, partition_bytes: int) -> None:
        self.broker = broker
        self.places = [(f"filled-{i % STREAMS}", i // STREAMS) for i in range(partitions)]
        with broker.connect() as client:
            for i in range(STREAMS):
                client.create_stream(f"filled-{i}", options=StreamOptions(partitions=partitions // STREAMS))
        values = [random.Random(1).randbytes(VALUE_BYTES)] * max(partition_bytes // VALUE_BYTES, 1)
        self.publish(self.places, values)

    def publish(self, places: list[tuple[str, int]], values: list[bytes]) -> None:
        """Publish to each partition in turn and wait for the acks.

        Raises:
            BrokerError: the broker has ended.
        """
        with native_errors():
            client = Client(self.broker.address, b"{}")
            for place in places:
                publish(client, place, values, 60_000)

    def load(self) -> threading.Thread:
        """Publish small records to all partitions until the broker has ended."""

        def run() -> None:
            with suppress(BrokerError):  # it ends with its broker
                while True:
                    self.publish(self.places, [b"tail"] * 20)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def serves_after(self, started: float) -> float:
        """Seconds from `started` (monotonic) until a sample of partitions has acked."""
        self.publish(random.Random(3).sample(self.places, min(SAMPLE, len(self.places))), [b"again"])
        return time.monotonic() - started


def measure(gib: float, partitions: int, rounds: int) -> dict[str, float]:
    """Seconds to serving after each kind of end, the slowest of the rounds.

    Raises:
        SkippedError: the machine cannot mount an image, or the disk has no space for it.
    """
    home = Path(tempfile.gettempdir())
    mib = int(gib * 1024 * 1.3) + 1024
    if shutil.disk_usage(home).free < (mib + 2048) << 20:
        raise SkippedError(f"{home} has no space for an image of {mib:,} MiB: free some, or set TMPDIR")
    slowest = dict.fromkeys(BAR_SECONDS, 0.0)
    with volume.volume("ext4", mib, home) as mounted, tempfile.TemporaryDirectory(prefix="bascule-start-") as own:
        Path(own, "data").symlink_to(mounted.path)
        with testing.broker(durability="disk", directory=Path(own)) as broker:
            filled = Filled(broker, partitions, int(gib * (1 << 30)) // partitions)
            for end in BAR_SECONDS:
                for _ in range(rounds):
                    load = filled.load()
                    time.sleep(LOAD_SECONDS)
                    if end == "power cut":
                        mounted.cut(volume.FLUSH_NOTHING)
                    broker.kill()
                    load.join(60)
                    if end == "power cut":
                        mounted.remount()
                    started = time.monotonic()
                    broker.start()
                    slowest[end] = max(slowest[end], filled.serves_after(started))
    return slowest


def run(scale: Scale) -> Result:
    """Run all restarts."""
    volume.require("ext4")
    full = scale is Scale.FULL
    partitions = 1000 if full else 200
    gib = 0.05
    if full:
        room = shutil.disk_usage(tempfile.gettempdir()).free / (1 << 30)
        gib = min(10.0, int(room / 2))
    seconds = measure(gib, partitions, ROUNDS if full else 1)
    bars = {end: bar if full else bar * SHORT_SLACK for end, bar in BAR_SECONDS.items()}
    figure = ", ".join(f"{value:.1f} s after {end}" for end, value in seconds.items())
    return Result(
        row=ROW,
        title="seconds from the start of a broker to serving, with data in many partitions",
        figure=f"{figure} ({gib:g} GiB, {partitions:,} partitions)",
        bar=", ".join(f"≤ {value:g} s after {end}" for end, value in bars.items()),
        passed=all(seconds[end] <= bar for end, bar in bars.items()),
        numbers={"gib": gib, "partitions": partitions}
        | {f"seconds_after_{end.replace(' ', '_').replace('-', '')}": value for end, value in seconds.items()},
    )
