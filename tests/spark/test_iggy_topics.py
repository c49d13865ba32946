"""A topic of Iggy's clients in Spark, by the option `namespace`: read, archived with its lag, written by the sink."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bascule
import bascule.testing
import pytest
from bascule.testing import TestBroker as Broker
from lakes import Archive

from tests.conformance import iggy_raw
from tests.conformance.iggy_raw import Raw, by_key, connected, to_partition

pytestmark = pytest.mark.spark

PASSWORD = "a password of the test"
PLACE = ("shop", "orders")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    file = tmp_path_factory.mktemp("iggy") / "password"
    file.write_text(PASSWORD)
    settings = {"iggy.listen": "127.0.0.1:0", "iggy.root_password_file": str(file), "cursors.partitions": 1}
    with bascule.testing.broker(settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def topic(serving: Broker) -> Iterator[Raw]:
    """A connection after it has made the topic, with two messages in each of its two partitions."""
    with connected(serving.iggy_address, PASSWORD) as raw:
        raw.create(*PLACE, partitions=2)
        for number in (1, 2):
            raw.send(PLACE, to_partition(number), [b"%d0" % number, b"%d1" % number])
        yield raw


def frame(spark: Any, serving: Broker, **options: Any) -> Any:
    reader = spark.read.format("bascule").option("address", serving.address)
    for name, value in {"namespace": PLACE[0], "stream": PLACE[1], **options}.items():
        reader = reader.option(name, value)
    return reader.load()


def payloads(raw: Raw) -> list[list[bytes]]:
    return [raw.poll(PLACE, partition=number).payloads for number in (1, 2)]


def test_a_topic_is_read_and_archived_and_shows_how_far_the_archive_is(
    spark: Any, serving: Broker, topic: Raw, tmp_path: Path
) -> None:
    rows = sorted((row.partition, row.offset, bytes(row.value)) for row in frame(spark, serving).collect())
    assert rows == [(0, 0, b"10"), (0, 1, b"11"), (1, 0, b"20"), (1, 1, b"21")]
    archive = Archive(spark, serving, tmp_path, "delta", namespace=PLACE[0], stream=PLACE[1], consumerGroup="archiver")
    archive.run()
    topic.send(PLACE, to_partition(1), [b"12"])
    with serving.connect() as client:
        lags = client.lags(reader="archiver", stream="shop/orders")
        assert [(item.partition, item.next_offset, item.records) for item in lags] == [(0, 2, 1), (1, 2, 0)]
    archive.run()
    stored = [(row["partition"], row["offset"], row["value"]) for row in archive.rows()]
    assert stored == [(0, 0, b"10"), (0, 1, b"11"), (0, 2, b"12"), (1, 0, b"20"), (1, 1, b"21")]


def test_the_sink_writes_a_topic_that_iggys_clients_read(spark: Any, serving: Broker, topic: Raw) -> None:
    before = payloads(topic)
    rows = spark.createDataFrame([(b"k", b"one", 0), (b"k", b"two", 1)], "key binary, value binary, partition int")
    writer = rows.write.format("bascule").mode("append").option("address", serving.address)
    for name, value in {"namespace": PLACE[0], "stream": PLACE[1], "idempotencyKey": "job"}.items():
        writer = writer.option(name, value)
    writer.save()
    writer.save()
    assert payloads(topic) == [before[0] + [b"one"], before[1] + [b"two"]], "each row once"
    topic.send(PLACE, by_key(b"k"), [b"three"], headers=iggy_raw.header("h", 6, b"\7\0\0\0"))
    (last,) = frame(spark, serving, columns="key,value,headers").where("value = 'three'").collect()
    assert (bytes(last.key), [(item.key, bytes(item.value)) for item in last.headers]) == (b"k", [("h", b"\7\0\0\0")])
