"""Archives in S3: erasing by key, and tiered reads. No test needs a Spark session."""

from pathlib import Path

import bascule.lake
import pytest
from bascule.errors import CorruptionError, UnavailableError
from bascule.failpoints import VARIABLE
from bascule.lake.options import FORMATS, ArchiveOptions, TableFormat
from bascule.lake.ranges import Erased, Source
from bascule.lake.tables import open_table
from buckets import Bucketed
from harness import Streams
from tiered import ALL, Tiers, expected, filled_into, values

from tests.unit.lake.query import Query, batch

pytestmark = pytest.mark.spark

SOURCE = Source("s", 1, 0)


@pytest.fixture(params=FORMATS)
def options(request: pytest.FixtureRequest, bucket: Bucketed) -> ArchiveOptions:
    return bucket.options(request.param, request.node.name, "partition")


@pytest.fixture(params=("delta", "iceberg"))
def tiers(request: pytest.FixtureRequest, bucket: Bucketed, streams: Streams) -> Tiers:
    table_format: TableFormat = request.param
    return filled_into(streams, bucket.options(table_format, request.node.name))


@pytest.mark.parametrize("point", ["", "erase.before_commit", "erase.after_commit"])
def test_records_of_a_key_are_erased_also_when_it_is_interrupted(
    options: ArchiveOptions, bucket: Bucketed, point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(options)
    query.epoch(0, [batch(0, 6)], [batch(0, 4, 1)])
    query.epoch(1, [batch(6, 9)])
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    if point:
        (tmp_path / point).write_text("fail")
        with pytest.raises((OSError, UnavailableError), match=point):
            bascule.lake.erase(options, stream="s", key=b"key-1")
    else:
        assert bascule.lake.erase(options, stream="s", key=b"key-1", dry_run=True).rows == 4
    bascule.lake.erase(options, stream="s", key=b"key-1")
    assert bascule.lake.erase(options, stream="s", key=b"key-1").rows == 0
    wanted = [(number, offset) for number, end in ((0, 9), (1, 4)) for offset in range(end) if offset % 3 != 1]
    assert bucket.offsets(options) == wanted
    covered = bascule.lake.coverage(options, [SOURCE])[SOURCE]
    assert (covered.first, covered.end) == (0, 9)
    assert query.epoch(2, [batch(9, 12)]), "queries continue"


def test_what_was_erased_is_recorded(bucket: Bucketed) -> None:
    for table_format in ("delta", "iceberg"):
        options = bucket.options(table_format, f"recorded-{table_format}")
        query = Query(options)
        query.epoch(0, [batch(0, 9)])
        bascule.lake.erase(options, stream="s", key=b"key-2")
        assert open_table(options, "").pinned([SOURCE]).erased == {SOURCE: Erased(3, 2, 9)}


def test_a_batch_read_takes_old_records_from_the_bucket(tiers: Tiers) -> None:
    assert tiers.rows() == ALL
    start = tiers.retain(250)
    assert tiers.rows(tier="broker") == expected((0, start, 1000), (1, 0, 30))
    assert tiers.rows() == ALL
    assert tiers.rows(tier="archive") == expected((0, 0, 800), (1, 0, 30))
    moment = tiers.times()[0, start].isoformat()
    assert set(expected((0, start, 1000))) <= set(tiers.rows(startingTimestamp=moment))
    for first in range(1000, 1100, 10):
        tiers.streams.put("s", values(0, first, first + 10))
        tiers.archive_all()
    assert bascule.lake.compact(tiers.archive)["numFilesRemoved"] > 1
    assert tiers.rows(tier="archive") == expected((0, 0, 1100), (1, 0, 30))
    for file in open_table(tiers.archive, "s").pinned([]).files:
        open_table(tiers.archive, "s").storage.delete([file.name])
    with pytest.raises(CorruptionError, match="parquet") as refusal:
        tiers.rows()
    assert refusal.value.code == "damaged"
