"""Tables in S3: commits step by step, a service without conditional puts, and an archive by real Spark."""

import json
import random
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from bascule.errors import StateError
from bascule.failpoints import VARIABLE
from bascule.lake.archived import Wanted, read_archived
from bascule.lake.epochs import Append, decide
from bascule.lake.iceberg.catalog import open_catalog
from bascule.lake.options import FORMATS, ArchiveOptions, TableFormat
from bascule.lake.ranges import Source
from bascule.lake.storage import Bucket, open_storage
from harness import Streams
from lakes import Archive, Format

from tests.failpoints import ARCHIVE
from tests.torture.s3_service import s3_service
from tests.unit.lake.query import Query, batch, expected

pytestmark = pytest.mark.spark

pa: Any = import_module("pyarrow")
SECRET = "the-secret-of-the-bucket"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An S3 service with the bucket `lake`, in a process of its own: calls of deltalake hold the interpreter."""
    with s3_service() as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def credentials(tmp_path: Path) -> str:
    """A file with the secrets."""
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps({"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": SECRET}))
    return str(path)


@pytest.fixture(params=FORMATS)
def options(request: pytest.FixtureRequest, endpoint: str, credentials: str, tmp_path: Path) -> ArchiveOptions:
    table_format: TableFormat = request.param
    name = request.node.name.replace("[", "-").strip("]")
    if table_format == "iceberg":
        catalog = catalog_in_bucket(tmp_path, endpoint, name)
        return ArchiveOptions("lake.table", table_format, ("partition",), credentials=catalog)
    return ArchiveOptions(f"s3://lake/{name}", table_format, ("partition",), credentials=credentials, endpoint=endpoint)


def catalog_in_bucket(folder: Path, endpoint: str, name: str) -> str:
    """Properties of a SQL catalog whose tables are in the bucket, with the secrets, in a file."""
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"s3://lake/{name}",
        "s3.endpoint": endpoint,
        "s3.region": "us-east-1",
        "s3.access-key-id": "test",
        "s3.secret-access-key": SECRET,
    }
    path = folder / "catalog.json"
    path.write_text(json.dumps(properties))
    return str(path)


def rows(options: ArchiveOptions, folder: Path) -> list[tuple[int, int]]:
    """(partition, offset) of every row that readers see, sorted."""
    if options.table_format == "iceberg":
        found = open_catalog(options).load_table(options.path).scan().to_arrow().to_pylist()
        return sorted((row["partition"], row["offset"]) for row in found)
    bucket = open_storage(options.path, options)
    if options.table_format == "delta":
        table = import_module("deltalake").DeltaTable(options.path, storage_options=getattr(bucket, "options", None))
        found = table.to_pyarrow_table().to_pylist()
    else:
        shutil.rmtree(folder, ignore_errors=True)
        for name, _ in bucket.entries(""):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(bucket.read(name) or b"")
        found = (
            import_module("pyarrow.dataset")
            .dataset(folder, partitioning="hive", format="parquet")
            .to_table()
            .to_pylist()
        )
    return sorted((row["partition"], row["offset"]) for row in found)


def test_steps_of_commits_in_a_bucket(options: ArchiveOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    query = Query(options)
    query.epoch(0, [batch(0, 3)], [batch(0, 2, 1)])
    number, end = 1, 3
    for point in ARCHIVE:
        if point == "archive.between_moves" and options.table_format != "parquet":
            continue
        (tmp_path / point).write_text("fail")
        with pytest.raises(OSError, match=point):
            query.epoch(number, [batch(end, end + 2)])
        query.restart()
        query.epoch(number, [batch(end, end + 2)])
        number, end = number + 1, end + 2
    assert rows(options, tmp_path / "copy") == [key[:2] for key in expected((0, 0, end), (1, 0, 2))]
    with pytest.raises(StateError, match="has a new checkpoint"):
        Query(options, "other").epoch(0, [batch(0, 3)])


def test_a_commit_that_was_overtaken_is_refused_by_the_service(options: ArchiveOptions, tmp_path: Path) -> None:
    first, second = Query(options), Query(options, "second")
    token, parts = first.write([[batch(0, 3)]])
    epoch = first.described(0, token, parts)
    first.table.prepare(first.shape.table)
    state, handle = first.table.snapshot(epoch)
    decision = decide("table", state, epoch)
    assert isinstance(decision, Append)
    assert second.epoch(0, [batch(0, 2, 7)])
    assert not first.table.append(handle, decision, epoch, parts[0].files)
    assert first.commit(0, token, parts), "and by the new snapshot it is accepted"
    assert rows(options, tmp_path / "copy") == [key[:2] for key in expected((0, 0, 3), (7, 0, 2))]


def test_a_service_without_conditional_puts_is_refused(
    options: ArchiveOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    if options.table_format == "iceberg":
        pytest.skip("commits of Iceberg tables are those of its catalog")

    def overwrite(bucket: Bucket, name: str, content: bytes) -> bool:
        bucket.replace(name, content)
        return True

    monkeypatch.setattr(Bucket, "put_if_absent", overwrite)
    with pytest.raises(StateError, match="accepts a second put with If-None-Match"):
        Query(options).epoch(0, [batch(0, 3)])


def test_an_archive_in_a_bucket_is_read_in_order(options: ArchiveOptions) -> None:
    if options.table_format == "parquet":
        pytest.skip("archives are read from Delta and Iceberg tables")
    query, source = Query(options), Source("s", 1, 0)
    query.epoch(0, [batch(0, 3)], [batch(0, 2, 1)])
    query.epoch(1, [batch(3, 5)])
    wanted = Wanted(source, 1, 5)
    pinned = query.table.pinned([source])
    batches = read_archived(query.table.storage, pinned.files_of(wanted), wanted, ["value", "partition"])
    found = [row for rows, _ in batches for row in rows.to_pylist()]
    assert found == [{"value": value, "partition": 0} for _, _, value in expected((0, 1, 5))]
    assert (pinned.covered[source].first, pinned.covered[source].end) == (0, 5)


def test_large_files_are_uploaded_in_parts(options: ArchiveOptions, tmp_path: Path) -> None:
    large = batch(0, 2000)
    draw = random.Random(1)
    values = pa.array([draw.randbytes(10_000) for _ in range(2000)], pa.binary())
    large = large.set_column(large.schema.get_field_index("value"), "value", values)
    Query(options).epoch(0, [large])
    assert rows(options, tmp_path / "copy") == [(0, offset) for offset in range(2000)]


@pytest.mark.parametrize("table_format", FORMATS)
def test_an_archive_in_a_bucket_shows_no_secret(
    spark: Any, streams: Streams, tmp_path: Path, *, table_format: Format, endpoint: str, credentials: str
) -> None:
    streams.create("s")
    streams.put("s", [b"a"] * 10)
    if table_format == "iceberg":
        options = ArchiveOptions("lake.spark", "iceberg", credentials=catalog_in_bucket(tmp_path, endpoint, "spark"))
    else:
        to = f"s3://lake/spark-{table_format}"
        options = ArchiveOptions(to, table_format, credentials=credentials, endpoint=endpoint)
    given = {"to": options.path, "credentials": options.credentials, "endpoint": options.endpoint}
    archive = Archive(spark, streams, tmp_path, table_format, **given)
    archive.run()
    streams.put("s", [b"b"])
    archive.run()
    archive.forget_last_commit()
    archive.run()
    assert rows(options, tmp_path / "copy") == [(0, offset) for offset in range(11)]
    checkpoint = [path for path in archive.checkpoint.rglob("*") if path.is_file()]
    assert checkpoint
    assert not [path for path in checkpoint if SECRET.encode() in path.read_bytes()]
