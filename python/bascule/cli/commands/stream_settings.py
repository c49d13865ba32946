"""The settings of a stream as options of `stream create` and `stream edit`, from one table."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Concatenate, Final, ParamSpec, TypeVar

import typer

from bascule._units import parse_bytes, parse_duration_ms
from bascule.cli.parameters import bundled
from bascule.errors import UsageError

__all__ = ["SETTINGS", "Given", "stored", "with_settings"]

P = ParamSpec("P")
R = TypeVar("R")


class Durability(StrEnum):
    """Where a record is when it is acknowledged: synced to disk, or in the page cache."""

    DISK = "disk"
    MEMORY = "memory"


class Codec(StrEnum):
    """Compression of new batches."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


class NatsCopy(StrEnum):
    """How direct publishes are republished to NATS."""

    ENVELOPE = "envelope"
    VALUE = "value"
    NONE = "none"


class NatsAcks(StrEnum):
    """How plain NATS messages with a reply subject are acknowledged."""

    OFF = "off"
    JETSTREAM = "jetstream"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    name: str
    """Name in `StreamOptions`; the option has dashes."""
    stored: str
    """Name in the metadata and in `stream show`."""
    kind: str
    """`age`, `size`, `count`, `flag` or a choice."""
    help: str
    choices: type[StrEnum] | None = None

    @property
    def annotation(self) -> Any:
        """The type annotation of the option."""
        option = "--" + self.name.replace("_", "-")
        if self.choices is not None:
            return Annotated[self.choices | None, typer.Option(option, help=self.help)]
        match self.kind:
            case "count":
                return Annotated[int | None, typer.Option(option, min=0, help=self.help)]
            case "flag":
                return Annotated[bool | None, typer.Option(f"{option}/--no-{option[2:]}", help=self.help)]
            case "age":
                return Annotated[str | None, typer.Option(option, help=f'{self.help} E.g. "12h", "7d".')]
            case _:
                return Annotated[str | None, typer.Option(option, help=f'{self.help} E.g. "64MiB", "10GB".')]

    def read(self, value: Any) -> Any:
        """The value for `StreamOptions`.

        Raises:
            UsageError: code `invalid_argument`: not a valid duration or size.
        """
        option = "--" + self.name.replace("_", "-")
        try:
            match self.kind:
                case "age":
                    return timedelta(milliseconds=int(str(parse_duration_ms(value))))
                case "size":
                    return int(str(parse_bytes(value)))
                case _:
                    return value.value if isinstance(value, StrEnum) else value
        except OverflowError:
            raise UsageError("invalid_argument", f"{option}: {value!r} is too long for a duration") from None
        except ValueError as wrong:
            raise UsageError("invalid_argument", f"{option}: {wrong}") from None


SETTINGS: Final = (
    Setting("retention_max_age", "retention_age_ms", "age", "Remove segments older than this; 0 = never."),
    Setting(
        "retention_max_bytes", "retention_bytes", "size", "Keep at most this many bytes per partition; 0 = unlimited."
    ),
    Setting(
        "retention_max_messages",
        "retention_messages",
        "count",
        "Keep at most this many records per partition; 0 = unlimited.",
    ),
    Setting(
        "retention_after_archive",
        "retention_after_archive",
        "flag",
        "Remove only records that an archive has; needs --retention-after-archive-max-bytes.",
    ),
    Setting(
        "retention_after_archive_max_bytes",
        "retention_after_archive_max_bytes",
        "size",
        "Size of a partition above which retention does not wait for the archive.",
    ),
    Setting(
        "retention_hold_max_bytes",
        "retention_hold_max_bytes",
        "size",
        "Let queries hold records that they have not processed, until a partition has this size.",
    ),
    Setting(
        "retention_hold_expiry",
        "retention_hold_expiry_ms",
        "age",
        "End the hold of a query that has not reported for this time; needs --retention-hold-max-bytes.",
    ),
    Setting("cleaner_interval", "cleaner_interval_ms", "age", "How often retention and compaction run."),
    Setting("segment_max_bytes", "segment_bytes", "size", "Begin a new segment at this size."),
    Setting("segment_max_age", "segment_age_ms", "age", "Begin a new segment after this time; 0 = never."),
    Setting("compact_enabled", "compact_enabled", "flag", "Keep only the last record of each key."),
    Setting("compact_parallelism", "compact_parallelism", "count", "Accepted for Liftbridge; has no effect."),
    Setting("auto_pause_time", "auto_pause_ms", "age", "Pause a partition that is idle for this time; 0 = never."),
    Setting(
        "auto_pause_disable_if_subscribers",
        "auto_pause_disable_if_subscribers",
        "flag",
        "Do not pause a partition that has subscribers.",
    ),
    Setting("min_isr", "min_isr", "count", "Minimum in-sync replicas for a commit."),
    Setting("concurrency_control", "concurrency_control", "flag", "Check the expected offsets of publishers."),
    Setting("max_record_bytes", "max_record_bytes", "size", "Largest accepted record."),
    Setting("durability", "durability", "choice", "Acknowledge a record once it is on disk, or in memory.", Durability),
    Setting("codec", "codec", "choice", "Compression of new batches.", Codec),
    Setting("nats_copy", "nats_copy", "choice", "How direct publishes are republished to NATS.", NatsCopy),
    Setting("nats_acks", "nats_acks", "choice", "How NATS messages with a reply subject are acknowledged.", NatsAcks),
)

Given = Mapping[str, Any]
"""The given settings, by their names in `StreamOptions`."""


def with_settings(command: Callable[Concatenate[Given, P], R]) -> Callable[..., R]:
    """Add an option for each setting to a command, which gets the given ones as its first argument."""
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(setting.name, kind, default=None, annotation=setting.annotation) for setting in SETTINGS
    ]
    return bundled(parameters, _given)(command)


def _given(**values: Any) -> Given:
    return {
        setting.name: setting.read(values[setting.name]) for setting in SETTINGS if values[setting.name] is not None
    }


def stored(given: Given) -> dict[str, Any]:
    """The settings by their names in the metadata, durations in milliseconds."""
    names = {setting.name: setting.stored for setting in SETTINGS}
    return {
        names[name]: value // timedelta(milliseconds=1) if isinstance(value, timedelta) else value
        for name, value in given.items()
    }
