"""Jobs that write to streams, on real Spark and a real broker: rows and dead letters together, tables beside them."""

import json
from pathlib import Path
from typing import Any

import bascule
import pytest
from bascule.client import StreamOptions
from bascule.errors import UsageError
from bascule.pipeline import Outcome, parse_job, plan, run
from bascule.testing import TestBroker as Broker

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SELECT = "SELECT key, to_json(struct(value.id AS id, value.amount * 2 AS twice)) AS value, headers FROM source"


class Jobs:
    """A job from one stream to others."""

    def __init__(self, spark: Any, broker: Broker, folder: Path, name: str) -> None:
        self.spark, self.folder, self.address = spark, folder, broker.address
        self.document: dict[str, Any] = {
            "name": name,
            "source": {"stream": f"{name}-in", "address": self.address, "longPollMs": 100, "maxOffsetsPerTrigger": 4},
            "decode": {
                "value": {"format": "json", "schema": {"inline": "id BIGINT, amount DOUBLE"}},
                "onDecodeError": "dlq",
            },
            "expectations": {"expect_or_dlq": {"positive": "value.amount > 0"}},
            "sql": SELECT,
            "targets": [{"format": "bascule", "stream": f"{name}-out", "partitions": 2}],
            "deadLetters": {"format": "bascule", "stream": f"{name}-dead"},
            "mode": "availableNow",
            "checkpoint": "checkpoint",
        }

    def run(self, **changes: Any) -> Outcome:
        document = {**self.document, "source": dict(self.document["source"]), **changes}
        if document["mode"] == "batch":
            document["source"].pop("longPollMs", None)  # of streaming runs alone
        return run(parse_job(document, base=self.folder), spark=self.spark)

    def stored(self, stream: str, *columns: str) -> list[Any]:
        frame = self.spark.read.format("bascule").option("address", self.address).option("stream", stream)
        return sorted(frame.option("columns", ",".join(columns)).load().collect(), key=str)

    def values(self, stream: str) -> list[bytes]:
        return sorted(bytes(row.value) for row in self.stored(stream, "value"))

    def forget_commits(self) -> None:
        for commit in (self.folder / "checkpoint" / "commits").glob("*1*"):
            commit.unlink()  # as after a crash between the writes and the commit


def order(number: int, amount: float | None = 1.0) -> bytes:
    return json.dumps({"id": number, "amount": amount}).encode()


def test_a_table_and_streams_get_each_epoch_once(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    jobs = Jobs(spark, broker, tmp_path, "b")
    jobs.document["targets"].append({"format": "delta", "path": "table"})
    client.create_stream("b-in")
    client.publish_many("b-in", [order(0), b"{", order(2)])
    planned = plan(parse_job(jobs.document, base=tmp_path), spark=spark)
    assert (
        planned.once
        == "each table and the streams together get each epoch exactly once; tables and streams not together"
    )
    for _ in range(2):
        jobs.run()
        for commit in (tmp_path / "checkpoint" / "commits").glob("*0*"):
            commit.unlink()
    delta: Any = __import__("deltalake")
    assert delta.DeltaTable(str(tmp_path / "table")).to_pyarrow_table().num_rows == 2
    assert (len(jobs.values("b-out")), jobs.values("b-dead")) == (2, [b"{"])


def test_a_batch_run_writes_to_a_stream(spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path) -> None:
    jobs = Jobs(spark, broker, tmp_path, "c")
    client.create_stream("c-in")
    client.publish_many("c-in", [order(0), order(1)])
    jobs.document["source"].pop("maxOffsetsPerTrigger")
    for _ in range(2):
        jobs.run(mode="batch", checkpoint=None)
        assert len(jobs.values("c-out")) == 2, "the same records are stored once"
    client.publish("c-in", order(2))
    jobs.run(mode="batch", checkpoint=None)
    assert len(jobs.values("c-out")) == 2 + 3, "other records are another run"


@pytest.mark.parametrize(
    "refused",
    [
        (None, "the result has a column stream"),
        ("SELECT value.amount FROM source", "there is no column 'amount'"),
        ("SELECT key FROM source", "column value is missing"),
        ("SELECT value FROM source", "column value is struct"),
    ],
)
def test_rows_that_cannot_be_records_are_refused_before_any_is_read(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path, refused: tuple[str | None, str]
) -> None:
    sql, text = refused
    jobs = Jobs(spark, broker, tmp_path, "d")
    client.create_stream("d-in", options=StreamOptions(), exist_ok=True)
    jobs.document["sql"] = sql
    job = parse_job(jobs.document, base=tmp_path)
    action = plan(job, spark=spark).targets[0].action
    assert action.startswith("fail: ")
    assert text in action
    with pytest.raises(UsageError, match=text.replace("(", r"\(")):
        jobs.run()
