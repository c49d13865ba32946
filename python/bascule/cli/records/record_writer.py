"""Printing records as they arrive: one writer for each format; `close` completes the output."""

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
    """Formats of records, in addition to templates."""

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
    """The format of this name; `-` = text; text with a percent sign is a template.

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
            "invalid_argument", f'--output "{text}" is not one of: {known}, or a template like "%k %v"'
        ) from None


class RecordWriter(Protocol):
    """Prints records; `close` completes the output."""

    def write(self, partition: int, records: Sequence[Record]) -> None:
        """Print records of a partition."""
        ...

    def close(self) -> None:
        """Complete the output. Idempotent."""
        ...


_ENCODINGS: Final[dict[RecordFormat, Callable[[bytes], bytes]]] = {
    RecordFormat.TEXT: bytes,
    RecordFormat.RAW: bytes,
    RecordFormat.BASE64: base64.b64encode,
    RecordFormat.HEX: lambda value: value.hex().encode(),
}


class _Values:
    """Prints values, optionally after their key, one per line; raw without line ends."""

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
        """The format has no end."""

    def _line(self, record: Record) -> bytes:
        value = self._null if record.value is None else self._encode(record.value)
        return (value if self._separator is None else (record.key or b"") + self._separator + value) + self._end


class _Lines:
    """Prints records by a template."""

    def __init__(self, template: Template) -> None:
        self._template = template

    def write(self, partition: int, records: Sequence[Record]) -> None:
        sys.stdout.flush()
        sys.stdout.buffer.write(b"".join(self._template.line(partition, record) for record in records))
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """The format has no end."""


class _Rows:
    """Base class of the structured formats."""

    def write(self, partition: int, records: Sequence[Record]) -> None:
        self.rows([Message.of(record, partition) for record in records])

    def rows(self, messages: Sequence[Message]) -> None:
        """Print records."""
        raise NotImplementedError

    def close(self) -> None:
        """The format has no end."""


class _NdJson(_Rows):
    def rows(self, messages: Sequence[Message]) -> None:
        sys.stdout.write("".join(json.dumps(plain(row), ensure_ascii=False) + "\n" for row in messages))


class _Json(_Rows):
    """One array, written record by record. The state changes before the write, so that the array is complete even if
    the command is interrupted.
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
    """One list, written record by record; an empty one is written by `close`."""

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
    """Text that begins with the mark of base64 is written as base64, and a null value as a special cell, so that
    `produce` can read all cells back.
    """
    if name == "value" and value is None:
        return NULL_CELL
    if isinstance(value, str) and value.startswith(BASE64_MARK):
        value = {"base64": base64.b64encode(value.encode()).decode()}
    return text_of(value)


@dataclass(frozen=True, slots=True)
class _TableRow:
    """A row for people: a null value is printed as `null`, and the origin time is left out."""

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
    """A table, printed by `close`, when the widths are known."""

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
    """The writer of a format.

    Args:
        form: the format, or a template.
        separator: printed between key and value; only for text, base64 and hex.
        null: printed for a null value; `None` = "null" for text and templates, nothing for base64, hex and raw.

    Raises:
        UsageError: code `invalid_argument`: a separator or `null` with another format, or an invalid template.
    """
    is_template = not isinstance(form, RecordFormat)
    if null is not None and not is_template and form not in _ENCODINGS:
        raise UsageError("invalid_argument", f"--null works with text, base64, hex, raw and templates, not with {form}")
    if separator is not None and (form not in _ENCODINGS or form is RecordFormat.RAW):
        text = f"--key-separator works with --output text, base64 and hex, not with {form}"
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
