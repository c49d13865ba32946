"""A batch of records in columns, as received from the broker."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import repeat
from typing import Any, Final, cast

from bascule import engine
from bascule._text import counted
from bascule.client._core.types import Record
from bascule.errors import UsageError

__all__ = ["Batch"]

_record: Final = cast("Callable[[tuple[Any, ...]], Record]", partial(cast("Any", tuple).__new__, Record))
"""As `Record._make`, but faster, because it runs no Python code."""


class Batch:
    """n ≥ 1 records of one partition, ascending by offset. Immutable; safe to share between threads.

    Libraries with the Arrow PyCapsule interface (pyarrow, polars, duckdb, …) read a batch without copying it:
    `pyarrow.record_batch(batch)`. Columns: offset, timestamp, key, value, subject, headers, reply,
    origin_time.
    """

    __slots__ = ("_generation", "_native", "incarnation", "partition", "stream")

    def __init__(
        self, native: engine.RecordBatch, stream: str, partition: int, incarnation: int = 0, generation: int = 0
    ) -> None:
        """Wrap a batch of the native core. `generation`: of the group that a member received it in; 0 = not known."""
        self._native: Final = native
        self.stream: Final = stream
        self.partition: Final = partition
        self._generation: Final = generation
        self.incarnation: Final = incarnation
        """Incarnation of the partition that the offsets belong to; a purge begins a new one. 0 = not requested."""

    def __len__(self) -> int:
        return len(self._native)

    def __iter__(self) -> Iterator[Record]:
        columns = (
            self.offsets,
            self._native.timestamps(),
            self._native.keys(),
            self._native.values(),
            self._native.subjects(),
            self._native.headers(),
            self._native.replies() or repeat(""),
            self._native.origin_times() or repeat(None),
        )
        return map(_record, zip(*columns, strict=False))

    def __repr__(self) -> str:
        records, offsets = counted(len(self), "record"), self.offsets
        return f"<Batch of {self.stream}/{self.partition}: {records}, offsets {offsets[0]} to {offsets[-1]}>"

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        return self._native.__arrow_c_array__(requested_schema)

    def is_from_before(self, generation: int) -> bool:
        """Whether a group's member received it in an earlier generation."""
        return self._generation < generation

    @property
    def offsets(self) -> list[int]:
        """Offset of each record, ascending."""
        return self._native.offsets()

    @property
    def values(self) -> list[bytes | None]:
        """Value of each record; `None` = a tombstone."""
        return self._native.values()

    @property
    def keys(self) -> list[bytes | None]:
        """Key of each record."""
        return self._native.keys()

    def to_arrow(self) -> Any:
        """The batch as a `pyarrow.RecordBatch`; nothing is copied.

        Raises:
            UsageError: code `unimplemented`: pyarrow is not installed.
        """
        try:
            pyarrow = import_module("pyarrow")
        except ImportError as missing:
            raise UsageError("unimplemented", "to_arrow needs pyarrow: pip install 'bascule[arrow]'") from missing
        return pyarrow.record_batch(self)

    def to_pylist(self) -> list[dict[str, Any]]:
        """The records as dictionaries with the fields of `Record`."""
        return [record._asdict() for record in self]
