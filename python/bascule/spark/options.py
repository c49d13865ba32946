"""The options of the source: declarations, and checks of those that depend on each other."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from bascule.spark.columns import DEFAULT as DEFAULT_COLUMNS
from bascule.spark.columns import TYPES, parse_columns
from bascule.spark.connection_options import ADDRESS, CONNECTION, NAMESPACE, REQUEST_TIMEOUT_MS, RETRY_DEADLINE_MS
from bascule.spark.kafka_names import kafka_advice
from bascule.spark.names import parse_json, parse_names
from bascule.spark.option_model import Given, OptionSet, choice, duration, flag, number, parsed, size, text
from bascule.spark.planning import Packing
from bascule.spark.positions import EARLIEST, LATEST, Positions, parse_offsets, parse_times
from bascule.spark.slots import current_slots
from bascule.spark.subjects import subject_expression
from bascule.spark.table_options import TABLE_OPTIONS, TableView, parse_table
from bascule.spark.tier_options import TIER_OPTIONS, Tier, parse_tier
from bascule.spark.usage import usage
from bascule.spark.zones import parse_zone, zone_of

if TYPE_CHECKING:
    from bascule.lake.options import ArchiveOptions

MAX_SUBJECT_BYTES: Final = 2000
"""Longest subject that a broker subscribes on."""


def _pattern(given: str) -> str:
    try:
        re.compile(given)
    except re.error as cause:
        raise ValueError(f"it is not a regular expression: {cause}") from cause
    return given


def _subject(given: str) -> str:
    subject_expression(given)
    if len(given.encode()) > MAX_SUBJECT_BYTES:
        raise ValueError(f"it has {len(given.encode())} bytes, and NATS takes at most {MAX_SUBJECT_BYTES}")
    return given


def _assigned(given: str) -> dict[str, tuple[int, ...]]:
    assigned: dict[str, tuple[int, ...]] = {}
    for stream, numbers in parse_json("assign", given, dict).items():
        if (
            not isinstance(numbers, list)
            or not numbers
            or not all(type(n) is int and n >= 0 for n in cast("list[Any]", numbers))
        ):
            raise usage(f"option assign: {stream} must have a list of partition numbers, not {numbers!r}")
        assigned[stream] = tuple(sorted(set(cast("list[int]", numbers))))
    if not assigned:
        raise usage("option assign names no stream")
    return assigned


def _zone(given: str) -> str:
    parse_zone("option timeZone", given)
    return given


OnDataLoss = Literal["fail", "skip", "archive"]

MAX_GROUP_BYTES: Final = 255
_TIME: Final = "time or JSON"
STREAM: Final = parsed(
    "stream",
    "one stream, several separated by commas, or a JSON list; their case counts",
    "names",
    lambda given: parse_names("stream", given),
)
STREAM_PATTERN: Final = parsed(
    "streamPattern",
    "streams whose whole name the expression matches; a new one is read from its first record",
    "regular expression",
    _pattern,
)
ASSIGN: Final = parsed("assign", 'partitions: `{"stream": [0, 1]}`', "JSON", _assigned)
SUBJECT: Final = parsed(
    "subject",
    "only records whose subject matches, with `*` and `>` as in NATS; the broker applies it",
    "text",
    _subject,
)
COLUMNS: Final = parsed(
    "columns",
    f"columns, in order; there are {', '.join(TYPES)}",
    "names",
    parse_columns,
    default=",".join(DEFAULT_COLUMNS),
)
STARTING_OFFSETS: Final = parsed(
    "startingOffsets",
    "where a new query begins: `earliest`, `latest`, `-N` for the last N records of each partition, or JSON by stream "
    "and partition, which may be partial (-1 = latest, -2 = earliest)",
    "word or JSON",
    str,
    default="earliest",
)
STARTING_TIMESTAMP: Final = parsed(
    "startingTimestamp",
    "the first record at or after this time: ISO 8601, ms since 1970, or JSON of those; goes before startingOffsets",
    _TIME,
    str,
)
STARTING_BY_TIMESTAMP: Final = parsed("startingOffsetsByTimestamp", "the same, by stream and partition", _TIME, str)
NO_MATCH: Final = choice(
    "startingOffsetsByTimestampStrategy",
    "if no record is at or after the time: read from the end, with a warning, or fail",
    ("latest", "error"),
    default="latest",
)
ENDING_OFFSETS: Final = parsed(
    "endingOffsets",
    "the end, exclusive: `latest`, or JSON by stream and partition; bounds a streaming query as well",
    "word or JSON",
    str,
    default="latest",
)
ENDING_TIMESTAMP: Final = parsed(
    "endingTimestamp", "the end as a time, exclusive; goes before endingOffsets", _TIME, str
)
ENDING_BY_TIMESTAMP: Final = parsed("endingOffsetsByTimestamp", "the same, by stream and partition", _TIME, str)
TIME_ZONE: Final = parsed(
    "timeZone",
    "zone of times that name none, as `Europe/Berlin` or `+01:00`",
    "zone",
    _zone,
    unset="that of the session",
)
ON_DATA_LOSS: Final = choice(
    "onDataLoss",
    "if records, streams or logs were lost before they were read: end the query, or log it and continue; with "
    "`archive`, records that retention removed are read from `archivePath`, and any other loss ends the query",
    ("fail", "skip", "archive"),
    default="fail",
)
MAX_OFFSETS: Final = number(
    "maxOffsetsPerTrigger",
    "most offsets of a micro-batch, shared out in proportion to the backlogs",
    least=1,
    unset="no limit",
    only="stream",
)
MAX_BYTES: Final = size(
    "maxBytesPerTrigger",
    "most bytes of a micro-batch, estimated by the mean size of the records",
    least=1,
    unset="no limit",
    only="stream",
)
MIN_OFFSETS: Final = number(
    "minOffsetsPerTrigger", "a micro-batch waits for this many offsets", least=1, unset="no wait", only="stream"
)
MAX_DELAY: Final = duration(
    "maxTriggerDelay", "but no longer than this since the last one began", default="15m", only="stream"
)
MIN_PARTITIONS: Final = number(
    "minPartitions",
    "least number of tasks, large ranges are split",
    least=1,
    most=100_000,
    unset="the slots, if there are enough records",
)
MAX_PARTITIONS: Final = number(
    "maxPartitions", "most tasks, small ranges are packed", least=1, most=100_000, unset="3 times the slots"
)
MAX_RECORDS: Final = number(
    "maxRecordsPerPartition", "most offsets of one task; goes before maxPartitions", least=1, unset="no limit"
)
LONG_POLL_MS: Final = number(
    "longPollMs",
    "how long an idle micro-batch waits at the broker, in ms: a query with several sources waits for each of them, and "
    "one that waits less than 350 asks an idle broker more than 3 times a second",
    default="500",
    most=60_000,
    only="stream",
)

CONSUMER_GROUP: Final = text(
    "consumerGroup",
    "name under which the broker shows where the query stands, in `bascule lag` and metrics; reported after each "
    "micro-batch, and only shown: the query continues from its checkpoint. Give no two queries the same name",
    only="stream",
)

RETENTION_HOLD: Final = flag(
    "retentionHold",
    "retention and compaction keep what the query has not processed, up to the stream's `retention_hold_max_bytes`, "
    "until the query has not reported for its `retention_hold_expiry`. Needs `consumerGroup`, and the right "
    "HoldRetention on each stream",
    default="false",
    only="stream",
)

SOURCE: Final = OptionSet(
    "Source",
    'Options of `spark.read.format("bascule")`, `spark.readStream.format("bascule")`, `bascule.spark.scan` and '
    "`CREATE TABLE … USING bascule`. Exactly one of `stream`, `streamPattern` and `assign` must be given.",
    (
        ADDRESS,
        NAMESPACE,
        STREAM,
        STREAM_PATTERN,
        ASSIGN,
        SUBJECT,
        COLUMNS,
        STARTING_OFFSETS,
        STARTING_TIMESTAMP,
        STARTING_BY_TIMESTAMP,
        NO_MATCH,
        ENDING_OFFSETS,
        ENDING_TIMESTAMP,
        ENDING_BY_TIMESTAMP,
        TIME_ZONE,
        ON_DATA_LOSS,
        MAX_OFFSETS,
        MAX_BYTES,
        MIN_OFFSETS,
        MAX_DELAY,
        MIN_PARTITIONS,
        MAX_PARTITIONS,
        MAX_RECORDS,
        LONG_POLL_MS,
        CONSUMER_GROUP,
        RETENTION_HOLD,
        *TABLE_OPTIONS,
        *TIER_OPTIONS,
        *CONNECTION[2:],
    ),
    advice=kafka_advice,
)


@dataclass(frozen=True)
class Selection:
    """Which partitions are read: named streams, a pattern, or partitions one by one; exactly one of them is set."""

    streams: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True)
class Limits:
    """Admission of a micro-batch; 0 = no limit."""

    max_offsets: int = 0
    max_bytes: int = 0
    min_offsets: int = 0
    max_delay_ms: int = 900_000


@dataclass(frozen=True)
class SourceOptions:
    """All options, checked."""

    address: str
    namespace: str
    selection: Selection
    subject: str | None
    columns: tuple[str, ...]
    starting: Positions
    ending: Positions
    no_match: Literal["latest", "error"]
    on_data_loss: OnDataLoss
    limits: Limits
    packing: Packing
    request_timeout_ms: int
    retry_deadline_ms: int
    long_poll_ms: int
    consumer_group: str | None = None
    hold: bool = False
    tier: Tier = "broker"
    archive: "ArchiveOptions | None" = None
    table: TableView | None = None

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """The columns asked for, and those that the table view and the subject filter need beside them."""
        of_view = () if self.table is None else self.table.columns
        of_filter = () if self.subject is None else ("subject",)
        return tuple(dict.fromkeys((*self.columns, *of_view, *of_filter)))


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Check the options of a read.

    Args:
        given: names in any case.

    Raises:
        UsageError: an unknown option, a value outside its range, none or several ways to choose streams.
    """
    options = SOURCE.read(given)
    selection = _selection(options)
    options.get(TIME_ZONE)
    starting, ending = _starting(options), _ending(options)
    _check_streams(selection, starting, ending)
    on_data_loss = cast("OnDataLoss", options.value(ON_DATA_LOSS))
    tier, archive = parse_tier(options, on_data_loss)
    return SourceOptions(
        address=options.value(ADDRESS),
        namespace=options.value(NAMESPACE),
        selection=selection,
        subject=options.get(SUBJECT),
        columns=options.value(COLUMNS),
        starting=starting,
        ending=ending,
        no_match=cast('Literal["latest", "error"]', options.value(NO_MATCH)),
        on_data_loss=on_data_loss,
        limits=_limits(options),
        packing=_packing(options),
        request_timeout_ms=options.value(REQUEST_TIMEOUT_MS),
        retry_deadline_ms=options.value(RETRY_DEADLINE_MS),
        long_poll_ms=options.value(LONG_POLL_MS),
        consumer_group=_group(options.get(CONSUMER_GROUP)),
        hold=options.value(RETENTION_HOLD),
        tier=tier,
        archive=archive,
        table=parse_table(options, (MIN_PARTITIONS, MAX_RECORDS)),
    )


def check_hold(options: SourceOptions) -> None:
    """Refuse a hold of a query that the broker cannot name. A job has a name without the option `consumerGroup`.

    Raises:
        UsageError: `retentionHold` without `consumerGroup`.
    """
    if options.hold and options.consumer_group is None:
        raise usage("option retentionHold needs consumerGroup: the name by which the broker knows the query")


def _selection(options: Given) -> Selection:
    given = [option.name for option in (STREAM, STREAM_PATTERN, ASSIGN) if options.has(option)]
    if len(given) != 1:
        found = f"{' and '.join(given)} are set" if given else "none is set"
        raise usage(f"exactly one of the options stream, streamPattern and assign must be given: {found}")
    return Selection(options.get(STREAM) or (), options.get(STREAM_PATTERN), options.get(ASSIGN))


def _starting(options: Given) -> Positions:
    for option in (STARTING_TIMESTAMP, STARTING_BY_TIMESTAMP):
        if (given := options.get(option)) is not None:
            return parse_times(option.name, given, EARLIEST, zone_of(options.get(TIME_ZONE)))
    words = ("earliest", "latest")
    return parse_offsets(STARTING_OFFSETS.name, options.value(STARTING_OFFSETS), EARLIEST, words=words)


def _ending(options: Given) -> Positions:
    for option in (ENDING_TIMESTAMP, ENDING_BY_TIMESTAMP):
        if (given := options.get(option)) is not None:
            return parse_times(option.name, given, LATEST, zone_of(options.get(TIME_ZONE)))
    return parse_offsets(ENDING_OFFSETS.name, options.value(ENDING_OFFSETS), LATEST, words=("latest",))


def _check_streams(selection: Selection, *positions: Positions) -> None:
    """Reject positions of streams and partitions that are not selected, as far as known without the broker."""
    for each in positions:
        if selection.assigned is not None:
            each.check(selection.assigned)
        elif selection.streams:
            named = {stream: [n for s, n in each.by_partition if s == stream] for stream in selection.streams}
            each.check(named)


def _group(given: str | None) -> str | None:
    if given is not None and len(given.encode()) > MAX_GROUP_BYTES:
        raise usage(f"option consumerGroup has {len(given.encode())} bytes, at most {MAX_GROUP_BYTES} are accepted")
    return given


def _limits(options: Given) -> Limits:
    limits = Limits(
        max_offsets=options.get(MAX_OFFSETS) or 0,
        max_bytes=options.get(MAX_BYTES) or 0,
        min_offsets=options.get(MIN_OFFSETS) or 0,
        max_delay_ms=options.value(MAX_DELAY),
    )
    if limits.max_offsets and limits.min_offsets > limits.max_offsets:
        raise usage(f"minOffsetsPerTrigger {limits.min_offsets} is above maxOffsetsPerTrigger {limits.max_offsets}")
    return limits


def _packing(options: Given) -> Packing:
    packing = Packing(
        slots=current_slots(),
        min_partitions=options.get(MIN_PARTITIONS) or 0,
        max_partitions=options.get(MAX_PARTITIONS) or 0,
        max_records=options.get(MAX_RECORDS) or 0,
    )
    if packing.max_partitions and packing.min_partitions > packing.max_partitions:
        raise usage(f"minPartitions {packing.min_partitions} is above maxPartitions {packing.max_partitions}")
    return packing
