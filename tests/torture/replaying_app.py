"""`python -m tests.torture.replaying_app FOLDER`: archives a stream and replays the archive, in processes to be killed.

FOLDER has `copy.json`, a `Copy` whose table is the archive and whose target takes the replays. The archive runs until
the end; a query that fails is started again. Each file `replay-<number>.json` with the range `[first, end)` of all
partitions asks for a replay, which is called until it succeeds; then there is `replay-<number>.done`. The application
makes `running` once the archive runs, and ends when there is a file `stop`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import bascule.spark
from bascule.errors import BrokerError, StateError

from tests.torture.copying import Copy
from tests.torture.copying_app import session

ROWS_AN_EPOCH: Final = 150


def main() -> None:
    """Archive and replay until the end."""
    folder = Path(sys.argv[1])
    copy = Copy.load(folder / "copy.json")
    spark = session("replaying", folder)
    archive: Any = None
    while not (folder / "stop").exists():
        if archive is None or not archive.isActive:
            if archive is not None:
                print(f"archive failed: {archive.exception()}", flush=True)
            archive = copy.start_archive(spark, available_now=False)
        (folder / "running").touch()
        for request in sorted(folder.glob("replay-*.json")):
            if not request.with_suffix(".done").exists():
                _replay(spark, copy, request)
        time.sleep(0.05)
    archive.processAllAvailable()
    archive.stop()
    spark.stop()


def _replay(spark: Any, copy: Copy, request: Path) -> None:
    first, end = json.loads(request.read_text())
    options: dict[str, Any] = {"fromOffset": first, "toOffset": end, "maxRowsPerEpoch": ROWS_AN_EPOCH}
    try:
        bascule.spark.replay(
            spark,
            archive=copy.table,
            format=copy.table_format,
            to=copy.target,
            id=f"{copy.target}-{request.stem}",
            checkpoint=str(request.with_suffix(".checkpoint")),
            address=copy.address,
            leaveOut="reply,id",
            **copy.catalog,
            **options,
        )
    except (BrokerError, StateError, ConnectionError) as failure:
        print(f"{request.stem} failed: {failure}", flush=True)
        return
    except Exception as failure:  # noqa: BLE001 - a worker was killed, as Spark reports it
        print(f"{request.stem} ended: {failure}", flush=True)
        return
    request.with_suffix(".done").touch()


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
