"""Queries that were killed while Spark wrote the plan of their first micro-batch."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import bascule
import bascule.spark
import pytest
from bascule.testing import TestBroker as Broker
from pyspark.errors.exceptions.base import StreamingQueryException

HIDDEN = ".0.61a54b04-90ff-4d4b-a03d-6e64cbbe3bda.tmp"
"""As Spark names the file before it is renamed to `0`."""


def kill_in_the_first_plan(checkpoint: Path) -> Path:
    """Leave what a killed query leaves; the hidden file."""
    offsets = checkpoint / "offsets"
    offsets.mkdir(parents=True)
    hidden = offsets / HIDDEN
    hidden.write_text("v1\n{")
    return hidden


def start(spark: Any, broker: Broker, name: str, checkpoint: Path) -> Any:
    frame = spark.readStream.format("bascule").options(address=broker.address, stream=name, columns="key,value").load()
    writer = frame.writeStream.format("bascule").options(address=broker.address, stream=f"{name}-copy")
    return writer.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start()


def test_spark_refuses_the_checkpoint_until_it_is_cleared(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    name = f"killed-{uuid4().hex}"
    client.create_stream(name)
    client.create_stream(f"{name}-copy")
    client.publish(name, b"one")
    hidden = kill_in_the_first_plan(tmp_path / "checkpoint")
    with pytest.raises(StreamingQueryException, match="STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"):
        start(spark, broker, name, tmp_path / "checkpoint").awaitTermination()
    assert bascule.spark.clear_unfinished(spark, str(tmp_path / "checkpoint")) == 1
    assert not hidden.exists()
    start(spark, broker, name, tmp_path / "checkpoint").awaitTermination()
    copy = spark.read.format("bascule").options(address=broker.address, stream=f"{name}-copy", columns="value").load()
    assert [bytes(row.value) for row in copy.collect()] == [b"one"]


def test_an_archive_clears_its_checkpoint(spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path) -> None:
    client.create_stream("killed-archive")
    client.publish("killed-archive", b"one")
    kill_in_the_first_plan(tmp_path / "checkpoint")
    table = tmp_path / "table"
    bascule.spark.archive(
        spark,
        stream="killed-archive",
        to=str(table),
        format="parquet",
        checkpoint=str(tmp_path / "checkpoint"),
        address=broker.address,
        available_now=True,
    ).awaitTermination()
    assert spark.read.parquet(str(table)).count() == 1


def test_a_checkpoint_with_a_plan_is_left_as_it_is(spark: Any, tmp_path: Path) -> None:
    hidden = kill_in_the_first_plan(tmp_path / "checkpoint")
    (hidden.parent / "0").write_text("v1\n{}")
    assert bascule.spark.clear_unfinished(spark, str(tmp_path / "checkpoint")) == 0
    assert hidden.exists()
    assert bascule.spark.clear_unfinished(spark, str(tmp_path / "none")) == 0
