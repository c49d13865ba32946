"""Rows that their stream refuses: they fail the write, are dropped, or become dead letters of the same epoch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bascule
import pytest
from bascule.client import StreamOptions
from bascule.testing import TestBroker as Broker
from test_sink import Job, stored

pytestmark = [pytest.mark.spark]

LIMIT = 1000
LARGE = "v" * 2000
KINDS = "headers array<struct<key: string, value: string, key_kind: int>>"


def created(client: bascule.Client, *names: str, partitions: int = 1, most: int | None = LIMIT) -> None:
    for name in names:
        client.create_stream(name, options=StreamOptions(partitions=partitions, max_record_bytes=most))


class Write:
    """A batch write of a frame."""

    def __init__(self, spark: Any, broker: Broker) -> None:
        self.spark, self.broker = spark, broker

    def __call__(self, rows: list[Any], columns: str, **options: str) -> None:
        frame = self.spark.createDataFrame(rows, columns).coalesce(1)
        writer = frame.write.format("bascule").mode("append").option("address", self.broker.address)
        for name, value in options.items():
            writer = writer.option(name, value)
        writer.save()


@pytest.fixture
def write(spark: Any, broker: Broker) -> Write:
    return Write(spark, broker)


def letters(spark: Any, broker: Broker, stream: str) -> list[dict[str, Any]]:
    """The dead letters by row: key, value, the row's own headers, and what the others say."""
    frame = spark.read.format("bascule").option("address", broker.address).option("stream", stream)
    found: list[dict[str, Any]] = []
    for row in frame.option("columns", "key,value,headers,origin_time").load().collect():
        headers = [(header.key, bytes(header.value)) for header in row.headers or []]
        said = {
            name.removeprefix("bascule.dlq."): value.decode()
            for name, value in headers
            if name.startswith("bascule.dlq.")
        }
        own = [(name, value) for name, value in headers if not name.startswith("bascule.dlq.")]
        value = None if row.value is None else bytes(row.value)
        found.append({"key": row.key and bytes(row.key), "value": value, "own": own, "said": said, "time": row[3]})
    return sorted(found, key=lambda letter: (letter["said"]["task"], int(letter["said"]["row"])))


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_row_that_is_too_large_fails_the_write_by_name(
    spark: Any, broker: Broker, client: bascule.Client, write: Write, delivery: str
) -> None:
    created(client, f"fail-{delivery}")
    with pytest.raises(Exception, match="is too large for stream") as refused:
        write([("a",), ("b",), (LARGE,)], "value string", stream=f"fail-{delivery}", delivery=delivery)
    expected = (
        f"row 2 of task 0 is too large for stream fail-{delivery}: its record has 2000 bytes (the value 2000), and "
        f"max_record_bytes is 1000; raise it with `bascule stream edit fail-{delivery} --max-record-bytes`, or set "
        "onOversize to drop or dlq"
    )
    assert expected in str(refused.value)
    assert stored(spark, broker, f"fail-{delivery}") == []


@pytest.mark.parametrize(
    ("row", "columns", "text"),
    [
        (("x", 2), "value string, partition int", "the stream has the partitions 0 to 1"),
        (("x", "a.*"), "value string, subject string", "not a valid NATS subject"),
        (("x", "a b"), "value string, reply string", "not a valid NATS subject"),
        (("x", bytearray(3)), "value string, id binary", "an id has 16"),
        (("x", "nowhere"), "value string, stream string", "column stream says"),
        (("x", [("k", "v", 16)]), f"value string, {KINDS}", "kind 16"),
    ],
)
def test_an_invalid_row_fails_the_write_by_name(
    client: bascule.Client, write: Write, row: tuple[Any, ...], columns: str, text: str
) -> None:
    client.create_stream("invalid", options=StreamOptions(partitions=2), exist_ok=True)
    with pytest.raises(Exception, match=text) as refused:
        write([row], columns, stream="invalid")
    assert "row 0 of task 0 is invalid" in str(refused.value)
    assert "set onInvalid to drop or dlq" in str(refused.value)


@pytest.fixture
def logged(spark: Any) -> Iterator[Any]:
    """Sentences that Python workers logged since the test began."""
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    yield lambda: [row.msg for row in spark.tvf.python_worker_logs().select("msg").collect()]
    spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_dropped_rows_are_counted(client: bascule.Client, write: Write, delivery: str, logged: Any) -> None:
    created(client, f"drop-{delivery}")
    rows = [("a", "s.a"), (LARGE, None), ("b", "s b"), ("c", None), (LARGE, None)]
    options = {"stream": f"drop-{delivery}", "onOversize": "drop", "onInvalid": "drop", "delivery": delivery}
    write(rows, "value string, subject string", **options)
    assert stored(write.spark, write.broker, f"drop-{delivery}") == [b"a", b"c"]
    counted = "2 oversize rows dropped, 1 invalid row dropped"
    first = 'column subject has "s b" in row 2, which is not a valid NATS subject to publish on'
    said = logged()
    assert f"task 0: {counted}; the first: {first}" in said
    assert any(text.startswith(("epoch 0 of sink batch-", "the write: ")) and text.endswith(counted) for text in said)


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_dead_letters_have_the_row_and_where_it_was_to_go(
    spark: Any, broker: Broker, client: bascule.Client, delivery: str
) -> None:
    target, dead = f"rows-{delivery}", f"dead-{delivery}"
    created(client, target, partitions=2)
    created(client, dead, most=None)
    header = "headers array<struct<key: string, value: string>>"
    rows = [
        ("k", "good", [("h", "1")], None, 0, 1.0),
        ("k", LARGE, [("h", "1"), ("h", "2")], "s.a", 1, 2.0),
        (None, "bad", None, "s b", None, None),
        ("k", "nowhere", None, None, 9, None),
    ]
    columns = f"key string, value string, {header}, subject string, partition int, seconds double"
    frame = spark.createDataFrame(rows, columns).coalesce(1)
    time = "timestamp_millis(bigint(seconds * 1000)) timestamp"
    frame = frame.selectExpr("key", "value", "headers", "subject", "partition", time)
    writer = frame.write.format("bascule").mode("append").option("address", broker.address)
    options = {"stream": target, "dlqStream": dead, "onOversize": "dlq", "onInvalid": "dlq", "delivery": delivery}
    options |= {} if delivery == "at_least_once" else {"idempotencyKey": "letters"}
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()
    if delivery == "exactly_once":
        writer.save()  # a repeated job doubles no dead letter
    assert stored(spark, broker, target) == [b"good"]
    large, subject, partition = letters(spark, broker, dead)
    common = {"stream": target, "task": "0", "max_record_bytes": "1000"}
    common |= {"sink": "letters", "epoch": "0"} if delivery == "exactly_once" else {}
    assert (large["key"], large["value"]) == (b"k", LARGE.encode())
    assert large["own"] == [("h", b"1"), ("h", b"2")]
    assert large["time"].timestamp() == 2.0
    assert large["said"] == {
        **common,
        "row": "1",
        "error_class": "too_large",
        "error_message": "row 1: record of 2024 bytes is larger than the limit of 1000",
        "partition": "1",
        "subject": "s.a",
    }
    assert (subject["key"], subject["value"], subject["own"], subject["time"]) == (None, b"bad", [], None)
    text = 'column subject has "s b" in row 2, which is not a valid NATS subject to publish on'
    assert subject["said"] == {
        **common,
        "row": "2",
        "error_class": "invalid_argument",
        "error_message": text,
        "subject": "s b",
    }
    assert partition["said"]["partition"] == "9"
    assert partition["said"]["error_class"] == "invalid_argument"


def test_rows_for_streams_that_do_not_exist_are_dead_letters(
    spark: Any, broker: Broker, client: bascule.Client, write: Write
) -> None:
    created(client, "there", "dead-streams")
    rows: list[Any] = [("there", "a"), ("gone", "b"), (None, "c"), ("dead-streams", "d"), ("there", "e")]
    rows += [("__cursors", "f")]
    write(rows, "stream string, value string", dlqStream="dead-streams", onInvalid="dlq")
    assert stored(spark, broker, "there") == [b"a", b"e"]
    dead = letters(spark, broker, "dead-streams")
    found = [(letter["value"], letter["said"]["row"], letter["said"]["error_class"]) for letter in dead]
    assert found == [
        (b"b", "1", "stream_not_found"),
        (b"c", "2", "invalid_argument"),
        (b"d", "3", "invalid_argument"),
        (b"f", "5", "stream_not_found"),
    ]
    with pytest.raises(Exception, match="gone does not exist"):
        write([("gone", "b")], "stream string, value string")


def test_a_dead_letter_that_is_too_large_is_cut_and_says_so(
    spark: Any, broker: Broker, client: bascule.Client, write: Write
) -> None:
    created(client, "cut", "cut-dead")
    created(client, "tiny-dead", most=100)
    write([("k", LARGE)], "key string, value string", stream="cut", dlqStream="cut-dead", onOversize="dlq")
    (letter,) = letters(spark, broker, "cut-dead")
    assert letter["said"]["value_bytes"] == "2000"
    assert letter["key"] == b"k"
    assert 400 < len(letter["value"]) < LIMIT
    assert set(letter["value"]) == {ord("v")}
    with pytest.raises(Exception, match="the dead letter of row 0 cannot be stored"):
        write([(LARGE,)], "value string", stream="cut", dlqStream="tiny-dead", onOversize="dlq")


def test_a_dead_letter_stream_that_does_not_exist_is_refused_before_any_row(
    spark: Any, broker: Broker, client: bascule.Client, write: Write
) -> None:
    created(client, "no-dlq")
    for delivery in ("exactly_once", "at_least_once"):
        options = {"stream": "no-dlq", "dlqStream": "absent", "onOversize": "dlq", "delivery": delivery}
        with pytest.raises(Exception, match="option dlqStream is 'absent', and there is no such stream"):
            write([("a",)], "value string", **options)
    assert stored(spark, broker, "no-dlq") == []


def test_a_repeated_epoch_stores_no_dead_letter_twice(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    client.create_stream("source", options=StreamOptions(partitions=2))
    values = [b"%d" % number if number % 3 else LARGE.encode() + b"%d" % number for number in range(30)]
    client.publish_many("source", values, keys=[value[-1:] for value in values])
    created(client, "copied", partitions=2)
    created(client, "copied-dead", partitions=2, most=None)
    job = Job(spark, broker, tmp_path, "source", "copied", sinkId="dlq", dlqStream="copied-dead", onOversize="dlq")
    job.run()
    good = sorted(value for value in values if len(value) < LIMIT)
    dead = sorted(value for value in values if len(value) > LIMIT)
    assert (stored(spark, broker, "copied"), stored(spark, broker, "copied-dead")) == (good, dead)
    job.forget_last_commit()
    job.run()
    assert (stored(spark, broker, "copied"), stored(spark, broker, "copied-dead")) == (good, dead)
