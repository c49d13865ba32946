"""A copy of a checkpoint is refused by name, by what starts a query and by the target; a restart is not."""

import json
import shutil
from pathlib import Path
from typing import Any

import bascule
import bascule.lake
import pytest
from bascule.lake import ArchiveOptions
from bascule.pipeline import parse_job, run
from bascule.spark.checkpoint_copies import MARK
from bascule.testing import TestBroker as Broker
from harness import Streams
from lakes import Archive

pytestmark = [pytest.mark.spark]


def copied(checkpoint: Path) -> Path:
    """A copy without the mark, as one has that was not started by a job or `archive`."""
    copy = checkpoint.with_name("copy")
    shutil.copytree(checkpoint, copy)
    (copy / MARK).unlink(missing_ok=True)
    return copy


def test_an_archive_refuses_epochs_of_a_copy(spark: Any, streams: Streams, tmp_path: Path) -> None:
    streams.create("s")
    archive = Archive(spark, streams, tmp_path, "delta")
    streams.put("s", [b"a"])
    archive.run()
    original, copy = archive.checkpoint, copied(archive.checkpoint)
    streams.put("s", [b"b"])
    archive.run()
    archive.forget_last_commit()
    archive.run()
    archive.checkpoint = copy
    with pytest.raises(Exception, match=r"\[sink_replay_differs\] .* has epoch 1 of this query.*it is a copy of"):
        archive.run()
    assert [row["value"] for row in archive.rows()] == [b"a", b"b"]
    archive.checkpoint = original
    streams.put("s", [b"c"])
    archive.run()
    assert [row["value"] for row in archive.rows()] == [b"a", b"b", b"c"]


def test_the_sink_refuses_epochs_of_a_copy(spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path) -> None:
    for name in ("from", "to", "each"):
        client.create_stream(name)
    reader = spark.readStream.format("bascule").option("address", broker.address).option("stream", "from")

    def query(checkpoint: Path) -> None:
        writer = reader.load().select("value").writeStream.format("bascule").option("address", broker.address)
        writer = writer.option("stream", "to").option("sinkId", "direct").option("checkpointLocation", str(checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)

    def each(checkpoint: Path) -> None:
        def write(batch: Any, _: int) -> None:
            given = {"address": broker.address, "stream": "each", "sinkId": "each"}
            writer = batch.select("value").write.format("bascule").mode("append").options(**given)
            writer.option("checkpointLocation", str(checkpoint)).save()

        writer = reader.load().writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)

    for start, target, count in ((query, "to", 2), (each, "each", 4)):
        client.publish("from", b"a")
        checkpoint = tmp_path / target / "checkpoint"
        start(checkpoint)
        copy = copied(checkpoint)
        client.publish("from", b"a")
        start(checkpoint)
        with pytest.raises(Exception, match=r"\[sink_replay_differs\] epoch 1 was published from another checkpoint"):
            start(copy)
        stored = spark.read.format("bascule").option("address", broker.address).option("stream", target).load()
        assert stored.count() == count


def test_a_job_refuses_a_copy_before_it_reads_anything(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    client.create_stream("job-in")
    client.publish("job-in", b"a")
    document = {
        "name": "copied-job",
        "source": {"stream": "job-in", "address": broker.address, "longPollMs": 100},
        "targets": [{"format": "delta", "path": "table"}],
        "mode": "availableNow",
        "checkpoint": "checkpoint",
    }
    assert run(parse_job(document, base=tmp_path), spark=spark).rows == 1
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    other = {**document, "name": "other-job", "targets": [{"format": "delta", "path": "other"}], "checkpoint": "copy"}
    with pytest.raises(bascule.BrokerError, match=r"copy is a copy of .*/checkpoint, and its query") as refused:
        run(parse_job(other, base=tmp_path), spark=spark)
    assert refused.value.code == "sink_conflict"
    assert not (tmp_path / "other").exists()
    # without the mark the table shows it
    (tmp_path / "copy" / MARK).unlink()
    client.publish("job-in", b"b")
    assert run(parse_job(document, base=tmp_path), spark=spark).rows == 1
    with pytest.raises(bascule.BrokerError, match="it is a copy of the checkpoint that wrote it") as refused:
        run(parse_job({**document, "checkpoint": "copy"}, base=tmp_path), spark=spark)
    assert refused.value.code == "sink_replay_differs"
    # a checkpoint that was moved is not a copy
    shutil.rmtree(tmp_path / "copy")
    (tmp_path / "checkpoint").rename(tmp_path / "moved")
    client.publish("job-in", b"c")
    assert run(parse_job({**document, "checkpoint": "moved"}, base=tmp_path), spark=spark).rows == 1
    assert json.loads((tmp_path / "moved" / MARK).read_text()) == {"path": str(tmp_path.resolve() / "moved")}


def test_a_checkpoint_that_cannot_be_written_is_named(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(
        bascule.BrokerError, match=r"the checkpoint .*/file cannot be used: .*that can be made and written"
    ):
        bascule.lake.start(spark.readStream.format("rate").load(), ArchiveOptions("t"), checkpoint=f"{tmp_path}/file")
