"""Results of commands, one type for each kind; `bascule.cli.render.output` prints them."""

import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from bascule import engine
from bascule.client import Record, Stream

__all__ = [
    "BenchResult",
    "JobChecked",
    "Message",
    "PartitionTrim",
    "Produced",
    "Setting",
    "StreamChange",
    "StreamPurge",
    "StreamRow",
    "Version",
    "header_document",
    "time_text",
]


@dataclass(frozen=True, slots=True)
class Version:
    """Installed versions."""

    bascule: str
    data_plane: str
    build: str
    python: str
    platform: str

    @classmethod
    def of_this_process(cls, package: str) -> Self:
        """The versions of this process."""
        python = platform.python_version()
        return cls(package, engine.__version__, engine.BUILD_PROFILE, python, f"{sys.platform} {platform.machine()}")


@dataclass(frozen=True, slots=True)
class JobChecked:
    """A valid job file."""

    job: str
    mode: str
    targets: list[str]
    unchecked: list[str]
    """Parts of the file that need Spark, a broker or a registry to be checked: `bascule pipeline plan` checks them."""


@dataclass(frozen=True, slots=True)
class StreamRow:
    """One stream of `stream list`."""

    name: str
    subject: str
    partitions: int
    records: int | None
    """Number of committed records; `None` = not known, because a partition is paused or open elsewhere."""
    state: str
    """`open`, or the number of paused and read-only partitions."""
    created: str

    @classmethod
    def of(cls, stream: Stream) -> Self:
        """The row of a stream."""
        created = stream.created.isoformat(timespec="seconds")
        partitions = stream.partitions
        return cls(stream.name, stream.subject, len(partitions), _records(stream), _state(stream), created)


def _records(stream: Stream) -> int | None:
    counts = [item.high_watermark - item.log_start for item in stream.partitions if item.log_start is not None]
    return sum(counts) if len(counts) == len(stream.partitions) else None


def _state(stream: Stream) -> str:
    counts = {
        "paused": sum(partition.paused for partition in stream.partitions),
        "read-only": sum(partition.readonly for partition in stream.partitions),
    }
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "open"


@dataclass(frozen=True, slots=True)
class StreamChange:
    """A change of a stream, made or (with `--dry-run`) proposed."""

    action: str
    name: str
    subject: str
    partitions: int
    records: int | None
    """`None` = not known."""
    dry_run: bool


@dataclass(frozen=True, slots=True)
class StreamPurge(StreamChange):
    """A purge of a stream."""

    at_once: bool
    """Whether the files are removed without their grace period."""


@dataclass(frozen=True, slots=True)
class PartitionTrim:
    """A trim of a partition, made or (with `--dry-run`) proposed; offsets below `log_start` are removed."""

    name: str
    partition: int
    log_start_before: int
    log_start: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Produced:
    """The result of `produce`."""

    stream: str
    partition: int | None
    """`None` = not known: without acks the broker does not report the partition of records without a key."""
    records: int
    first_offset: int | None
    last_offset: int | None
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Message:
    """One record of `consume`."""

    partition: int
    offset: int
    time: str
    key: bytes | None
    value: bytes | None
    """`None` = a tombstone."""
    subject: str
    headers: dict[str, bytes] | list[tuple[str | bytes, bytes]]
    """By name; pairs in order if a name repeats or is not text."""
    origin_time: str | None
    """The origin time that its publisher set; `None` = none."""

    @classmethod
    def of(cls, record: Record, partition: int) -> Self:
        """A record with its times as text, in UTC with nanoseconds."""
        origin = record.origin_time_ns
        return cls(
            partition,
            record.offset,
            time_text(record.timestamp_ns),
            record.key,
            record.value,
            record.subject,
            header_document(record.headers),
            None if origin is None else time_text(origin),
        )


def time_text(timestamp_ns: int) -> str:
    """A time in UTC with nine digits of nanoseconds."""
    seconds, nanoseconds = divmod(timestamp_ns, 1_000_000_000)
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{nanoseconds:09}Z"


def header_document(headers: Sequence[tuple[str, bytes]]) -> dict[str, bytes] | list[tuple[str | bytes, bytes]]:
    """Headers by name if names are unique text, otherwise pairs in order; a name that is not UTF-8 is bytes."""
    named = dict(headers)
    if len(named) == len(headers) and all(map(_is_text, named)):
        return named
    return [(name if _is_text(name) else name.encode("utf-8", "surrogateescape"), value) for name, value in headers]


def _is_text(name: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of `config show`."""

    key: str
    value: object
    origin: str


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One measurement of `bench`."""

    path: str
    records: int
    bytes: int
    """Bytes of one value."""
    seconds: float
    records_s: int
    """Records per second."""
    mib_s: float
    p50_ms: float | None
    p99_ms: float | None
