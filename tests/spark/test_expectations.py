"""Expectations on any DataFrame: who fails them, what happens to the row, and the counts."""

from pathlib import Path
from typing import Any

import pytest
from bascule.errors import UsageError
from bascule.pipeline import expect, expect_or_dlq, expect_or_drop, expect_or_fail
from pyspark.sql import Observation

pytestmark = pytest.mark.spark

CONDITIONS = {"positive": "amount > 0", "small": "amount < 100"}


@pytest.fixture
def orders(spark: Any) -> Any:
    rows = [(1, 5), (2, -1), (3, None), (4, 500), (5, 50)]
    return spark.createDataFrame(rows, "id int, amount int").repartition(2)


def ids(frame: Any) -> list[int]:
    return sorted(row.id for row in frame.collect())


def test_a_condition_that_is_false_or_null_fails_and_is_counted(orders: Any) -> None:
    counts = Observation("quality")
    assert ids(expect(orders, CONDITIONS, observe=counts)) == [1, 2, 3, 4, 5]
    assert counts.get == {"rows": 5, "positive": 2, "small": 2}


def test_rows_that_fail_are_dropped_and_counted(orders: Any) -> None:
    counts = Observation("quality")
    kept = expect_or_drop(orders, CONDITIONS, observe=counts)
    assert kept.columns == ["id", "amount"]
    assert ids(kept) == [1, 5]
    assert counts.get == {"rows": 5, "positive": 2, "small": 2}


def test_dead_letters_have_the_names_of_what_they_failed(orders: Any) -> None:
    good, dead = expect_or_dlq(orders, CONDITIONS)
    assert ids(good) == [1, 5]
    assert sorted((row.id, row.failed_expectations) for row in dead.collect()) == [
        (2, ["positive"]),
        (3, ["positive", "small"]),
        (4, ["small"]),
    ]


def test_a_row_that_may_not_fail_ends_the_query(orders: Any) -> None:
    checked = expect_or_fail(orders, CONDITIONS)
    with pytest.raises(Exception, match=r"bascule-expectation-failed: (positive|small)"):
        checked.collect()
    assert ids(expect_or_fail(orders, {"has an id": "id IS NOT NULL"})) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "query", ["SELECT 1 AS one FROM rows", "SELECT id FROM rows WHERE id = 1", "SELECT count(*) FROM rows"]
)
def test_a_row_that_may_not_fail_is_checked_also_if_the_result_does_not_need_it(
    spark: Any, orders: Any, query: str
) -> None:
    """Neither column pruning nor a filter that would leave the row out avoids the check."""
    expect_or_fail(orders, CONDITIONS).createOrReplaceTempView("rows")
    with pytest.raises(Exception, match="bascule-expectation-failed"):
        spark.sql(query).collect()


def test_the_error_names_the_record(spark: Any) -> None:
    frame = spark.createDataFrame([("s", 0, 41, -5)], "stream string, partition int, offset bigint, amount int")
    with pytest.raises(Exception, match=r"positive \(record s/0 offset 41\)"):
        expect_or_fail(frame, {"positive": "amount > 0"}).collect()


def test_counts_are_in_the_progress_of_a_streaming_query(spark: Any, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    checked = expect_or_drop(stream, {"even": "value % 2 = 0"})
    query = (
        checked.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    observed = [
        progress.observedMetrics["expect_or_drop"] for progress in query.recentProgress if progress.numInputRows
    ]
    assert [(row.rows, row.even) for row in observed] == [(10, 5)] * len(observed)
    assert observed


@pytest.mark.parametrize(
    ("conditions", "sentence"),
    [({}, "there is no condition"), ({"rows": "true"}, '"rows" is the number of rows')],
)
def test_conditions_are_checked(orders: Any, conditions: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        expect(orders, conditions)
