"""The table view of one partition: the latest record of each key, in order of offset.

Batches are gathered and folded into the rows kept so far, all in Arrow. Records come in order of offset, so a fold
can forget a tombstone at once: nothing that comes later is older.
"""

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, Final

from bascule.errors import error
from bascule.spark.table_options import MOST_TABLE_BYTES, TableView

FOLD_BYTES: Final = 64 << 20
"""Least size of the records that are folded at once, if `tableMaxBytes` is not smaller."""
BATCH_BYTES: Final = 1 << 20
"""Size of the batches of the result, about."""
BATCH_ROWS: Final = 16_384
"""Most rows of a batch of the result."""
_ALIVE: Final = "\x00alive"
"""A column beside those of the stream: whether the record has a value."""


def latest_records(batches: Iterable[Any], schema: Any, view: TableView, where: str) -> Iterator[Any]:
    """Record batches with the latest record of each key that is not a tombstone, in order of offset.

    Args:
        batches: the records of one partition in order of offset, with the columns of `schema` and `view.columns`.
        schema: Arrow schema of the result.
        view: its key and its limit.
        where: the partition, for errors.

    Raises:
        StateError: `record_invalid`: a record has no key, and `onMissingKey` is `fail`.
        UsageError: `too_large`: the rows have more bytes than `tableMaxBytes`.
    """
    live: Any = None
    pending: list[Any] = []
    size = 0
    for batch in batches:
        narrow = _with_key(batch, schema, view, where)
        pending.append(narrow)
        size += narrow.nbytes
        if size >= _fold_bytes(0 if live is None else live.nbytes, view):
            live, pending, size = _checked(_fold(live, pending, view), view, where), [], 0
    if pending:
        live = _checked(_fold(live, pending, view), view, where)
    if live is not None and live.num_rows:
        yield from _batches(live, schema)


def _fold_bytes(live: int, view: TableView) -> int:
    """Size of new records at which they are folded: in proportion to the rows kept, so that each is copied seldom."""
    return min(max(FOLD_BYTES, live // 2), view.max_bytes)


def _with_key(batch: Any, schema: Any, view: TableView, where: str) -> Any:
    """The columns of the result, the key and whether there is a value, without records that have no key."""
    pa: Any = import_module("pyarrow")
    keys = batch.column(view.key)
    extra = [] if view.key in schema.names else [view.key]
    columns = [batch.column(name) for name in (*schema.names, *extra)]
    fields = [batch.schema.field(name) for name in (*schema.names, *extra)]
    alive = batch.column("value").is_valid()
    found = pa.RecordBatch.from_arrays([*columns, alive], schema=pa.schema([*fields, pa.field(_ALIVE, pa.bool_())]))
    if not keys.null_count:
        return found
    if view.on_missing_key == "skip":
        return found.filter(keys.is_valid())
    offset = batch.column("offset").filter(keys.is_null())[0].as_py()
    raise error(
        "record_invalid",
        f"{where} has a record without a key at offset {offset}, and view=table keeps one row for each key: set "
        "onMissingKey to skip to leave such records out, or tableKey to subject",
        {"offset": offset, "where": where},
    )


def _fold(live: Any, pending: list[Any], view: TableView) -> Any:
    """The rows of both, later ones instead of earlier ones of the same key, without tombstones."""
    pa: Any = import_module("pyarrow")
    np: Any = import_module("numpy")
    new = pa.Table.from_batches(pending)
    rows = new if live is None else pa.concat_tables([live, new])
    codes = rows[view.key].dictionary_encode().combine_chunks().indices.to_numpy()
    last = np.zeros(codes.max(initial=-1) + 1, dtype=np.int64)
    last[codes] = np.arange(rows.num_rows)  # of rows with the same key the last is kept
    kept = np.zeros(rows.num_rows, dtype=bool)
    kept[last] = True
    kept &= rows[_ALIVE].to_numpy()
    return rows.filter(pa.array(kept)).combine_chunks()


def _checked(live: Any, view: TableView, where: str) -> Any:
    if live.nbytes <= view.max_bytes:
        return live
    raise error(
        "too_large",
        f"the table of {where} has {live.nbytes} bytes or more in {live.num_rows} rows, and tableMaxBytes is "
        f"{view.max_bytes}: raise it (at most {MOST_TABLE_BYTES}), read fewer columns, or use more partitions",
        {"bytes": live.nbytes, "limit": view.max_bytes, "where": where},
    )


def _batches(live: Any, schema: Any) -> Iterator[Any]:
    pa: Any = import_module("pyarrow")
    rows = min(max(live.num_rows * BATCH_BYTES // max(live.nbytes, 1), 1), BATCH_ROWS)
    for batch in live.select(schema.names).to_batches(max_chunksize=rows):
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
