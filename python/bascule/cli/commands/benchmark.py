"""`bascule bench`: a small load through the SDK, to check a broker. `make bench` measures performance."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

import time
import uuid
from collections.abc import Callable
from typing import Annotated, Final

import typer

from bascule.cli.connection import Connection, connected
from bascule.cli.options import Output
from bascule.cli.render.output import OutputFormat, render
from bascule.cli.render.results import BenchResult
from bascule.client import Client

__all__ = ["bench"]

UNARY_RECORDS: Final = 500
BATCH: Final = 10_000
MIB: Final = 1 << 20


@connected(timeout=60.0)
def bench(
    connection: Connection,
    *,
    records: Annotated[
        int, typer.Option("--records", "-n", min=1, max=10_000_000, help="Number of records.")
    ] = 200_000,
    size: Annotated[int, typer.Option("--size", min=0, max=1 << 20, help="Bytes of one value.")] = 256,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Publish and read records through the SDK in a temporary stream, and print the rates.

    Examples:
        bascule bench

        bascule bench --records 50000 --size 1024 --output json
    """
    stream = f"bench-{uuid.uuid4().hex[:12]}"
    with connection.open() as client:
        client.create_stream(stream)
        try:
            results = [
                _one_by_one(client, stream, min(records, UNARY_RECORDS), size),
                _in_batches(client, stream, records, size),
                _subscribe(client, stream, size),
            ]
        finally:
            client.delete_stream(stream)
    render(results, output)


def _one_by_one(client: Client, stream: str, records: int, size: int) -> BenchResult:
    value = bytes(size)
    latencies = sorted(_seconds(lambda: client.publish(stream, value)) for _ in range(records))
    p50, p99 = (round(1000 * latencies[int(share * (records - 1))], 3) for share in (0.5, 0.99))
    return _result("publish unary", records, size, sum(latencies), p50=p50, p99=p99)


def _in_batches(client: Client, stream: str, records: int, size: int) -> BenchResult:
    values = [bytes(size)] * min(BATCH, records)

    def load() -> None:
        for begin in range(0, records, BATCH):
            client.publish_many(stream, values[: min(BATCH, records - begin)])

    return _result("publish batches", records, size, _seconds(load))


def _subscribe(client: Client, stream: str, size: int) -> BenchResult:
    begin = time.perf_counter()
    records = sum(len(batch) for batch in client.subscribe(stream, stop="latest"))
    return _result("subscribe", records, size, time.perf_counter() - begin)


def _seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _result(
    path: str, records: int, size: int, seconds: float, *, p50: float | None = None, p99: float | None = None
) -> BenchResult:
    rate = records / seconds
    return BenchResult(path, records, size, round(seconds, 3), round(rate), round(rate * size / MIB, 1), p50, p99)
