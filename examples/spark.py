"""Query a stream with Spark, and copy it into Parquet files exactly once.

Run `python examples/publish.py` first, then `python examples/spark.py [ADDRESS] [DIRECTORY]`. Spark needs Java 17 or
newer. A second run copies only what was published since the first one: the checkpoint holds the position.
"""

import sys
from pathlib import Path

from bascule.spark import session

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9292"
DIRECTORY = Path(sys.argv[2] if len(sys.argv) > 2 else "orders-lake").resolve()
STREAM = "orders"


def main() -> None:
    """Count records per key in a batch query, then run a streaming query up to the current end."""
    spark = session("orders", master="local[2]")
    options = {"address": ADDRESS, "stream": STREAM}

    orders = spark.read.format("bascule").options(**options).load()
    counts = orders.selectExpr("cast(key as string) as key").groupBy("key").count().orderBy("key")
    for row in counts.collect():
        print(f"{row['key']}: {row['count']}")

    query = (
        spark.readStream.format("bascule")
        .options(**options)
        .load()
        .writeStream.format("parquet")
        .option("path", str(DIRECTORY / "data"))
        .option("checkpointLocation", str(DIRECTORY / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(f"{spark.read.parquet(str(DIRECTORY / 'data')).count()} rows in {DIRECTORY / 'data'}")
    spark.stop()


if __name__ == "__main__":
    main()
