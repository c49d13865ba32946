"""Spark `local[2]` to a stream of 4 partitions by `format("bascule")`: exactly once, and at least once beside it.

Arguments: address, process id of the broker, folder for the input, bytes of a value, rows, runs. Prints one line of
JSON. The rows are read from an uncompressed Parquet file. Values are random bytes, which do not compress. "Key and
headers" are a key of 10 B, one of 100,000, and two headers of 16 B and 5 B.
"""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import bascule
import pyarrow as pa
import pyarrow.parquet as pq
from bascule import StreamOptions
from bascule.spark import session
from pyspark.sql import DataFrame
from spark_load import alternate

PARTITIONS = 4
KEYS = 100_000
GROUP = 50_000
"""Rows of a row group; Spark divides a file between them."""
WHOLE = {"spark.sql.files.maxPartitionBytes": "64g"}
"""Spark divides the file by the number of tasks that run at once, however large it is."""
SHAPES = {"value only": ["value"], "key and headers": ["key", "headers", "value"]}
DELIVERIES = {"exactly once": "exactly_once", "at least once": "at_least_once"}
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def main() -> None:
    """Run the four cases."""
    address, broker, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    size, rows, runs = (int(word) for word in sys.argv[4:7])
    file = folder / f"input-{size}.parquet"
    make_input(file, size, rows)
    spark = session("bench", master="local[2]", config=WHOLE)
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.read.parquet(str(file))
    loads: dict[str, Callable[[], int]] = {}
    streams: list[str] = []
    with bascule.connect(f"bascule://{address}") as client:
        for shape, columns in SHAPES.items():
            for label, delivery in DELIVERIES.items():
                stream = f"write-{size}-{shape}-{delivery}".replace(" ", "-")
                client.create_stream(stream, f"bench.{stream}", options=StreamOptions(partitions=PARTITIONS))
                streams.append(stream)
                options = {"address": address, "stream": stream, "delivery": delivery}
                loads[f"Spark write, {label}, {shape}, {size} B"] = writing(frame.select(columns), rows, options)
    figures = alternate(loads, broker=broker, runs=runs)
    for stream in streams:
        stored = spark.read.format("bascule").options(address=address, stream=stream).load().count()
        if stored != (runs + 1) * rows:
            raise RuntimeError(f"{stream} has {stored} rows, not {(runs + 1) * rows}")
    spark.stop()
    file.unlink()
    print(json.dumps(figures))


def make_input(file: Path, size: int, rows: int) -> None:
    """Write the rows that are to be written to streams."""
    draw = random.Random(1)
    schema = pa.schema([("key", pa.binary()), ("headers", HEADERS), ("value", pa.binary())])
    with pq.ParquetWriter(file, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, rows, GROUP):
            count = min(GROUP, rows - start)
            columns = {
                "key": [b"k%09d" % draw.randrange(KEYS) for _ in range(count)],
                "headers": [
                    [{"key": "trace", "value": draw.randbytes(16)}, {"key": "kind", "value": b"order"}]
                    for _ in range(count)
                ],
                "value": [draw.randbytes(size) for _ in range(count)],
            }
            writer.write_table(pa.table(columns, schema=schema), row_group_size=GROUP)


def writing(frame: DataFrame, rows: int, options: dict[str, str]) -> Callable[[], int]:
    """A batch job that appends the rows of a DataFrame to a stream."""

    def write() -> int:
        frame.write.format("bascule").mode("append").options(**options).save()
        return rows

    return write


if __name__ == "__main__":
    main()
