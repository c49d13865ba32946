"""Flight loads: filling a stream with DoPut, reading it with DoGet into pyarrow."""

import json
import random
import time
from typing import Any

import pyarrow as pa
from pyarrow import flight

EIGHT = ["stream", "partition", "offset", "timestamp", "key", "value", "subject", "headers"]
ROWS = 10_000


def fill(address: str, stream: str, size: int, rows: int, *, compressible: bool = True) -> dict[str, Any]:
    """Append `rows` records of `size` bytes in batches of 10,000; returns rows/s."""
    draw = random.Random(1)
    values = pa.array([b"x" * size if compressible else draw.randbytes(size) for _ in range(ROWS)], pa.binary())
    batch = pa.record_batch([values], names=["value"])
    return _put(address, stream, [batch] * (rows // ROWS))


def fill_with_keys(address: str, stream: str, rows: int, keys: int) -> dict[str, Any]:
    """As `fill`: values of 100 B that do not compress, each with one of so many keys, at random."""
    draw = random.Random(1)
    values = pa.array([draw.randbytes(100) for _ in range(ROWS)], pa.binary())
    every = [
        pa.array([b"key-%d" % draw.randrange(keys) for _ in range(ROWS)], pa.binary()) for _ in range(rows // ROWS)
    ]
    return _put(address, stream, [pa.record_batch({"value": values, "key": each}) for each in every])


def _put(address: str, stream: str, batches: list[Any]) -> dict[str, Any]:
    descriptor = flight.FlightDescriptor.for_command(json.dumps({"stream": stream, "partition": 0}).encode())
    start = time.perf_counter()
    with flight.FlightClient(f"grpc://{address}") as client:
        writer, acks = client.do_put(descriptor, batches[0].schema)
        with writer:
            for batch in batches:
                writer.write_batch(batch)
            writer.done_writing()
            while acks.read() is not None:
                pass
    seconds = time.perf_counter() - start
    count = sum(batch.num_rows for batch in batches)
    return {"count": count, "seconds": seconds, "rate": count / seconds}


def flight_read(address: str, stream: str, columns: str) -> dict[str, Any]:
    """Read the whole partition; returns rows/s."""
    names = EIGHT if columns == "8 columns" else ["value"]
    ticket = {"stream": stream, "partition": 0, "start": "earliest", "columns": names}
    start = time.perf_counter()
    with flight.FlightClient(f"grpc://{address}") as client:
        rows = sum(chunk.data.num_rows for chunk in client.do_get(flight.Ticket(json.dumps(ticket).encode())))
    seconds = time.perf_counter() - start
    return {"count": rows, "seconds": seconds, "rate": rows / seconds}
