"""`python -m tests.torture.copying_app FOLDER`: the Spark application of a `Copy`, in processes that can be killed.

FOLDER has `copy.json`. A query that fails is started again. The application makes `running` once both queries run, and
ends when there is a file `stop`: after the queries have nothing left to do.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
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
    spark = session("copying", folder)
    starts = {"sink": copy.start_sink, "archive": copy.start_archive}
    keep_running(folder, {name: partial(start, spark, available_now=False) for name, start in starts.items()})
    spark.stop()


def session(name: str, folder: Path) -> Any:
    """The Spark session of an application, with its files in its folder.

    From now on SIGUSR1 makes the driver print the stacks of its threads; the file `prints-stacks` says so.
    """
    faulthandler.register(signal.SIGUSR1)
    (folder / "prints-stacks").touch()
    config: dict[str, str | int | bool] = {
        "spark.ui.enabled": False,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.memory": "1g",
    }
    return bascule.spark.session(name, master=MASTER, config=config)


def keep_running(folder: Path, starts: Mapping[str, Callable[[], Any]]) -> None:
    """Run queries, and start again those that fail, until there is a file `stop` and they have nothing left to do."""
    running: dict[str, Any] = {}
    while not (folder / "stop").exists():
        for name, start in starts.items():
            query = running.get(name)
            if query is None or not query.isActive:
                if query is not None:
                    print(f"{name} failed: {query.exception()}", flush=True)
                running[name] = start()
        (folder / "running").touch()
        time.sleep(0.05)
    for query in running.values():
        query.processAllAvailable()
        query.stop()


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
