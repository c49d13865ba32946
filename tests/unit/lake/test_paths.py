"""Which paths of tables are refused, and which table a path and a stream name."""

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bascule.lake
import pytest
from bascule.errors import BrokerError, StateError, UsageError
from bascule.lake.disk_errors import disk_errors, read_errors
from bascule.lake.merge_options import MergeOptions
from bascule.lake.options import ArchiveOptions
from bascule.lake.rows import shape_of
from bascule.lake.tables import open_table
from pyspark.sql.types import StringType, StructField, StructType

from tests.unit.lake.query import Query, batch, options_of


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("~/lake/orders", "~ is not expanded; write the whole path"),
        ("~", "~ is not expanded"),
        ("s3://", "name a bucket and a folder, s3://bucket/folder"),
        ("s3:///orders", "name a bucket and a folder"),
    ],
)
def test_a_path_that_would_make_another_table_is_refused(path: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as raised:
        ArchiveOptions(path)
    assert path in str(raised.value)


@pytest.mark.parametrize("mark", ["{streams}", "{}", "{Stream}"])
def test_other_braces_are_refused_where_a_table_is_written(mark: str) -> None:
    options = ArchiveOptions(f"lake/{{stream}}/{mark}")
    with pytest.raises(UsageError, match=re.escape(f"{mark} has no meaning; {{stream}} stands for the name")):
        shape_of(StructType([StructField("stream", StringType())]), options)
    with pytest.raises(UsageError, match=re.escape(f"{mark} has no meaning")):
        MergeOptions(path=f"lake/{mark}", keys=("key",))


@pytest.mark.parametrize("path", ["lake/{stream}-by-day", "lake/a~b", "~x/lake", "s3://bucket/{stream}"])
def test_other_paths_are_taken(path: str) -> None:
    assert ArchiveOptions(path).path == path


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_a_path_that_is_a_file_is_refused(tmp_path: Path, table_format: Any) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"the table .*/file is a file: a table is a folder"):
        open_table(ArchiveOptions(str(tmp_path / "file"), table_format), "")


@pytest.mark.parametrize("work", [bascule.lake.compact, bascule.lake.vacuum, bascule.lake.expire])
def test_a_stream_is_refused_for_a_path_that_names_one_table(tmp_path: Path, work: Callable[..., object]) -> None:
    query = Query(options_of("delta", tmp_path))
    for number in range(3):
        query.epoch(number, [batch(number, number + 1)])
    version = query.table.snapshot(query.described(9, "", []))[1].version()
    with pytest.raises(UsageError, match=r"stream is 'refunds', and the path .* has no \{stream\}"):
        work(query.options, stream="refunds")
    assert query.table.snapshot(query.described(9, "", []))[1].version() == version


def test_a_table_that_is_missing_is_named_with_its_stream(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"there is no delta table in .*/nope-by-day for stream nope"):
        bascule.lake.compact(ArchiveOptions(f"{tmp_path}/{{stream}}-by-day"), stream="nope")


def test_an_object_store_that_cannot_be_read_is_one_sentence() -> None:
    failure = OSError("Generic S3 error: Error performing GET http://127.0.0.1:1/b\n\x1b[31m↳\x1b[0m refused")
    with (
        pytest.raises(BrokerError, match=r"^the table s3://b/t cannot be read: Generic .*/b; check") as raised,
        read_errors("s3://b/t"),
    ):
        raise failure
    assert raised.value.code == "unavailable"
    assert "archiveCredentials" in str(raised.value)
    local = OSError(errno.EACCES, "x")
    with pytest.raises(OSError, match="x") as other, read_errors("/t"):
        raise local
    assert other.value is local


@pytest.mark.parametrize("errors", [read_errors, disk_errors])
def test_missing_credentials_are_the_reason_that_is_named(errors: Callable[[str], Any]) -> None:
    with pytest.raises(BrokerError, match="no credentials were given, and this machine has none"), errors("s3://b/t"):
        raise OSError("Generic S3 error: PUT http://169.254.169.254/latest/api/token after 10 retries")
