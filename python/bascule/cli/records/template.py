r"""Output templates of `consume`: `%p` partition, `%o` offset, `%k` key, `%h` headers, `%v` value, `%t` time, `%s`
subject, `%%` a percent sign; `\n`, `\t`, `\r`, `\0` and `\\` as usual.
"""

import json
import re
from collections.abc import Callable
from typing import Final

from bascule.cli.render.output import plain
from bascule.cli.render.results import header_document, time_text
from bascule.client import Record
from bascule.errors import UsageError

__all__ = ["Template"]

_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PARTS: Final = re.compile(r"%(.?)|\\(.?)|([^%\\]+)", re.DOTALL)
_FIELDS: Final[dict[str, Callable[[int, Record, bytes], bytes]]] = {
    "p": lambda partition, _record, _null: b"%d" % partition,
    "o": lambda _partition, record, _null: b"%d" % record.offset,
    "k": lambda _partition, record, _null: record.key or b"",
    "h": lambda _partition, record, _null: _headers(record),
    "v": lambda _partition, record, null: null if record.value is None else record.value,
    "t": lambda _partition, record, _null: time_text(record.timestamp_ns).encode(),
    "s": lambda _partition, record, _null: record.subject.encode(),
}


class Template:
    """A checked template. Each record ends with a line end, unless the template ends with one."""

    def __init__(self, text: str, null: bytes) -> None:
        """Parse a template.

        Args:
            text: see the module.
            null: printed for a null value.

        Raises:
            UsageError: code `invalid_argument`, naming the invalid part.
        """
        self._null: Final = null
        self._parts: Final = [_part(found, text) for found in _PARTS.finditer(text)]
        if self._parts[-1:] != [b"\n"]:
            self._parts.append(b"\n")

    def line(self, partition: int, record: Record) -> bytes:
        """The text of one record."""
        parts = (part if isinstance(part, bytes) else part(partition, record, self._null) for part in self._parts)
        return b"".join(parts)


def _part(found: "re.Match[str]", text: str) -> bytes | Callable[[int, Record, bytes], bytes]:
    field, escape, literal = found.groups()
    if literal is not None:
        return literal.encode()
    if field == "%":
        return b"%"
    if field in _FIELDS:
        return _FIELDS[field]
    if escape in _ESCAPES:
        return _ESCAPES[escape]
    known = ", ".join(f"%{name}" for name in _FIELDS)
    raise UsageError(
        "invalid_argument",
        f'--output "{text}": "{found[0]}" is not valid; use {known}, %% and \\n, \\t, \\r, \\0, \\\\',
    )


def _headers(record: Record) -> bytes:
    document = header_document(record.headers)
    return json.dumps(plain(document), ensure_ascii=False, separators=(",", ":")).encode()
