"""Resolves options to partitions and offsets, by asking the broker."""

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from bascule.errors import BrokerError, error
from bascule.spark.connection import Broker, PartitionStatus, StatusRequest, StreamStatus
from bascule.spark.offsets import UNKNOWN, Key, Predecessor
from bascule.spark.options import SourceOptions
from bascule.spark.planning import Range
from bascule.spark.positions import Position, Positions
from bascule.spark.reading import broker_of, tiers
from bascule.spark.usage import nearest

if TYPE_CHECKING:
    from bascule.spark.tiers import Archives

logger = logging.getLogger("bascule.spark")

MOST_MATCHES: Final = 10
"""Maximum attempts to match a pattern, if each time a stream is deleted before its status is read."""

Places = Iterable[tuple[Key, int]]
"""Partitions, each with an offset."""


def requests(options: SourceOptions, broker: Broker) -> list[StatusRequest]:
    """One request per stream that the options choose now, in order of name.

    Raises:
        BrokerError: the broker cannot be asked for the names that a pattern matches.
    """
    selection = options.selection
    if selection.assigned is not None:
        return [StatusRequest(stream, numbers) for stream, numbers in sorted(selection.assigned.items())]
    if selection.pattern is not None:
        pattern = re.compile(selection.pattern)
        return [StatusRequest(stream) for stream in broker.streams() if pattern.fullmatch(stream)]
    return [StatusRequest(stream) for stream in sorted(selection.streams)]


def ask_matching(
    options: SourceOptions,
    wanted: Callable[[bool], list[StatusRequest]],
    ask: Callable[[list[StatusRequest]], dict[str, StreamStatus]],
) -> dict[str, StreamStatus]:
    """The result of `ask` for the streams that the options select. A pattern is matched again if a stream was deleted
    in between.

    Args:
        options: of the read.
        wanted: one request per stream; its argument says whether streams must be listed again.
        ask: asks about them.

    Raises:
        BrokerError: as `ask`; `stream_not_found` of a stream that was chosen by name.
    """
    for attempt in range(MOST_MATCHES):
        try:
            return ask(wanted(attempt > 0))
        except BrokerError as failure:
            if failure.code != "stream_not_found":
                raise
            if options.selection.pattern is None:
                raise _with_names(options, failure) from failure
            if attempt == MOST_MATCHES - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _with_names(options: SourceOptions, failure: BrokerError) -> BrokerError:
    """The failure about a stream that does not exist, with the nearest name that does."""
    try:
        there = broker_of(options).streams()
    except BrokerError:
        return failure
    absent = next((name for name in sorted(options.selection.streams) if name not in there), "")
    remedy = "correct the name, or create it with `bascule stream create`"
    return error(failure.code, f"{failure}{nearest(absent, there)}; {remedy}", failure.details)


def check_positions(options: SourceOptions, statuses: dict[str, StreamStatus]) -> None:
    """Reject starts and ends of streams and partitions that are not read.

    Raises:
        UsageError: names the option and the stream or partition.
    """
    read = {name: status.partitions.keys() for name, status in statuses.items()}
    options.starting.check(read)
    options.ending.check(read)


def identify(broker: Broker, places: Places) -> dict[tuple[Key, int], Predecessor]:
    """Link and timestamp of the record before each place."""
    by_stream: dict[str, set[tuple[int, int]]] = {}
    for (stream, number), offset in places:
        by_stream.setdefault(stream, set()).add((number, offset))
    asked = [
        StatusRequest(stream, sorted({number for number, _ in wanted}), before=sorted(wanted))
        for stream, wanted in sorted(by_stream.items())
    ]
    statuses = broker.status(asked) if asked else {}
    return {
        ((stream, number), offset): found
        for stream, status in statuses.items()
        for (number, offset), found in status.before.items()
    }


def whole_ranges(options: SourceOptions) -> list[Range]:
    """The range of each partition that a batch read would have now, also empty ones, in order.

    Raises:
        BrokerError: as `resolve_ranges`.
    """
    broker = broker_of(options)
    statuses = _asked(options, broker)
    if options.archive is not None:
        archives = pin_present(options, broker, statuses)
        statuses = tiers().both_tiers(options, timed(options, statuses, archives), archives)
    return _bounds(options, statuses)


def checks() -> Any:
    """The module that compares an archive with the broker; imported as `tiers` is."""
    return import_module("bascule.spark.tier_checks")


def timed(options: SourceOptions, statuses: dict[str, StreamStatus], archives: "Archives") -> dict[str, StreamStatus]:
    """Statuses whose answers to times are those of the tiers that are read."""
    search = import_module("bascule.spark.tier_times").TimeSearch(options)
    return {name: search.answer(status, archives) for name, status in statuses.items()}


def pin_present(
    options: SourceOptions, broker: Broker, statuses: dict[str, StreamStatus], **opening: Any
) -> "Archives":
    """The archive of a read, at its present version.

    Args:
        options: of the read.
        broker: of the read.
        statuses: of the streams that are read, as the broker has them.
        **opening: `opener` of `tiers.pin`.

    Raises:
        UsageError: the archive has no table of a stream, or a table lacks a column that is read.
        StateError: `history_changed`, if the archive ends beyond a high watermark.
    """
    archives: Archives = tiers().pin(options, tiers().sources_of(statuses), **opening)
    for name, status in sorted(statuses.items()):
        checks().warn_of_earlier(options, archives.tables[name], status)
    checks().check_ends(options, broker, partitions_of(statuses), archives)
    return archives


def _asked(options: SourceOptions, broker: Broker) -> dict[str, StreamStatus]:
    statuses = ask_matching(
        options, lambda _: requests(options, broker), lambda wanted: look_up(options, broker, wanted)
    )
    check_positions(options, statuses)
    return statuses


def resolve_ranges(options: SourceOptions) -> list[Range]:
    """The ranges of a batch read, now.

    Raises:
        BrokerError: `stream_not_found`, `partition_not_found`, `offset_out_of_range`, or the broker cannot be reached;
            `history_changed`, if the archive has records of another log than the broker.
    """
    broker = broker_of(options)
    statuses = _asked(options, broker)
    if options.archive is None:
        found = _chosen(options, statuses)
    else:
        archives = pin_present(options, broker, statuses)
        parts = partitions_of(statuses)
        found = [
            part
            for whole in _chosen(options, tiers().both_tiers(options, timed(options, statuses, archives), archives))
            for part in tiers().divide(options, whole, parts[whole.stream, whole.partition], archives)
        ]
        checks().check_cuts(options, broker, found, archives, set())
    known = identify(broker, (((each.stream, each.partition), each.end) for each in found if each.files is None))
    return [each if each.files is not None else _with_history(each, known) for each in found]


def _chosen(options: SourceOptions, statuses: dict[str, StreamStatus]) -> list[Range]:
    """The ranges between the starts and the ends that the options name; none is empty."""
    return [each for each in _bounds(options, statuses) if each.size]


def _bounds(options: SourceOptions, statuses: dict[str, StreamStatus]) -> list[Range]:
    """The range of each partition between the start and the end that the options name, in order."""
    starts = resolve(options, statuses, options.starting, start_of)
    ends = resolve(options, statuses, options.ending, end_of)
    return [
        Range(*key, starts[key], max(starts[key], ends[key]), status.incarnation)
        for key, status in sorted(partitions_of(statuses).items(), key=lambda item: item[0])
    ]


def _with_history(planned: Range, known: dict[tuple[Key, int], Predecessor]) -> Range:
    found = known.get(((planned.stream, planned.partition), planned.end), Predecessor())
    return planned if found.link == UNKNOWN else replace(planned, history=(planned.end, found.link))


def partitions_of(statuses: dict[str, StreamStatus]) -> dict[Key, PartitionStatus]:
    """All partitions by stream and number."""
    return {(name, number): part for name, status in statuses.items() for number, part in status.partitions.items()}


def look_up(options: SourceOptions, broker: Broker, wanted: list[StatusRequest]) -> dict[str, StreamStatus]:
    """States of the streams, with look-ups of all times in the options."""
    statuses = broker.status(wanted)
    times: dict[str, set[tuple[int, int]]] = {}
    for stream, partition in partitions_of(statuses):
        for place in (options.starting.of(stream, partition), options.ending.of(stream, partition)):
            if place.kind == "time":
                times.setdefault(stream, set()).add((partition, place.value))
    if not times:
        return statuses
    timed = [
        StatusRequest(request.stream, request.partitions, sorted(times.get(request.stream, ()))) for request in wanted
    ]
    return broker.status(timed)


def resolve(
    options: SourceOptions,
    statuses: dict[str, StreamStatus],
    positions: Positions,
    resolver: Callable[[SourceOptions, StreamStatus, int, Position], int],
) -> dict[Key, int]:
    """Offsets of `positions` in every partition."""
    return {
        (name, number): resolver(options, status, number, positions.of(name, number))
        for name, status in statuses.items()
        for number in status.partitions
    }


def start_of(options: SourceOptions, status: StreamStatus, number: int, place: Position) -> int:
    """The first offset to read of one partition.

    Raises:
        StateError: a named offset is beyond the high watermark, or was removed and `onDataLoss` is not `skip`; no
            record is young enough and the strategy is `error`.
    """
    part = status.partitions[number]
    match place.kind:
        case "earliest":
            return part.log_start
        case "latest":
            return part.high_watermark
        case "last":
            return max(part.high_watermark - place.value, part.log_start)
        case "time":
            return _at_time(options, status, number, place)
        case "offset":
            return check_start(options, (status.stream, number), part, place.value)


def end_of(_options: SourceOptions, status: StreamStatus, number: int, place: Position) -> int:
    """The exclusive end of one partition, at most its high watermark.

    Raises:
        StateError: a named offset is beyond the high watermark.
    """
    part = status.partitions[number]
    if place.kind == "time":
        found = status.times.get((number, place.value))
        return part.high_watermark if found is None else min(found, part.high_watermark)
    if place.kind == "offset":
        if place.value > part.high_watermark:
            raise out_of_range((status.stream, number), place.value, part)
        return place.value
    return part.high_watermark


def check_start(options: SourceOptions, key: Key, part: PartitionStatus, offset: int) -> int:
    """`offset`, or the log start when records before it may be skipped.

    Raises:
        StateError: `offset_out_of_range`.
    """
    if offset > part.high_watermark or (offset < part.log_start and options.on_data_loss != "skip"):
        raise out_of_range(key, offset, part)
    if offset < part.log_start:
        stream, number = key
        logger.warning("%s/%d: offsets [%d, %d) were removed; skipped", stream, number, offset, part.log_start)
    return max(offset, part.log_start)


def _at_time(options: SourceOptions, status: StreamStatus, number: int, place: Position) -> int:
    part = status.partitions[number]
    found = status.times.get((number, place.value))
    if found is not None:
        return min(found, part.high_watermark)
    what = f"{status.stream}/{number} has no record at or after {place.value // 1_000_000} ms since 1970"
    if options.no_match == "error":
        raise error("offset_out_of_range", what)
    logger.warning("%s: reading from its end", what)
    return part.high_watermark


def out_of_range(key: Key, offset: int, part: PartitionStatus) -> Exception:
    """The error for an offset that the partition does not have."""
    stream, number = key
    if offset < part.log_start:
        bound = f"below the log start offset {part.log_start}"
        remedy = "; the records before it were removed: set onDataLoss to skip to continue without them"
    else:
        bound, remedy = f"beyond the high watermark {part.high_watermark}", ": name one up to it, or latest"
    details = {"offset": offset, "log_start": part.log_start, "high_watermark": part.high_watermark}
    return error("offset_out_of_range", f"offset {offset} is {bound} of {stream}/{number}{remedy}", details)
