"""Copies of a stream into another one, with real Spark and a real broker."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import bascule
import pytest
from bascule.client import StreamOptions
from bascule.errors import StateError, UsageError
from bascule.testing import TestBroker as Broker
from test_replay import COUNT, check_order_of_keys, comparable, fill, records

pytestmark = [pytest.mark.spark]


def streams(client: bascule.Client, name: str, partitions: int) -> tuple[str, str]:
    names = f"{name}-in-{uuid4()}", f"{name}-out-{uuid4()}"
    for stream, count in zip(names, (3, partitions), strict=True):
        client.create_stream(stream, options=StreamOptions(partitions=count))
    return names


def test_a_stream_is_copied_as_it_is_now(spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path) -> None:
    source, target = streams(client, "copied", 3)
    fill(spark, broker, source)
    options: dict[str, Any] = {"stream": source, "to": target, "address": broker.address}
    preview = bascule.spark.copy_preview(**options)
    assert (preview.rows, preview.refused) == (COUNT, [])
    options |= {"id": target, "checkpoint": str(tmp_path / "copy")}
    outcome = bascule.spark.copy(spark, **options, maxRowsPerEpoch=90)
    there = records(spark, broker, source)
    assert comparable(records(spark, broker, target), as_source=False) == comparable(there, as_source=True)
    assert outcome.rows == COUNT
    assert outcome.epochs >= COUNT / 90
    fill(spark, broker, source, 10)
    assert bascule.spark.copy(spark, **options).epochs_of_this_run == 0
    assert len(records(spark, broker, target)) == COUNT
    with pytest.raises(StateError, match="there repartition is false, and now it is true"):
        bascule.spark.copy(spark, **options, repartition=True)
    with pytest.raises(UsageError, match="cannot be copied to itself"):
        bascule.spark.copy(spark, **{**options, "to": source})


def test_a_stream_is_repartitioned_by_key(spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path) -> None:
    source, target = streams(client, "widened", 5)
    fill(spark, broker, source)
    options: dict[str, Any] = {"address": broker.address, "repartition": True, "maxBytesPerEpoch": "1MiB"}
    bascule.spark.copy(spark, stream=source, to=target, id=target, checkpoint=str(tmp_path), **options)
    there, here = records(spark, broker, source), records(spark, broker, target)
    assert sorted(row["id"] for row in here) == sorted(row["id"] for row in there)
    check_order_of_keys(there, here)


def test_a_continuous_copy_follows_its_stream(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    source, target = streams(client, "followed", 5)

    def run() -> None:
        query = bascule.spark.copy_continuously(
            spark,
            stream=source,
            to=target,
            id=target,
            checkpoint=str(tmp_path / "checkpoint"),
            repartition=True,
            available_now=True,
            address=broker.address,
        )
        assert query.awaitTermination(120), "the run did not end"

    fill(spark, broker, source)
    run()
    fill(spark, broker, source, 60)
    run()
    there, here = records(spark, broker, source), records(spark, broker, target)
    assert sorted(row["id"] for row in here) == sorted(row["id"] for row in there)
    assert {row["origin_time"] for row in here} == {row["timestamp"] for row in there}
    reader = spark.read.format("bascule").options(address=broker.address, stream=source, columns="timestamp_ns")
    received = {row["timestamp_ns"] for row in reader.load().collect()}
    origins = {
        record.origin_time_ns
        for number in range(5)
        for record in client.subscribe(target, partition=number, stop="latest").records()
    }
    assert origins == received, "to the nanosecond"
    check_order_of_keys(there, here)
    with pytest.raises(UsageError, match="option columns cannot be given"):
        bascule.spark.copy_continuously(
            spark, stream=source, to=target, id="x", checkpoint="x", columns="value", address=broker.address
        )


def test_records_whose_subject_is_the_pattern_of_their_stream_get_that_of_the_target(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    source, once, followed = (f"{name}-{uuid4()}" for name in ("pattern", "once", "followed"))
    client.create_stream(source, subject=f"{source}.>")
    for name in (once, followed):
        client.create_stream(name)
    client.publish_many(source, [b"a", b"b"])
    assert {row["subject"] for row in records(spark, broker, source)} == {f"{source}.>"}
    bascule.spark.copy(spark, stream=source, to=once, id=once, checkpoint=str(tmp_path / "1"), address=broker.address)
    bascule.spark.copy_continuously(
        spark,
        stream=source,
        to=followed,
        id=followed,
        checkpoint=str(tmp_path / "2"),
        available_now=True,
        address=broker.address,
    ).awaitTermination(120)
    for name in (once, followed):
        assert [(row["subject"], row["value"]) for row in records(spark, broker, name)] == [(name, b"a"), (name, b"b")]
