"""Printing records as they come: a writer for each form, begun with nothing and ended with `close`."""

import base64
import csv
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from enum import StrEnum
from typing import Final, Protocol

import yaml

from bascule.cli.output import BASE64_MARK, OutputFormat, plain, render, text_of
from bascule.cli.results import Message
from bascule.client import Record
from bascule.errors import UsageError

__all__ = ["RecordFormat", "RecordWriter", "record_writer"]


class RecordFormat(StrEnum):
    """How records are printed."""

    TEXT = "text"
    RAW = "raw"
    BASE64 = "base64"
    HEX = "hex"
    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    YAML = "yaml"
    CSV = "csv"


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

    def __init__(self, form: RecordFormat, separator: str | None) -> None:
        self._encode = _ENCODINGS[form]
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
        value = self._encode(record.value)
        return (value if self._separator is None else (record.key or b"") + self._separator + value) + self._end


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
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        self._begun = False

    def rows(self, messages: Sequence[Message]) -> None:
        self._begin()
        for row in messages:
            self._writer.writerow(_csv_cell(value) for value in plain(row).values())

    def close(self) -> None:
        self._begin()

    def _begin(self) -> None:
        if not self._begun:
            names = [item.name for item in fields(Message)]
            self._begun = True
            self._writer.writerow(names)


def _csv_cell(value: object) -> str:
    """Text that begins as the mark of bytes does goes as bytes, so that `produce` reads what was written."""
    if isinstance(value, str) and value.startswith(BASE64_MARK):
        value = {"base64": base64.b64encode(value.encode()).decode()}
    return text_of(value)


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
            render(rows, OutputFormat.TABLE)


def record_writer(form: RecordFormat, separator: str | None = None) -> RecordWriter:
    """The writer of a form.

    Args:
        form: the form.
        separator: stands between key and value; only where values are printed alone, one a line.

    Raises:
        UsageError: code `invalid_argument`: a separator with another form.
    """
    if separator is not None and (form not in _ENCODINGS or form is RecordFormat.RAW):
        text = f"--key-separator goes with --output text, base64 and hex, not with {form}"
        raise UsageError("invalid_argument", text)
    if form in _ENCODINGS:
        return _Values(form, separator)
    writers: dict[RecordFormat, Callable[[], RecordWriter]] = {
        RecordFormat.TABLE: _Table,
        RecordFormat.JSON: _Json,
        RecordFormat.NDJSON: _NdJson,
        RecordFormat.YAML: _Yaml,
        RecordFormat.CSV: _Csv,
    }
    return writers[form]()
