"""Which of two records of a key is the later one: within a partition by offset, across partitions by time. Pure."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from bascule.lake.ranges import SOURCE_COLUMNS


def is_later(rows: Any, there: Mapping[str, Any]) -> Any:
    """Whether each row is later than the one beside it, as a column of booleans; null where there is none.

    Args:
        rows: Arrow table with the columns of a record's position.
        there: columns of the rows beside them, of the same types and length, by the same names.
    """
    pc: Any = import_module("pyarrow.compute")
    same = pc.equal(rows["stream"], there["stream"])
    for name in SOURCE_COLUMNS[1:]:
        same = pc.and_(same, pc.equal(rows[name], there[name]))
    newer = pc.greater(rows["timestamp"], there["timestamp"])
    tied = pc.and_(
        pc.equal(rows["timestamp"], there["timestamp"]), pc.greater_equal(rows["partition"], there["partition"])
    )
    return pc.if_else(same, pc.greater(rows["offset"], there["offset"]), pc.or_(newer, tied))


def later_than(source: str, target: str) -> str:
    """The same as a condition of SQL on the rows with the aliases `source` and `target`."""
    same = " AND ".join(f"{source}.{name} = {target}.{name}" for name in SOURCE_COLUMNS)
    after = f'{source}."offset" > {target}."offset"'
    newer = f"{source}.timestamp > {target}.timestamp"
    tied = f"{source}.timestamp = {target}.timestamp AND {source}.partition >= {target}.partition"
    return f"(CASE WHEN {same} THEN {after} ELSE {newer} OR ({tied}) END)"
