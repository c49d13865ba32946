"""The part of a bulk scan that Spark's own Parquet reader does: the ranges that come from an archive.

The ranges and their files are fixed when the scan is planned (`bascule.spark.tiers`), so Spark may read the files in
any order and split them as it likes. Spark sees files alone, not the table, and needs no library of Delta or Iceberg.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from bascule.errors import CorruptionError
from bascule.lake.archived import NOT_READ, ArchivedFile
from bascule.lake.matching import check_footer
from bascule.lake.ranges import SOURCE_COLUMNS
from bascule.lake.storage import LocalFolder
from bascule.lake.tables import open_table
from bascule.spark.columns import TYPES
from bascule.spark.options import SourceOptions
from bascule.spark.planning import Range
from bascule.spark.subjects import subject_expression
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

logger = logging.getLogger("bascule.spark")

MOST_GROUPS: Final = 100
"""Combinations of partition values that are columns of the read, at most: each is a scan of its own in the plan."""
_PLACE: Final = (*SOURCE_COLUMNS, "offset")
_CHECKSUMS: Final = "parquet.page.verify-checksum.enabled"


@dataclass
class _Group:
    """Files with the same values of the columns that they do not have, and the ranges of which they may have rows."""

    constants: Mapping[str, Any]
    paths: set[str] = field(default_factory=set[str])
    ranges: set[Range] = field(default_factory=set[Range])


def check_native(options: SourceOptions) -> None:
    """Refuse options that Spark's reader cannot serve.

    Raises:
        UsageError: there is no archive, or the latest record of each key is read.
    """
    if options.archive is None:
        raise usage("native_archive reads an archive: name it by archivePath")
    if options.table is not None:
        raise usage(
            "native_archive reads every record, and view is table: leave native_archive out, because the latest record "
            "of a key is found in the order of both tiers"
        )


def read_native(spark: "SparkSession", options: SourceOptions, ranges: Sequence[Range]) -> "DataFrame":
    """The records of ranges that come from the archive, in no order.

    Args:
        spark: the session.
        options: of the scan; see `check_native`.
        ranges: of the plan, each with its files; at least one.

    Raises:
        UsageError: the archive is not on a disk, or is partitioned by too many values of a column that is read.
        CorruptionError: a file is missing, or its footer is damaged, and `onDataLoss` is not `skip`.
    """
    found = _groups(options, ranges)
    if len(found) > MOST_GROUPS:
        raise usage(
            f"native_archive plans a scan for each combination of partition values, and the archive has {len(found)} "
            f"of the columns that are read, at most {MOST_GROUPS}: leave native_archive out"
        )
    if not found:  # all files are damaged, and skipped
        columns = ", ".join(f"`{name}` {TYPES[name].removesuffix(' NOT NULL')}" for name in options.columns)
        session: Any = spark  # its method is partially unknown to type checkers
        return session.createDataFrame([], columns)
    frames = [_read(spark, options, each) for each in found]
    return reduce(lambda one, other: one.unionAll(other), frames)


def _groups(options: SourceOptions, ranges: Iterable[Range]) -> list[_Group]:
    needed = {*options.needed_columns, *_PLACE}
    groups: dict[tuple[tuple[str, Any], ...], _Group] = {}
    folders: dict[str, LocalFolder] = {}
    intact: dict[str, bool] = {}
    for each in ranges:
        if each.stream not in folders:
            folders[each.stream] = _folder(options, each.stream)
        folder = folders[each.stream]
        for file in each.files or ():
            path = _path(folder, file)
            if path not in intact:
                intact[path] = is_intact(folder, file, options)
            if not intact[path]:
                continue
            constants = tuple((name, value) for name, value in file.constants if name in needed)
            group = groups.setdefault(constants, _Group(dict(constants)))
            group.paths.add(path)
            group.ranges.add(each)
    return [groups[key] for key in sorted(groups, key=repr)]


def is_intact(folder: LocalFolder, file: ArchivedFile, options: SourceOptions) -> bool:
    """Whether Spark may read a file: it knows no checksum of footers, and would skip rows by a damaged one.

    Raises:
        CorruptionError: it may not, and `onDataLoss` is not `skip`.
    """
    try:
        check_footer(folder, file, NOT_READ)
    except CorruptionError as damage:
        if options.on_data_loss != "skip":
            raise
        logger.warning("%s; onDataLoss is skip: its records are left out", damage)
        return False
    return True


def _folder(options: SourceOptions, stream: str) -> LocalFolder:
    assert options.archive is not None
    table = open_table(options.archive, stream)
    if not isinstance(table.storage, LocalFolder):
        raise usage(
            f"native_archive reads files of a disk that all hosts have, and those of {table.uri} are elsewhere: leave "
            "native_archive out"
        )
    return table.storage


def _path(folder: LocalFolder, file: ArchivedFile) -> str:
    """The file as Spark's path, in which the characters of patterns stand for themselves."""
    text = str(folder.folder / file.name)
    return "file://" + "".join(f"\\{letter}" if letter in "{}[]*?\\" else letter for letter in text)


def _read(spark: "SparkSession", options: SourceOptions, group: _Group) -> "DataFrame":
    functions: Any = import_module("pyspark.sql.functions")
    names = list(dict.fromkeys([*options.needed_columns, *_PLACE]))
    kinds = {name: TYPES[name].removesuffix(" NOT NULL") for name in names}
    schema = ", ".join(f"`{name}` {kinds[name]}" for name in names if name not in group.constants)
    skips = str(options.on_data_loss == "skip").lower()
    reader = spark.read.schema(schema).options(
        **{
            "ignoreCorruptFiles": skips,
            "ignoreMissingFiles": skips,
            "recursiveFileLookup": "true",  # `constants` have the values that folders name
            "datetimeRebaseMode": "CORRECTED",
            _CHECKSUMS: "true",
        }
    )
    frame = reader.parquet(*sorted(group.paths))
    for name, value in group.constants.items():
        frame = frame.withColumn(name, functions.lit(value).cast(kinds[name]))
    frame = frame.where(_any([_of_range(each) for each in sorted(group.ranges)]))
    if options.subject is not None:
        frame = frame.where(functions.col("subject").rlike(rf"\A{subject_expression(options.subject)}\z"))
    return frame.select(*options.columns)


def _of_range(wanted: Range) -> "Column":
    functions: Any = import_module("pyspark.sql.functions")
    offset = functions.col("offset")
    return (
        (functions.col("stream") == wanted.stream)
        & (functions.col("incarnation") == wanted.incarnation)
        & (functions.col("partition") == wanted.partition)
        & (offset >= wanted.start)
        & (offset < wanted.end)
    )


def _any(conditions: Sequence["Column"]) -> "Column":
    """Their disjunction as a balanced tree: Spark's optimizer recurses into conditions."""
    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    return _any(conditions[:middle]) | _any(conditions[middle:])
