"""How a consumer of a group reads."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from bascule.client._core.types import OffsetReset
from bascule.errors import UsageError

__all__ = ["ConsumerConfig", "GroupStart"]

GroupStart: TypeAlias = Literal["earliest", "latest", "new", "error"]
"""Where a group begins in a partition without a stored position; "error" = raise an error instead."""

_STARTS: Final = ("earliest", "latest", "new", "error")


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerConfig:
    """Configuration of a consumer; the fields are the arguments of `Client.consumer`."""

    group: str
    consumer: str
    streams: tuple[str, ...]
    start: GroupStart
    commit_interval: float | None
    resume: bool
    batch_records: int
    subject: str | None = None
    auto_offset_reset: OffsetReset = "error"

    def __post_init__(self) -> None:
        """Check what can be checked here.

        Raises:
            UsageError: code `invalid_argument`.
        """
        if self.start not in _STARTS:
            raise UsageError("invalid_argument", f'start is "earliest", "latest", "new" or "error", not {self.start!r}')
        if self.commit_interval is not None and not self.commit_interval > 0:
            text = f"commit_interval is a number of seconds above 0, or None, not {self.commit_interval}"
            raise UsageError("invalid_argument", text)
        if self.batch_records < 1:
            raise UsageError("invalid_argument", f"batch_records is 1 or more, not {self.batch_records}")
