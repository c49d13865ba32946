"""The options of replays, copies and re-drives."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from bascule.lake.options import ArchiveOptions, TableFormat
from bascule.spark.connection_options import ADDRESS, CONNECTION
from bascule.spark.option_model import OptionSet, flag, number, parsed, size, text
from bascule.spark.sink.options import DLQ_STREAM, ON_INVALID, ON_OVERSIZE, PUBLISH_TIMEOUT, parse_sink_options
from bascule.spark.spelling import named, spelled
from bascule.spark.usage import usage

HEADER_NAMES: Final = "header_names"
"""In `leaveOut`: names of headers that are not text, of which an archive has only the values."""
LEAST_EPOCH_BYTES: Final = 1 << 20
MOST_EPOCH_BYTES: Final = 4 << 30
"""Half of the bytes that a sink may have staged, `sink_quota`, since batches need more than the content of rows."""
MOST_EPOCH_ROWS: Final = 1_000_000_000
_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def _names(given: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in given.split(",") if name.strip())


def _time(given: str) -> int:
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError("it must be a time with a zone, such as 2026-11-25T01:19:00Z")
    return microseconds(found)


def microseconds(when: datetime) -> int:
    """Microseconds since 1970 of a time with a zone."""
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


LEAVE_OUT: Final = parsed(
    "leaveOut",
    "what may be lost, separated by commas: columns that a target cannot have, columns of records that the source "
    "lacks, and `header_names` for headers whose names are not text",
    "names",
    _names,
    unset="nothing: the replay is refused, and the error names the columns",
)
REPARTITION: Final = flag(
    "repartition", "choose the partition by the key, instead of keeping that of the source", default="false"
)
FROM_OFFSET: Final = number("fromOffset", "first offset of each partition", unset="the first one that is there")
TO_OFFSET: Final = number("toOffset", "offset of each partition before which to end", unset="all that is there now")
FROM_TIME: Final = parsed(
    "fromTime", "first receipt time, with a zone, as `2026-11-25T01:19:00Z`", "time", _time, unset="unbounded"
)
TO_TIME: Final = parsed("toTime", "receipt time before which to end, with a zone", "time", _time, unset="unbounded")
MAX_ROWS_PER_SECOND: Final = number(
    "maxRowsPerSecond", "rows in a second, over five seconds or more", least=1, unset="as fast as possible"
)
MAX_ROWS_PER_EPOCH: Final = number(
    "maxRowsPerEpoch",
    "rows that are published together, at most, over all partitions; each partition that is left has at least one",
    default="5000000",
    least=1,
    most=MOST_EPOCH_ROWS,
)
MAX_BYTES_PER_EPOCH: Final = size(
    "maxBytesPerEpoch",
    "content of the rows that are published together, at most, over all partitions; one row may be more",
    default="256MiB",
    least=LEAST_EPOCH_BYTES,
    most=MOST_EPOCH_BYTES,
)
_OWN: Final = (
    *(LEAVE_OUT, REPARTITION, FROM_OFFSET, TO_OFFSET, FROM_TIME, TO_TIME),
    *(MAX_ROWS_PER_SECOND, MAX_ROWS_PER_EPOCH, MAX_BYTES_PER_EPOCH),
)
_OF_SINK: Final = (*CONNECTION[1:], ON_OVERSIZE, ON_INVALID, DLQ_STREAM, PUBLISH_TIMEOUT)
_OF_TABLE: Final = (
    text("catalog", "the catalog of an Iceberg table, as pyiceberg's configuration names it", default="default"),
    text("credentials", "file with storage options, or properties of the Iceberg catalog", unset="the environment"),
    text("endpoint", "URL of an S3 service other than AWS", unset="the environment, else AWS"),
    text("region", "region of the bucket", unset="the environment, else us-east-1"),
)
REPLAY: Final = OptionSet(
    "Replay",
    "Options of `bascule.spark.replay`, by their names here, and of `bascule spark replay` as `--option NAME=VALUE`. "
    "[Replay and copy](../how-to/replay.md) shows them.",
    (ADDRESS, *_OWN, *_OF_SINK, *_OF_TABLE),
)
COPY: Final = OptionSet(
    "Copy",
    "Options of `bascule.spark.copy`, by their names here, and of `bascule spark copy` as `--option NAME=VALUE`. Times "
    "are those of receipt by the source's broker.",
    (ADDRESS, *_OWN, *_OF_SINK),
)

SKIP_CUT: Final = flag(
    "skipCut", "leave letters out that the sink has cut because their stream allowed no larger ones", default="false"
)
SKIP_MALFORMED: Final = flag(
    "skipMalformed",
    "leave letters out whose headers `bascule.dlq.…` are not as a job or the sink writes them",
    default="false",
)
REDRIVE: Final = OptionSet(
    "Re-drive",
    "Options of `bascule.spark.redrive`, by their names here, and of `bascule spark redrive` as `--option NAME=VALUE`. "
    "Offsets and times are those of the letters; `leaveOut` may name `header_names` alone.",
    (
        *(ADDRESS, LEAVE_OUT, FROM_OFFSET, TO_OFFSET, FROM_TIME, TO_TIME, SKIP_CUT, SKIP_MALFORMED),
        *(MAX_ROWS_PER_SECOND, MAX_ROWS_PER_EPOCH, MAX_BYTES_PER_EPOCH, *_OF_SINK),
    ),
)

ARGUMENTS: Final = {
    "path": "argument archive",
    "tableFormat": "argument format",
    **{name: f"argument {name}" for name in ("id", "to", "checkpoint", "error_class", "job", "stream")},
}
"""How the functions of `bascule.spark` spell what they do not take as an option."""


@dataclass(frozen=True)
class Bounds:
    """What is replayed of each partition: offsets `[first, end)` and times `[since_us, until_us)`; None = unbounded."""

    first: int | None = None
    end: int | None = None
    since_us: int | None = None
    until_us: int | None = None


@dataclass(frozen=True)
class TransferOptions:
    """How records go into a stream.

    Attributes:
        id: names the replay: 1 to 64 letters, digits, `_`, `.` or `-`.
        to: the target stream.
        leave_out: see `LEAVE_OUT`.
        repartition: whether rows go by key, instead of to the partition that they are from.
        bounds: of what is read.
        rows_per_second: None = no limit.
        epoch_rows: of an epoch, at least 1.
        epoch_bytes: of an epoch.
        sink: options of `format("bascule")`, without those of an epoch.
        table: of the archive, beside its place and format.
        streams: where each row names its own stream: all that may be named; then `to` is empty.
    """

    id: str
    to: str
    leave_out: tuple[str, ...]
    repartition: bool
    bounds: Bounds
    rows_per_second: int | None
    epoch_rows: int
    epoch_bytes: int
    sink: Mapping[str, str]
    table: Mapping[str, str]
    streams: tuple[str, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The streams that are written."""
        return self.streams or (self.to,)

    @property
    def target_option(self) -> dict[str, str]:
        """The sink's option for them."""
        return {"streams": json.dumps(self.streams)} if self.streams else {"stream": self.to}

    @property
    def sink_id(self) -> str:
        """Name of the sink that the broker remembers."""
        return f"replay-{self.id}"


def parse_transfer(options: OptionSet, given: Mapping[str, str], *, name: str, to: str) -> TransferOptions:
    """Check the options of a replay or a copy.

    Args:
        options: `REPLAY`, `COPY` or `REDRIVE`.
        given: by name.
        name: of the replay.
        to: the target stream; empty = each row names its own.

    Raises:
        UsageError: an option is unknown, has a value outside its range, or excludes another one.
    """
    if not _ID.fullmatch(name):
        raise usage(f"{named('id')} is {name!r}: it must be 1 to 64 letters, digits, _, . or -")
    found = options.read(given)
    lower = {key.lower(): text for key, text in given.items()}
    sink = {each.name: lower[each.name.lower()] for each in (ADDRESS, *_OF_SINK) if each.name.lower() in lower}
    bounds = Bounds(found.get(FROM_OFFSET), found.get(TO_OFFSET), found.get(FROM_TIME), found.get(TO_TIME))
    _check_order("fromOffset", bounds.first, "toOffset", bounds.end)
    _check_order("fromTime", bounds.since_us, "toTime", bounds.until_us)
    parse_sink_options({**sink, **({"stream": to} if to else {})}, is_stream=False)
    return TransferOptions(
        id=name,
        to=to,
        leave_out=found.get(LEAVE_OUT) or (),
        repartition=REPARTITION in options.options and found.value(REPARTITION),
        bounds=bounds,
        rows_per_second=found.get(MAX_ROWS_PER_SECOND),
        epoch_rows=found.value(MAX_ROWS_PER_EPOCH),
        epoch_bytes=found.value(MAX_BYTES_PER_EPOCH),
        sink=sink,
        table={each.name: lower[each.name] for each in _OF_TABLE if each.name in lower and each in options.options},
    )


def archive_options(path: str, table_format: str, options: TransferOptions) -> ArchiveOptions:
    """The options of the archive that is read.

    Raises:
        UsageError: the place or the format is not one of an archive.
    """
    return ArchiveOptions(path, cast("TableFormat", table_format), **cast("dict[str, Any]", dict(options.table)))


def _check_order(low_name: str, low: int | None, high_name: str, high: int | None) -> None:
    if low is not None and high is not None and low >= high:
        low_name, high_name = named(low_name), spelled(high_name)
        raise usage(f"{low_name} is not before {high_name}, so there is nothing to replay: change one of them")
