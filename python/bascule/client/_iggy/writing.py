"""Batches that a producer fills, sent over Iggy's protocol: one send has one partition, so a batch may take several."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from bascule.client._core.types import Content, Headers
from bascule.client._iggy import wire
from bascule.client._iggy.failures import unavailable_method
from bascule.client._iggy.wire import Sent
from bascule.errors import UsageError

__all__ = ["Pending", "message", "partitioning"]

NS_PER_US: Final = 1000


def as_bytes(name: str, content: Content) -> bytes:
    """Bytes, or a text as UTF-8.

    Raises:
        TypeError: neither bytes nor text.
    """
    if isinstance(content, str):
        return content.encode()
    if not isinstance(content, bytes | bytearray):  # pyright: ignore[reportUnnecessaryIsInstance] - from the caller
        raise TypeError(f"{name} is bytes or text, not {type(content).__name__}")
    return bytes(content)


def message(value: Content | None, headers: Headers | None, origin_time_ns: int | None = None) -> Sent:
    """A message.

    Raises:
        UsageError: code `unimplemented`: what the protocol cannot carry.
        TypeError: neither bytes nor text.
    """
    payload = b"" if value is None else as_bytes("value", value)
    if not payload:
        raise unavailable_method("an empty value or a tombstone")
    micros, rest = divmod(origin_time_ns or 0, NS_PER_US)
    if rest or micros < 0:
        raise UsageError(
            "invalid_argument", f"origin_time_ns is {origin_time_ns}: Iggy has whole microseconds since 1970"
        )
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers or ())
    return Sent(payload, tuple((name, as_bytes(f"header {name!r}", item)) for name, item in pairs), micros)


def partitioning(key: Content | None, partition: int | None) -> int | bytes:
    """Where a message goes: by its key, to a partition by number, or as the broker chooses.

    Raises:
        UsageError: code `unimplemented`: a key and a number, since a message has no key of its own.
    """
    wanted = b"" if key is None else as_bytes("key", key)
    if not wanted:
        return wire.BALANCED if partition is None else partition
    if partition is not None:
        raise unavailable_method("a key together with a partition")
    return wire.by_key(wanted)


class Pending:
    """A batch of a producer; the methods are those of `bascule.engine.Outgoing` that `Producer` uses."""

    def __init__(self, partition: int | None) -> None:
        """`partition`: of all records; `None` = by key, or as the broker chooses."""
        self._partition: Final = partition
        self._rows: Final[list[tuple[int | bytes, Sent]]] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def partition(self) -> int:
        """Number of the partition; −1 = the broker chooses."""
        return -1 if self._partition is None else self._partition

    def push(self, key: Content | None, value: Content | None, headers: Headers | None) -> int:
        """Add a record; returns the bytes of all values."""
        row = partitioning(key, self._partition), message(value, headers)
        self._rows.append(row)
        self._bytes += len(row[1].payload)
        return self._bytes

    def fill(
        self,
        keys: Sequence[Content | None] | None,
        values: Sequence[Content | None],
        headers: Sequence[Headers | None] | None,
    ) -> int:
        """Add records; returns the bytes of all values."""
        if any(column is not None and len(column) != len(values) for column in (keys, headers)):
            raise ValueError(f"keys and headers are as many as the {len(values)} values")
        empty = [None] * len(values)
        for key, value, pairs in zip(keys or empty, values, headers or empty, strict=True):
            self.push(key, value, pairs)
        return self._bytes

    def places(self) -> list[tuple[int, int, int]]:
        """−1, 0 and the partition for each record: the protocol reports no offset and no time."""
        return [(-1, 0, target if isinstance(target, int) else -1) for target, _ in self._rows]

    def sends(self, most: int) -> list[tuple[int | bytes, list[Sent]]]:
        """The sends, in order: records that follow each other to one target, of at most `most` bytes of values."""
        found = list[tuple[int | bytes, list[Sent]]]()
        for target, rows in groupby(self._rows, key=lambda row: row[0]):
            part, size = list[Sent](), 0
            for _, item in rows:
                if part and size + len(item.payload) > most:
                    found.append((target, part))
                    part, size = [], 0
                part.append(item)
                size += len(item.payload)
            found.append((target, part))
        return found
