"""Records as rows of the sink: which columns are kept, which are lost, and how many rows fit in an epoch."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from bascule.errors import StateError
from bascule.spark.columns import arrow_schema
from bascule.spark.replaying.options import HEADER_NAMES, LEAVE_OUT, Bounds
from bascule.spark.spelling import named, spelled
from bascule.spark.usage import nearest, usage

KEPT: Final = ("value", "key", "headers", "subject", "reply", "id")
"""Columns of a record that a row of the sink has too."""
TIMES: Final = ("timestamp", "timestamp_ns", "origin_time")
"""Columns of which one becomes the time at the origin."""
PLACE: Final = ("stream", "incarnation", "partition", "offset")
DERIVED: Final = ("date", "bucket")
"""Columns of an archive that follow from others: it is partitioned by them."""
_RECEIVED: Final = "the target stores its own, and a record without origin_time gets this one as that"
_NEEDS_NO_NAMING: Final = {
    "origin_time": "a record without it gets the time at which the source received it",
    **dict.fromkeys(("timestamp", "timestamp_ns"), _RECEIVED),
    **dict.fromkeys(PLACE, "the target gives each record its own"),
    **dict.fromkeys(DERIVED, "it follows from other columns"),
}
"""Columns of a source that nobody has to leave out, and why."""
WILDCARDS: Final = r"(^|\.)[*>](\.|$)"
"""Matches a subject that is a pattern of NATS."""
ROW_BYTES: Final = 64
"""Counted for each row beside its content."""


@dataclass(frozen=True)
class Shape:
    """How records become rows.

    Attributes:
        columns: that are read, in order; `offset` is among them.
        keeps_partition: whether rows go to the partition that they are from.
        may_lose_names: whether headers may be written whose names are not known.
        bounds: of which the times apply here.
        leave_out: how the user spells the option, for errors of tasks.
    """

    columns: tuple[str, ...]
    keeps_partition: bool
    may_lose_names: bool
    bounds: Bounds
    leave_out: str = LEAVE_OUT.name

    def rows(self, batch: Any, partition: int) -> tuple[Any, Any]:
        """The rows of records, and the offset of each.

        Args:
            batch: records, with `columns`.
            partition: that they are from.

        Raises:
            StateError: a header has a name that is not known, and it may not be lost.
        """
        pa: Any = import_module("pyarrow")
        batch = in_time(batch, self.bounds)
        kept = [name for name in KEPT if name in self.columns]
        if "headers" in kept and not self.may_lose_names:
            _check_names(batch, self.leave_out)
        schema = arrow_schema(kept)
        arrays = [batch.column(name).cast(schema.field(name).type) for name in kept]
        if "subject" in kept:
            arrays[kept.index("subject")] = _without_wildcards(arrays[kept.index("subject")])
        arrays.append(self._origin(batch))
        names = [*kept, "origin_time"]
        if self.keeps_partition:
            arrays.append(pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows))
            names.append("partition")
        return pa.RecordBatch.from_arrays(arrays, names=names), batch.column("offset")

    def _origin(self, batch: Any) -> Any:
        """The time at the origin; where there is none, that of receipt, as exactly as it is known."""
        pa: Any = import_module("pyarrow")
        pc: Any = import_module("pyarrow.compute")
        kind = pa.timestamp("ns", "UTC")
        exact = "timestamp_ns" in self.columns
        received = batch.column("timestamp_ns" if exact else "timestamp").cast(kind)
        if "origin_time" not in self.columns:
            return received
        return pc.coalesce(batch.column("origin_time").cast(kind), received)


@dataclass(frozen=True)
class Fit:
    """What becomes of the columns of a source.

    Attributes:
        columns: to read, in order.
        lost: sentences about what a replay does not keep.
        refused: sentences about what must be left out first; with one of them nothing is replayed.
    """

    columns: tuple[str, ...]
    lost: tuple[str, ...]
    refused: tuple[str, ...]


def fit_of(there: Sequence[str], leave_out: Sequence[str]) -> Fit:
    """What becomes of columns.

    Args:
        there: names of the source's columns.
        leave_out: as the option says.

    Raises:
        UsageError: `leave_out` names something else than a column that may be left out, or `value` or `timestamp` is
            missing.
    """
    extra = [name for name in there if name not in (*KEPT, *TIMES, *PLACE, *DERIVED)]
    missing = [name for name in KEPT if name not in there]
    for name in leave_out:
        _check_may_be_lost(name, (*[each for each in KEPT if each != "value"], *extra, HEADER_NAMES))
    for name in ("value", "timestamp", "offset", "partition"):
        if name not in there:
            raise usage(f"the source has no column {name}, without which nothing can be replayed")
    refused = [
        f"column {name} is not one of a record: name it in {spelled(LEAVE_OUT.name)} to lose it"
        for name in extra
        if name not in leave_out
    ]
    refused += [
        f"the source has no column {name}: name it in {spelled(LEAVE_OUT.name)} to lose it; archive(columns=…) keeps "
        "it from now on"
        for name in missing
        if name not in leave_out
    ]
    lost = ["offset and incarnation: the target gives its own", "timestamp: it becomes origin_time where there is none"]
    if "headers" in there and "headers" not in leave_out:
        lost.append("kinds of headers: names become text, values become bytes")
    lost += [f"{name}: left out" for name in leave_out]
    read = [name for name in (*KEPT, *TIMES, "offset") if name in there and name not in leave_out]
    return Fit(tuple(read), tuple(lost), tuple(refused))


def _check_may_be_lost(name: str, possible: Sequence[str]) -> None:
    """Refuse a name that is not among those that may be lost, with the reason if it is a column of records."""
    given = f"{named(LEAVE_OUT.name)} names {name!r}"
    if name == "value":
        raise usage(f"{given}: a record without its value is another record; leave out its key, or another column")
    if (reason := _NEEDS_NO_NAMING.get(name)) is not None:
        raise usage(f"{given}, which needs no naming: {reason}; remove it there")
    if name not in possible:
        raise usage(f"{given}{nearest(name, possible)}: it may name {', '.join(possible)}")


def fitting(rows: Any, left_rows: int, left_bytes: int) -> tuple[int, int]:
    """How many rows of a batch fit, from its first on, and their bytes."""
    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
    if not rows.num_rows:
        return 0, 0
    total = pc.cumulative_sum(row_bytes(rows))
    within = pc.sum(pc.less_equal(total, pa.scalar(left_bytes, pa.int64()))).as_py() or 0
    count = min(int(within), left_rows)
    return count, int(total[count - 1].as_py()) if count else 0


def row_bytes(rows: Any) -> Any:
    """The bytes of each row, as int64: its content, and something for the rest."""
    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
    found = pa.repeat(pa.scalar(ROW_BYTES, pa.int64()), rows.num_rows)
    for name in ("value", "key", "subject", "reply"):
        if name in rows.schema.names:
            found = pc.add(found, pc.fill_null(pc.binary_length(rows.column(name)), 0).cast(pa.int64()))
    if "headers" in rows.schema.names:
        found = pc.add(found, _header_bytes(rows.column("headers")))
    return found


def in_time(batch: Any, bounds: Bounds) -> Any:
    """The records of a batch that were received within bounds."""
    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
    since, until = bounds.since_us, bounds.until_us
    if since is None and until is None:
        return batch
    times = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    chosen = pc.greater_equal(times, pa.scalar(since if since is not None else -(2**62)))
    if until is not None:
        chosen = pc.and_(chosen, pc.less(times, pa.scalar(until)))
    return batch.filter(chosen)


def _header_bytes(headers: Any) -> Any:
    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
    entries = headers.flatten()
    each = pa.repeat(pa.scalar(8, pa.int64()), len(entries))
    for name in ("key", "value"):
        each = pc.add(each, pc.fill_null(pc.binary_length(pc.struct_field(entries, name)), 0).cast(pa.int64()))
    sums = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(each)])
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(headers), 0).cast(pa.int64()))
    totals = sums.take(ends)
    before = pa.concat_arrays([pa.array([0], pa.int64()), totals.slice(0, len(totals) - 1)]) if len(totals) else totals
    return pc.subtract(totals, before)


def _without_wildcards(subjects: Any) -> Any:
    """The subjects, null where nothing can be published on one: a record whose client named none has that of its
    stream, which may be a pattern. Such a row gets the subject of the target.
    """
    pc: Any = import_module("pyarrow.compute")
    return pc.if_else(pc.match_substring_regex(subjects, WILDCARDS), None, subjects)


def _check_names(batch: Any, leave_out: str) -> None:
    pc: Any = import_module("pyarrow.compute")
    names = pc.struct_field(batch.column("headers").flatten(), "key")
    if names.null_count:
        offsets = batch.column("offset")
        text = (
            f"of offsets {offsets[0].as_py()} to {offsets[-1].as_py()} {names.null_count} headers have names that are "
            f"not text, and the source has only their values: add {HEADER_NAMES} to {leave_out} to write these alone"
        )
        raise StateError("record_invalid", text)
