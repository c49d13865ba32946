"""Two drivers in processes of their own that archive one stream to one table, at the same moment."""

from pathlib import Path
from typing import Any

import pytest
from harness import Streams
from lakes import FORMATS, Archive, Format
from replay_driver import Driver

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COUNT = 120


def driver(archive: Archive, folder: Path) -> Driver:
    """A run that archives everything, in epochs of 40 records, with a checkpoint of its own."""
    folder.mkdir()
    options: dict[str, Any] = {
        **archive.options,
        "to": archive.to,
        "format": archive.format,
        "checkpoint": str(folder / "checkpoint"),
        "maxOffsetsPerTrigger": 40,
        "available_now": True,
    }
    return Driver(folder, {"function": "archive", "options": options}, hold="archive.before_commit")


@pytest.mark.parametrize("table_format", FORMATS)
def test_of_two_that_commit_at_once_one_is_exact_and_the_other_is_refused_by_name(
    spark: Any, streams: Streams, tmp_path: Path, table_format: Format
) -> None:
    streams.create("s")
    streams.put("s", [b"%d" % number for number in range(COUNT)])
    archive = Archive(spark, streams, tmp_path, table_format)
    drivers = [driver(archive, tmp_path / name) for name in ("one", "two")]
    try:
        for each in drivers:  # both have read the table, found nothing, and decided to append their first epoch
            each.wait_until_held()
        for each in drivers:
            each.release()
        (won, _), (lost, why) = sorted(each.wait() for each in drivers)
    finally:
        for each in drivers:
            each.kill()
    assert (won, lost) == (0, 1), why[-3000:]
    assert "another query archives the same stream" in why
    assert "startingOffsets" in why, "the refusal names the remedy"
    assert [(row["offset"], row["value"]) for row in archive.rows()] == [(n, b"%d" % n) for n in range(COUNT)]
