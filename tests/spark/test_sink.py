"""The sink with real Spark and a real broker: exactly once through restarts, replays and second writers."""

import shutil
from pathlib import Path
from typing import Any

import bascule
import pytest
from bascule.client import StreamOptions
from bascule.testing import TestBroker as Broker

pytestmark = [pytest.mark.spark]


class Job:
    """A query that copies one stream to another, with a checkpoint that outlives it."""

    def __init__(self, spark: Any, broker: Broker, folder: Path, source: str, target: str, **options: Any) -> None:
        self.spark, self.address, self.folder = spark, broker.address, folder
        self.source, self.target, self.options = source, target, options
        self.checkpoint = folder / "checkpoint"

    def frame(self) -> Any:
        reader = self.spark.readStream.format("bascule").option("address", self.address)
        return reader.option("stream", self.source).option("longPollMs", 100).load().select("key", "value")

    def run(self, frame: Any = None, **more: Any) -> None:
        writer = (frame or self.frame()).writeStream.format("bascule").option("address", self.address)
        options = {"stream": self.target, "checkpointLocation": str(self.checkpoint), **self.options, **more}
        for name, value in options.items():
            writer = writer.option(name, value)
        assert writer.trigger(availableNow=True).start().awaitTermination(120), "the run did not end"

    def forget_last_commit(self) -> None:
        """What a kill between the sink's commit and Spark's commit log leaves."""
        commits = sorted((self.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        commits[-1].unlink()
        commits[-1].with_name(f".{commits[-1].name}.crc").unlink(missing_ok=True)


def stored(spark: Any, broker: Broker, stream: str) -> list[bytes]:
    frame = spark.read.format("bascule").option("address", broker.address).option("stream", stream).load()
    return sorted(bytes(row.value) for row in frame.collect())


def filled(client: bascule.Client, name: str, count: int, partitions: int = 2) -> list[bytes]:
    client.create_stream(name, options=StreamOptions(partitions=partitions))
    values = [f"{name}-{number}".encode() for number in range(count)]
    client.publish_many(name, values, keys=[value[-1:] for value in values])
    return sorted(values)


def test_a_stream_is_copied_exactly_once_through_a_replay(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    values = filled(client, "src1", 500)
    client.create_stream("dst1", options=StreamOptions(partitions=3))
    job = Job(spark, broker, tmp_path, "src1", "dst1", sinkId="copy1")
    job.run()
    assert stored(spark, broker, "dst1") == values
    job.forget_last_commit()
    job.run()
    assert stored(spark, broker, "dst1") == values
    client.publish_many("src1", [b"src1-later"])
    job.run()
    assert stored(spark, broker, "dst1") == sorted([*values, b"src1-later"])


def test_a_batch_job_with_a_key_stores_its_rows_once(spark: Any, broker: Broker, client: bascule.Client) -> None:
    client.create_stream("dst2", options=StreamOptions(partitions=2))
    frame = spark.range(100).selectExpr("cast(id as string) as value")

    def write(**options: str) -> None:
        writer = frame.write.format("bascule").mode("append").option("address", broker.address)
        for name, value in {"stream": "dst2", **options}.items():
            writer = writer.option(name, value)
        writer.save()

    write(idempotencyKey="job-1")
    write(idempotencyKey="job-1")
    assert len(stored(spark, broker, "dst2")) == 100
    write()
    assert len(stored(spark, broker, "dst2")) == 200
    write(delivery="at_least_once")
    assert len(stored(spark, broker, "dst2")) == 300


def test_a_lost_checkpoint_needs_a_take_over(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    values = filled(client, "src3", 10)
    client.create_stream("dst3")
    job = Job(spark, broker, tmp_path, "src3", "dst3", sinkId="copy3")
    job.run()
    query_id = (job.checkpoint / "metadata").read_text().split('"')[3]
    shutil.rmtree(job.checkpoint)
    with pytest.raises(Exception, match="takeOver") as refused:
        job.run()
    assert query_id in str(refused.value)
    assert stored(spark, broker, "dst3") == values
    job.run(takeOver=query_id)
    assert stored(spark, broker, "dst3") == sorted(values * 2)


def test_a_replay_over_other_rows_is_refused_and_keeps_the_first(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    values = filled(client, "src4", 20)
    client.create_stream("dst4")
    job = Job(spark, broker, tmp_path, "src4", "dst4", sinkId="copy4")
    job.run()
    job.forget_last_commit()
    with pytest.raises(Exception, match="onReplayDifference"):
        job.run(job.frame().where("value < 'src4-15'"))
    job.run(job.frame().where("value < 'src4-15'"), onReplayDifference="accept")
    assert stored(spark, broker, "dst4") == values


def test_writes_within_foreach_batch_need_a_sink_each(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    values = filled(client, "src5", 30)
    client.create_stream("good5")
    client.create_stream("bad5")

    def run(*sinks: str) -> None:
        def both(frame: Any, _: int) -> None:
            for stream, sink in zip(("good5", "bad5"), sinks, strict=True):
                writer = frame.write.format("bascule").mode("append").option("address", broker.address)
                writer = writer.option("sinkId", sink) if sink else writer
                writer.option("stream", stream).save()

        reader = spark.readStream.format("bascule").option("address", broker.address).option("stream", "src5")
        query = reader.load().select("value").writeStream.foreachBatch(both)
        query = query.option("checkpointLocation", str(tmp_path / "-".join(sinks))).trigger(availableNow=True)
        assert query.start().awaitTermination(120)

    with pytest.raises(Exception, match="sinkId"):
        run("", "")
    with pytest.raises(Exception, match="two writes in one foreachBatch"):
        run("same5", "same5")
    run("good5", "bad5")
    assert stored(spark, broker, "bad5") == values


def test_rows_name_their_streams_and_partitions(spark: Any, broker: Broker, client: bascule.Client) -> None:
    client.create_stream("a6", options=StreamOptions(partitions=2))
    client.create_stream("b6")
    frame = spark.createDataFrame(
        [("a6", 1, "x"), ("b6", 0, "y"), ("a6", 0, "z")], "stream string, partition int, value string"
    )
    frame.write.format("bascule").mode("append").option("address", broker.address).save()
    assert stored(spark, broker, "a6") == [b"x", b"z"]
    assert stored(spark, broker, "b6") == [b"y"]


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("value string, offset long", {}, "offset"),
        (
            "value string, topic string",
            {},
            "Kafka's topic is the column or the option stream.: a record has value, key",
        ),
        ("value int", {}, "value is int"),
        ("key string", {}, "value is missing"),
        ("value string", {"topic": "s"}, "Kafka"),
        ("value string", {"sinkId": "s"}, "idempotencyKey"),
        ("value string", {"acceptGap": "3"}, "acceptGap"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(
    spark: Any, broker: Broker, columns: str, options: dict[str, str], text: str
) -> None:
    frame = spark.createDataFrame([], columns).repartition(1)
    writer = frame.write.format("bascule").mode("append").option("address", broker.address).option("stream", "dst7")
    for name, value in options.items():
        writer = writer.option(name, value)
    with pytest.raises(Exception, match=text):
        writer.save()


def test_a_path_is_refused(spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path) -> None:
    client.create_stream("dst9", exist_ok=True)
    frame = spark.range(1).selectExpr("cast(id as string) as value")
    given = {"address": broker.address, "stream": "dst9"}
    read = spark.read.format("bascule").options(**given)
    stream = spark.readStream.format("bascule").options(**given)
    rate = spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    written = rate.writeStream.format("bascule").options(**given).option("checkpointLocation", str(tmp_path / "c"))
    calls = {
        r"the write has the path 'x', and a stream has none: leave it out of save\(\)": lambda: (
            frame.write.format("bascule").mode("append").options(**given).save("x")
        ),
        r"leave it out of load\(\)": lambda: read.load("x"),
        r"the read has the path 'y'.*leave it out of load\(\)": lambda: stream.load("y"),
        r"the read has the path 'z'": lambda: read.schema("value binary").load("z").count(),
        r"the write has the path 'x'.*leave it out of start\(\)": lambda: written.start("x").awaitTermination(60),
    }
    for text, call in calls.items():
        with pytest.raises(Exception, match=text):
            call()
    assert read.load().count() == 0


def test_an_insert_into_a_table_is_refused_with_the_remedy(spark: Any, broker: Broker, client: bascule.Client) -> None:
    client.create_stream("dst10", exist_ok=True)
    bascule.spark.create_tables(spark, address=broker.address, pattern="dst10", columns="value")
    with pytest.raises(Exception, match=r"Spark passes none of a table to INSERT INTO.*df\.write"):
        spark.sql("insert into dst10 select cast('a' as binary)")


def test_replacing_a_stream_is_refused(spark: Any, broker: Broker, client: bascule.Client) -> None:
    client.create_stream("dst8", exist_ok=True)
    frame = spark.range(1).selectExpr("cast(id as string) as value")
    writer = frame.write.format("bascule").mode("overwrite").option("address", broker.address)
    with pytest.raises(Exception, match="only appended to"):
        writer.option("stream", "dst8").save()
