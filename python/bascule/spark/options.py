"""The options of the source: names, defaults, checks. An unknown one is rejected with the nearest name."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast
from urllib.parse import parse_qsl

from bascule._json import load_json
from bascule.spark.columns import DEFAULT as DEFAULT_COLUMNS
from bascule.spark.columns import parse_columns
from bascule.spark.planning import Packing
from bascule.spark.positions import EARLIEST, LATEST, Positions, parse_offsets, parse_times
from bascule.spark.usage import nearest, usage
from bascule.spark.zones import parse_zone, zone_of

DEFAULT_ADDRESS: Final = "127.0.0.1:9292"
CATALOG_PREFIX: Final = "option."
CATALOG_PROPERTIES: Final = frozenset(
    {"path", "provider", "location", "owner", "comment", "collation", "external", "is_managed_location", "table_type"}
)
"""Options that Spark's catalog adds to those of a table; ignored."""
SLOTS_VARIABLE: Final = "PYSPARK_BASCULE_SLOTS"
"""Environment variable with the number of concurrent tasks, for planners; `bascule.spark.session` sets it."""

OPTIONS: Final = {
    "address": "host:port of a broker, or bascules://host:port?ca=FILE&cert=FILE&key=FILE; default 127.0.0.1:9292",
    "namespace": "namespace of the streams; default `default`",
    "stream": "one stream, several separated by commas, or a JSON list",
    "streamPattern": "regular expression that whole stream names match",
    "assign": 'JSON {"stream": [partition, …]}',
    "subject": "subject filter, served by the broker; `*` and `>` as in NATS",
    "columns": f"columns in order; default {','.join(DEFAULT_COLUMNS)}",
    "startingOffsets": "earliest (default), latest, -N, or JSON",
    "startingTimestamp": "ISO 8601 or ms since 1970, or JSON; goes before startingOffsets",
    "startingOffsetsByTimestamp": "the same, JSON by stream and partition",
    "startingOffsetsByTimestampStrategy": "where no record is that young: latest (default, with a warning) or error",
    "endingOffsets": "latest (default) or JSON; bounds a stream as well",
    "endingTimestamp": "ISO 8601 or ms since 1970, or JSON; exclusive",
    "endingOffsetsByTimestamp": "the same, JSON by stream and partition",
    "timeZone": "zone of times that name none: a name as Europe/Berlin, or +01:00; default: that of the Spark session",
    "onDataLoss": "fail (default) or skip what was lost before it was read: records, streams, replaced logs",
    "maxOffsetsPerTrigger": "most offsets of a micro-batch, shared out by backlog",
    "maxBytesPerTrigger": "most bytes of a micro-batch, estimated by the mean record size",
    "minOffsetsPerTrigger": "a micro-batch waits for this many offsets",
    "maxTriggerDelay": "but no longer than this; default 15m",
    "minPartitions": "least number of Spark partitions, large ranges are split; default: the slots, given enough",
    "maxPartitions": "most Spark partitions, small ranges are packed; default 3 times the slots",
    "maxRecordsPerPartition": "most offsets of one Spark partition",
    "requestTimeoutMs": "deadline of one request; default 30000",
    "retryDeadlineMs": "how long an unreachable broker is tried; default 60000",
    "longPollMs": "how long an idle micro-batch waits at the broker; default 500, at most 60000",
}
"""Every option with its meaning."""


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
    on_data_loss: Literal["fail", "skip"]
    limits: Limits
    packing: Packing
    request_timeout_ms: int
    retry_deadline_ms: int
    long_poll_ms: int


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Check the options of a read.

    Args:
        given: names in any case.

    Raises:
        UsageError: an unknown option, a value outside its range, none or several ways to choose streams.
    """
    options = _Given(given)
    selection = _selection(options)
    if (zone := options.get("timeZone")) is not None:
        parse_zone("option timeZone", zone.strip())
    starting, ending = _starting(options), _ending(options)
    _check_streams(selection, starting, ending)
    return SourceOptions(
        address=_address(options.text("address", DEFAULT_ADDRESS)),
        namespace=options.text("namespace", "default"),
        selection=selection,
        subject=options.get("subject"),
        columns=parse_columns(options.text("columns", ",".join(DEFAULT_COLUMNS))),
        starting=starting,
        ending=ending,
        no_match=cast(
            'Literal["latest", "error"]',
            options.choice("startingOffsetsByTimestampStrategy", ("latest", "error")),
        ),
        on_data_loss=cast('Literal["fail", "skip"]', options.choice("onDataLoss", ("fail", "skip"))),
        limits=_limits(options),
        packing=_packing(options),
        request_timeout_ms=options.number("requestTimeoutMs", 30_000, least=1),
        retry_deadline_ms=options.number("retryDeadlineMs", 60_000, least=0),
        long_poll_ms=options.number("longPollMs", 500, least=0, most=60_000),
    )


def without_catalog(given: Mapping[str, str]) -> dict[str, str]:
    """Options by lower-case name, without those of Spark's catalog: repeated options, and table properties."""
    lower = {name.lower(): value for name, value in given.items()}
    return {
        name: value
        for name, value in lower.items()
        if name not in CATALOG_PROPERTIES and name.removeprefix(CATALOG_PREFIX) not in lower.keys() - {name}
    }


class _Given:
    """Options as given, by lower-case name; every read names the option as it is written in the documentation."""

    def __init__(self, given: Mapping[str, str]) -> None:
        known = {name.lower() for name in OPTIONS}
        self._values = without_catalog(given)
        for name in self._values:
            if name not in known:
                raise usage(f"there is no option {name!r}{nearest(name, OPTIONS)}", option=name)

    def get(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def text(self, name: str, default: str) -> str:
        value = self.get(name)
        if value is None:
            return default
        if not value.strip():
            raise usage(f"option {name} is empty")
        return value.strip()

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        value = self.text(name, choices[0]).lower()
        if value not in choices:
            raise usage(f"option {name} is {value!r}: it must be one of {', '.join(choices)}{nearest(value, choices)}")
        return value

    def number(
        self, name: str, default: int, *, least: int, most: int = 2**62, parse: Callable[[str], int] = int
    ) -> int:
        value = self.get(name)
        if value is None:
            return default
        try:
            number = parse(value.strip())
        except ValueError:
            number = None
        if number is None or not least <= number <= most:
            bound = f"at least {least}" if most == 2**62 else f"from {least} to {most}"
            raise usage(f"option {name} is {value!r}: it must be a number {bound}")
        return number


_PROTECTED: Final = re.compile(r"^(grpc\+tls|bascules|liftbridges)://")
_TLS_FILES: Final = {"ca", "cert", "key"}


def _address(text: str) -> str:
    """`grpc://host:port`, or `grpc+tls://host:port` followed by the names of the files."""
    is_protected = _PROTECTED.match(text) is not None
    address = _PROTECTED.sub("", re.sub(r"^(grpc(\+tcp)?|bascule|liftbridge)://", "", text))
    address, question, query = address.partition("?")
    host, _, port = address.rpartition(":")
    if (
        not host
        or not re.fullmatch(r"[0-9]{1,5}", port)
        or not 0 < int(port) < 65_536
        or "/" in address
        or (question and not is_protected)
    ):
        raise usage(f"option address is {text!r}: it must be host:port, or bascules://host:port?ca=FILE")
    if not is_protected:
        return f"grpc://{address}"
    files = dict(parse_qsl(query, keep_blank_values=True))
    if not files.keys() <= _TLS_FILES or not all(files.values()) or ("cert" in files) != ("key" in files):
        raise usage(f"option address is {text!r}: after ? it may name ca, and cert with key, each with a file")
    return f"grpc+tls://{address}?{query}"


def _selection(options: _Given) -> Selection:
    given = [name for name in ("stream", "streamPattern", "assign") if options.get(name) is not None]
    if len(given) != 1:
        found = f"{' and '.join(given)} are set" if given else "none is set"
        raise usage(f"exactly one of the options stream, streamPattern and assign must be given: {found}")
    text = options.text(given[0], "")
    match given[0]:
        case "stream":
            return Selection(streams=_names(text))
        case "streamPattern":
            try:
                re.compile(text)
            except re.error as cause:
                raise usage(f"option streamPattern is not a regular expression: {cause}") from cause
            return Selection(pattern=text)
        case _:
            return Selection(assigned=_assigned(text))


def _names(text: str) -> tuple[str, ...]:
    names: list[Any] = (
        _json("stream", text, list) if text.startswith("[") else [name.strip() for name in text.split(",")]
    )
    if not names or not all(isinstance(name, str) and name for name in names):
        raise usage(f"option stream is {text!r}: it must name one stream or several")
    return tuple(dict.fromkeys(names))


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    assigned: dict[str, tuple[int, ...]] = {}
    for stream, numbers in _json("assign", text, dict).items():
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


def _json(option: str, text: str, kind: type) -> Any:
    try:
        document = load_json(text)
    except (ValueError, RecursionError) as cause:
        raise usage(f"option {option} is not valid JSON: {cause}") from cause
    if not isinstance(document, kind):
        raise usage(f"option {option} is {text!r}: it must be a JSON {'list' if kind is list else 'object'}")
    return document


def _starting(options: _Given) -> Positions:
    for name in ("startingTimestamp", "startingOffsetsByTimestamp"):
        if (text := options.get(name)) is not None:
            return parse_times(name, text, EARLIEST, zone_of(options.get("timeZone")))
    return parse_offsets(
        "startingOffsets", options.text("startingOffsets", "earliest"), EARLIEST, words=("earliest", "latest")
    )


def _ending(options: _Given) -> Positions:
    for name in ("endingTimestamp", "endingOffsetsByTimestamp"):
        if (text := options.get(name)) is not None:
            return parse_times(name, text, LATEST, zone_of(options.get("timeZone")))
    return parse_offsets("endingOffsets", options.text("endingOffsets", "latest"), LATEST, words=("latest",))


def _check_streams(selection: Selection, *positions: Positions) -> None:
    """Reject positions of streams and partitions that are not selected, as far as known without the broker."""
    for each in positions:
        if selection.assigned is not None:
            each.check(selection.assigned)
        elif selection.streams:
            named = {stream: [n for s, n in each.by_partition if s == stream] for stream in selection.streams}
            each.check(named)


def _limits(options: _Given) -> Limits:
    limits = Limits(
        max_offsets=options.number("maxOffsetsPerTrigger", 0, least=1),
        max_bytes=options.number("maxBytesPerTrigger", 0, least=1, parse=parse_bytes),
        min_offsets=options.number("minOffsetsPerTrigger", 0, least=1),
        max_delay_ms=options.number("maxTriggerDelay", 900_000, least=0, parse=parse_duration_ms),
    )
    if limits.max_offsets and limits.min_offsets > limits.max_offsets:
        raise usage(f"minOffsetsPerTrigger {limits.min_offsets} is above maxOffsetsPerTrigger {limits.max_offsets}")
    return limits


def _packing(options: _Given) -> Packing:
    slots = default_slots()
    packing = Packing(
        slots=slots,
        min_partitions=options.number("minPartitions", 0, least=1, most=100_000),
        max_partitions=options.number("maxPartitions", 0, least=1, most=100_000),
        max_records=options.number("maxRecordsPerPartition", 0, least=1),
    )
    if packing.max_partitions and packing.min_partitions > packing.max_partitions:
        raise usage(f"minPartitions {packing.min_partitions} is above maxPartitions {packing.max_partitions}")
    return packing


def default_slots() -> int:
    """Number of concurrent tasks: as set by the session, else the number of processors."""
    said = os.environ.get(SLOTS_VARIABLE, "")
    return int(said) if said.isdigit() and int(said) > 0 else os.cpu_count() or 2


_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_BYTES: Final = {
    "": 1,
    "b": 1,
    "k": 2**10,
    "kib": 2**10,
    "kb": 10**3,
    "m": 2**20,
    "mib": 2**20,
    "mb": 10**6,
    "g": 2**30,
    "gib": 2**30,
    "gb": 10**9,
}


def parse_duration_ms(text: str) -> int:
    """A duration as ms: `500ms`, `30s`, `15m`, `2h`; a bare number is ms.

    Raises:
        ValueError: anything else.
    """
    return _with_unit(text, {"": 1, **_UNITS_MS})


def parse_bytes(text: str) -> int:
    """A size in bytes: `64MiB`, `10mb`, `512k`; a bare number is bytes.

    Raises:
        ValueError: anything else.
    """
    return _with_unit(text, _UNITS_BYTES)


def _with_unit(text: str, units: Mapping[str, int]) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in units:
        raise ValueError(text)
    return int(match[1]) * units[match[2].lower()]
