"""Printing records as they come: a writer for each form, begun with nothing and ended with `close`."""

import base64
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final, Protocol, Self

import yaml

from bascule.cli.records.record_reader import NULL_CELL
from bascule.cli.records.template import Template
from bascule.cli.render.output import BASE64_MARK, OutputFormat, csv_line, plain, render, text_of
from bascule.cli.render.results import Message
from bascule.client import Record
from bascule.errors import UsageError

__all__ = ["RecordFormat", "RecordWriter", "record_format", "record_writer"]


class RecordFormat(StrEnum):
    """How records are printed. Besides there are templates."""

    TEXT = "text"
    RAW = "raw"
    BASE64 = "base64"
    HEX = "hex"
    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    YAML = "yaml"
    CSV = "csv"


def record_format(text: str) -> RecordFormat | str:
    """The form of this name; `-` = text; what has a percent sign is a template.

    Raises:
        UsageError: code `invalid_argument`.
    """
    if "%" in text:
        return text
    if text == "-":
        return RecordFormat.TEXT
    try:
        return RecordFormat(text)
    except ValueError:
        known = ", ".join(RecordFormat)
        raise UsageError(
            "invalid_argument", f'--output "{text}" is none of: {known}, or a template like "%k %v"'
        ) from None


class RecordWriter(Protocol):
    """Prints records, then whatever ends the form."""

    def write(self, partition: int, records: Sequence[Record]) -> None:
        """Print some of a partition."""
        ...

    def close(self) -> None:
        """Print the end. Idempotent."""
        ...


_ENCODINGS: Final[dict[RecordFormat, Callable[[bytes], bytes]]] = {
    RecordFormat.TEXT: bytes,
    RecordFormat.RAW: bytes,
    RecordFormat.BASE64: base64.b64encode,
    RecordFormat.HEX: lambda value: value.hex().encode(),
}


class _Values:
    """Values, each behind its key if that is wanted, one a line; raw without line ends."""

    def __init__(self, form: RecordFormat, separator: str | None, null: bytes) -> None:
        self._encode = _ENCODINGS[form]
        self._null = null
        self._separator = None if separator is None else separator.encode()
        self._end = b"" if form is RecordFormat.RAW else b"\n"

    def write(self, partition: int, records: Sequence[Record]) -> None:
        del partition
        sys.stdout.flush()
        sys.stdout.buffer.write(b"".join(self._line(record) for record in records))
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """Nothing ends it."""

    def _line(self, record: Record) -> bytes:
        value = self._null if record.value is None else self._encode(record.value)
        return (value if self._separator is None else (record.key or b"") + self._separator + value) + self._end


class _Lines:
    """Records as a template says."""

    def __init__(self, template: Template) -> None:
        self._template = template

    def write(self, partition: int, records: Sequence[Record]) -> None:
        sys.stdout.flush()
        sys.stdout.buffer.write(b"".join(self._template.line(partition, record) for record in records))
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """Nothing ends it."""


class _Rows:
    """What the structured forms share."""

    def write(self, partition: int, records: Sequence[Record]) -> None:
        self.rows([Message.of(record, partition) for record in records])

    def rows(self, messages: Sequence[Message]) -> None:
        """Print some."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing ends it."""


class _NdJson(_Rows):
    def rows(self, messages: Sequence[Message]) -> None:
        sys.stdout.write("".join(json.dumps(plain(row), ensure_ascii=False) + "\n" for row in messages))


class _Json(_Rows):
    """One array, written as it grows. What was begun is noted before it is written, with nothing between the two into
    which an interrupt could come: the array is whole however the command ends.
    """

    def __init__(self) -> None:
        self._before = "[\n"
        self._closed = False

    def rows(self, messages: Sequence[Message]) -> None:
        for row in messages:
            text = json.dumps(plain(row), ensure_ascii=False)
            text = self._before + text
            self._before = ",\n"
            sys.stdout.write(text)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            sys.stdout.write("[]\n" if self._before == "[\n" else "\n]\n")


class _Yaml(_Rows):
    """One list; an empty one is said at the end."""

    def __init__(self) -> None:
        self._any = False

    def rows(self, messages: Sequence[Message]) -> None:
        self._any = True
        sys.stdout.write(yaml.safe_dump([plain(row) for row in messages], sort_keys=False, allow_unicode=True))

    def close(self) -> None:
        if not self._any:
            self._any = True
            sys.stdout.write("[]\n")


class _Csv(_Rows):
    def __init__(self) -> None:
        self._begun = False

    def rows(self, messages: Sequence[Message]) -> None:
        self._begin()
        lines = (csv_line(_csv_cell(*cell) for cell in plain(row).items()) for row in messages)
        sys.stdout.write("".join(lines))

    def close(self) -> None:
        self._begin()

    def _begin(self) -> None:
        if not self._begun:
            names = [item.name for item in fields(Message)]
            self._begun = True
            sys.stdout.write(csv_line(names))


def _csv_cell(name: str, value: object) -> str:
    """Text that begins as the mark of bytes does goes as bytes, and a null value as that mark without any, so that
    `produce` reads what was written.
    """
    if name == "value" and value is None:
        return NULL_CELL
    if isinstance(value, str) and value.startswith(BASE64_MARK):
        value = {"base64": base64.b64encode(value.encode()).decode()}
    return text_of(value)


@dataclass(frozen=True, slots=True)
class _TableRow:
    """A record for people: a null value is said, and a time at the origin is left to the other forms."""

    partition: int
    offset: int
    time: str
    key: bytes | None
    value: bytes
    subject: str
    headers: object

    @classmethod
    def of(cls, row: Message) -> Self:
        value = b"null" if row.value is None else row.value
        return cls(row.partition, row.offset, row.time, row.key, value, row.subject, row.headers)


class _Table(_Rows):
    """Printed at the end, when the widths are known."""

    def __init__(self) -> None:
        self._rows: list[Message] | None = []

    def rows(self, messages: Sequence[Message]) -> None:
        if self._rows is not None:
            self._rows += messages

    def close(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            render([_TableRow.of(row) for row in rows], OutputFormat.TABLE)


def record_writer(form: RecordFormat | str, separator: str | None = None, null: str | None = None) -> RecordWriter:
    """The writer of a form.

    Args:
        form: the form, or a template.
        separator: stands between key and value; only where values are printed alone, one a line.
        null: stands for a null value where values are text; `None` = "null" for text and templates, nothing otherwise.

    Raises:
        UsageError: code `invalid_argument`: a separator or `null` with another form, or a template of no meaning.
    """
    is_template = not isinstance(form, RecordFormat)
    if null is not None and not is_template and form not in _ENCODINGS:
        raise UsageError("invalid_argument", f"--null goes with text, base64, hex, raw and templates, not with {form}")
    if separator is not None and (form not in _ENCODINGS or form is RecordFormat.RAW):
        text = f"--key-separator goes with --output text, base64 and hex, not with {form}"
        raise UsageError("invalid_argument", text)
    stands = (null if null is not None else "null" if is_template or form is RecordFormat.TEXT else "").encode()
    if is_template:
        return _Lines(Template(form, stands))
    if form in _ENCODINGS:
        return _Values(form, separator, stands)
    writers: dict[RecordFormat, Callable[[], RecordWriter]] = {
        RecordFormat.TABLE: _Table,
        RecordFormat.JSON: _Json,
        RecordFormat.NDJSON: _NdJson,
        RecordFormat.YAML: _Yaml,
        RecordFormat.CSV: _Csv,
    }
    return writers[form]()
