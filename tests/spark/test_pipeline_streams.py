"""Jobs that write to streams, on real Spark and a real broker: rows and dead letters together, tables beside them."""

import json
from pathlib import Path
from typing import Any

import bascule
import pytest
from bascule.client import StreamOptions
from bascule.errors import BrokerError, UsageError
from bascule.pipeline import Outcome, parse_job, plan, run
from bascule.testing import TestBroker as Broker

pytestmark = [pytest.mark.spark]

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


def test_rows_and_dead_letters_go_to_streams_once(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    jobs = Jobs(spark, broker, tmp_path, "a")
    client.create_stream("a-in")
    client.publish("a-in", order(0), key=b"k", headers={"h": b"1"})
    client.publish_many("a-in", [b"{", order(2, -5), order(3), order(4), b"}"], keys=[b"k"] * 5)
    planned = plan(parse_job(jobs.document, base=tmp_path), spark=spark)
    assert [(target.place, target.action) for target in planned.targets] == [
        (f"stream a-out at {jobs.address.removeprefix('bascule://')}", "create"),
        (f"stream a-dead at {jobs.address.removeprefix('bascule://')}", "create"),
    ]
    assert planned.once == "the streams get each epoch exactly once, together"
    assert jobs.run() == Outcome(epochs=2, rows=6, dead=3, restarts=0, stopped=False)
    good = [b'{"id":0,"twice":2.0}', b'{"id":3,"twice":2.0}', b'{"id":4,"twice":2.0}']
    dead = sorted([b"{", order(2, -5), b"}"])
    assert (jobs.values("a-out"), jobs.values("a-dead")) == (good, dead)
    jobs.forget_commits()
    assert jobs.run().epochs == 1, "the epoch is run again"
    assert (jobs.values("a-out"), jobs.values("a-dead")) == (good, dead)
    first = next(row for row in jobs.stored("a-out", "key", "value", "headers") if b'"id":0' in bytes(row.value))
    assert (bytes(first.key), [(one.key, bytes(one.value)) for one in first.headers]) == (b"k", [("h", b"1")])
    letter = next(row for row in jobs.stored("a-dead", "key", "value", "headers") if bytes(row.value) == order(2, -5))
    said = {one.key: bytes(one.value).decode() for one in letter.headers}
    query_id = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    assert said.pop("bascule.dlq.timestamp").isdigit()
    assert bytes(letter.key) == b"k"
    assert said == {
        "bascule.dlq.stream": "a-in",
        "bascule.dlq.incarnation": said["bascule.dlq.incarnation"],
        "bascule.dlq.partition": "0",
        "bascule.dlq.offset": "2",
        "bascule.dlq.subject": "a-in",
        "bascule.dlq.error_class": "ExpectationFailed",
        "bascule.dlq.error_message": "the record does not meet: positive",
        "bascule.dlq.expectations": '["positive"]',
        "bascule.dlq.query_name": "a",
        "bascule.dlq.query_id": query_id,
        "bascule.dlq.epoch": "0",
    }


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


def test_a_new_checkpoint_takes_the_streams_over(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    jobs = Jobs(spark, broker, tmp_path, "e")
    client.create_stream("e-in")
    client.publish_many("e-in", [order(0)])
    jobs.run()
    query_id = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    with pytest.raises(BrokerError, match=f"takeOver={query_id}"):
        jobs.run(checkpoint="new")
    assert jobs.run(checkpoint="new", sink={"takeOver": query_id}).epochs == 1
    assert len(jobs.values("e-out")) == 2
