"""Jobs from source to targets on real Spark: rows, dead letters, restarts, refusals."""

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from bascule.errors import InternalError, StateError, UnavailableError, UsageError
from bascule.lake import writing
from bascule.pipeline import Gate, Outcome, parse_job, plan, run
from bascule.pipeline.progress import EpochReport
from harness import Streams
from lakes import catalog_file, read

from tests.failpoints import Points

pytestmark = pytest.mark.spark

JSON = {"format": "json", "schema": {"inline": "id BIGINT, amount DOUBLE"}}
QUALITY = {"expect": {"known": "value.id < 1000"}, "expect_or_dlq": {"positive": "value.amount > 0"}}
SELECT = "SELECT stream, partition, offset, value.id AS id, value.amount * 2 AS twice FROM source"


class Jobs:
    """A job over one stream, in a folder of the test."""

    def __init__(self, spark: Any, streams: Streams, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.document: dict[str, Any] = {
            "name": "orders",
            "source": {"stream": "s", "address": streams.address, "longPollMs": 100, "maxOffsetsPerTrigger": 4},
            "decode": {"value": JSON, "onDecodeError": "dlq"},
            "expectations": QUALITY,
            "sql": SELECT,
            "targets": [{"format": "delta", "path": "good"}],
            "deadLetters": {"format": "delta", "path": "dead"},
            "mode": "availableNow",
            "checkpoint": "checkpoint",
        }

    def run(self, **more: Any) -> Outcome:
        source = dict(self.document["source"])
        if self.document["mode"] == "batch":
            source.pop("longPollMs", None)  # of streaming runs alone
        return run(parse_job({**self.document, "source": source}, base=self.folder), spark=self.spark, **more)

    def rows(self, path: str = "good") -> list[Any]:
        """The rows of a table, by offset."""
        delta: Any = __import__("deltalake")
        table = delta.DeltaTable(str(self.folder / path)).to_pyarrow_table()
        return sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))


@pytest.fixture
def jobs(spark: Any, streams: Streams, tmp_path: Path) -> Jobs:
    streams.create("s")
    return Jobs(spark, streams, tmp_path)


def order(number: int, amount: float | None = 1.0) -> bytes:
    return json.dumps({"id": number, "amount": amount}).encode()


def test_good_rows_and_dead_letters_leave_in_one_query(jobs: Jobs, streams: Streams) -> None:
    streams.put("s", [order(0), b"{broken", order(2, -5), order(3, None), order(2000), b""], key=[b"k"] * 6)
    reports: list[EpochReport] = []
    outcome = jobs.run(on_progress=reports.append)
    assert outcome == Outcome(epochs=2, rows=6, dead=4, restarts=0, stopped=False)
    assert [(row["offset"], row["id"], row["twice"]) for row in jobs.rows()] == [(0, 0, 2.0), (4, 2000, 2.0)]
    dead = jobs.rows("dead")
    assert [(row["offset"], row["error_class"], row["expectations"]) for row in dead] == [
        (1, "MalformedJson", []),
        (2, "ExpectationFailed", ["positive"]),
        (3, "ExpectationFailed", ["positive"]),
        (5, "MalformedJson", []),
    ]
    assert [report.epoch for report in reports] == [0, 1]
    assert reports[-1].lag == 0
    assert {stage: sum(each.metrics[stage]["rows"] for each in reports) for stage in reports[0].metrics} == {
        "decode": 6,
        "expectations": 6,
    }
    assert sum(each.metrics["expectations"]["known"] for each in reports) == 1
    assert sum(each.metrics["expectations"]["positive"] for each in reports) == 2
    assert sum(each.metrics["decode"]["value_errors"] for each in reports) == 2


def test_a_dead_letter_has_the_whole_record_and_its_place(jobs: Jobs, streams: Streams) -> None:
    streams.put("s", [b"{"], key=[b"k"], headers=[[{"key": "h", "value": b"1"}]], subject=["s.x"])
    jobs.run()
    (row,) = jobs.rows("dead")
    query_id = json.loads((jobs.folder / "checkpoint" / "metadata").read_text())["id"]
    timestamp = row.pop("timestamp")
    assert abs(timestamp.timestamp() - time.time()) < 300
    assert row == {
        "stream": "s",
        "incarnation": 1,
        "partition": 0,
        "offset": 0,
        "subject": "s.x",
        "key": b"k",
        "value": b"{",
        "headers": [{"key": "h", "value": b"1"}],
        "error_class": "MalformedJson",
        "error_message": "the bytes are not one valid JSON value",
        "error_part": "value",
        "decoder": "json",
        "schema_id": None,
        "expectations": [],
        "query_name": "orders",
        "query_id": query_id,
        "epoch": 0,
    }


def test_runs_continue_and_a_repeated_epoch_is_written_once(jobs: Jobs, streams: Streams) -> None:
    streams.put("s", [order(0), b"{", order(2)])
    jobs.run()
    before = (jobs.rows(), jobs.rows("dead"))
    assert jobs.run().rows == 0
    commits = jobs.folder / "checkpoint" / "commits"
    for commit in commits.glob("*0*"):
        commit.unlink()  # as after a crash between the writes and the commit
    assert jobs.run().epochs == 1, "the epoch is run again"
    assert (jobs.rows(), jobs.rows("dead")) == before
    streams.put("s", [order(3), b"}"])
    jobs.run()
    assert [row["offset"] for row in jobs.rows()] == [0, 2, 3]
    assert [row["offset"] for row in jobs.rows("dead")] == [1, 4]


def test_a_crash_between_two_targets_leaves_each_with_the_epoch_once(
    jobs: Jobs, streams: Streams, points: Points
) -> None:
    jobs.document["targets"].append({"format": "delta", "path": "copy", "name": "copy"})
    jobs.document["restarts"] = {"most": 0}
    streams.put("s", [order(0), b"{", order(2)])
    points.arm("job.target_written", "fail")
    with pytest.raises(InternalError, match=r"job\.target_written"):
        jobs.run()
    assert len(jobs.rows()) == 2
    assert not (jobs.folder / "copy" / "_delta_log").exists()
    jobs.run()
    assert [[row["offset"] for row in jobs.rows(path)] for path in ("good", "copy", "dead")] == [[0, 2], [0, 2], [1]]


def test_a_failure_that_may_pass_restarts_the_query(
    jobs: Jobs, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.document["restarts"] = {"most": 2, "firstDelay": "10ms"}
    streams.put("s", [order(number) for number in range(8)])
    real, failures = writing.write_epoch, [True, False, True, True]

    def failing(frame: Any, options: Any, **more: Any) -> None:
        if failures and failures.pop(0):
            raise UnavailableError("unavailable", "no broker answers")
        real(frame, options, **more)

    monkeypatch.setattr(writing, "write_epoch", failing)
    outcome = jobs.run()
    assert (outcome.restarts, outcome.rows) == (3, 8), "an epoch that succeeds begins the count again"
    assert [row["offset"] for row in jobs.rows()] == list(range(8))
    failures += [True, True, True]
    streams.put("s", [order(8)])
    with pytest.raises(UnavailableError, match="no broker answers"):
        jobs.run()


def test_a_record_that_may_not_fail_ends_the_job_before_its_epoch_is_written(jobs: Jobs, streams: Streams) -> None:
    jobs.document["expectations"] = {"expect_or_fail": {"positive": "value.amount > 0"}}
    streams.put("s", [order(0), order(1), order(2), order(3), order(4), order(5, -1)])
    with pytest.raises(StateError, match=r"positive \(record s/0 offset 5\)") as raised:
        jobs.run()
    assert raised.value.code == "record_invalid"
    assert raised.value.exit_code == 1
    assert [row["offset"] for row in jobs.rows()] == [0, 1, 2, 3]


def test_a_record_that_cannot_be_decoded_ends_the_job_or_is_null(jobs: Jobs, streams: Streams) -> None:
    del jobs.document["deadLetters"], jobs.document["expectations"]
    jobs.document["decode"] = {"value": JSON}
    streams.put("s", [order(0), b"{"])
    with pytest.raises(StateError, match=r"s/0 offset 1: json MalformedJson") as raised:
        jobs.run()
    assert raised.value.code == "record_invalid"
    assert not (jobs.folder / "good").exists()
    jobs.document["decode"] = {"value": JSON, "onDecodeError": "null"}
    jobs.document["sql"] = "SELECT stream, partition, offset, value.id, value_error.class AS class FROM source"
    jobs.run()
    assert [(row["id"], row["class"]) for row in jobs.rows()] == [(0, None), (None, "MalformedJson")]


def test_what_the_source_raises_is_the_failure_of_a_job_that_also_fails_for_a_record(
    jobs: Jobs, streams: Streams
) -> None:
    del jobs.document["deadLetters"]
    jobs.document |= {"decode": {"value": JSON}, "expectations": {"expect_or_fail": {"positive": "value.amount > 0"}}}
    jobs.document["restarts"] = {"most": 1, "firstDelay": "10ms"}
    jobs.document["source"] |= {"retryDeadlineMs": 500, "requestTimeoutMs": 500}
    streams.put("s", [order(0)])
    jobs.run()
    streams.put("s", [order(1)])
    streams.engine.close(0)
    with pytest.raises(UnavailableError) as raised:
        jobs.run()
    assert "decoded" not in str(raised.value)


def test_a_stop_lets_the_epoch_finish_and_the_next_run_continues(jobs: Jobs, streams: Streams) -> None:
    jobs.document["mode"] = "continuous"
    streams.put("s", [order(number) for number in range(8)])
    gate = Gate()
    outcome = jobs.run(gate=gate, on_progress=lambda report: gate.stop() if report.total_rows >= 4 else None)
    assert outcome.stopped
    written = len(jobs.rows())
    assert written in (4, 8)
    assert outcome.rows == written
    jobs.document["mode"] = "availableNow"
    assert jobs.run().rows == 8 - written
    assert [row["offset"] for row in jobs.rows()] == list(range(8))


def test_an_idle_job_stops_at_once(jobs: Jobs, streams: Streams) -> None:
    jobs.document["mode"] = "continuous"
    gate = Gate()
    streams.put("s", [order(0)])
    stop = threading.Timer(2, gate.stop)
    assert jobs.run(gate=gate, on_progress=lambda _: stop.start()) == Outcome(1, 1, 0, 0, stopped=True)
    assert [row["offset"] for row in jobs.rows()] == [0]


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("SELECT count(*) FROM source", "sql aggregates, but a streaming run"),
        ("SELECT DISTINCT subject FROM source", "sql (removes duplicates|aggregates), but"),
        ("SELECT * FROM source ORDER BY offset", "sql sorts, but"),
        ("SELECT offset FROM source LIMIT 1", "sql has a LIMIT, but"),
        ("SELECT a.offset FROM source a JOIN source b ON a.offset = b.offset", "sql joins `source` with itself"),
        ("SELECT rank() OVER (ORDER BY offset) FROM source", "sql has a window function"),
        ("SELECT offset FROM source UNION ALL SELECT 1", "sql adds rows of another table"),
        (
            "SELECT offset FROM source WHERE offset = (SELECT max(offset) FROM source)",
            "sql: .*Streaming query is not allowed in subquery",
        ),
        (
            "SELECT * FROM range(3) r LEFT JOIN source s ON r.id = s.offset",
            "has a LEFT OUTER JOIN that keeps other rows",
        ),
        ("SELECT offset FROM source", "column offset and no stream, partition: choose these too"),
        ("SELECT 1", "sql does not read from `source`"),
        ("DROP TABLE source", "sql is not one SELECT"),
        ("SELECT 1; SELECT 2", "sql is not one SELECT"),
        ("SELECT nothing FROM source", "sql: .*nothing"),
        ("SELECT * FROM sauce", "sql: .*sauce"),
    ],
)
def test_a_select_that_no_target_can_take_is_refused(jobs: Jobs, sql: str, sentence: str) -> None:
    jobs.document["sql"] = sql
    with pytest.raises(UsageError, match=sentence):
        jobs.run()
    assert not (jobs.folder / "checkpoint").exists()


def test_a_select_may_use_other_tables_and_several_steps(jobs: Jobs, spark: Any, streams: Streams) -> None:
    streams.put("s", [order(0), order(1), order(5)])
    spark.range(3).createOrReplaceTempView("known")
    jobs.document["sql"] = (
        "WITH named AS (SELECT stream, partition, offset, value.id AS id FROM source) "
        "SELECT named.*, piece FROM named JOIN known ON named.id = known.id LATERAL VIEW explode(array('a')) p AS piece"
    )
    jobs.run()
    assert [(row["id"], row["piece"]) for row in jobs.rows()] == [(0, "a"), (1, "a")]


def test_a_batch_run_may_aggregate(jobs: Jobs, streams: Streams) -> None:
    streams.put("s", [order(0, 5), order(0, 6), order(1, 7), b"{"])
    jobs.document |= {
        "mode": "batch",
        "sql": "SELECT value.id AS id, sum(value.amount) AS total FROM source GROUP BY 1",
    }
    del jobs.document["checkpoint"], jobs.document["source"]["maxOffsetsPerTrigger"]
    reports: list[EpochReport] = []
    outcome = jobs.run(on_progress=reports.append)
    assert (outcome.rows, outcome.dead) == (4, 1)
    delta: Any = __import__("deltalake")
    totals = delta.DeltaTable(str(jobs.folder / "good")).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["total"]) for row in totals) == [(0, 11.0), (1, 7.0)]
    assert reports[0].metrics["decode"] == {"rows": 4, "value_errors": 1}
    assert jobs.run().rows == 4
    assert delta.DeltaTable(str(jobs.folder / "good")).to_pyarrow_table().num_rows == 2, "the range is there already"


def test_a_batch_run_that_is_repeated_completes_its_targets_and_appends_nothing_twice(
    jobs: Jobs, streams: Streams, points: Points
) -> None:
    jobs.document |= {"mode": "batch", "restarts": {"most": 0}}
    jobs.document["targets"].append({"format": "delta", "path": "copy", "name": "copy"})
    del jobs.document["checkpoint"], jobs.document["source"]["maxOffsetsPerTrigger"]
    streams.put("s", [order(0), b"{", order(2)])
    points.arm("job.target_written", "fail")
    with pytest.raises(InternalError, match=r"job\.target_written"):
        jobs.run()
    for _ in range(2):
        jobs.run()
        found = [[row["offset"] for row in jobs.rows(path)] for path in ("good", "copy", "dead")]
        assert found == [[0, 2], [0, 2], [1]]
    streams.put("s", [order(3)])
    with pytest.raises(StateError, match=r'Set startingOffsets \{"s": \{"0": 3\}\}'):
        jobs.run()
    jobs.document["source"]["startingOffsets"] = {"s": {"0": 3}}
    jobs.run()
    assert [row["offset"] for row in jobs.rows("copy")] == [0, 2, 3]


class TestSchemaChange:
    """The columns of the result are not those of the table."""

    @pytest.fixture
    def changed(self, jobs: Jobs, streams: Streams) -> Jobs:
        jobs.document["sql"] = "SELECT stream, partition, offset, value.id AS id FROM source"
        streams.put("s", [order(0)])
        jobs.run()
        streams.put("s", [order(1)])
        jobs.document["sql"] = "SELECT stream, partition, offset, value.amount AS amount FROM source"
        return jobs

    def test_fail_ends_the_job(self, changed: Jobs) -> None:
        with pytest.raises(StateError, match=r"amount"):
            changed.run()
        assert [row["offset"] for row in changed.rows()] == [0]

    def test_evolve_adds_columns_and_writes_null_to_the_others(self, changed: Jobs) -> None:
        changed.document["targets"][0]["onSchemaChange"] = "evolve"
        assert "change the table: the table has no column amount" in str(
            plan(parse_job(changed.document, base=changed.folder), spark=changed.spark).targets
        )
        changed.run()
        assert [(row["id"], row["amount"]) for row in changed.rows()] == [(0, None), (None, 1.0)]

    def test_evolve_of_an_iceberg_table(self, jobs: Jobs, streams: Streams) -> None:
        jobs.document["targets"] = [
            {
                "format": "iceberg",
                "path": "lake.good",
                "credentials": catalog_file(jobs.folder),
                "onSchemaChange": "evolve",
            }
        ]
        jobs.document["sql"] = "SELECT stream, partition, offset, CAST(value.id AS TINYINT) AS id FROM source"
        streams.put("s", [order(0)])
        jobs.run()
        jobs.document["sql"] = "SELECT stream, partition, offset, value.amount AS amount FROM source"
        streams.put("s", [order(1)])
        assert jobs.run().restarts == 0
        rows = read("lake.good", "iceberg", catalog_file(jobs.folder))
        assert [(row["offset"], row["id"], row["amount"]) for row in rows] == [(0, 0, None), (1, None, 1.0)]

    def test_evolve_does_not_change_a_type(self, changed: Jobs) -> None:
        changed.document["targets"][0]["onSchemaChange"] = "evolve"
        changed.document["sql"] = "SELECT stream, partition, offset, 'x' AS id FROM source"
        with pytest.raises(StateError, match="the column id is bigint in the table and string in the rows"):
            changed.run()

    def test_dlq_diverts_the_records(self, changed: Jobs) -> None:
        changed.document["targets"][0]["onSchemaChange"] = "dlq"
        assert changed.run().dead == 1
        (row,) = changed.rows("dead")
        assert (row["offset"], row["error_class"], row["value"]) == (1, "SchemaChanged", order(1))
        assert "the table has no column amount" in row["error_message"]


def test_a_plan_shows_everything_and_writes_nothing(jobs: Jobs, streams: Streams) -> None:
    streams.put("s", [order(0), order(1)])
    before = sorted(jobs.folder.rglob("*"))
    planned = plan(parse_job(jobs.document, base=jobs.folder), spark=jobs.spark)
    assert sorted(path for path in jobs.folder.rglob("*") if "data" not in path.parts) == [
        path for path in before if "data" not in path.parts
    ]
    assert [(each.stream, each.partition, each.start, each.end) for each in planned.partitions] == [("s", 0, 0, 2)]
    assert [(each.name, each.action) for each in planned.targets] == [("table", "create"), ("dead-letters", "create")]
    assert planned.checkpoint.endswith("checkpoint (new)")
    result = {each.column: each.type for each in planned.columns if each.stage == "result"}
    assert result == {"stream": "string", "partition": "int", "offset": "bigint", "id": "bigint", "twice": "double"}
    jobs.run()
    again = plan(parse_job(jobs.document, base=jobs.folder), spark=jobs.spark)
    assert again.targets[0].action == "append"
    assert "continues after epoch 0, at s/0 2" in again.checkpoint


def test_a_wrong_condition_is_refused_before_anything_runs(jobs: Jobs) -> None:
    jobs.document["expectations"] = {"expect_or_dlq": {"positive": "value.number > 0"}}
    with pytest.raises(UsageError, match=r"expectations: .*number"):
        jobs.run()
    assert not (jobs.folder / "checkpoint").exists()


def test_a_lost_checkpoint_is_refused_and_not_written_twice(jobs: Jobs, streams: Streams) -> None:
    streams.put("s", [order(0), order(1)])
    jobs.run()
    shutil.rmtree(jobs.folder / "checkpoint")
    with pytest.raises(StateError, match="before offset 2"):
        jobs.run()
    assert len(jobs.rows()) == 2
