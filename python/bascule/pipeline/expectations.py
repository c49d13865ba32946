"""Expectations: named conditions on the rows of any DataFrame, batch or streaming, with counts.

A condition is a Spark SQL expression; a row fails it if it is false **or null**. The counts are observed metrics of the
query: `observedMetrics` in the progress of a streaming query, or `Observation.get` if one is given as `observe`. They
have the number of `rows` and, by name, how many rows failed each condition. An expression that raises an error, as a
cast of text that is not a number, ends the query: use `try_cast` and the like, whose null counts as failed.

>>> checked = expect_or_drop(orders, {"amount is positive": "amount > 0"})
>>> good, dead = expect_or_dlq(orders, {"has an id": "id IS NOT NULL"})
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bascule.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

    Observe = str | Observation

__all__ = [
    "FAILED",
    "ROWS",
    "Split",
    "expect",
    "expect_or_dlq",
    "expect_or_drop",
    "expect_or_fail",
    "failed_any",
    "observed",
    "raising",
    "with_failed",
]

FAILED: Final = "failed_expectations"
"""The column of `expect_or_dlq` with the names of the conditions that a row failed."""
ROWS: Final = "rows"
"""The metric with the number of rows; not allowed as the name of a condition."""
VIOLATION: Final = "bascule-expectation-failed: "
"""Begin of the message of the error that `expect_or_fail` raises in a task."""
_PLACE: Final = ("stream", "partition", "offset")


class Split(NamedTuple):
    """The rows that met all conditions, and the others with the column `failed_expectations`."""

    good: "DataFrame"
    dead: "DataFrame"


def expect(frame: "DataFrame", conditions: Mapping[str, str], *, observe: "Observe" = "expect") -> "DataFrame":
    """`frame`, whose rows are counted by the conditions that they fail.

    Args:
        frame: any DataFrame.
        conditions: Spark SQL by name, one or more.
        observe: name of the metrics, unique in the query, or an `Observation` (batch only).

    Raises:
        UsageError: there is no condition, or one is named `rows`.
        AnalysisException: of Spark: a condition is not a valid expression on these columns.
    """
    return observed(with_failed(frame, conditions), list(conditions), observe).drop(FAILED)


def expect_or_drop(
    frame: "DataFrame", conditions: Mapping[str, str], *, observe: "Observe" = "expect_or_drop"
) -> "DataFrame":
    """`frame` without the rows that fail a condition. Arguments and errors as `expect`."""
    checked = observed(with_failed(frame, conditions), list(conditions), observe)
    return checked.where(~failed_any(list(conditions))).drop(FAILED)


def expect_or_fail(
    frame: "DataFrame", conditions: Mapping[str, str], *, observe: "Observe" = "expect_or_fail"
) -> "DataFrame":
    """`frame`; a row that fails a condition raises an error in its task, which ends the query before its result is
    committed. The error names the conditions, and stream, partition and offset if the row has them.

    Arguments and errors as `expect`.
    """
    checked = observed(with_failed(frame, conditions), list(conditions), observe)
    return raising(checked, list(conditions)).drop(FAILED)


def expect_or_dlq(frame: "DataFrame", conditions: Mapping[str, str], *, observe: "Observe" = "expect_or_dlq") -> Split:
    """The rows that meet all conditions, and the dead letters. Arguments and errors as `expect`.

    Whoever writes both frames computes the rows twice, and counts them twice, unless the rows are persisted: in
    `foreachBatch`, call this on the streaming frame's batch after `persist`.
    """
    checked = observed(with_failed(frame, conditions), list(conditions), observe)
    failed = failed_any(list(conditions))
    return Split(checked.where(~failed).drop(FAILED), checked.where(failed))


def with_failed(frame: "DataFrame", conditions: Mapping[str, str], unless: "Column | None" = None) -> "DataFrame":
    """`frame` with the column `failed_expectations`: names in the order of `conditions`, never null.

    Args:
        frame: any DataFrame without this column.
        conditions: Spark SQL by name.
        unless: rows that are not checked; their list is empty.

    Raises:
        UsageError: as `expect`, or the frame has the column.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    if not conditions:
        raise UsageError("invalid_argument", "there is no condition: give at least one by name")
    if ROWS in conditions:
        raise UsageError("invalid_argument", f'"{ROWS}" is the number of rows: give the condition another name')
    if FAILED in frame.columns:
        raise UsageError("invalid_argument", f"the rows have a column {FAILED} already: rename it")
    names = [
        F.when(~F.coalesce(F.expr(condition).cast("boolean"), F.lit(False)), F.lit(name))
        for name, condition in conditions.items()
    ]
    failed = F.array_compact(F.array(*names))
    if unless is not None:
        failed = F.when(unless, F.array().cast("array<string>")).otherwise(failed)
    return frame.withColumn(FAILED, failed)


def observed(frame: "DataFrame", names: Sequence[str], observe: "Observe") -> "DataFrame":
    """`frame` with the counts as metrics."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    counts = [F.count_if(F.array_contains(F.col(FAILED), name)).alias(name) for name in names]
    untyped: Any = frame
    return untyped.observe(observe, F.count(F.lit(1)).alias(ROWS), *counts)


def failed_any(names: Sequence[str]) -> "Column":
    """Whether a row failed one of these conditions."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    return F.arrays_overlap(F.col(FAILED), F.array(*(F.lit(name) for name in names)))


def raising(frame: "DataFrame", names: Sequence[str]) -> "DataFrame":
    """`frame`; a row that failed one of these conditions raises."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    failed = F.array_intersect(F.col(FAILED), F.array(*(F.lit(name) for name in names)))
    parts = [F.lit(VIOLATION), F.array_join(failed, ", ")]
    if all(name in frame.columns for name in _PLACE):
        stream, partition, offset = (F.col(name).cast("string") for name in _PLACE)
        parts += [F.lit(" (record "), stream, F.lit("/"), partition, F.lit(" offset "), offset, F.lit(")")]
    raised = F.raise_error(F.concat(*parts)).cast("boolean")
    return frame.where(F.when(F.size(failed) == 0, F.lit(True)).otherwise(raised))
