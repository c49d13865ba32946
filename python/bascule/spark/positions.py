"""Start and end positions per stream and partition, before the broker is asked."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, Literal, cast

from bascule._json import load_json
from bascule.spark.usage import nearest, usage

Kind = Literal["earliest", "latest", "offset", "last", "time"]

KAFKA_LATEST: Final = -1
"""Meaning of -1 as an offset in a JSON document, as in Kafka's connector."""
KAFKA_EARLIEST: Final = -2
"""Meaning of -2."""


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MOST_NANOSECONDS: Final = 2**63 - 86_400 * 10**9
"""Maximum distance from 1970, in either direction."""
MOST_DIGITS: Final = 19
"""Maximum digits of a 64-bit number."""


@dataclass(frozen=True)
class Position:
    """A position in a partition. `value`: the offset, the number of last records, or the time in ns since 1970."""

    kind: Kind
    value: int = 0


EARLIEST: Final = Position("earliest")
LATEST: Final = Position("latest")


@dataclass(frozen=True)
class Positions:
    """Positions by stream and partition, then by stream, then the default. `option`: the option that set them."""

    option: str
    default: Position
    by_stream: Mapping[str, Position] = field(default_factory=dict[str, Position])
    by_partition: Mapping[tuple[str, int], Position] = field(default_factory=dict[tuple[str, int], Position])

    def of(self, stream: str, partition: int) -> Position:
        """The position for one partition."""
        exact = self.by_partition.get((stream, partition))
        return exact or self.by_stream.get(stream, self.default)

    def check(self, read: Mapping[str, Iterable[int]]) -> None:
        """Reject positions of streams and partitions that are not read.

        Args:
            read: the partitions read, by stream.

        Raises:
            UsageError: of the first such stream or partition.
        """
        for stream in (*self.by_stream, *(stream for stream, _ in self.by_partition)):
            if stream not in read:
                hint = nearest(stream, read)
                message = f"option {self.option} names the stream {stream!r}, which is not read{hint}"
                raise usage(message, option=self.option, stream=stream)
        for stream, number in self.by_partition:
            numbers = sorted(read[stream])
            if number not in numbers:
                message = (
                    f"option {self.option} names partition {number} of {stream}, which is not read: "
                    f"those read are {summary(numbers)}"
                )
                raise usage(message, option=self.option, stream=stream, partition=number)


def summary(numbers: Sequence[int]) -> str:
    """Ascending numbers as text, neighbours as ranges: `0-3, 7`; `none`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"


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
        return Positions(option, _word(stripped.lower()))
    if "earliest" in words and stripped.startswith("-") and _is_number(stripped[1:]):
        return Positions(option, Position("last", int(stripped[1:])))
    if stripped.startswith("{"):
        return _parse_json(option, stripped, default, lambda value: _offset(option, value, words))
    forms = ", ".join(words) + (", -N" if "earliest" in words else "")
    raise usage(f"option {option} is {text!r}: it must be one of {forms}, or JSON by stream and partition")


def parse_times(option: str, text: str, default: Position, zone: Callable[[str], tzinfo | None]) -> Positions:
    """Read a time for all partitions, or JSON by stream or by stream and partition.

    Args:
        option: its name, for messages.
        text: ISO 8601, ms since 1970, or JSON of those.
        default: for what partial JSON leaves out.
        zone: gives the zone of text that names none, None = the local one; asked with `option`, only where needed.

    Raises:
        UsageError: anything else.
    """
    stripped = text.strip()
    if stripped.startswith("{"):
        return _parse_json(option, stripped, default, lambda value: _time(option, value, zone))
    return Positions(option, _time(option, stripped, zone))


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


def _time(option: str, value: object, zone: Callable[[str], tzinfo | None]) -> Position:
    if isinstance(value, str) and _is_number(value.strip().removeprefix("-")):
        value = int(value)
    nanoseconds = None
    if isinstance(value, int) and not isinstance(value, bool):
        nanoseconds = value * 1_000_000
    elif isinstance(value, str):
        nanoseconds = _nanoseconds(value.strip(), lambda: zone(option))
    if nanoseconds is None:
        raise usage(f"option {option}: {value!r} is neither an ISO 8601 time nor ms since 1970")
    if not -MOST_NANOSECONDS <= nanoseconds < MOST_NANOSECONDS:
        raise usage(f"option {option}: {value!r} is outside the years 1678 to 2261")
    return Position("time", nanoseconds)


def _nanoseconds(text: str, zone: Callable[[], tzinfo | None]) -> int | None:
    """ISO 8601 as ns since 1970; None = another format."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None and (local := zone()) is not None:
        moment = moment.replace(tzinfo=local)
    try:
        since = moment.astimezone(UTC) - EPOCH
    except (OverflowError, OSError, ValueError):  # the first and the last year of a calendar
        return MOST_NANOSECONDS
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000


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
                raise usage(f"option {option}: {number!r} of stream {stream} is not a partition number")
            if (stream, int(number)) in by_partition:
                raise usage(f"option {option} names partition {int(number)} of stream {stream} twice")
            by_partition[stream, int(number)] = parse(place)
    return Positions(option, default, by_stream, by_partition)


def _document(option: str, text: str) -> dict[str, Any]:
    try:
        document: object = load_json(text)
    except (ValueError, RecursionError) as cause:
        raise usage(f"option {option} is not valid JSON: {cause}") from cause
    if not isinstance(document, dict):
        raise usage(f"option {option} must be a JSON object")
    return cast("dict[str, Any]", document)
