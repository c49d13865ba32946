"""Statistics of a Parquet file as Delta's log has them: rows, least and greatest values, nulls."""

import json
from datetime import date, datetime, timedelta
from importlib import import_module
from typing import Any, Final

LONGEST_TEXT: Final = 128
"""Longest text whose value is a statistic, in characters."""
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the column's type says whether it is in UTC
_PER_MS: Final = {"milliseconds": 1, "microseconds": 1_000, "nanoseconds": 1_000_000}
"""Units of Parquet's times in a millisecond."""


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
        kind = schema.field(name).type
        unit = _unit(metadata.schema.column(index))
        if unit is None:
            low = _value(min(each.min for each in bounded), kind)
            high = _value(max(each.max for each in bounded), kind)
        else:  # as numbers: for times pyarrow imports pandas, for most of a second of processor time in each task
            low = _time(min(each.min_raw for each in bounded), unit, kind, up=False)
            high = _time(max(each.max_raw for each in bounded), unit, kind, up=True)
        if low is not None and high is not None:
            least[name], most[name] = low, high
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _unit(column: Any) -> int | None:
    """How many units of a Parquet column of times make a millisecond; None = its values are not times."""
    kind = column.logical_type
    return _PER_MS[json.loads(kind.to_json())["timeUnit"]] if kind.type == "TIMESTAMP" else None


def _time(value: int, per_ms: int, kind: Any, *, up: bool) -> str | None:
    """A bound of times as JSON, with milliseconds as Delta's statistics have them: a greatest one is rounded up. None =
    it is left out, because no date is that far.
    """
    milliseconds = -(-value // per_ms) if up else value // per_ms
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    text = moment.isoformat(timespec="milliseconds")
    return f"{text}Z" if kind.tz is not None else text


def _value(value: Any, kind: Any) -> Any:
    """A bound as JSON; None = it is left out."""
    pa: Any = import_module("pyarrow")
    if pa.types.is_boolean(kind) or (pa.types.is_floating(kind) and value != value):  # noqa: PLR0124 - NaN
        return None
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else None
    return value if isinstance(value, (int, float)) else None
