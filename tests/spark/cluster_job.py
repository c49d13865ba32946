"""The job that the tests of clusters run: copies a stream to another one and to a table, and stops once in the middle.

Started as a program, with a `Plan` as JSON. Each of its two queries has several epochs. The first task that has passed
on the row `middle` of a partition fails, or waits until somebody kills its executor.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

WAIT_S = 150.0
COLUMNS = "stream,incarnation,partition,offset,timestamp,subject,key,value"


@dataclass(frozen=True)
class Plan:
    """What to do.

    Attributes:
        master: Spark's master URL.
        address: of the broker, as the option has it.
        folder: for checkpoints, the table, and the files that say which task waits.
        once: what a task does in the middle, the first time.
        middle: offset of the row.
        config: settings of the session.
    """

    master: str
    address: str
    folder: str
    once: Literal["fail", "wait"]
    middle: int = 1000
    config: dict[str, str] = field(default_factory=dict[str, str])

    def __str__(self) -> str:
        return json.dumps(asdict(self))


def interrupted(mark: str, once: str, middle: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function of rows to the same rows, for `mapInArrow`."""

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if batch.num_rows and batch.column("offset")[-1].as_py() >= middle:
                stop()

    def stop() -> None:
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return
        if once == "fail":
            raise RuntimeError("this task fails once")
        written = Path(f"{mark}.new")
        written.write_text(str(os.getpid()))
        written.rename(f"{mark}.pid")
        time.sleep(WAIT_S)
        raise TimeoutError("nobody killed this task")

    return rows


def run(plan: Plan) -> None:
    """Copy to a stream, then to a table."""
    from bascule.spark import session  # noqa: PLC0415 - heavy

    spark = session("cluster", master=plan.master, config=plan.config)

    def started(name: str, target: str, columns: Sequence[str], options: dict[str, str]) -> Any:
        reader = spark.readStream.format("bascule").option("address", plan.address).option("stream", "orders")
        frame = reader.options(columns=COLUMNS, maxOffsetsPerTrigger="1600", maxPartitions="2").load()
        passed = frame.mapInArrow(interrupted(f"{plan.folder}/{name}", plan.once, plan.middle), frame.schema)
        writer = passed.select(*columns).writeStream.format(target).options(**options)
        writer = writer.option("checkpointLocation", f"{plan.folder}/{name}.checkpoint")
        return writer.trigger(availableNow=True).start()

    sink = {"address": plan.address, "stream": "copy", "sinkId": "copy"}
    started("sink", "bascule", ["key", "value"], sink).awaitTermination()
    started("archive", "bascule_archive", COLUMNS.split(","), {"path": f"{plan.folder}/table"}).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    run(Plan(**json.loads(sys.argv[1])))
