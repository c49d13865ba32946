"""The SELECT of a job, on the temporary view `source`.

In a streaming run each micro-batch is selected from alone, so a SELECT must give a row of the result for a row of the
source, without regard to the others: one that groups, sorts, limits or joins the source with itself would silently give
results per micro-batch. Such a SELECT is refused by name. A batch run has no such limits.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from bascule.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["VIEW", "check_query", "check_row_by_row", "first_line", "selected"]

VIEW: Final = "source"
"""Name of the temporary view that the SELECT reads. It hides a table of the same name."""
_FOR_ROWS: Final = frozenset(
    {
        "CTERelationDef",
        "CTERelationRef",
        "CollectMetrics",
        "EventTimeWatermark",
        "Filter",
        "Generate",
        "LocalRelation",
        "MapInArrow",
        "OneRowRelation",
        "Project",
        "ResolvedHint",
        "SubqueryAlias",
        "View",
        "WithCTE",
    }
)
"""Nodes of Spark's plans that treat each row alone; so do leaves."""
_STREAM_LEFT: Final = frozenset({"INNER", "CROSS", "LEFT OUTER", "LEFT SEMI", "LEFT ANTI"})
_STREAM_RIGHT: Final = frozenset({"INNER", "CROSS", "RIGHT OUTER"})
_NAMES: Final = {
    "Aggregate": "aggregates",
    "Deduplicate": "removes duplicates",
    "Distinct": "removes duplicates",
    "Except": "uses EXCEPT",
    "GlobalLimit": "has a LIMIT",
    "Intersect": "uses INTERSECT",
    "LocalLimit": "has a LIMIT",
    "Offset": "has an OFFSET",
    "Sort": "sorts",
    "Window": "has a window function",
}


def check_query(spark: "SparkSession", sql: str) -> None:
    """Refuse text that is not one query; nothing is run.

    Raises:
        UsageError: code `configuration_invalid`: a command such as DROP or INSERT, or text that Spark cannot parse.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - heavy

    jvm: Any = spark._jsparkSession  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    try:
        jvm.sessionState().sqlParser().parseQuery(sql)
    except PySparkException as failure:
        raise UsageError("configuration_invalid", f"sql is not one SELECT: {first_line(failure)}") from None


def selected(shown: "DataFrame", sql: str | None) -> "DataFrame":
    """The result of a SELECT on `shown`, or `shown` itself.

    Args:
        shown: the rows and columns of the view.
        sql: checked by `check_query`; None = every column.

    Raises:
        UsageError: code `configuration_invalid`: Spark refuses the query, for example for a column that is not there.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - heavy

    if sql is None:
        return shown
    shown.createOrReplaceTempView(VIEW)
    try:
        return shown.sparkSession.sql(sql)
    except PySparkException as failure:
        raise UsageError("configuration_invalid", f"sql: {first_line(failure)}") from None


def first_line(failure: Exception) -> str:
    """What Spark says, without the query and the plan after it."""
    text = str(failure).strip()
    return " ".join(text.partition("\n")[0].split())[:500]


def check_row_by_row(result: "DataFrame") -> None:
    """Refuse a SELECT whose rows depend on other rows of the source.

    Args:
        result: of `selected` on a streaming frame.

    Raises:
        UsageError: code `configuration_invalid`: names what the SELECT does.
    """
    untyped: Any = result
    plan: Any = untyped._jdf.queryExecution().analyzed()  # noqa: SLF001
    if not plan.isStreaming():
        raise UsageError("configuration_invalid", f"sql does not read from `{VIEW}`: its result never changes")
    for node in _nodes(plan):
        _check_node(node)


def _check_node(node: Any) -> None:
    name = str(node.nodeName())
    children = _sequence(node.children())
    if not children or not node.isStreaming() or name in _FOR_ROWS:
        return
    if name == "Union":
        if all(child.isStreaming() for child in children):
            return
        raise _refused(f"adds rows of another table to those of `{VIEW}`")
    if name == "Join":
        left, right = (child.isStreaming() for child in children)
        kind = str(node.joinType().sql()).upper()
        if left != right and kind in (_STREAM_LEFT if left else _STREAM_RIGHT):
            return
        raise _refused(f"joins `{VIEW}` with itself" if left and right else f"has a {kind} JOIN that keeps other rows")
    raise _refused(_NAMES.get(name, f"uses {name}"))


def _refused(what: str) -> UsageError:
    message = (
        f"sql {what}, but a streaming run selects from each micro-batch alone: use `mode: batch`, or a streaming query "
        "of your own"
    )
    return UsageError("configuration_invalid", message)


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _sequence(plan.children()):
        yield from _nodes(child)


def _sequence(found: Any) -> list[Any]:
    return [found.apply(index) for index in range(found.size())]
