"""Records to be published, in columns. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from bascule import engine
from bascule.client._core.pipelined_publish import Outgoing
from bascule.client._core.types import Content, Headers
from bascule.errors import UsageError

__all__ = ["Columns"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """n ≥ 0 records, one entry each in every column; `None` = a column without entries."""

    values: Sequence[Content | None]
    keys: Sequence[Content | None] | None
    headers: Sequence[Headers | None] | None
    partitions: Sequence[int] | None
    subjects: Sequence[str | None] | None
    origin_times_ns: Sequence[int | None] | None

    def __post_init__(self) -> None:
        """Check the lengths.

        Raises:
            UsageError: code `invalid_argument`.
        """
        for field in fields(self):
            column: Sequence[object] | None = getattr(self, field.name)
            if column is not None and len(column) != len(self.values):
                text = f"there are {len(column)} {field.name} for {len(self.values)} values"
                raise UsageError("invalid_argument", text)

    def fill(self, batch: Outgoing, part: slice) -> None:
        """Copy the records of `part` into an empty batch.

        Raises:
            UsageError: codes `invalid_argument`, `too_large`.
            TypeError: a value is neither bytes nor text.
        """
        rows = (self.keys and self.keys[part], self.values[part], self.headers and self.headers[part])
        more = (self.subjects and self.subjects[part], self.origin_times_ns and self.origin_times_ns[part])
        with engine.native_errors():
            if isinstance(batch, engine.Outgoing):
                batch.fill(*rows, *more)
            else:
                batch.fill(*rows, self.partitions and self.partitions[part], *more)
