"""One typed result, printed as a table, JSON, NDJSON, YAML or CSV.

A result is a dataclass or a list of dataclasses. Tables are for people and may leave out nested details; the other
formats contain every field.
"""

import base64
import csv
import dataclasses
import io
import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, cast

import yaml

from bascule._text import visible

__all__ = ["BASE64_MARK", "OutputFormat", "cell", "csv_line", "plain", "render", "text_of"]


BASE64_MARK = '{"base64"'
"""Start of a cell that holds bytes which are not text."""


GAP: Final = 2
"""Number of blanks between columns."""


class OutputFormat(StrEnum):
    """Formats of results."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    YAML = "yaml"
    CSV = "csv"


def render(result: object, form: OutputFormat, empty: str = "nothing found") -> None:
    """Print a dataclass, or a list of them, to standard output. `empty`: written to standard error for an empty one."""
    document = plain(result)
    if form is OutputFormat.JSON:
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    elif form is OutputFormat.YAML:
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    elif form is OutputFormat.NDJSON:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _rows(document))
    elif form is OutputFormat.CSV:
        text = _csv(_rows(document))
    elif isinstance(document, dict):
        _print_fields(cast("dict[str, Any]", document))
        return
    else:
        _print_table(_rows(document), empty)
        return
    sys.stdout.write(text)


def plain(value: object) -> Any:
    """Convert a result to dictionaries, lists, text, numbers and booleans. Bytes become text if they are UTF-8,
    otherwise `{"base64": …}`.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, bytes):
        return _bytes(value)
    if isinstance(value, (datetime, Path)):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in cast("Sequence[object]", value)]
    return value


def _bytes(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def text_of(value: object) -> str:
    """The text of a cell: text unchanged, empty for `None`, other values as compact JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _rows(document: object) -> list[dict[str, Any]]:
    rows = cast("list[object]", document) if isinstance(document, list) else [document]
    return cast("list[dict[str, Any]]", rows)


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    lines = [csv_line(rows[0]), *(csv_line(map(text_of, row.values())) for row in rows)]
    return "".join(lines)


def csv_line(cells: Iterable[str]) -> str:
    """One line of CSV. Cells with a line feed or a carriage return are quoted."""
    text = io.StringIO()
    # the writer quotes the characters of its line terminator
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def _print_table(rows: Sequence[Mapping[str, Any]], empty: str = "") -> None:
    """Columns as wide as their content; on a terminal that is too narrow, one field per line."""
    # loaded where it is needed
    from rich.cells import cell_len  # noqa: PLC0415

    if not rows:
        sys.stderr.write(f"{empty}\n")
        return
    names = [name.replace("_", " ") for name in rows[0]]
    lines = [names, *([cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    if sys.stdout.isatty() and sum(widths) + GAP * (len(widths) - 1) > shutil.get_terminal_size().columns:
        for row in rows:
            _print_fields(row)
            sys.stdout.write("\n")
        return
    numeric = [isinstance(value, (int, float)) and not isinstance(value, bool) for value in rows[0].values()]
    lines.insert(1, ["─" * width for width in widths])
    for line in lines:
        blanks = [" " * (width - cell_len(text)) for text, width in zip(line, widths, strict=True)]
        padded = [
            blank + text if right else text + blank for text, blank, right in zip(line, blanks, numeric, strict=True)
        ]
        sys.stdout.write((" " * GAP).join(padded).rstrip() + "\n")


def _print_fields(document: Mapping[str, Any]) -> None:
    width = max((len(name) for name in document), default=0)
    for name, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            sys.stdout.write(f"{name.replace('_', ' ')}:\n")
            sys.stdout.flush()
            _print_table(cast("list[dict[str, Any]]", value))
        else:
            sys.stdout.write(f"{name.replace('_', ' '):{width}}  {cell(cast('object', value))}\n")


def cell(value: object) -> str:
    """A value as tables show it, on one line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return visible(", ".join(text_of(item) for item in cast("list[object]", value)))
    return visible(text_of(value))
