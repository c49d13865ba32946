"""`python -m tests.torture.merging_app FOLDER`: keeps the tables of a stream of changes, in processes to be killed.

FOLDER has `copy.json`. A query that fails is started again. The application makes `running` once its queries run, and
ends when there is a file `stop`: after the queries have nothing left to do.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from tests.torture.copying import Copy
from tests.torture.copying_app import keep_running, session
from tests.torture.merging import start_merge, tables_of


def main() -> None:
    """Run the queries until the end."""
    folder = Path(sys.argv[1])
    copy = Copy.load(folder / "copy.json")
    spark = session("merging", folder)
    keep_running(folder, {table: partial(start_merge, spark, copy, table) for table in tables_of(copy)})
    spark.stop()


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
