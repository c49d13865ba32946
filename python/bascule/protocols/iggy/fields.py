"""Fields of payloads. All integers are little-endian."""

import struct
from typing import TypeAlias

from bascule.protocols.iggy.numbering import meant, shown

__all__ = ["MAX_NAME_BYTES", "Identifier", "MalformedError", "Reader", "identifier", "long_text", "short_text"]

Identifier: TypeAlias = int | str
"""A number from 1, or a name of 1 to 255 bytes."""

MAX_NAME_BYTES = 255
"""What fits behind a length of one byte."""

_NUMERIC, _NAMED = 1, 2
_NUMBER_BYTES = 4


class MalformedError(ValueError):
    """A payload is not the command that it claims to be: status 3."""


class Reader:
    """Reads the fields of one payload in order."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def take(self, size: int, field: str) -> bytes:
        """The next `size` bytes.

        Raises:
            MalformedError: the payload ends before.
        """
        end = self._at + size
        if end > len(self._payload):
            left = len(self._payload) - self._at
            raise MalformedError(f"{field} takes {size} bytes, and {left} are left")
        taken = self._payload[self._at : end]
        self._at = end
        return taken

    def u8(self, field: str) -> int:
        """One byte."""
        return self.take(1, field)[0]

    def u32(self, field: str) -> int:
        """Four bytes."""
        return int.from_bytes(self.take(4, field), "little")

    def u64(self, field: str) -> int:
        """Eight bytes."""
        return int.from_bytes(self.take(8, field), "little")

    def flag(self, field: str) -> bool:
        """One byte, 0 or 1."""
        value = self.u8(field)
        if value > 1:
            raise MalformedError(f"{field} is {value}, and only 0 and 1 have a meaning")
        return value == 1

    def short_text(self, field: str) -> str:
        """Text behind a length of one byte; 0 to 255 bytes."""
        return _text(self.take(self.u8(field), field), field)

    def long_text(self, field: str) -> str:
        """Text behind a length of four bytes."""
        return _text(self.take(self.u32(field), field), field)

    def identifier(self, field: str) -> Identifier:
        """A number or a name."""
        kind, size = self.u8(field), self.u8(field)
        value = self.take(size, field)
        if kind == _NUMERIC and size == _NUMBER_BYTES and (number := meant(int.from_bytes(value, "little"))):
            return number
        if kind == _NAMED and size:
            return _text(value, field)
        raise MalformedError(f"{field} has kind {kind} and {size} bytes: neither a number from 1 nor a name")

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left."""
        return self._at == len(self._payload)

    def finish(self) -> None:
        """The payload has to end here.

        Raises:
            MalformedError: something is left.
        """
        if not self.is_at_end:
            raise MalformedError(f"{len(self._payload) - self._at} bytes follow the last field")


def _text(value: bytes, field: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise MalformedError(f"{field} is not UTF-8") from error


def short_text(value: str) -> bytes:
    """Text behind a length of one byte; at most 255 bytes."""
    encoded = value.encode()
    if len(encoded) > MAX_NAME_BYTES:
        raise ValueError(f"a name of {len(encoded)} bytes; at most {MAX_NAME_BYTES} can be shown")
    return bytes([len(encoded)]) + encoded


def long_text(value: str) -> bytes:
    """Text behind a length of four bytes."""
    encoded = value.encode()
    return struct.pack("<I", len(encoded)) + encoded


def identifier(value: Identifier) -> bytes:
    """A number from 1 or a name of 1 to 255 bytes, as `Reader.identifier` reads it."""
    if isinstance(value, int):
        return struct.pack("<BBI", _NUMERIC, _NUMBER_BYTES, shown(value))
    return bytes([_NAMED]) + short_text(value)
