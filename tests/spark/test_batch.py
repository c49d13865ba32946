"""Batch reads and the bulk scan, with real Spark."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from bascule.errors import BrokerError
from bascule.spark import scan
from harness import Streams

pytestmark = pytest.mark.spark

ALL = "partition,offset,timestamp,subject,key,value,stream,incarnation,headers,reply,id,origin_time,timestamp_ns"


def read(spark: Any, streams: Streams, **options: Any) -> Any:
    reader = spark.read.format("bascule").option("address", streams.address)
    for name, value in {"stream": "s", "retryDeadlineMs": 1000, **options}.items():
        reader = reader if value is None else reader.option(name, value)
    return reader.load()


def found(frame: Any) -> list[tuple[int, int]]:
    """(partition, offset) of every row, sorted."""
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def refused(frame: Any) -> str:
    errors: Any = import_module("pyspark.errors")
    with pytest.raises(errors.PySparkException) as raised:
        frame.collect()
    return str(raised.value)


def test_a_stream_is_a_table(spark: Any, streams: Streams) -> None:
    streams.create("s", 2)
    streams.put("s", [b"a", b""], key=[b"k", None], subject=["s.x", None])
    streams.put("s", [b"c"], 1)
    frame = read(spark, streams)
    assert [(f.name, f.dataType.simpleString(), f.nullable) for f in frame.schema.fields] == [
        ("partition", "int", False),
        ("offset", "bigint", False),
        ("timestamp", "timestamp", False),
        ("subject", "string", False),
        ("key", "binary", True),
        ("value", "binary", True),
    ]
    rows = sorted((r.partition, r.offset, r.subject, r.key, bytes(r.value)) for r in frame.collect())
    assert rows == [(0, 0, "s.x", b"k", b"a"), (0, 1, "s", None, b""), (1, 0, "s.1", None, b"c")]


def test_every_column_can_be_read_by_source_and_scan(spark: Any, streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"a"], headers=[[{"key": "h", "value": b"1"}]], timestamp=[pa_time()])
    streams.put("s", [b"b"])
    for frame in (
        read(spark, streams, columns=ALL),
        scan(spark, "s", columns=ALL.split(","), address=streams.address),
    ):
        assert ",".join(frame.columns) == ALL
        first, second = sorted(frame.collect(), key=lambda row: row.offset)
        assert [(h.key, bytes(h.value)) for h in first.headers] == [("h", b"1")]
        assert (second.headers, second.reply, second.id, second.origin_time) == ([], None, None, None)
        assert first.origin_time.year == 2020
        assert (first.stream, first.incarnation) == ("s", 1)
        assert abs(first.timestamp_ns / 1e9 - first.timestamp.timestamp()) < 1e-5
        assert first.timestamp_ns < second.timestamp_ns


def test_the_incarnation_can_be_read_alone_and_differs_for_each_stream(spark: Any, streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"a"] * 3)
    streams.delete("s")
    streams.create("s")
    streams.put("s", [b"a"] * 2)
    assert [row.incarnation for row in read(spark, streams, columns="incarnation").collect()] == [2, 2]


def pa_time() -> Any:
    datetime: Any = import_module("datetime")
    return datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)


def test_a_schema_given_by_the_user_prunes_columns(spark: Any, streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"a"])
    reader = spark.read.format("bascule").option("address", streams.address).option("stream", "s")
    assert reader.schema("value binary, offset bigint").load().collect() == [(b"a", 0)]
    assert "there is no column 'colour'" in refused(reader.schema("colour string").load())
    assert "column value is binary, not string" in refused(reader.schema("value string").load())


def test_invalid_options_are_rejected_before_anything_is_read(spark: Any, streams: Streams) -> None:
    with pytest.raises(Exception, match=r"there is no option 'stream_' \(did you mean stream\?\)"):
        read(spark, streams, stream_="x")
    assert "stream default/t does not exist" in refused(read(spark, streams, stream="t"))
    with pytest.raises(ValueError, match="option longPollMs has no meaning for a batch read: remove it"):
        scan(spark, "s", longPollMs=5)
    with pytest.raises(BrokerError, match="stream default/t does not exist"):
        scan(spark, "t", address=streams.address)


def test_an_error_begins_with_its_code_and_sentence(spark: Any, streams: Streams) -> None:
    """Only Spark's own header comes before the error; there is no traceback."""
    streams.create("s")
    sentences = {
        refused(read(spark, streams, startingOffsets='{"s": {"0": 1}}')): "[offset_out_of_range] ",
        refused(read(spark, streams, stream="ss")): "[stream_not_found] stream default/ss does not exist (did you mean "
        "s?); correct the name, or create it with `bascule stream create`",
    }
    with pytest.raises(Exception, match="bascule") as raised:
        read(spark, streams, startingOffsets='{"t": {"0": 1}}')
    sentences[str(raised.value)] = "[invalid_argument] option startingOffsets names the stream 't'"
    for message, sentence in sentences.items():
        assert sentence in message.splitlines()[0]
        assert "Traceback" not in message.split("JVM stacktrace")[0]


@pytest.mark.parametrize("statement", ["SET TIME ZONE 'Asia/Tokyo'", "SET spark.sql.session.timeZone=+09:00"])
def test_a_time_without_a_zone_is_in_that_of_the_session(spark: Any, streams: Streams, statement: str) -> None:
    streams.create("s")
    streams.put("s", [b"before"])
    time.sleep(1.1)  # the text has seconds
    start = datetime.now(UTC).replace(microsecond=0)
    streams.put("s", [b"after"])
    in_tokyo = (start + timedelta(hours=9)).strftime("%Y-%m-%d %H:%M:%S")
    in_utc = start.strftime("%Y-%m-%d %H:%M:%S")
    try:
        spark.sql(statement)
        assert found(read(spark, streams, startingTimestamp=in_tokyo)) == [(0, 1)]
        assert found(read(spark, streams, endingTimestamp=in_tokyo)) == [(0, 0)]
        assert found(read(spark, streams, startingTimestamp=in_utc, timeZone="UTC")) == [(0, 1)]
        assert scan(spark, "s", address=streams.address, startingTimestamp=in_tokyo).count() == 1
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert found(read(spark, streams, startingTimestamp=in_utc)) == [(0, 1)]


def test_an_unreachable_broker_is_one_clear_error(spark: Any) -> None:
    with pytest.raises(BrokerError) as raised:
        scan(spark, "s", address="127.0.0.1:1", retryDeadlineMs=300)
    assert raised.value.code == "unavailable"


def test_a_dataframe_is_a_snapshot_and_a_new_load_has_later_records(spark: Any, streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"a"])
    frame = read(spark, streams)
    assert frame.count() == 1
    frame.createOrReplaceTempView("pinned")
    streams.put("s", [b"b"])
    assert frame.count() == 1
    assert spark.sql("select count(*) from pinned").first()[0] == 1
    assert read(spark, streams).count() == 2


def test_a_catalog_table_is_planned_afresh_for_each_query(spark: Any, streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"a"])
    spark.sql(f"create table t using bascule options (address '{streams.address}', stream 's', columns 'offset,value')")
    try:
        assert spark.sql("select * from t").collect() == [(0, b"a")]
        streams.put("s", [b"b"])
        assert spark.sql("select count(*) from t").first()[0] == 2
        assert spark.sql("select offset from t with (startingOffsets = '-1')").collect() == [(1,)]
    finally:
        spark.sql("drop table t")


def test_filters_on_one_dataframe_are_independent(spark: Any, streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"%d" % i for i in range(100)])
    frame = read(spark, streams)
    assert frame.where("offset >= 90").count() == 10
    assert frame.count() == 100
    assert frame.where("offset < 50").union(frame.where("offset >= 90")).count() == 60
    assert frame.where("offset >= 90").join(frame, "offset", "right").count() == 100


def test_ranges_begin_and_end_as_requested(spark: Any, streams: Streams) -> None:
    streams.create("s", 2)
    for partition in (0, 1):
        streams.put("s", [b"%d" % i for i in range(10)], partition)
    assert found(read(spark, streams, startingOffsets="-2")) == [(0, 8), (0, 9), (1, 8), (1, 9)]
    partial = read(spark, streams, startingOffsets='{"s": {"0": 9}}', endingOffsets='{"s": {"1": 1}}')
    assert found(partial) == [(0, 9), (1, 0)]
    assert found(read(spark, streams, startingOffsets="latest")) == []
    assert found(read(spark, streams, stream=None, assign='{"s": [1]}', startingOffsets="-1")) == [(1, 9)]
    assert "beyond the high watermark 10" in refused(read(spark, streams, startingOffsets='{"s": {"0": 11}}'))


def test_times_choose_ranges(spark: Any, streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"a"])
    time.sleep(0.01)  # times are in ms: the two records must not share one
    middle = time.time_ns() // 1_000_000 + 1
    time.sleep(0.01)
    streams.put("s", [b"b"])
    assert found(read(spark, streams, startingTimestamp=middle)) == [(0, 1)]
    assert found(read(spark, streams, endingTimestamp=middle)) == [(0, 0)]
    future = middle + 10**9
    assert found(read(spark, streams, startingTimestamp=future)) == []
    strict = read(spark, streams, startingTimestamp=future, startingOffsetsByTimestampStrategy="error")
    assert "has no record at or after" in refused(strict)


def test_several_streams_patterns_and_subjects(spark: Any, streams: Streams) -> None:
    for name in ("s1", "s2", "t"):
        streams.create(name)
        streams.put(name, [b"a", b"b"], subject=[f"{name}.x", f"{name}.y"])
    assert read(spark, streams, stream="s1,t").count() == 4
    pattern = read(spark, streams, stream=None, streamPattern="s[0-9]", columns="stream")
    assert sorted(row.stream for row in pattern.collect()) == ["s1", "s1", "s2", "s2"]
    filtered = read(spark, streams, stream="s1,t", subject="*.x", columns="subject")
    assert sorted(row.subject for row in filtered.collect()) == ["s1.x", "t.x"]


def test_splitting_reads_every_record_once(spark: Any, streams: Streams) -> None:
    streams.create("s", 2)
    for partition, count in ((0, 1000), (1, 100)):
        streams.put("s", [b"v"] * count, partition)
    expected = [(0, i) for i in range(1000)] + [(1, i) for i in range(100)]
    for options, tasks in (({}, 1), ({"minPartitions": 5}, 6), ({"maxRecordsPerPartition": 200}, 6)):
        frame = read(spark, streams, **options)
        assert frame.rdd.getNumPartitions() <= tasks
        assert found(frame) == expected
    assert scan(spark, "s", address=streams.address, minPartitions=5).count() == 1100


def test_removed_records_fail_the_read_or_are_skipped(spark: Any, streams: Streams) -> None:
    streams.create("s", segment_bytes=1 << 16)
    for _ in range(8):
        streams.put("s", [bytes(1000)] * 100)
    planned = read(spark, streams)
    skipping = read(spark, streams, onDataLoss="skip")
    assert planned.rdd.getNumPartitions() == skipping.rdd.getNumPartitions() == 1
    streams.set("s", retention_messages=250)
    deadline = time.monotonic() + 10
    while streams.position("s")[0] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    start, end = streams.position("s")
    assert f"offset 0 is below the log start offset {start}" in refused(planned)
    assert found(skipping) == [(0, i) for i in range(start, end)]
    asked = {"startingOffsets": '{"s": {"0": 0}}'}
    assert "set onDataLoss to skip" in refused(read(spark, streams, **asked))
    assert read(spark, streams, **asked, onDataLoss="skip").count() == end - start


def test_a_take_of_a_large_stream_ends_early(spark: Any, streams: Streams) -> None:
    streams.create("s")
    for _ in range(20):
        streams.put("s", [bytes(100)] * 16_000)
    assert len(read(spark, streams).take(5)) == 5
    deadline = time.monotonic() + 10
    while streams.engine.statistics()["subscriptions_open"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_discovery_imports_no_large_module() -> None:
    subprocess: Any = import_module("subprocess")
    sys: Any = import_module("sys")
    code = (
        "import sys, pyspark_bascule\n"
        "heavy = {'pyarrow', 'pandas', 'numpy', 'bascule._native', 'bascule.engine'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert pyspark_bascule.DefaultSource.name() == 'bascule'\n"
        "import bascule.spark.batch, bascule.spark.stream, bascule.spark.bulk\n"
        "assert not {'bascule._native', 'bascule.engine'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_workers_import_the_installed_package(spark: Any) -> None:
    """Spark's archive of it is compiled at each import."""

    def places(batches: Iterator[Any]) -> Iterator[Any]:
        pyarrow, pyspark = import_module("pyarrow"), import_module("pyspark")
        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"place": [pyspark.__file__]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(places, "place string").collect()
    assert row.place == import_module("pyspark").__file__
