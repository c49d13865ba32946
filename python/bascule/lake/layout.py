"""Names of tables, folders and files. Pure.

A partitioned table has one folder for each set of partition values, as Hive names them: `date=2026-11-26/bucket=3`.
Readers of Parquet and Delta leave out folders and files whose names begin with `_` or `.`.
"""

import re
from collections.abc import Mapping
from datetime import date
from typing import Final
from urllib.parse import quote, unquote

from bascule.lake.options import STREAM_MARK

NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""Folder value of null."""
OWN_FOLDER: Final = "_bascule"
"""Folder in a Parquet table with the commit records and the files of undecided epochs."""

Values = Mapping[str, str | None]
"""Partition values as text, by column, in the order of the table."""


def table_path(path: str, stream: str) -> str:
    """The path of the table of a stream; `path` itself when it names one table."""
    return path.replace(STREAM_MARK, stream_folder(stream))


def stream_folder(stream: str) -> str:
    """The folder name of a stream: bytes other than letters, digits, `.`, `-` and `_` become `%XX`, and so does a
    first `.` or `_`, which would hide it from readers.
    """
    name = quote(stream, safe="")
    return f"%{ord(name[0]):02X}{name[1:]}" if name[:1] in (".", "_") else name


def table_name(stream: str) -> str:
    """The name of the table of a stream in a catalog: bytes other than letters, digits, `-` and `_` become `_XX`, and
    so does a `_` before two digits of that kind, so that two streams never have one name.
    """
    escaped = re.sub("_(?=[0-9A-F]{2})", "_5F", stream)
    return re.sub(
        r"[^\w-]", lambda match: "".join(f"_{byte:02X}" for byte in match[0].encode()), escaped, flags=re.ASCII
    )


def partition_folder(values: Values) -> str:
    """The folder of a set of partition values, without a slash at its end; empty for an unpartitioned table."""
    return "/".join(f"{column}={_folder_value(value)}" for column, value in values.items())


def value_text(value: object) -> str | None:
    """A partition value as text, as Delta and Hive write it.

    Args:
        value: of a type in `PARTITION_TYPES`, or None.
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date):
        return value.isoformat()
    return str(value)


def parse_folder(folder: str) -> dict[str, str | None]:
    """The partition values in a folder's name."""
    parts = [part.partition("=") for part in folder.split("/") if part]
    return {column: None if value == NULL else unquote(value) for column, _, value in parts}


def _folder_value(value: str | None) -> str:
    if value is None or not value:  # Hive has no empty partition values
        return NULL
    return quote(value, safe=" ") if value not in (".", "..") else value.replace(".", "%2E")
