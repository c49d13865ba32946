"""Re-drives of dead letters, with a real job, the real sink and a real broker."""

from pathlib import Path
from typing import Any

import bascule
import pytest
from bascule.client import StreamOptions
from bascule.errors import StateError, UsageError
from bascule.testing import TestBroker as Broker
from test_pipeline_streams import Jobs, order

pytestmark = [pytest.mark.spark]

READ = "partition,offset,subject,key,value,headers,origin_time,timestamp"


def rows(spark: Any, broker: Broker, stream: str) -> list[dict[str, Any]]:
    reader = spark.read.format("bascule").options(address=broker.address, stream=stream, columns=READ)
    found = [row.asDict(recursive=True) for row in reader.load().collect()]
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def test_the_letters_of_a_job_go_back_once(spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path) -> None:
    client.create_stream("drive-in")
    client.create_stream("drive-again")
    client.publish("drive-in", b"{", key=b"k", headers={"own": b"1"})
    client.publish_many("drive-in", [order(1), order(2, -5), b"}"])
    jobs = Jobs(spark, broker, tmp_path, "drive")
    jobs.run()
    source = rows(spark, broker, "drive-in")
    common: dict[str, Any] = {"letters": "drive-dead", "address": broker.address}
    found = bascule.spark.redrive_preview(spark, **common)
    counts = [(each.error_class, each.job, each.stream, each.letters) for each in found.counts]
    assert (found.rows, found.cut, found.others) == (3, 0, 0)
    assert ("ExpectationFailed", "drive", "drive-in", 1) in counts
    assert sum(count for kind, _, _, count in counts if kind != "ExpectationFailed") == 2
    assert {letter.value for letter in found.first} == {b"{", b"}", order(2, -5)}
    options = {**common, "to": "drive-again", "id": "drive-1", "checkpoint": str(tmp_path / "one")}
    kinds = tuple({kind for kind, _, _, _ in counts} - {"ExpectationFailed"})
    outcome = bascule.spark.redrive(spark, **options, error_class=kinds)
    again = rows(spark, broker, "drive-again")
    assert (outcome.rows, [row["value"] for row in again]) == (2, [b"{", b"}"])
    bad = [source[0], source[3]]
    for field in ("key", "value", "subject"):
        assert [row[field] for row in again] == [row[field] for row in bad]
    assert [row["origin_time"] for row in again] == [row["timestamp"] for row in bad]
    headers = [(one["key"], bytes(one["value"])) for one in again[0]["headers"]]
    dead = next(row for row in rows(spark, broker, "drive-dead") if row["value"] == b"{")
    assert headers == [
        ("own", b"1"),
        ("bascule.redrive.id", b"drive-1"),
        ("bascule.redrive.stream", b"drive-dead"),
        ("bascule.redrive.partition", b"0"),
        ("bascule.redrive.offset", str(dead["offset"]).encode()),
    ]
    assert bascule.spark.redrive(spark, **options, error_class=kinds).epochs_of_this_run == 0
    assert len(rows(spark, broker, "drive-again")) == 2
    with pytest.raises(StateError, match="there error_classes is "):
        bascule.spark.redrive(spark, **options)
    bascule.spark.redrive(
        spark, **common, id="drive-2", checkpoint=str(tmp_path / "two"), error_class=("ExpectationFailed",)
    )
    assert [row["value"] for row in rows(spark, broker, "drive-in")[4:]] == [order(2, -5)]
    with pytest.raises(UsageError, match="has 3 dead letters, and none is chosen: job is another, and theirs is drive"):
        bascule.spark.redrive(spark, **common, id="drive-3", checkpoint=str(tmp_path / "three"), job=("another",))
    with pytest.raises(UsageError, match="stream drive-in has no dead letters: it has 5 records, without the headers"):
        bascule.spark.redrive(
            spark,
            **{**common, "letters": "drive-in"},
            to="drive-again",
            id="drive-4",
            checkpoint=str(tmp_path / "four"),
        )
    client.create_stream("drive-none")
    with pytest.raises(UsageError, match="stream drive-none has no records, so there is no dead letter"):
        bascule.spark.redrive(
            spark, **{**common, "letters": "drive-none"}, id="drive-5", checkpoint=str(tmp_path / "five")
        )
    with pytest.raises(UsageError, match="has the dead letters, so their records cannot go there"):
        bascule.spark.redrive_preview(spark, **common, to="drive-dead")


def test_a_letter_that_was_cut_is_refused_until_it_is_left_out(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    client.create_stream("cut-in", options=StreamOptions(partitions=1))
    client.create_stream("cut-dead", options=StreamOptions(partitions=1))
    frame = spark.createDataFrame([("x" * 2_000_000, "cut-in"), ("kept", "cut-nowhere")], "value string, stream string")
    options = {"address": broker.address, "onOversize": "dlq", "onInvalid": "dlq", "dlqStream": "cut-dead"}
    frame.write.format("bascule").mode("append").options(**options).save()
    common: dict[str, Any] = {"letters": "cut-dead", "to": "cut-in", "id": "cut-1", "address": broker.address}
    assert bascule.spark.redrive_preview(spark, letters="cut-dead", address=broker.address).cut == 1
    with pytest.raises(StateError, match="1 letters of which each has only a part of its record"):
        bascule.spark.redrive(spark, **common, checkpoint=str(tmp_path / "one"))
    outcome = bascule.spark.redrive(spark, **common, checkpoint=str(tmp_path / "two"), skipCut=True)
    assert (outcome.rows, [row["value"] for row in rows(spark, broker, "cut-in")]) == (1, [b"kept"])


def test_the_letter_of_a_record_near_the_limit_fits_in_the_stream_that_a_job_creates(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    client.create_stream("near-in")
    value = b"{" + b"x" * ((1 << 20) - 200)
    client.publish("near-in", value)
    Jobs(spark, broker, tmp_path, "near").run()
    assert [row["value"] for row in rows(spark, broker, "near-dead")] == [value]


def test_a_redrive_continues_after_retention_removed_letters_that_it_had_written(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    client.create_stream("gone-in")
    client.publish_many("gone-in", [b"{1", b"{2", b"{3"])
    Jobs(spark, broker, tmp_path, "gone").run()
    common: dict[str, Any] = {"letters": "gone-dead", "id": "gone-1", "checkpoint": str(tmp_path / "one")}

    def interrupt(progress: Any) -> None:
        raise KeyboardInterrupt(progress.epoch)

    with pytest.raises(KeyboardInterrupt):
        bascule.spark.redrive(spark, **common, address=broker.address, maxRowsPerEpoch=1, on_progress=interrupt)
    assert len(rows(spark, broker, "gone-in")) == 4
    client.trim_partition("gone-dead", 0, 1)
    outcome = bascule.spark.redrive(spark, **common, address=broker.address)
    assert [row["value"] for row in rows(spark, broker, "gone-in")] == [b"{1", b"{2", b"{3"] * 2
    assert (outcome.rows, outcome.to) == (3, "gone-in")
    client.trim_partition("gone-dead", 0, 3)
    assert bascule.spark.redrive(spark, **common, address=broker.address).epochs_of_this_run == 0


def test_a_malformed_letter_is_named_until_it_is_left_out_and_counted(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    client.create_stream("odd-in")
    client.create_stream("odd-dead")
    for number, identity in enumerate((b"0f" * 16, b"no number", b"\xff")):
        headers = {"bascule.dlq.stream": b"odd-in", "bascule.dlq.error_class": b"\xff", "bascule.dlq.id": identity}
        client.publish("odd-dead", b"%d" % number, headers=headers)
    common: dict[str, Any] = {"letters": "odd-dead", "address": broker.address}
    found = bascule.spark.redrive_preview(spark, **common)
    assert (found.rows, found.malformed, [each.letters for each in found.counts]) == (3, 2, [3])
    assert "the dead letter odd-dead/0 offset 1 is malformed: its header bascule.dlq.id is no" in found.malformed_first
    place = {"id": "odd-1", "checkpoint": str(tmp_path / "one")}
    with pytest.raises(
        StateError, match=r"odd-dead/0 offset 1 .* set skipMalformed .* \(it is the first of 2\)"
    ) as raised:
        bascule.spark.redrive(spark, **common, **place)
    assert raised.value.code == "record_invalid"
    for epochs in (1, 0):
        outcome = bascule.spark.redrive(spark, **common, **place, skipMalformed=True)
        assert (outcome.rows, outcome.epochs_of_this_run, outcome.lost[-1]) == (
            1, epochs, "2 of the letters: they are malformed",
        )  # fmt: skip
    assert [row["value"] for row in rows(spark, broker, "odd-in")] == [b"0"]
