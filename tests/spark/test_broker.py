"""Spark with a complete broker: records of every protocol, and a crash during a query."""

from importlib import import_module
from pathlib import Path
from typing import Any

import bascule.testing
import pytest

from tests.waiting import until

pytestmark = pytest.mark.spark


async def publish_on_nats(url: str, subjects: list[str]) -> None:
    nats: Any = import_module("nats")
    connection = await nats.connect(url)
    for subject in subjects:
        await connection.publish(subject, b"plain")
    await connection.flush()
    await connection.close()


def test_records_of_every_protocol_are_rows(spark: Any) -> None:
    asyncio: Any = import_module("asyncio")
    with bascule.testing.broker() as broker, broker.connect() as client:
        client.create_stream("events", "events.>")
        asyncio.run(publish_on_nats(broker.nats_url, ["events.a", "events.b.c"]))
        client.publish("events", b"enveloped", key=b"k", headers={"h": b"1"})
        reader = spark.read.format("bascule").option("address", broker.address).option("stream", "events")
        reader = reader.option("columns", "offset,subject,key,value,headers")

        def rows() -> list[tuple[str, Any, bytes]]:
            found = reader.load().orderBy("offset").collect()
            return sorted((r.subject, r.key and bytes(r.key), bytes(r.value)) for r in found)

        until(lambda: len(rows()) == 3)
        own = [row for row in rows() if row[2] == b"enveloped"]
        assert [row[:2] for row in rows() if row[2] == b"plain"] == [("events.a", None), ("events.b.c", None)]
        assert own[0][1] == b"k"
        assert reader.option("subject", "events.b.>").load().count() == 1


def test_a_query_continues_after_the_broker_was_killed(spark: Any, tmp_path: Path) -> None:
    with bascule.testing.broker(durability="disk") as broker:
        with broker.connect() as client:
            client.create_stream("s", "s")
            client.publish_many("s", [b"%d" % i for i in range(1000)])
        reader = spark.readStream.format("bascule").option("address", broker.address).option("stream", "s")
        writer = (
            reader.load().select("offset", "value").writeStream.format("parquet").option("path", str(tmp_path / "out"))
        )
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            until((tmp_path / "checkpoint" / "commits" / "0").exists)
            broker.kill()
            broker.start()
            with broker.connect() as client:
                client.publish_many("s", [b"%d" % i for i in range(1000, 1500)])
            until(lambda: count(spark, tmp_path / "out") == 1500 or not query.isActive)
        finally:
            query.stop()
        rows = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect()
    assert [(r.offset, bytes(r.value)) for r in rows] == [(i, b"%d" % i) for i in range(1500)]


def count(spark: Any, folder: Path) -> int:
    return int(spark.read.parquet(str(folder)).count())
