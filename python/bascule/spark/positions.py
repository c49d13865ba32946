"""Where reading begins and ends, per stream and partition, before anything is asked of the broker."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, cast

from bascule.spark.usage import usage

Kind = Literal["earliest", "latest", "offset", "last", "time"]

KAFKA_LATEST: Final = -1
"""What -1 stands for among the offsets of a JSON document, as users of Kafka's connector know it."""
KAFKA_EARLIEST: Final = -2
"""What -2 stands for there."""


MOST_DIGITS: Final = 19
"""Of a 64-bit number."""


@dataclass(frozen=True)
class Position:
    """A place in a partition. `value`: the offset, the count of last records, or the time in ns since 1970."""

    kind: Kind
    value: int = 0


EARLIEST: Final = Position("earliest")
LATEST: Final = Position("latest")


@dataclass(frozen=True)
class Positions:
    """Places by stream and partition, then by stream, then the default."""

    default: Position
    by_stream: Mapping[str, Position] = field(default_factory=dict[str, Position])
    by_partition: Mapping[tuple[str, int], Position] = field(default_factory=dict[tuple[str, int], Position])

    def of(self, stream: str, partition: int) -> Position:
        """The place for one partition."""
        exact = self.by_partition.get((stream, partition))
        return exact or self.by_stream.get(stream, self.default)


def parse_offsets(option: str, text: str, default: Position, *, words: tuple[str, ...]) -> Positions:
    """Read `startingOffsets` or `endingOffsets`.

    Args:
        option: its name, for messages.
        text: one of `words`, `-N` (the last N records of each partition; starts only), or JSON
            `{"stream": {"partition": offset or word}}` that may be partial; there -1 is latest and -2 earliest.
        default: for what partial JSON leaves out.
        words: which of `earliest` and `latest` are allowed.

    Raises:
        UsageError: anything else.
    """
    stripped = text.strip()
    if stripped.lower() in words:
        return Positions(_word(stripped.lower()))
    if "earliest" in words and stripped.startswith("-") and _is_number(stripped[1:]):
        return Positions(Position("last", int(stripped[1:])))
    if stripped.startswith("{"):
        return _parse_json(option, stripped, default, lambda value: _offset(option, value, words))
    forms = ", ".join(words) + (", -N" if "earliest" in words else "")
    raise usage(f"option {option} is {text!r}: it must be one of {forms}, or JSON by stream and partition")


def parse_times(option: str, text: str, default: Position) -> Positions:
    """Read a time for all partitions, or JSON by stream or by stream and partition.

    Args:
        option: its name, for messages.
        text: ISO 8601 (UTC unless it names a zone), ms since 1970, or JSON of those.
        default: for what partial JSON leaves out.

    Raises:
        UsageError: anything else.
    """
    stripped = text.strip()
    if stripped.startswith("{"):
        return _parse_json(option, stripped, default, lambda value: _time(option, value))
    return Positions(_time(option, stripped))


def _is_number(text: str) -> bool:
    """Whether these are decimal digits of at most a 64-bit number."""
    return len(text) <= MOST_DIGITS and text.isascii() and text.isdigit()


def _word(word: str) -> Position:
    return EARLIEST if word == "earliest" else LATEST


def _offset(option: str, value: object, words: tuple[str, ...]) -> Position:
    special = {KAFKA_LATEST: "latest", KAFKA_EARLIEST: "earliest"}
    word = value.lower() if isinstance(value, str) else None
    if isinstance(value, int) and not isinstance(value, bool):
        if value >= 0:
            return Position("offset", value)
        word = special.get(value)
    if word is not None and word in words:
        return _word(word)
    raise usage(f"option {option}: {value!r} is neither an offset ≥ 0 nor one of {', '.join(words)}")


def _time(option: str, value: object) -> Position:
    if isinstance(value, str) and _is_number(value.strip().removeprefix("-")):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return Position("time", value * 1_000_000)
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            moment = None
        if moment is not None:
            since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
            return Position("time", (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000)
    raise usage(f"option {option}: {value!r} is neither an ISO 8601 time nor ms since 1970")


def _parse_json(option: str, text: str, default: Position, parse: Callable[[object], Position]) -> Positions:
    document = _document(option, text)
    by_stream: dict[str, Position] = {}
    by_partition: dict[tuple[str, int], Position] = {}
    for stream, value in document.items():
        if not isinstance(value, dict):
            by_stream[stream] = parse(value)
            continue
        for number, place in cast("dict[str, Any]", value).items():
            if not _is_number(number):
                raise usage(f"option {option}: {number!r} of stream {stream} is no partition number")
            by_partition[stream, int(number)] = parse(place)
    return Positions(default, by_stream, by_partition)


def _document(option: str, text: str) -> dict[str, Any]:
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise usage(f"option {option} is not valid JSON: {cause}") from cause
    if not isinstance(document, dict):
        raise usage(f"option {option} must be a JSON object")
    return cast("dict[str, Any]", document)
