"""Checksums of the footers of data files, which say where rows are and which ones a reader may skip.

Parquet has checksums of pages and none of the footer: one changed bit there hides rows, or ends the process of the
library that parses it. So a footer that is written here has its own CRC-32, the sum that pages have, as the entry
`bascule.footer.crc32` of its metadata: 8 hexadecimal digits, computed from the footer, its length and the magic bytes
after it with `00000000` in this place. The name of the file, which the table's commit records, ends with
`-crc-<5 digits>.parquet` and says that the sum must be there: a footer that has lost it is damaged.

Other files are those of other writers, of compaction by deltalake, and of earlier versions. Their footers are compared
with what the table's commit says about them.
"""

import re
import zlib
from collections.abc import Sequence
from importlib import import_module
from io import RawIOBase
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from bascule.lake.archived import ArchivedFile

KEY: Final = "bascule.footer.crc32"
"""Name of the entry."""
NO_SUM: Final = "00000000"
"""The entry before the sum is known."""
_BEFORE_SUM: Final = KEY.encode() + b"\x18\x08"
"""Thrift's compact form of the name, then field 2, a text of 8 bytes."""
_CHECKED: Final = re.compile(r"part-.+-crc-\d{5}\.parquet")
_MAGIC: Final = b"PAR1"
_AFTER: Final = 8
"""Bytes after a footer: its length, and the magic."""
_FIRST_READ: Final = 1 << 16
"""Bytes at the end of a file that are read at once: they have the whole footer as a rule."""
EXACT: Final = ("incarnation", "partition", "offset")
"""Columns whose bounds the commits of all formats and writers have as they are; bounds of texts may be cut off."""


def has_checksum(name: str) -> bool:
    """Whether the name of a file says that its footer has a checksum."""
    return _CHECKED.fullmatch(name.rpartition("/")[2]) is not None


class ChecksummedFile(RawIOBase):
    """A binary file for a writer of Parquet, which gives the footer its checksum. Closing it closes nothing else."""

    def __init__(self, raw: Any) -> None:
        super().__init__()
        self._raw = raw
        self._end: list[bytes] | None = None

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, content: Any) -> int:
        """Write bytes; from `hold` on they are kept in memory."""
        if self._end is None:
            return int(self._raw.write(content))
        self._end.append(bytes(content))
        return len(self._end[-1])

    def hold(self) -> None:
        """Hold back what is written from now on: the end of the file, with the whole footer."""
        self._end = []

    def release(self) -> None:
        """Write the end of the file, with the checksum in the footer."""
        end = bytearray(b"".join(self._end or ()))
        footer = len(end) - _AFTER - _length(end)
        place = end.rindex(_BEFORE_SUM + NO_SUM.encode(), footer) + len(_BEFORE_SUM)
        end[place : place + len(NO_SUM)] = _sum(end[footer:])
        self._raw.write(bytes(end))


def read_metadata(file: "ArchivedFile", raw: Any) -> Any:
    """The metadata of a data file, a `pyarrow.parquet.FileMetaData`; its footer is checked before it is parsed.

    Args:
        file: of the table.
        raw: the opened file.

    Raises:
        ValueError: the footer is damaged.
    """
    footer = _footer(raw)
    is_checked = has_checksum(file.name)
    if is_checked:
        place = footer.rfind(_BEFORE_SUM) + len(_BEFORE_SUM)
        zeroed = footer[:place] + NO_SUM.encode() + footer[place + len(NO_SUM) :]
        if place < len(_BEFORE_SUM) or _sum(zeroed) != footer[place : place + len(NO_SUM)]:
            raise ValueError("its footer does not match its checksum")
    elif file.bytes is not None and (size := _size(raw)) != file.bytes:
        raise ValueError(f"it has {size} bytes, and the table's commit says {file.bytes}")
    buffer = import_module("pyarrow").BufferReader(_MAGIC + footer)
    metadata = import_module("pyarrow.parquet").read_metadata(buffer)
    if not is_checked:
        _compare(file, metadata)
    return metadata


def bounds_of(group: Any, names: Sequence[str]) -> tuple[tuple[str, Any, Any], ...]:
    """Least and greatest value by column of a row group, for those of some columns that have statistics."""
    found: list[tuple[str, Any, Any]] = []
    numbers = {group.column(number).path_in_schema: number for number in range(group.num_columns)}
    for name in names:
        statistics = group.column(numbers[name]).statistics if name in numbers else None
        if statistics is not None and statistics.has_min_max:
            found.append((name, statistics.min, statistics.max))
    return tuple(found)


def _compare(file: "ArchivedFile", metadata: Any) -> None:
    """Compare a footer without a checksum with the table's commit, as far as that knows the file.

    Raises:
        ValueError: they differ, or a row group has more rows of one partition than offsets.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    rows = sum(group.num_rows for group in groups)
    wanted = metadata.num_rows if file.rows is None else file.rows
    if not rows == wanted == metadata.num_rows:
        raise ValueError(f"its footer has {rows} rows, and the table's commit says {wanted}")
    bounds = [{name: (low, high) for name, low, high in bounds_of(group, ("stream", *EXACT))} for group in groups]
    for name, low, high in file.bounds:
        there = [each[name] for each in bounds if name in each]
        found = (min(each[0] for each in there), max(each[1] for each in there)) if there else (low, high)
        if name in EXACT and len(there) == len(groups) and found != (low, high):
            what = f"{name} from {found[0]} to {found[1]}, and the table's commit says from {low} to {high}"
            raise ValueError(f"its footer has {what}")
    constants = {name for name, _ in file.constants}
    for group, each in zip(groups, bounds, strict=True):
        is_single = all(name in constants or _is_one(each.get(name)) for name in ("stream", "partition"))
        low, high = each.get("offset", (0, group.num_rows))
        if is_single and _is_one(each.get("incarnation", (0, 0))) and high - low + 1 < group.num_rows:
            raise ValueError(f"its footer has {group.num_rows} rows from offset {low} to {high}")


def _is_one(bounds: tuple[Any, Any] | None) -> bool:
    return bounds is not None and bounds[0] == bounds[1]


def _footer(raw: Any) -> bytes:
    """The footer of an opened file, with its length and the magic after it."""
    size = _size(raw)
    end = _read_at(raw, max(size - _FIRST_READ, 0), min(size, _FIRST_READ))
    if len(end) < _AFTER or end[-len(_MAGIC) :] != _MAGIC:
        raise ValueError("it does not end as a Parquet file")
    whole = _length(end) + _AFTER
    if whole + len(_MAGIC) > size:
        raise ValueError("its footer does not fit in the file")
    return end[-whole:] if whole <= len(end) else _read_at(raw, size - whole, whole)


def _size(raw: Any) -> int:
    raw.seek(0, 2)
    return int(raw.tell())


def _read_at(raw: Any, offset: int, count: int) -> bytes:
    raw.seek(offset)
    found = bytearray()
    while len(found) < count:
        if not (part := raw.read(count - len(found))):
            raise ValueError("it was cut while it was read")
        found += part
    return bytes(found)


def _length(end: bytes | bytearray) -> int:
    """Bytes of a footer, from the end of its file."""
    return int.from_bytes(end[-_AFTER : -len(_MAGIC)], "little")


def _sum(content: bytes | bytearray) -> bytes:
    return b"%08x" % zlib.crc32(content)
