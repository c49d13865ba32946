"""Statistics of a Parquet file as Delta's log has them: rows, least and greatest values, nulls."""

from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from typing import Any, Final

LONGEST_TEXT: Final = 128
"""Longest text whose value is a statistic, in characters."""


def file_statistics(metadata: Any, schema: Any) -> dict[str, Any]:
    """Statistics of a file.

    Args:
        metadata: of the closed Parquet file.
        schema: Arrow schema of its rows.

    Returns:
        `numRecords`, and by column `minValues`, `maxValues` and `nullCount`; columns without statistics are missing.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        if name not in schema.names:
            continue
        found = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
        if not all(each is not None and each.has_null_count for each in found):
            continue
        nulls[name] = sum(each.null_count for each in found)
        bounded = [each for each in found if each.has_min_max]
        if not bounded or any(not each.has_min_max and each.num_values for each in found):
            continue
        low = _value(min(each.min for each in bounded), schema.field(name).type, up=False)
        high = _value(max(each.max for each in bounded), schema.field(name).type, up=True)
        if low is not None and high is not None:
            least[name], most[name] = low, high
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _value(value: Any, kind: Any, *, up: bool) -> Any:
    """A bound as JSON; None = it is left out. Times have milliseconds in Delta's statistics: a greatest one is rounded
    up.
    """
    pa: Any = import_module("pyarrow")
    if pa.types.is_boolean(kind) or (pa.types.is_floating(kind) and value != value):  # noqa: PLR0124 - NaN
        return None
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        rest = moment.microsecond % 1000
        moment += timedelta(microseconds=(1000 - rest if up and rest else -rest))
        text = moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        return f"{text}Z" if kind.tz is not None else text
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else None
    return value if isinstance(value, (int, float)) else None
