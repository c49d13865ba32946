"""SP3, an archive in an S3 service that answers 500, 503, slowly, or not at all.

A query without Spark writes epochs to Delta and Parquet tables through a proxy. The answer to a request may be an error
although it was executed, also to the put that decides an epoch. An epoch that fails is written again by a new run, as
Spark does after a restart; now and then two drivers commit the same epoch. At the end every row of every epoch is in
the table exactly once.
"""

from __future__ import annotations

import json
import random
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.torture.result import Result, Scale, SkippedError
from tests.torture.s3_service import BUCKET, FAULTS, proxy, s3_service

if TYPE_CHECKING:
    from collections.abc import Sequence

ROW = "SP3"
EPOCHS = {Scale.SHORT: 4, Scale.FULL: 150}
"""For each format."""
SHARE = 0.2
"""Part of the requests with a fault."""
MOST_RUNS = 12
"""Runs that one epoch may take."""
SEED = 20_261_126


@dataclass
class Count:
    """What happened."""

    epochs: int = 0
    restarts: int = 0
    wrong: list[str] = field(default_factory=list[str])


def run(scale: Scale) -> Result:
    """Write both tables, and compare them."""
    for package in ("deltalake", "obstore"):
        try:
            import_module(package)
        except ImportError:
            raise SkippedError(f"the package {package} is missing: install the extra lake") from None
    count = Count()
    with tempfile.TemporaryDirectory() as folder, s3_service() as port, proxy(port, SEED, SHARE) as faulty:
        secrets = Path(folder) / "credentials.json"
        secrets.write_text(json.dumps({"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}))
        for table_format in ("delta", "parquet"):
            _table(table_format, EPOCHS[scale], (faulty.url, f"http://127.0.0.1:{port}", str(secrets)), count)
    faults = {name: faulty.seen.get(name, 0) for name in FAULTS}
    requests = sum(faulty.seen.values())
    return Result(
        row=ROW,
        title="an archive in an S3 service that answers 500, 503, slowly, or cuts connections",
        figure=f"{len(count.wrong)} tables wrong after {count.epochs:,} epochs, {sum(faults.values()):,} faults in "
        f"{requests:,} requests, {count.restarts:,} restarts" + "".join(f"; {text}" for text in count.wrong),
        bar=f"0 tables wrong after {2 * EPOCHS[scale]:,} epochs",
        passed=not count.wrong and count.epochs == 2 * EPOCHS[scale] and all(faults.values()),
        numbers={"epochs": count.epochs, "restarts": count.restarts, "requests": requests, **faults},
    )


def _table(table_format: Any, epochs: int, where: tuple[str, str, str], count: Count) -> None:
    from bascule.lake.options import ArchiveOptions  # noqa: PLC0415 - the rig is skipped without the packages

    from tests.unit.lake.query import Query, batch, expected  # noqa: PLC0415 - as above

    endpoint, direct, secrets = where
    path = f"s3://{BUCKET}/{table_format}"
    query = Query(ArchiveOptions(path, table_format, ("partition",), credentials=secrets, endpoint=endpoint))
    chance, end = random.Random(SEED), 0
    for number in range(epochs):
        more = chance.randint(1, 40)
        tasks = [[batch(end, end + more)], [batch(end, end + more, 1)]]
        _epoch(query, number, tasks, count, twice=chance.random() < 0.2)
        count.epochs, end = count.epochs + 1, end + more
    reader = Query(ArchiveOptions(path, table_format, ("partition",), credentials=secrets, endpoint=direct))
    reader.table.finish()
    found = _rows(reader.table)
    if found != expected((0, 0, end), (1, 0, end)):
        count.wrong.append(f"{table_format}: {len(found)} rows, {len(set(found))} different ones of {2 * end}")


def _epoch(query: Any, number: int, tasks: Sequence[Any], count: Count, *, twice: bool) -> None:
    """Write an epoch until a run commits it; `twice`: with two attempts whose drivers commit at once."""
    failure: BaseException | None = None
    for _ in range(MOST_RUNS):
        with ThreadPoolExecutor(2) as drivers:
            calls = [drivers.submit(query.epoch, number, *tasks) for _ in range(2 if twice else 1)]
        failures = [call.exception() for call in calls]
        if None in failures:
            return
        # Whatever the fault made of them, the next run continues.
        failure = failures[0]
        count.restarts += 1
        query.restart()
    raise RuntimeError(f"epoch {number} was not committed by {MOST_RUNS} runs") from failure


def _rows(table: Any) -> list[tuple[int, int, bytes]]:
    """(partition, offset, value) of every row that readers see, sorted; repeated ones are repeated."""
    from bascule.lake.delta import DeltaTarget  # noqa: PLC0415 - the rig is skipped without the packages

    if isinstance(table, DeltaTarget):
        rows = table.open().to_pyarrow_table().to_pylist()
        return sorted((row["partition"], row["offset"], row["value"]) for row in rows)
    parquet, pa = import_module("pyarrow.parquet"), import_module("pyarrow")
    found: list[tuple[int, int, bytes]] = []
    for name, _ in table.storage.entries(""):
        if name.endswith(".parquet") and not name.startswith("_"):
            number = int(name.split("partition=")[1].split("/")[0])
            rows = parquet.read_table(pa.BufferReader(table.storage.read(name)), partitioning=None).to_pylist()
            found += [(number, row["offset"], row["value"]) for row in rows]
    return sorted(found)
