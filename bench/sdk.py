"""The Python SDK: one process that publishes and reads records of 256 B through the public API."""

import os
import time
from collections.abc import Callable

import bascule
from processes import Broker
from session import Bench, Figures

SIZE = 256
LEAST_PUBLISHED, LEAST_READ = 500_000, 1_000_000
"""Minimum records per second: published, and read by batch."""
PART = 50_000
"""Records of one `publish_many`."""


def sdk(bench: Bench) -> None:
    """Publish with and without pipelining, and read by batch and by record."""
    values = [os.urandom(SIZE) for _ in range(PART)]
    broker = Broker.start(bench.folder / "sdk")
    try:
        with bascule.connect(f"bascule://{broker.ready['address']}", timeout=60.0) as client:
            for name in ("many", "lists", "records"):
                client.create_stream(name, f"bench.{name}")
            parts = bench.count // PART
            loads: dict[str, Callable[[], int]] = {
                "publish_many": lambda: publish_many(client, "many", values, parts),
                "publish pipelined, in lists": lambda: publish_lists(client, "lists", values, parts),
                "publish pipelined, record by record": lambda: publish_records(client, "records", values, parts),
                "read by batch": lambda: read_batches(client, "many", parts * PART),
                "read by record": lambda: read_records(client, "many", parts * PART),
            }
            for name, load in loads.items():
                bench.measure(f"Python SDK, {name}", broker, lambda load=load: timed(load))
        for name in loads:
            if name != "read by record":
                least = LEAST_PUBLISHED if name.startswith("publish") else LEAST_READ
                bench.judge_rate(f"Python SDK, {name}", least)
    finally:
        broker.stop()


def timed(load: Callable[[], int]) -> Figures:
    """Number of records and their rate; CPU time is that of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    count = load()
    seconds, spent = time.perf_counter() - wall, time.process_time() - cpu
    return {"count": count, "seconds": seconds, "rate": count / seconds, "client_cpu_us_each": spent * 1e6 / count}


def publish_many(client: bascule.Client, stream: str, values: list[bytes], parts: int) -> int:
    """Lists of records; each call returns when all of its records are acknowledged."""
    return sum(len(client.publish_many(stream, values)) for _ in range(parts))


def publish_lists(client: bascule.Client, stream: str, values: list[bytes], parts: int) -> int:
    """One call per list; acknowledged in the background with a limited number in flight."""
    with client.producer(stream) as producer:
        for _ in range(parts):
            producer.send_many(values)
    return producer.published


def publish_records(client: bascule.Client, stream: str, values: list[bytes], parts: int) -> int:
    """One call per record; acknowledged in the background with a limited number in flight."""
    with client.producer(stream) as producer:
        for _ in range(parts):
            for value in values:
                producer.send(value)
    return producer.published


def read_batches(client: bascule.Client, stream: str, count: int) -> int:
    """Read all values as lists of batches."""
    return sum(len(batch.values) for batch in client.subscribe(stream, stop=count))


def read_records(client: bascule.Client, stream: str, count: int) -> int:
    """Read every record as an object, and its value."""
    return sum(len(record.value or b"") == SIZE for record in client.subscribe(stream, stop=count).records())
