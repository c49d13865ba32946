"""One typed result, printed as a table, JSON, NDJSON, YAML or CSV.

A result is a dataclass or a list of dataclasses. Tables are for people and may leave out nested detail; the other forms
carry every field.
"""

import base64
import csv
import dataclasses
import io
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import yaml

from bascule._text import visible

__all__ = ["BASE64_MARK", "OutputFormat", "plain", "render", "text_of"]


BASE64_MARK = '{"base64"'
"""How a cell begins that holds bytes which are no text."""


class OutputFormat(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    YAML = "yaml"
    CSV = "csv"


def render(result: object, form: OutputFormat) -> None:
    """Print a dataclass, or a list of them, to standard output."""
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
        _print_table(_rows(document))
        return
    sys.stdout.write(text)


def plain(value: object) -> Any:
    """The same as dictionaries, lists, text, numbers and booleans. Bytes become text when they are UTF-8, else
    `{"base64": …}`.
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
    """One cell: text as it is, nothing for `None`, other values as compact JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _rows(document: object) -> list[dict[str, Any]]:
    rows = cast("list[object]", document) if isinstance(document, list) else [document]
    return cast("list[dict[str, Any]]", rows)


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([text_of(value) for value in row.values()] for row in rows)
    return text.getvalue()


def _print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    # loaded where it is needed: it takes longer than most commands
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    if not rows:
        sys.stderr.write("nothing found\n")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, value in rows[0].items():
        numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
        table.add_column(Text(name.replace("_", " ")), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    Console(markup=False, emoji=False, highlight=False).print(table)


def _print_fields(document: Mapping[str, Any]) -> None:
    width = max((len(name) for name in document), default=0)
    for name, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            sys.stdout.write(f"{name.replace('_', ' ')}:\n")
            sys.stdout.flush()
            _print_table(cast("list[dict[str, Any]]", value))
        else:
            sys.stdout.write(f"{name.replace('_', ' '):{width}}  {_cell(cast('object', value))}\n")


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return visible(", ".join(text_of(item) for item in cast("list[object]", value)))
    return visible(text_of(value))
