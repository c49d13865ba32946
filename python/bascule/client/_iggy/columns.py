"""Polled messages in columns, as the native core returns those of other protocols. No I/O."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from bascule.client._iggy.wire import Message
from bascule.errors import UsageError

__all__ = ["Columns"]

NS_PER_US: Final = 1000


class Columns:
    """n ≥ 1 messages; the methods are those of `bascule.engine.RecordBatch`. The protocol shows no keys, subjects and
    reply subjects: keys are `None`, the others empty.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        """Of one partition, ascending."""
        self._messages: Final = messages

    def __len__(self) -> int:
        return len(self._messages)

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        try:
            arrow: Any = import_module("pyarrow")
        except ImportError as missing:
            text = "a batch that came over Iggy's protocol needs pyarrow for this: pip install 'bascule[arrow]'"
            raise UsageError("unimplemented", text) from missing
        schema = _schema(arrow)
        columns: list[Any] = [
            self.offsets(),
            self.timestamps(),
            self.keys(),
            self.values(),
            self.subjects(),
            [[{"key": name, "value": value} for name, value in item.headers] for item in self._messages],
            [None] * len(self),
            self.origin_times() or [None] * len(self),
        ]
        arrays = [arrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        batch = arrow.record_batch(arrays, schema=schema)
        found: tuple[object, object] = batch.__arrow_c_array__(requested_schema)
        return found

    def offsets(self) -> list[int]:
        """Offset of each message."""
        return [item.offset for item in self._messages]

    def timestamps(self) -> list[int]:
        """When the broker received each message, nanoseconds since 1970, in whole microseconds."""
        return [item.timestamp_us * NS_PER_US for item in self._messages]

    def keys(self) -> list[bytes | None]:
        """`None` for each message."""
        return [None] * len(self)

    def values(self) -> list[bytes | None]:
        """Payload of each message."""
        return [item.payload for item in self._messages]

    def subjects(self) -> list[str]:
        """An empty text for each message."""
        return [""] * len(self)

    def headers(self) -> list[list[tuple[str, bytes]]]:
        """Names and values; a value has the bytes of its kind."""
        return [item.headers for item in self._messages]

    def replies(self) -> list[str] | None:
        """`None`: no message has one."""
        return None

    def origin_times(self) -> list[int | None] | None:
        """Nanoseconds since 1970; `None` where it is the time of receipt, as the protocol shows a missing one."""
        times = [item.origin_us * NS_PER_US if item.origin_us != item.timestamp_us else None for item in self._messages]
        return times if any(item is not None for item in times) else None


def _schema(arrow: Any) -> Any:
    """The schema of batches that the native core returns."""
    instant = arrow.timestamp("ns", "UTC")
    pair = arrow.struct([arrow.field("key", arrow.string()), arrow.field("value", arrow.binary(), nullable=False)])
    headers = arrow.list_(arrow.field("element", pair, nullable=False))
    return arrow.schema(
        [
            arrow.field("offset", arrow.int64(), nullable=False),
            arrow.field("timestamp", instant, nullable=False),
            arrow.field("key", arrow.binary()),
            arrow.field("value", arrow.binary()),
            arrow.field("subject", arrow.string(), nullable=False),
            arrow.field("headers", headers, nullable=False),
            arrow.field("reply", arrow.string()),
            arrow.field("origin_time", instant),
        ]
    )
