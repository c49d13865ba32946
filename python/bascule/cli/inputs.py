"""Records out of arguments, files and pipes, in every form that `produce` takes. No broker.

What stands in a line comes as soon as the line is there, in batches of what has arrived: a pipe that trickles is
published as it trickles, a file in large pieces.
"""

import base64
import binascii
import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, BinaryIO, Final, NamedTuple, cast

from bascule.cli.output import BASE64_MARK
from bascule.cli.quoting import shown
from bascule.errors import UsageError

__all__ = ["BATCH", "InputFormat", "Item", "Source", "items", "of_arguments"]

BATCH: Final = 4096
"""Most records of one batch."""
CHUNK: Final = 1 << 16
MOST_LINE: Final = 64 << 20
_COLUMNS: Final = frozenset({"value", "key", "headers", "partition"})
_NOT_SENT: Final = frozenset({"offset", "time", "subject"})
"""What `consume` prints beside them and the broker gives each record anew."""


class InputFormat(StrEnum):
    """How records are written down."""

    TEXT = "text"
    RAW = "raw"
    JSON = "json"
    NDJSON = "ndjson"
    BASE64 = "base64"
    HEX = "hex"
    CSV = "csv"


class Item(NamedTuple):
    """One record to be published."""

    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] = {}
    partition: int | None = None
    """That the record itself names."""


@dataclass(frozen=True, slots=True)
class Source:
    """What all records of a source have in common."""

    form: InputFormat = InputFormat.TEXT
    key: bytes | None = None
    separator: bytes | None = None
    """Between key and value of a line."""
    headers: Mapping[str, bytes] = field(default_factory=dict[str, bytes])

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
        return Item(_decoded(self.form, line, where), key, self.headers)

    def document(self, document: object, where: str) -> Item:
        """The record of a JSON object, in the form in which `consume` prints it."""
        if not isinstance(document, dict) or "value" not in document:
            raise UsageError("invalid_argument", f'{where} is no JSON object with a "value"')
        row = cast("dict[str, Any]", document)
        unknown = sorted(set(row) - _COLUMNS - _NOT_SENT)
        if unknown:
            text = f'{where} has the unknown field "{unknown[0]}": known are {", ".join(sorted(_COLUMNS))}'
            raise UsageError("invalid_argument", text)
        headers: Any = row.get("headers") or {}
        if not isinstance(headers, dict):
            raise UsageError("invalid_argument", f"{where}: headers is no JSON object of names and values")
        named = {str(name): _bytes(value, where) for name, value in cast("dict[str, Any]", headers).items()}
        # what the broker adds to each record is not sent again
        own = {name: value for name, value in named.items() if name not in {"subject", "reply"}}
        partition = row.get("partition")
        if partition is not None and (type(partition) is not int or partition < 0):
            raise UsageError("invalid_argument", f"{where}: partition is {partition!r}, not a number from 0")
        key = row.get("key")
        chosen = self.key if key is None else _bytes(key, where)
        return Item(_bytes(row["value"], where), chosen, {**own, **self.headers}, partition)


def of_arguments(values: Iterable[str], source: Source) -> Iterator[list[Item]]:
    """One record an argument.

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
    """Whole lines as they come, without their ends; the last one needs none."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    begun = bytearray()
    while chunk := read(CHUNK):
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = bytes(begun) + lines[0]
            begun.clear()
        begun += rest
        if any(len(line) > MOST_LINE for line in (begun, *lines[:1])):
            raise UsageError("invalid_argument", f"a line is longer than {MOST_LINE} bytes", {"limit": MOST_LINE})
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
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    try:
        yield from _of_rows(csv.DictReader(text, strict=True), source)
    except (csv.Error, UnicodeDecodeError) as wrong:
        raise UsageError("invalid_argument", f"the input is no CSV in UTF-8: {wrong}") from wrong
    finally:
        # the stream is not ours to close
        text.detach()


def _of_rows(reader: "csv.DictReader[str]", source: Source) -> Iterator[Item]:
    if "value" not in (reader.fieldnames or ()):
        names = ", ".join(sorted(_COLUMNS))
        raise UsageError("invalid_argument", f'the first line names no column "value"; known are {names}')
    for row in reader:
        where = f"line {reader.line_num}"
        if None in row or any(value is None for value in row.values()):
            raise UsageError("invalid_argument", f"{where} has another number of columns than the first")
        yield source.document(_csv_document(row, where), where)


def _csv_document(row: Mapping[str, str], where: str) -> dict[str, Any]:
    """A cell holds text, or the `{"base64": …}` of bytes that are no text, as `consume` writes it."""
    document: dict[str, Any] = {name: _cell(value) for name, value in row.items() if name in {"value", "key"}}
    if not row.get("key"):
        document.pop("key", None)
    if row.get("headers"):
        document["headers"] = _parsed(row["headers"].encode(), where)
    if row.get("partition"):
        number = row["partition"]
        document["partition"] = int(number) if re.fullmatch(r"[0-9]{1,19}", number) else number
    return document


def _cell(text: str) -> object:
    if not text.startswith(BASE64_MARK):
        return text
    try:
        found: object = json.loads(text)
    except ValueError:
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
        raise UsageError("invalid_argument", f'{where} "{shown(line)}" is no {form}') from None
    return line


def _bytes(value: object, where: str) -> bytes:
    """A value as `consume` prints it: text, `{"base64": …}`; other JSON as its compact text."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(cast("dict[str, object]", value)) == ["base64"]:
        text = cast("dict[str, object]", value)["base64"]
        if isinstance(text, str):
            return _decoded(InputFormat.BASE64, text.encode(), f"{where}:")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _parsed(text: bytes, where: str) -> object:
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        raise UsageError("invalid_argument", f'{where} "{shown(text)}" is no JSON') from None
