"""Reads records from arguments, files and pipes, in all formats of `produce`. Does not use a broker.

Lines are returned as soon as they are complete, in batches of those that have arrived: a slow pipe is published line by
line, a file in large batches.
"""

import base64
import binascii
import contextlib
import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, BinaryIO, Final, NamedTuple, cast

from bascule._json import load_json
from bascule.cli.render.output import BASE64_MARK
from bascule.cli.render.quoting import shown
from bascule.errors import UsageError

__all__ = ["BATCH", "InputFormat", "Item", "Source", "items", "of_arguments"]

BATCH: Final = 4096
"""Maximum number of records of one batch."""
CHUNK: Final = 1 << 16
MAX_LINE: Final = 64 << 20
_COLUMNS: Final = frozenset({"value", "key", "headers", "partition"})
_KEPT: Final = frozenset({"offset", "time", "subject", "origin_time"})
"""Further fields printed by `consume`; the broker assigns new values, unless `--keep` names the field."""
NULL_CELL: Final = '{"base64": null}'
"""CSV cell of a null value; an empty cell is an empty value."""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")


class InputFormat(StrEnum):
    """Formats of the input."""

    TEXT = "text"
    RAW = "raw"
    JSON = "json"
    NDJSON = "ndjson"
    BASE64 = "base64"
    HEX = "hex"
    CSV = "csv"


class Item(NamedTuple):
    """One record to be published."""

    value: bytes | None
    """`None` = a tombstone."""
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    partition: int | None = None
    """Partition that the record names; `None` = none."""
    subject: str | None = None
    """Subject that the record names; `None` = none."""
    time_ns: int | None = None
    """Origin time, else time of receipt, that the record names; `None` = none."""


@dataclass(frozen=True, slots=True)
class Source:
    """Options for all records of one source."""

    form: InputFormat = InputFormat.TEXT
    key: bytes | None = None
    separator: bytes | None = None
    """Text between key and value of a line."""
    headers: Sequence[tuple[str, bytes]] = ()
    """Headers for all records; they replace a record's headers of the same name."""
    null: bytes | None = None
    """Line that stands for a null value."""
    keeps_subject: bool = False
    keeps_time: bool = False
    """Fields of the record that are stored with it."""

    def item(self, line: bytes, where: str) -> Item:
        """The record of one line."""
        if self.form is InputFormat.NDJSON:
            return self.document(_parsed(line, where), where)
        key = self.key
        if self.separator is not None:
            before, found, after = line.partition(self.separator)
            if not found:
                text = f'{where} "{shown(line)}" has no key separator "{self.separator.decode(errors="replace")}"'
                raise UsageError("invalid_argument", text)
            key, line = before, after
        value = None if line == self.null else _decoded(self.form, line, where)
        return Item(value, key, self.headers)

    def document(self, document: object, where: str) -> Item:
        """The record of a JSON object, as printed by `consume`."""
        if not isinstance(document, dict) or "value" not in document:
            raise UsageError("invalid_argument", f'{where} is not a JSON object with a "value"')
        row = cast("dict[str, Any]", document)
        unknown = sorted(set(row) - _COLUMNS - _KEPT)
        if unknown:
            text = f'{where} has the unknown field "{unknown[0]}": known are {", ".join(sorted(_COLUMNS | _KEPT))}'
            raise UsageError("invalid_argument", text)
        chosen = {name for name, _ in self.headers}
        own = [pair for pair in _headers(row.get("headers"), where) if pair[0] not in chosen]
        partition = row.get("partition")
        if partition is not None and (type(partition) is not int or partition < 0):
            raise UsageError("invalid_argument", f"{where}: partition is {partition!r}, not a number from 0")
        key, value = row.get("key"), row["value"]
        subject = row.get("subject") if self.keeps_subject else None
        if not isinstance(subject, str | None):
            raise UsageError("invalid_argument", f"{where}: subject is {subject!r}, not text")
        return Item(
            None if value is None else _bytes(value, where),
            self.key if key is None else _bytes(key, where),
            (*own, *self.headers),
            partition,
            subject or None,
            _time_ns(row.get("origin_time") or row.get("time"), where) if self.keeps_time else None,
        )


def of_arguments(values: Iterable[str], source: Source) -> Iterator[list[Item]]:
    """One record per argument.

    Raises:
        UsageError: code `invalid_argument`, naming the argument.
    """
    if source.form in {InputFormat.JSON, InputFormat.CSV}:
        text = f"--format {source.form} is read from --file or standard input, not from arguments"
        raise UsageError("invalid_argument", text)
    yield [source.item(value.encode(), f"record {number}") for number, value in enumerate(values, start=1)]


def items(stream: BinaryIO, source: Source) -> Iterator[list[Item]]:
    """The records of a file or a pipe, in batches of 1 to `BATCH`.

    Raises:
        UsageError: code `invalid_argument`, naming the line.
    """
    match source.form:
        case InputFormat.RAW:
            yield [Item(stream.read(), source.key, source.headers)]
        case InputFormat.JSON:
            yield from _batches(_of_json(stream, source))
        case InputFormat.CSV:
            yield from _batches(_of_csv(stream, source))
        case _:
            number = 0
            for lines in _lines(stream):
                yield [source.item(line, f"line {number + place}") for place, line in enumerate(lines, start=1)]
                number += len(lines)


def _lines(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Complete lines as they arrive, without line ends; the last one needs no line end."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    begun = bytearray()
    while chunk := read(CHUNK):
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = bytes(begun) + lines[0]
            begun.clear()
        begun += rest
        if any(len(line) > MAX_LINE for line in (begun, *lines[:1])):
            raise UsageError("invalid_argument", f"a line is longer than {MAX_LINE} bytes", {"limit": MAX_LINE})
        for begin in range(0, len(lines), BATCH):
            yield [line.removesuffix(b"\r") for line in lines[begin : begin + BATCH]]
    if begun:
        yield [bytes(begun).removesuffix(b"\r")]


def _of_json(stream: BinaryIO, source: Source) -> Iterator[Item]:
    document = _parsed(stream.read(), "the input")
    rows = cast("list[object]", document) if isinstance(document, list) else [document]
    for number, row in enumerate(rows, start=1):
        yield source.document(row, f"record {number}")


def _of_csv(stream: BinaryIO, source: Source) -> Iterator[Item]:
    csv.field_size_limit(MAX_LINE)  # the default limit, 128 KiB, is below the size of a record
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    try:
        yield from _of_rows(csv.DictReader(text, strict=True), source)
    except (csv.Error, UnicodeDecodeError) as wrong:
        raise UsageError("invalid_argument", f"the input is not valid CSV in UTF-8: {wrong}") from wrong
    finally:
        # the caller closes the stream
        text.detach()


def _of_rows(reader: "csv.DictReader[str]", source: Source) -> Iterator[Item]:
    if "value" not in (reader.fieldnames or ()):
        names = ", ".join(sorted(_COLUMNS))
        raise UsageError("invalid_argument", f'the first line has no column "value"; known columns are {names}')
    for row in reader:
        where = f"line {reader.line_num}"
        if None in row or any(value is None for value in row.values()):
            raise UsageError("invalid_argument", f"{where} has another number of columns than the first")
        yield source.document(_csv_document(row, where), where)


def _csv_document(row: Mapping[str, str], where: str) -> dict[str, Any]:
    """The fields of a row. A cell holds text, or `{"base64": …}` for bytes and null, as written by `consume`."""
    document: dict[str, Any] = {name: _cell(value) for name, value in row.items() if name in {"value", "key"}}
    if not row.get("key"):
        document.pop("key", None)
    document |= {name: value for name, value in row.items() if name in _KEPT and value}
    if row.get("headers"):
        document["headers"] = _parsed(row["headers"].encode(), where)
    if row.get("partition"):
        number = row["partition"]
        document["partition"] = int(number) if re.fullmatch(r"[0-9]{1,19}", number) else number
    return document


def _cell(text: str) -> object:
    if text == NULL_CELL:
        return None
    if not text.startswith(BASE64_MARK):
        return text
    try:
        found: object = load_json(text)
    except (ValueError, RecursionError):
        return text
    return found


def _batches(rows: Iterator[Item]) -> Iterator[list[Item]]:
    batch: list[Item] = []
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _decoded(form: InputFormat, line: bytes, where: str) -> bytes:
    try:
        if form is InputFormat.BASE64:
            return base64.b64decode(line, validate=True)
        if form is InputFormat.HEX:
            return bytes.fromhex(line.decode("ascii"))
    except (binascii.Error, ValueError):
        raise UsageError("invalid_argument", f'{where} "{shown(line)}" is not valid {form}') from None
    return line


def _bytes(value: object, where: str) -> bytes:
    """A value as printed by `consume`: text or `{"base64": …}`; other JSON as its compact text."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(cast("dict[str, object]", value)) == ["base64"]:
        text = cast("dict[str, object]", value)["base64"]
        if isinstance(text, str):
            return _decoded(InputFormat.BASE64, text.encode(), f"{where}:")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _headers(document: object, where: str) -> list[tuple[str, bytes]]:
    """Headers as an object, or as pairs, in which names may repeat and may be bytes."""
    if document is None:
        return []
    pairs: list[object] | None = None
    if isinstance(document, dict):
        pairs = list(cast("dict[str, object]", document).items())
    elif isinstance(document, list):
        pairs = cast("list[object]", document)
    found: list[tuple[str, bytes]] = []
    for pair in pairs or ():
        cells = tuple(cast("Sequence[object]", pair)) if isinstance(pair, list | tuple) else ()
        if len(cells) != 2:
            pairs = None
            break
        name, value = (_bytes(cell, where) for cell in cells)
        found.append((name.decode("utf-8", "surrogateescape"), value))
    if pairs is None:
        text = f"{where}: headers is not a JSON object of names and values, nor a list of such pairs"
        raise UsageError("invalid_argument", text)
    return found


def _time_ns(text: object, where: str) -> int | None:
    """A time as written by `consume`, in nanoseconds; a time without a zone is local time."""
    if text is None:
        return None
    found = _TIME.fullmatch(text) if isinstance(text, str) else None
    nanoseconds = None
    if found is not None:
        with contextlib.suppress(ValueError, OverflowError):
            time = datetime.fromisoformat(found[1] + (found[3] or ""))
            nanoseconds = (time.astimezone(UTC) - _EPOCH) // timedelta(seconds=1) * 10**9
            nanoseconds += int((found[2] or "").ljust(9, "0"))
    if nanoseconds is None:
        wanted = "not a time like 2026-01-31T12:00:00.000000000Z"
        raise UsageError("invalid_argument", f"{where}: time is {text!r}, {wanted}")
    if not -(2**63) <= nanoseconds < 2**63:
        raise UsageError("invalid_argument", f"{where}: time is {text!r}, not between the years 1677 and 2262")
    return nanoseconds


def _parsed(text: bytes, where: str) -> object:
    try:
        return cast("object", load_json(text))
    except (ValueError, RecursionError) as wrong:
        raise UsageError("invalid_argument", f'{where} "{shown(text)}" is not valid JSON: {wrong}') from None
