"""Options of a lake table that a query writes: of `format("bascule_archive")`, and of `bascule.lake` functions.

No option holds a secret: options end up in checkpoints, event logs and `EXPLAIN`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, cast

from bascule.spark.connection_options import ADDRESS
from bascule.spark.option_model import CATALOG_PROPERTIES, OptionSet, choice, flag, number, size, text
from bascule.spark.spelling import named, spelled, surface
from bascule.spark.usage import nearest, usage

FORMATS: Final = ("delta", "parquet", "iceberg")
DEFAULT_CATALOG: Final = "default"
STREAM_MARK: Final = "{stream}"
"""In `path`: stands for the name of the stream, so that each stream has a table of its own."""
LEAST_FILE_BYTES: Final = 1 << 20
MOST_FILE_BYTES: Final = 4 << 30
"""Bounds of `fileBytes`: S3 copies at most 5 GB in one request."""
LEAST_GROUP_BYTES: Final = 1 << 16
MOST_BUCKETS: Final = 10_000
MOST_COMPACT_EVERY: Final = 1_000_000
CODECS: Final = ("zstd", "snappy", "lz4", "gzip", "none")
_LEVELS: Final = {"zstd": (1, 22), "gzip": (1, 9)}
_BUCKET: Final = re.compile(r"bucket\((\d+)\)")
_BRACES: Final = re.compile(r"\{[^{}]*\}")
_BUCKET_URL: Final = re.compile(r"s3://[^/]")
_NAME_IN_CATALOG: Final = re.compile(r"(?:[A-Za-z0-9_-]+\.)+[A-Za-z0-9_-]+")
_SPARK_OWN: Final = frozenset({"checkpointlocation", "queryname", "format", "onetable"})
"""Options that Spark and `write_epoch` add to those of a sink."""

TABLE: Final = OptionSet(
    "Archive",
    'Options of `format("bascule_archive")` and, but for `queryId`, `epoch` and `rangeId`, of `bascule.spark.archive`, '
    "which sets `path`, `tableFormat`, `partitionBy` and `complete` itself. [Archive a stream](../how-to/archive.md) "
    "shows them.",
    (
        text(
            "path",
            "folder of the table, or `s3://bucket/folder`; of an Iceberg table its name, `namespace.table`; `{stream}` "
            "in it: each stream has its own table",
        ),
        choice("tableFormat", "format of the table", FORMATS, default="delta"),
        text(
            "catalog", "the catalog of an Iceberg table, as pyiceberg's configuration names it", default=DEFAULT_CATALOG
        ),
        text(
            "partitionBy",
            "columns separated by commas: `date` (of `timestamp`, UTC), `bucket(N)` (by key), or columns of the rows",
            unset="not partitioned",
        ),
        text("target", "name of this table within its query, where the query writes a table twice", default="archive"),
        text("compression", f"codec: {', '.join(CODECS)}; `zstd:LEVEL` and `gzip:LEVEL` set a level", default="zstd"),
        size(
            "fileBytes",
            "size at which a file is closed",
            default="128MiB",
            least=LEAST_FILE_BYTES,
            most=MOST_FILE_BYTES,
        ),
        size(
            "rowGroupBytes",
            "size of a row group in memory",
            default="32MiB",
            least=LEAST_GROUP_BYTES,
            most=MOST_FILE_BYTES,
        ),
        number(
            "compactEvery",
            "compact a Delta or Iceberg table after this many epochs; 0 = never",
            default="0",
            most=MOST_COMPACT_EVERY,
        ),
        text(
            "credentials",
            "file with storage options, or properties of the Iceberg catalog, as a JSON object, on every host or in "
            "`spark.files`",
            unset="the environment (`AWS_…`, `PYICEBERG_…`)",
        ),
        text("endpoint", "URL of an S3 service other than AWS", unset="the environment, else AWS"),
        text("region", "region of the bucket", unset="the environment, else us-east-1"),
        flag(
            "complete",
            "the rows are all records of their streams, unfiltered, so that missing offsets do not exist",
            default="false",
        ),
        text(
            "reportTo",
            "a broker, as `address` of the source, to which each commit reports what the table has, for streams with "
            "`retention_after_archive`; needs `complete`",
            unset="nothing is reported",
        ),
        flag(
            "reportTakeOver",
            "the table replaces another archive of its streams, whose reports do not count any more",
            default="false",
        ),
        text("reportNamespace", "namespace of the streams, for reports; `archive` sets it itself", default="default"),
        text("queryId", "the query that a batch write belongs to", unset="needed for a batch write"),
        number("epoch", "the micro-batch that a batch write belongs to", unset="needed for a batch write"),
        text(
            "rangeId",
            "of a batch job: stands for the job and the range of records that it reads; with it the epoch is 0",
            unset="the write belongs to a streaming query",
        ),
    ),
    ignored=_SPARK_OWN,
)
"""Every option."""

TableFormat = Literal["delta", "parquet", "iceberg"]


@dataclass(frozen=True)
class ArchiveOptions:
    """How a query writes one table, or one table per stream. Checked when it is made.

    Attributes:
        path: local folder or `s3://bucket/folder`; of an Iceberg table its name in the catalog, `namespace.table`, of
            letters, digits, `_` and `-`. `{stream}` in it stands for the name of each row's stream.
        table_format: `delta`, `parquet` or `iceberg`.
        partition_by: `date`, `bucket(N)` with 1 ≤ N ≤ 10,000, or names of columns of the rows, in order.
        target: name of this table within its query: 1–64 of `A–Z a–z 0–9 _ . -`. A query that writes the same table
            twice in one epoch needs two names.
        compression: `zstd`, `snappy`, `lz4`, `gzip` or `none`; `zstd:1` to `zstd:22` and `gzip:1` to `gzip:9` set a
            level.
        file_bytes: size at which a file is closed, 1 MiB to 4 GiB.
        row_group_bytes: size of a row group in memory, at least 64 KiB.
        compact_every: compact a Delta or Iceberg table after this many commits of the query; 0 = never.
        credentials: path of a JSON file with storage options, or with properties of the Iceberg catalog, the same on
            every host, or the name of one of `spark.files`; None = the environment.
        endpoint: URL of an S3 service other than AWS.
        region: region of the bucket.
        complete: the rows are all records of their streams, so that offsets without a row do not exist.
        catalog: the catalog of an Iceberg table, as pyiceberg's configuration names it; None = `default`.
        report_to: broker to which each commit reports what the table has; None = none is.
        report_take_over: this table replaces another archive of the streams.
        report_namespace: of the streams, for reports.

    Raises:
        UsageError: a value is outside its range.
    """

    path: str
    table_format: TableFormat = "delta"
    partition_by: tuple[str, ...] = ()
    target: str = "archive"
    compression: str = "zstd"
    file_bytes: int = 128 << 20
    row_group_bytes: int = 32 << 20
    compact_every: int = 0
    credentials: str | None = None
    endpoint: str | None = None
    region: str | None = None
    complete: bool = False
    catalog: str | None = None
    report_to: str | None = None
    report_take_over: bool = False
    report_namespace: str = "default"

    def __post_init__(self) -> None:
        with surface({_camel(field.name): f"argument {field.name}" for field in fields(self)}):
            _check(self)

    @property
    def has_table_per_stream(self) -> bool:
        """Whether each stream has a table of its own."""
        return STREAM_MARK in self.path

    def to_spark(self) -> dict[str, str]:
        """The options for `format("bascule_archive")`, by their names there."""
        found = {_camel(field.name): getattr(self, field.name) for field in fields(self)}
        return {name: _text(value) for name, value in found.items() if value not in (None, ())}


def parse_archive_options(given: Mapping[str, str]) -> ArchiveOptions:
    """Options of `format("bascule_archive")`, by names in any case.

    Raises:
        UsageError: an unknown option, or a value outside its range.
    """
    with surface({}):
        return _parsed(given)


def _parsed(given: Mapping[str, str]) -> ArchiveOptions:
    kept = {name: value for name, value in given.items() if name.lower() not in CATALOG_PROPERTIES}
    path = next((value.strip() for name, value in given.items() if name.lower() == "path"), "")
    if not path:
        raise usage(f"{named('path')} is missing: it names the folder of the table", option="path")
    read = TABLE.read(kept)
    by_name = {option.name: option for option in TABLE.options}
    found: dict[str, Any] = {"path": path}
    for field in fields(ArchiveOptions):
        option = by_name[_camel(field.name)]
        if field.name != "path" and read.has(option):
            found[field.name] = read.value(option)
    if "partition_by" in found:
        found["partition_by"] = tuple(part.strip() for part in found["partition_by"].split(",") if part.strip())
    return ArchiveOptions(**found)


def bucket_count(field: str) -> int | None:
    """N of `bucket(N)`; None = another field of `partition_by`."""
    match = _BUCKET.fullmatch(field)
    return int(match[1]) if match else None


def check_marks(path: str) -> None:
    """Refuse to write to a path with other braces than `{stream}`. A table that is there may be read under any name.

    Raises:
        UsageError: the path has such braces.
    """
    if unknown := [mark for mark in _BRACES.findall(path) if mark != STREAM_MARK]:
        what = f"{unknown[0]} has no meaning; {STREAM_MARK} stands for the name of a stream"
        raise usage(f"{spelled('path')} is {path!r}: {what}", option="path")


def partition_column(field: str) -> str:
    """The column of the table for a field of `partition_by`."""
    return "bucket" if bucket_count(field) is not None else field


def _check(options: ArchiveOptions) -> None:
    if options.table_format not in FORMATS:
        raise usage(f"{named('tableFormat')} is {options.table_format!r}: it must be delta, parquet or iceberg")
    _check_place(options)
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", options.target):
        raise usage(f"{named('target')} is {options.target!r}: it must be 1 to 64 letters, digits, _, . or -")
    codec_of(options.compression)
    _in_range("fileBytes", options.file_bytes, LEAST_FILE_BYTES, MOST_FILE_BYTES)
    _in_range("rowGroupBytes", options.row_group_bytes, LEAST_GROUP_BYTES, MOST_FILE_BYTES)
    _in_range("compactEvery", options.compact_every, 0, MOST_COMPACT_EVERY)
    if options.compact_every and options.table_format == "parquet":
        raise usage(
            f"{named('compactEvery')} is for Delta and Iceberg tables: a Parquet table cannot be compacted while it is "
            "read"
        )
    _check_partitions(options)
    _check_report(options)


def _check_report(options: ArchiveOptions) -> None:
    if options.report_to is None:
        if options.report_take_over:
            raise usage(f"{named('reportTakeOver')} is for tables that report: set {named('reportTo')} to the broker")
        return
    ADDRESS.read(options.report_to)
    if not options.complete:
        raise usage(
            f"{named('reportTo')} is set, but the rows are not all records of their streams (complete): retention "
            "would remove records that the table does not have; archive without a filter, and with onDataLoss=fail"
        )


def _check_place(options: ArchiveOptions) -> None:
    if options.table_format == "iceberg":
        if not _NAME_IN_CATALOG.fullmatch(options.path.replace(STREAM_MARK, "stream")):
            raise usage(
                f"{named('path')} is {options.path!r}: an Iceberg table is named namespace.table, of letters, digits, "
                "_ and -"
            )
        for name, value in (("endpoint", options.endpoint), ("region", options.region)):
            if value is not None:
                raise usage(f"{named(name)} is not for Iceberg tables: the properties of the catalog name the storage")
        return
    _check_folder(options)


def _check_folder(options: ArchiveOptions) -> None:
    if options.catalog is not None:
        raise usage(f"{named('catalog')} is {options.catalog!r}: it is for Iceberg tables alone")
    if options.table_format == "delta" and (escape := re.search("%[0-9A-Fa-f]{2}", options.path)) is not None:
        raise usage(
            f"{named('path')} is {options.path!r}: deltalake does not find a table in a folder with {escape[0]} in its "
            "name; choose another name"
        )
    if options.path == "~" or options.path.startswith("~/"):
        raise usage(f"{named('path')} is {options.path!r}: ~ is not expanded; write the whole path")
    if options.path.startswith("s3://") and not _BUCKET_URL.match(options.path):
        raise usage(f"{named('path')} is {options.path!r}: name a bucket and a folder, s3://bucket/folder")
    if "://" in options.path and not options.path.startswith("s3://"):
        raise usage(f"{named('path')} is {options.path!r}: it must be a local folder or s3://bucket/folder")


def _check_partitions(options: ArchiveOptions) -> None:
    columns = [partition_column(field) for field in options.partition_by]
    for field, column in zip(options.partition_by, columns, strict=True):
        count = bucket_count(field)
        if count is not None:
            if not 1 <= count <= MOST_BUCKETS:
                raise usage(f"{named('partitionBy')}: bucket is {count}: it must be from 1 to {MOST_BUCKETS}")
        elif not re.fullmatch(r"[A-Za-z_]\w*", field):
            raise usage(f"{named('partitionBy')}: {field!r} is not a column: choose date, bucket(N) or a column's name")
        if columns.count(column) > 1:
            raise usage(f"{named('partitionBy')} names {column} twice")


def codec_of(compression: str) -> tuple[str, int | None]:
    """Codec and level of `compression`.

    Raises:
        UsageError: an unknown codec, or a level outside its range.
    """
    codec, colon, level = compression.lower().partition(":")
    if codec not in CODECS:
        choices = f"{', '.join(CODECS[:-1])} or {CODECS[-1]}"
        raise usage(f"{named('compression')} is {compression!r}: it must be {choices}{nearest(codec, CODECS)}")
    if not colon:
        return codec, None
    least, most = _LEVELS.get(codec, (0, -1))
    if not level.isdigit() or not least <= int(level) <= most:
        allowed = f"a level from {least} to {most}" if most > 0 else "no level"
        raise usage(f"{named('compression')} is {compression!r}: {codec} has {allowed}")
    return codec, int(level)


def _in_range(option: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise usage(f"{named(option)} is {value}: it must be from {least} to {most}", option=option)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(cast("tuple[str, ...]", value))
    return str(value)
