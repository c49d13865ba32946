"""Names of tables, folders and files. Pure.

A partitioned table has one folder for each set of partition values, as Hive names them: `date=2026-11-26/bucket=3`.
Readers of Parquet and Delta leave out folders and files whose names begin with `_` or `.`.

File systems have names of at most 255 bytes, and S3 keys of at most 1,024. Longer names of streams and longer partition
values become their beginning and a hash, so that no record can stop the archive.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from hashlib import blake2b
from itertools import accumulate, takewhile
from typing import Final
from urllib.parse import quote, unquote

from bascule.lake.options import STREAM_MARK

NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""Folder value of null."""
OWN_FOLDER: Final = "_bascule"
"""Folder in a Parquet table with the commit records and the files of undecided epochs."""
MOST_NAME_BYTES: Final = 255
"""Longest name of a folder."""
MOST_VALUE_BYTES: Final = 200
"""Longest partition value in the name of a folder."""
MOST_VALUES_BYTES: Final = 600
"""Longest partition values of one file together, as long as there are at most 9 of them."""
_LEAST_BYTES: Final = 64
"""Shortened names are not made shorter than this: a hash with something before it."""
_CUT: Final = "@"
"""Between the beginning of a long name and its hash. Escaped in other names, so that two never become one."""
_CUT_IN_CATALOG: Final = "_41"
"""The same in a catalog: an escaped `A`, which is never escaped otherwise."""

Values = Mapping[str, str | None]
"""Partition values as text, by column, in the order of the table."""


def table_path(path: str, stream: str) -> str:
    """The path of the table of a stream; `path` itself when it names one table."""
    return "/".join(_with_stream(part, stream) for part in path.split("/"))


def _with_stream(part: str, stream: str) -> str:
    """One name of a path with the stream in it, in at most 255 bytes."""
    if not (times := part.count(STREAM_MARK)):
        return part
    room = (MOST_NAME_BYTES - len(part.replace(STREAM_MARK, "").encode())) // times
    return part.replace(STREAM_MARK, stream_folder(stream, max(room, _LEAST_BYTES)))


def stream_folder(stream: str, most: int = MOST_NAME_BYTES) -> str:
    """The folder name of a stream: bytes other than letters, digits, `.`, `-` and `_` become `~XX`, and so does a
    first `.` or `_`, which would hide it from readers. A name of more than `most` bytes becomes its beginning, `@` and
    a hash. `%XX` would not do: deltalake 1.6 looks for the log of such a table in the folder that this stands for.
    """
    parts = ["~7E" if char == "~" else quote(char, safe="").replace("%", "~") for char in stream]
    if stream[:1] in (".", "_"):
        parts[0] = f"~{ord(stream[0]):02X}"
    return _shortened(stream, parts, most, _CUT)


def table_name(stream: str) -> str:
    """The name of the table of a stream in a catalog: bytes other than letters, digits, `-` and `_` become `_XX`, and
    so does a `_` before two digits of that kind, so that two streams never have one name. A name of more than 255 bytes
    becomes its beginning, `_41` and a hash.
    """
    escaped = re.sub("_(?=[0-9A-F]{2})", "_5F", stream)
    parts = [
        re.sub(r"[^\w-]", lambda match: "".join(f"_{byte:02X}" for byte in match[0].encode()), char, flags=re.ASCII)
        for char in re.findall("_5F|.", escaped, flags=re.DOTALL)
    ]
    return _shortened(stream, parts, MOST_NAME_BYTES, _CUT_IN_CATALOG)


def partition_folder(values: Values) -> str:
    """The folder of a set of partition values, without a slash at its end; empty for an unpartitioned table."""
    most = max(_LEAST_BYTES, min(MOST_VALUE_BYTES, MOST_VALUES_BYTES // max(len(values), 1)))
    return "/".join(f"{column}={_folder_value(value, most)}" for column, value in values.items())


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
    """The partition values in a folder's name; of a long one its beginning, `@` and a hash."""
    parts = [part.partition("=") for part in folder.split("/") if part]
    return {column: None if value == NULL else unquote(value) for column, _, value in parts}


def _folder_value(value: str | None, most: int) -> str:
    if value is None or not value:  # Hive has no empty partition values
        return NULL
    if value in (".", ".."):
        return value.replace(".", "%2E")
    return _shortened(value, [quote(char, safe=" ") for char in value], most, _CUT)


def _shortened(whole: str, parts: Sequence[str], most: int, cut: str) -> str:
    """The parts of a name, in at most `most` bytes: beyond that the first ones, `cut`, and a hash of the whole."""
    if sum(map(len, parts)) <= most:
        return "".join(parts)
    mark = cut + blake2b(whole.encode(), digest_size=16).hexdigest()
    kept = takewhile(lambda end: end + len(mark) <= most, accumulate(map(len, parts)))
    return "".join(parts[: len(list(kept))]) + mark
