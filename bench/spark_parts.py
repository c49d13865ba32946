"""Spark on `local[2]` with one broker on the same machine. Each part starts a broker, and Spark in another process.

Rates come with the processor time of the broker, of Spark's JVM, of its Python workers and of the driver.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

import bascule
from arrow import fill, fill_with_keys
from processes import Broker
from session import ROOT, Bench, Figures

LEAST_READ = {
    "Spark data source, 8 columns, 100 B": 2_600_000,
    "Spark data source, value only, 100 B": 4_400_000,
    "Spark bulk scan, 8 columns, 100 B": 3_400_000,
    "Spark bulk scan, value only, 100 B": 6_000_000,
    "Spark data source, 8 columns, 1024 B": 700_000,
    "Spark data source, value only, 1024 B": 900_000,
}
"""Minimum rows/s of reads. Values of 100 B compress, those of 1,024 B do not."""
LEAST_WRITTEN = {"value only": 800_000, "key and headers": 600_000}
"""Minimum rows/s of exactly-once writes of 100 B."""
LEAST_ARCHIVED = {
    ("Delta", "unpartitioned"): 0.9,
    ("Delta", "by date"): 0.65,
    ("Iceberg", "unpartitioned"): 0.7,
    ("Iceberg", "by date"): 0.65,
}
"""Minimum rate of the archive as a share of that of Spark's own Parquet sink."""
LEAST_TIERED, MOST_PLANNING_S = 0.8, 0.5
"""Of a read with nine in ten rows from an archive: minimum share of the rate from the broker, and planning time."""
LEAST_MERGED = {"in foreachBatch": 0.7}
"""Minimum rate of a merge that is exactly once as a share of that of a plain merge of the same micro-batches."""
LEAST_REPLAYED = 500_000
"""Minimum rows/s of a replay of 100 B."""
MOST_MS = {
    "to a stream": {"trigger_p50_ms": 200, "trigger_p99_ms": 350, "visible_p50_ms": 250, "visible_p99_ms": 600},
    "to Delta": {"trigger_p50_ms": 200, "trigger_p99_ms": 350, "visible_p50_ms": 250, "visible_p99_ms": 600},
    "to the lag": {"visible_p99_ms": 2_000},
}
"""Maximum times of micro-batches with one row, ms."""
MOST_CALLS, MOST_PERCENT, MOST_MIB = 3, 2, 400
"""Of an idle query: calls a second, and percent of a core in the broker. Peak memory of the broker, MiB."""


def spark_read(bench: Bench) -> None:
    """Read a stream into Spark: values of 100 B, and of 1 KiB from the page cache."""
    with _broker(bench, "spark-read") as broker:
        for size, rows, compressible in ((100, 5 * bench.count, True), (1024, 2 * bench.count, False)):
            _fill(broker, f"read{size}", size, rows, compressible=compressible)
            _spark(bench, broker, "spark_read.py", f"read{size}", size, bench.runs)
    for name, least in LEAST_READ.items():
        bench.judge_rate(name, least)


def spark_write(bench: Bench) -> None:
    """Write from Spark into a stream, exactly once and at least once. Values of 100 B that do not compress."""
    with _broker(bench, "spark-write") as broker:
        _spark(bench, broker, "spark_write.py", bench.folder, 100, 2 * bench.count, bench.runs)
    for shape, least in LEAST_WRITTEN.items():
        bench.judge_rate(f"Spark write, exactly once, {shape}, 100 B", least)


def spark_archive(bench: Bench) -> None:
    """A stream into Delta and Iceberg tables, as a ratio to Spark's own Parquet sink. 100 B that do not compress."""
    with _broker(bench, "spark-archive") as broker:
        _fill(broker, "archived", 100, 2 * bench.count, compressible=False)
        _spark(bench, broker, "spark_archive.py", "archived", bench.folder, 100, bench.runs)
    for (kind, shape), least in LEAST_ARCHIVED.items():
        name = f"{kind} archive, {shape}, share of Spark's Parquet sink"
        share = bench.ratio(name, f"{kind} archive, {shape}, 100 B", f"Spark's Parquet sink, {shape}, 100 B")
        bench.judge(name, share, least=least)


def spark_tiered(bench: Bench) -> None:
    """Nine in ten rows from an archive, as a ratio to all from the broker. Values of 100 B that do not compress."""
    with _broker(bench, "spark-tiered") as broker, bascule.connect(f"bascule://{broker.ready['address']}") as client:
        client.create_stream("tiered", "bench.tiered")
        _spark(bench, broker, "spark_tiered.py", "tiered", bench.folder, 100, 2 * bench.count, bench.runs)
    for kind in ("Delta", "Iceberg"):
        name, figures = f"Spark read, nine in ten from {kind}", f"Spark read from broker and {kind}, 100 B"
        share = bench.ratio(f"{name}, share of the broker's rate", figures, "Spark read from broker, 100 B")
        bench.judge(f"{name}, share of the broker's rate", share, least=LEAST_TIERED)
        bench.judge(f"{name}, planning, s", bench.figures[figures]["planning_s"], most=MOST_PLANNING_S)


def spark_replay(bench: Bench) -> None:
    """The Delta archive of a stream back into a stream, exactly once. Values of 100 B that do not compress."""
    with _broker(bench, "spark-replay") as broker:
        _fill(broker, "replayed", 100, 2 * bench.count, compressible=False)
        _spark(bench, broker, "spark_replay.py", "replayed", bench.folder, 100, bench.runs)
    bench.judge_rate("Spark replay, exactly once, 100 B", LEAST_REPLAYED)


def spark_merge(bench: Bench) -> None:
    """Changes merged into a Delta table by key, ten of each, as a ratio to plain Delta merges. Values of 100 B."""
    with _broker(bench, "spark-merge") as broker:
        _create(broker, "merged")
        fill_with_keys(broker.ready["address"], "merged", bench.count, bench.count // 10)
        _spark(bench, broker, "spark_merge.py", "merged", bench.folder, bench.runs)
    for kind in ("in foreachBatch", "without Spark"):
        name = f"Delta merge, keep_table, share of a plain one {kind}"
        share = bench.ratio(name, "Delta merge, keep_table", f"Delta merge, plain {kind}")
        print(f"  {name}: {share:.2f}", flush=True)
        if kind in LEAST_MERGED:
            bench.judge(name, share, least=LEAST_MERGED[kind])


def spark_latency(bench: Bench) -> None:
    """Micro-batches of one row: how long they take, and how long a record needs to its target."""
    with _broker(bench, "spark-latency") as broker:
        figures = run_spark("spark_latency.py", broker.ready["address"], bench.folder, int(20 * bench.seconds))
    bench.figures |= figures
    for target, bars in MOST_MS.items():
        name = f"Spark micro-batch of one row {target}"
        for key, most in bars.items():
            bench.judge(f"{name}, {key.replace('_', ' ').removesuffix(' ms')}, ms", figures[name][key], most=most)


def spark_idle(bench: Bench) -> None:
    """Queries without anything to read: calls a second, and processor time of the broker."""
    with _broker(bench, "spark-idle") as broker:
        here = (broker.ready["address"], broker.process.pid, broker.ready["http_address"], bench.folder)
        figures = run_spark("spark_idle.py", *here, 2 * bench.seconds)
    bench.figures |= figures
    for name, row in figures.items():
        bench.judge(f"{name}, calls a second", row["rate"], most=MOST_CALLS)
        bench.judge(f"{name}, % of a core in the broker", row["broker_percent"], most=MOST_PERCENT)


def spark_memory(bench: Bench) -> None:
    """Peak memory of one broker that serves all of it, with values of 1 KiB that do not compress."""
    with _broker(bench, "spark-memory") as broker:
        _fill(broker, "kept", 1024, bench.count, compressible=False)
        steps: dict[str, Callable[[], None]] = {
            "read": lambda: _spark(bench, broker, "spark_read.py", "kept", 1024, 1),
            "write": lambda: _spark(bench, broker, "spark_write.py", bench.folder, 1024, bench.count, 1),
            "archive": lambda: _spark(bench, broker, "spark_archive.py", "kept", bench.folder, 1024, 1),
        }
        peaks = {"filled": broker.peak_mib()}
        for name, step in steps.items():
            step()
            peaks[name] = broker.peak_mib()
    bench.figures["broker memory with Spark, 1024 B, MiB"] = peaks
    bench.judge("broker memory with Spark, 1024 B, MiB", max(peaks.values()), most=MOST_MIB)


def run_spark(script: str, *arguments: object) -> dict[str, Figures]:
    """The figures of a script that runs Spark, in a process of its own."""
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=900,
    )
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def _broker(bench: Bench, name: str) -> Generator[Broker]:
    broker = Broker.start(bench.folder / name, {"http": {"listen": "127.0.0.1:0"}})
    try:
        yield broker
    finally:
        broker.stop()


def _fill(broker: Broker, stream: str, size: int, rows: int, *, compressible: bool) -> None:
    _create(broker, stream)
    fill(broker.ready["address"], stream, size, rows, compressible=compressible)


def _create(broker: Broker, stream: str) -> None:
    with bascule.connect(f"bascule://{broker.ready['address']}") as client:
        client.create_stream(stream, f"bench.{stream}")


def _spark(bench: Bench, broker: Broker, script: str, *arguments: object) -> None:
    """Store and print the figures of a script with loads."""
    for name, figures in run_spark(script, broker.ready["address"], broker.process.pid, *arguments).items():
        bench.figures[name] = figures
        spent = ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in figures["cpu_seconds_per_million"].items())
        print(f"{name:50} {figures['rate']:14,.0f} /s; CPU s a million: {spent}", flush=True)
