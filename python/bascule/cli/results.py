"""What commands find out. One type for each kind of answer; `bascule.cli.output` prints them."""

import platform
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from bascule import engine
from bascule.client import Record, Stream

__all__ = [
    "BenchResult",
    "Message",
    "PartitionTrim",
    "Produced",
    "Setting",
    "StreamChange",
    "StreamPurge",
    "StreamRow",
    "Version",
]


@dataclass(frozen=True, slots=True)
class Version:
    """Versions of what is installed."""

    bascule: str
    data_plane: str
    build: str
    python: str
    platform: str

    @classmethod
    def of_this_process(cls, package: str) -> Self:
        """The versions in use here."""
        python = platform.python_version()
        return cls(package, engine.__version__, engine.BUILD_PROFILE, python, f"{sys.platform} {platform.machine()}")


@dataclass(frozen=True, slots=True)
class StreamRow:
    """One stream of `stream list`."""

    name: str
    subject: str
    partitions: int
    records: int | None
    """Committed records that are there; `None` = not known, because of a partition that is paused or open elsewhere."""
    state: str
    """`open`, or how many partitions are paused or read-only."""
    created: str

    @classmethod
    def of(cls, stream: Stream) -> Self:
        """A row of a stream."""
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
    """What happened, or with `--dry-run` would happen, to a stream."""

    action: str
    name: str
    subject: str
    partitions: int
    records: int | None
    """`None` = not known."""
    dry_run: bool


@dataclass(frozen=True, slots=True)
class StreamPurge(StreamChange):
    """The same of a purge."""

    at_once: bool
    """Whether the files go without their grace period."""


@dataclass(frozen=True, slots=True)
class PartitionTrim:
    """What happened, or with `--dry-run` would happen, to the start of a partition; offsets below it are gone."""

    name: str
    partition: int
    log_start_before: int
    log_start: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Produced:
    """The answer of `produce`."""

    stream: str
    partition: int
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
    value: bytes
    subject: str
    headers: dict[str, bytes]

    @classmethod
    def of(cls, record: Record, partition: int) -> Self:
        """A record with its time as text: UTC, microseconds."""
        seconds, nanoseconds = divmod(record.timestamp_ns, 1_000_000_000)
        time = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        key, value = record.key, record.value
        return cls(
            partition, record.offset, f"{time}.{nanoseconds // 1000:06}Z", key, value, record.subject, record.headers
        )


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
    """Of one value."""
    seconds: float
    records_s: int
    """Records a second."""
    mib_s: float
    p50_ms: float | None
    p99_ms: float | None
