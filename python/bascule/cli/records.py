"""Printing records as they come: a writer for each form, begun with nothing and ended with `close`."""

import csv
import json
import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

import yaml

from bascule.cli.output import OutputFormat, plain, render, text_of
from bascule.cli.results import Message
from bascule.client import Record

__all__ = ["RecordFormat", "RecordWriter", "record_writer"]

COLUMNS = ("offset", "time", "key", "value", "subject", "headers")


class RecordFormat(StrEnum):
    """How records are printed."""

    TEXT = "text"
    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    YAML = "yaml"
    CSV = "csv"


class RecordWriter(Protocol):
    """Prints records, then whatever ends the form."""

    def write(self, records: Iterable[Record]) -> None:
        """Print some."""
        ...

    def close(self) -> None:
        """Print the end."""
        ...


class _Text:
    """Values as they are, one a line."""

    def write(self, records: Iterable[Record]) -> None:
        sys.stdout.flush()
        sys.stdout.buffer.write(b"".join(record.value + b"\n" for record in records))
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """Nothing ends it."""


class _NdJson(_Text):
    def write(self, records: Iterable[Record]) -> None:
        rows = (json.dumps(plain(Message.of(record)), ensure_ascii=False) for record in records)
        sys.stdout.write("".join(f"{row}\n" for row in rows))


class _Json:
    """One array, written as it grows."""

    def __init__(self) -> None:
        self._between = "[\n"

    def write(self, records: Iterable[Record]) -> None:
        for record in records:
            sys.stdout.write(self._between + json.dumps(plain(Message.of(record)), ensure_ascii=False))
            self._between = ",\n"

    def close(self) -> None:
        sys.stdout.write("[]\n" if self._between == "[\n" else "\n]\n")


class _Yaml(_Text):
    """One list."""

    def write(self, records: Iterable[Record]) -> None:
        rows = [plain(Message.of(record)) for record in records]
        sys.stdout.write(yaml.safe_dump(rows, sort_keys=False, allow_unicode=True))


class _Csv(_Text):
    def __init__(self) -> None:
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        self._writer.writerow(COLUMNS)

    def write(self, records: Iterable[Record]) -> None:
        for record in records:
            self._writer.writerow(text_of(value) for value in plain(Message.of(record)).values())


class _Table:
    """Printed at the end, when the widths are known."""

    def __init__(self) -> None:
        self._rows: list[Message] = []

    def write(self, records: Iterable[Record]) -> None:
        self._rows += map(Message.of, records)

    def close(self) -> None:
        render(self._rows, OutputFormat.TABLE)


def record_writer(form: RecordFormat) -> RecordWriter:
    """The writer of a form."""
    writers: dict[RecordFormat, type[RecordWriter]] = {
        RecordFormat.TEXT: _Text,
        RecordFormat.TABLE: _Table,
        RecordFormat.JSON: _Json,
        RecordFormat.NDJSON: _NdJson,
        RecordFormat.YAML: _Yaml,
        RecordFormat.CSV: _Csv,
    }
    return writers[form]()
