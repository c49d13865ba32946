"""Streams as Delta and Parquet tables, with real Spark: content, partitions, patterns, replays, refusals."""

from pathlib import Path
from typing import Any

import pytest
from harness import Streams
from lakes import FORMATS, Archive, Format

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("table_format", FORMATS)
def test_every_record_is_in_the_table_with_all_its_columns(
    spark: Any, streams: Streams, tmp_path: Path, table_format: Format
) -> None:
    streams.create("s", 2)
    streams.put("s", [b"a", b"b"], key=[b"k", None], headers=[[{"key": "h", "value": b"1"}], []])
    streams.put("s", [b"c"], 1)
    archive = Archive(spark, streams, tmp_path, table_format)
    archive.run()
    streams.put("s", [b"d"])
    archive.run()
    archive.run()
    rows = archive.rows()
    assert [(row["partition"], row["offset"], row["value"], row["key"]) for row in rows] == [
        (0, 0, b"a", b"k"),
        (0, 1, b"b", None),
        (0, 2, b"d", None),
        (1, 0, b"c", None),
    ]
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}]
    assert {(row["stream"], row["partition"], row["incarnation"]) for row in rows} == {("s", 0, 1), ("s", 1, 2)}
    assert {row["subject"] for row in rows} == {"s", "s.1"}
