"""`python -m tests.torture.copying_app FOLDER`: the Spark application of a `Copy`, in processes that can be killed.

FOLDER has `copy.json`. A query that fails is started again. The application makes `running` once both queries run, and
ends when there is a file `stop`: after the queries have nothing left to do.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import bascule.spark

from tests.torture.copying import Copy

MASTER: Final = "local[2,4]"
"""Two tasks at once; a task is tried four times."""


def main() -> None:
    """Run both queries until the end."""
    folder = Path(sys.argv[1])
    copy = Copy.load(folder / "copy.json")
    config: dict[str, str | int | bool] = {
        "spark.ui.enabled": False,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.memory": "1g",
    }
    spark = bascule.spark.session("copying", master=MASTER, config=config)
    starts = {"sink": copy.start_sink, "archive": copy.start_archive}
    running: dict[str, Any] = {}
    while not (folder / "stop").exists():
        for name, start in starts.items():
            query = running.get(name)
            if query is None or not query.isActive:
                if query is not None:
                    print(f"{name} failed: {query.exception()}", flush=True)
                running[name] = start(spark, available_now=False)
        (folder / "running").touch()
        time.sleep(0.05)
    for query in running.values():
        query.processAllAvailable()
        query.stop()
    spark.stop()


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
