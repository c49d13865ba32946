"""The versions of keys: which rows of an epoch begin one, and which versions of a table end with that. Pure.

A version is valid from the time of its record until that of the next record of its key, `[valid_from, valid_to)`; the
newest one has no end. A tombstone ends a version and begins none. Times within a key never go back: where a clock was
set back, a version begins when the one before it does, and is valid for no time.
"""

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final

from bascule.lake.later import is_later
from bascule.lake.merge_options import CLOSES, DELETED, IS_CURRENT, VALID_FROM, VALID_TO
from bascule.lake.ranges import POSITION

_ROW: Final = "__row"
_FLOOR: Final = "__floor"
_CURRENT: Final = "__current_"


def history_schema(rows: Any) -> Any:
    """The columns of a table of versions, for the rows of an epoch."""
    pa: Any = import_module("pyarrow")
    added = [pa.field(VALID_TO, rows.field(VALID_FROM).type), pa.field(IS_CURRENT, pa.bool_())]
    return pa.schema([field for field in rows if field.name != DELETED] + added)


def changes_of(rows: Any, versions: Any, keys: Sequence[str]) -> Any:
    """What an epoch changes in a table of versions.

    Args:
        rows: Arrow table, the rows of the epoch, those of a key together and in their order, with the columns `DELETED`
            and `VALID_FROM`.
        versions: Arrow table, versions of the table: the current ones, and those that end after the least
            `VALID_FROM` of the rows; more do no harm. Has the columns `keys`, those of a record's position,
            `VALID_FROM`, `VALID_TO` and `IS_CURRENT`.
        keys: columns of the key.

    Returns:
        Arrow table with the columns of the table and `CLOSES`. Where that is true, the current version of the row's key
        ends at the row's `VALID_TO`; the other rows are new versions. A row that is not later than the current version
        of its key is left out.
    """
    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
    known = _known(rows, versions, keys)
    for chosen in (_is_later, partial(_has_effect, keys=keys)):
        mask = chosen(rows, known)
        rows, known = rows.filter(mask), known.filter(mask)
    continues, last = _same_as_before(rows, keys), min(len(rows), 1)
    starts = _starts(rows, known, continues)
    follows = pa.chunked_array([*continues.slice(1).chunks, pa.array([False] * last, pa.bool_())])
    following = pa.chunked_array([*starts.slice(1).chunks, pa.nulls(last, starts.type)])
    ends = pc.if_else(follows, following, pa.scalar(None, starts.type))
    rows = rows.set_column(rows.schema.get_field_index(VALID_FROM), VALID_FROM, starts)
    closing = rows.filter(pc.and_not(_has_current(known), continues))
    closing = closing.append_column(VALID_TO, closing[VALID_FROM])
    added = rows.append_column(VALID_TO, ends).filter(pc.invert(rows[DELETED]))
    parts = [
        part.append_column(IS_CURRENT, pc.is_null(part[VALID_TO])).append_column(
            CLOSES, pa.array([closes] * len(part), pa.bool_())
        )
        for part, closes in ((closing, True), (added, False))
    ]
    return pa.concat_tables(parts).drop_columns([DELETED])


def _known(rows: Any, versions: Any, keys: Sequence[str]) -> Any:
    """For each row, in their order: the position of the current version of its key (prefix `_CURRENT`), and the time
    before which no new version of the key begins; null = there is none.
    """
    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
    names = list(keys)
    versions = pa.table({name: versions[name].cast(_type_of(name, rows)) for name in versions.column_names})
    numbers = pa.array(range(len(rows)), pa.int64())
    wanted = rows.select(names).take(numbers).append_column(_ROW, numbers)  # Spark's buffers are not aligned for joins
    versions = versions.join(wanted, names, join_type="left semi")
    current = versions.filter(versions[IS_CURRENT]).select([*names, *POSITION])
    current = current.rename_columns([*names, *(f"{_CURRENT}{name}" for name in POSITION)])
    reached = pc.coalesce(versions[VALID_TO], versions[VALID_FROM])
    floors = versions.select(names).append_column(_FLOOR, reached).group_by(names).aggregate([(_FLOOR, "max")])
    floors = floors.rename_columns({f"{_FLOOR}_max": _FLOOR})
    return wanted.join(current, names).join(floors, names).sort_by(_ROW)


def _type_of(name: str, rows: Any) -> Any:
    """The type that a column of versions has beside the rows."""
    if name == IS_CURRENT:
        return import_module("pyarrow").bool_()
    return rows.schema.field(VALID_FROM if name == VALID_TO else name).type


def _is_later(rows: Any, known: Any) -> Any:
    """Whether a row is later than the current version of its key, if there is one."""
    pc: Any = import_module("pyarrow.compute")
    later = is_later(rows, {name: known[f"{_CURRENT}{name}"] for name in POSITION})
    return pc.fill_null(later, fill_value=True)


def _has_current(known: Any) -> Any:
    pc: Any = import_module("pyarrow.compute")
    return pc.is_valid(known[f"{_CURRENT}offset"])


def _has_effect(rows: Any, known: Any, keys: Sequence[str]) -> Any:
    """Whether a row is a version, or a tombstone that ends one."""
    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
    continues, deleted = _same_as_before(rows, keys), rows[DELETED]
    before = pa.chunked_array(
        [pa.array([False] * min(len(rows), 1), pa.bool_()), *deleted.slice(0, _but_one(rows)).chunks]
    )
    is_there = pc.if_else(continues, pc.invert(before), _has_current(known))
    return pc.or_(pc.invert(deleted), is_there)


def _starts(rows: Any, known: Any, continues: Any) -> Any:
    """When each row begins: at its own time, or the latest one before it of its key."""
    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
    is_back = pc.fill_null(pc.greater(known[_FLOOR], rows["timestamp"]), fill_value=False)
    times = pc.if_else(is_back, known[_FLOOR], rows["timestamp"])
    # The running maximum of each key is that of all rows, over numbers that are greater for each following key.
    ranks = pc.cast(pc.rank(times, tiebreaker="dense"), pa.int64())
    bases = pc.multiply(pc.cumulative_sum(pc.cast(pc.invert(continues), pa.int64())), len(rows) + 1)
    reached = pc.subtract(pc.cumulative_max(pc.add(bases, ranks)), bases)
    distinct = pc.unique(times)
    return pa.chunked_array(
        [distinct.take(pc.sort_indices(distinct)).take(pc.subtract(part, 1)) for part in reached.chunks], times.type
    )


def _but_one(rows: Any) -> int:
    return max(len(rows) - 1, 0)


def _same_as_before(rows: Any, keys: Sequence[str]) -> Any:
    """Whether a row has the key of the row before it."""
    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
    count = _but_one(rows)
    same = pa.chunked_array([pa.array([True] * count, pa.bool_())])
    for key in keys:
        same = pc.and_(same, pc.equal(rows[key].slice(0, count), rows[key].slice(1)))
    first = pa.array([False] * min(len(rows), 1), pa.bool_())
    return pa.chunked_array([first, *same.chunks])
