"""Settings of a broker: one model, from flag, then environment, then file, then default.

Sources, strongest first: keyword arguments (flags), environment variables (`BASCULE_…`, `__` between levels), a YAML
file, defaults. Unknown keys are refused with the nearest known one. Files speak human units ("30s", "64MiB"); code gets
integers with unit suffixes. The resolved document is immutable.
"""

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, cast
from urllib.parse import urlsplit

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from bascule._units import parse_bytes, parse_duration_ms
from bascule.errors import UsageError

__all__ = [
    "ENVIRONMENT_KEY",
    "ENVIRONMENT_KEY_ID",
    "BrokerSettings",
    "EncryptionSettings",
    "Layer",
    "LimitSettings",
    "LogSettings",
    "NatsSettings",
    "Resolved",
    "ScrubSettings",
    "Settings",
    "StreamDefaults",
    "combine",
    "known_keys",
    "load",
    "resolve",
]

ENVIRONMENT_PREFIX: Final = "BASCULE_"
ENVIRONMENT_KEY: Final = "LIFTBRIDGE_ENCRYPTION_KEY"
"""Variable that holds a master key, 16 or 32 raw bytes, as in Liftbridge. The data plane reads it."""

ENVIRONMENT_KEY_ID: Final = "liftbridge"
"""Id of that master key."""

NOT_SETTINGS: Final = frozenset({"BASCULE_URL"})
"""Variables of that prefix that belong to clients, not to the broker."""
NATS_SCHEMES: Final = ("nats", "tls")
_DEEPEST: Final = 8
"""Most sections around a setting."""
SECRETS: Final = frozenset({"nats.password"})
"""Settings whose value is never shown."""


def check_nats_url(value: str) -> str:
    """The same, when it is the address of a NATS server: `nats://` or `tls://`, or no scheme, then host and port."""
    try:
        url = urlsplit(value if "://" in value else f"nats://{value}")
        fits = url.scheme in NATS_SCHEMES and url.hostname and url.port != 0 and not re.search(r"\s", value)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError('no URL of a NATS server: write one like "nats://10.0.0.5:4222" or "tls://nats.example.org"')
    return value


NatsUrl = Annotated[str, AfterValidator(check_nats_url)]
Milliseconds = Annotated[int, BeforeValidator(parse_duration_ms), Field(ge=0)]
ByteCount = Annotated[int, BeforeValidator(parse_bytes), Field(ge=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NatsSettings(_Section):
    """How to reach NATS, or which nats-server to start."""

    standalone: bool = Field(default=False, description="start and supervise a nats-server as a child process")
    servers: tuple[NatsUrl, ...] = Field(
        default=("nats://127.0.0.1:4222",), description="URLs of existing servers; unused when standalone"
    )
    user: str | None = Field(default=None, description="user name")
    password: SecretStr | None = Field(
        default=None, description="password, for Liftbridge configurations that hold it; better is password_file"
    )
    password_file: Path | None = Field(default=None, description="file that holds the password")
    token_file: Path | None = Field(default=None, description="file that holds a token")
    host: str = Field(default="127.0.0.1", description="bind address of the standalone server")
    port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="port of the standalone server; 0 = a free one, kept in the data directory",
    )
    config: Path | None = Field(
        default=None, description="configuration file for the standalone server, instead of ours"
    )
    max_payload: ByteCount = Field(default=1 << 20, ge=1024, le=64 << 20, description="largest NATS message")


class StreamDefaults(_Section):
    """What a stream gets when its creator does not say. 0 = unlimited or never, where a limit is meant."""

    durability: Literal["disk", "memory"] = Field(default="disk", description="what an acknowledgement stands for")
    codec: Literal["none", "lz4", "zstd"] = Field(default="none", description="compression of new batches")
    nats_copy: Literal["envelope", "value", "none"] = Field(
        default="envelope", description="how direct publishes are copied to NATS"
    )
    retention_max_age_ms: Milliseconds = Field(default=7 * 86_400_000, description="remove segments older than this")
    retention_max_bytes: ByteCount = Field(default=0, description="keep at most this many bytes a partition")
    retention_max_messages: int = Field(default=0, ge=0, description="keep at most this many records a partition")
    cleaner_interval_ms: Milliseconds = Field(
        default=300_000, description="how often retention and compaction run; 0 = 5 minutes"
    )
    retention_min_age_ms: Milliseconds = Field(
        default=900_000, description="whatever the limits, retention removes nothing that a broker had for less"
    )
    compact_enabled: bool = Field(default=False, description="keep only the last record of each key")
    compact_tombstone_age_ms: Milliseconds = Field(
        default=86_400_000, description="how long a null value stays as the last of its key"
    )
    compact_memory_bytes: ByteCount = Field(
        default=64 << 20, ge=1 << 10, description="memory for keys while a partition is compacted; one is at a time"
    )
    compact_max_bytes_per_second: ByteCount = Field(
        default=768 << 20, description="bytes read and written by compaction; 0 = unlimited"
    )
    segment_max_bytes: ByteCount = Field(default=256 << 20, ge=1, description="roll at this size")
    segment_max_age_ms: Milliseconds | None = Field(
        default=None, description="roll at this age; unset = retention_max_age"
    )
    auto_pause_time_ms: Milliseconds = Field(
        default=0, description="idle time after which a partition pauses; 0 = never"
    )
    auto_pause_disable_if_subscribers: bool = Field(default=False, description="subscribers keep a partition awake")
    concurrency_control: bool = Field(default=False, description="check expected offsets")
    max_record_bytes: ByteCount = Field(default=1 << 20, ge=1, le=64 << 20, description="largest record as received")
    batch_max_messages: int = Field(default=1024, ge=1, le=1 << 20, description="records of one batch")
    encryption: bool = Field(default=False, description="encrypt at rest, from the stream's creation on")


class EncryptionSettings(_Section):
    """Encryption of streams at rest: the master keys, which wrap each stream's data keys."""

    keys: dict[str, Path] = Field(
        default_factory=dict,
        description="id of a master key to the file that holds it: 16 or 32 bytes in base64; keep old ones as long as"
        " data are read that they wrapped",
    )
    current: str | None = Field(
        default=None, description="id of the key that wraps new data keys; unset = the only one of keys"
    )

    @property
    def current_key(self) -> str:
        """Id of the master key that wraps new data keys; Liftbridge's variable when no file is configured."""
        return self.current or next(iter(self.keys), ENVIRONMENT_KEY_ID)

    @model_validator(mode="after")
    def _cross_check(self) -> Self:
        known = [*self.keys, ENVIRONMENT_KEY_ID]
        if ENVIRONMENT_KEY_ID in self.keys:
            raise ValueError(f'the id "{ENVIRONMENT_KEY_ID}" stands for the variable {ENVIRONMENT_KEY}: use another')
        if self.current is None and len(self.keys) > 1:
            raise ValueError("encryption.current is unset and there are several keys: name the one for new data")
        if self.current is not None and self.current not in known:
            raise ValueError(f'encryption.current names "{self.current}", which is none of: {", ".join(known)}')
        return self


class GroupSettings(_Section):
    """Consumer groups."""

    consumer_timeout_ms: Milliseconds = Field(
        default=15_000, ge=1, description="a member that is silent for so long is removed from its group"
    )
    coordinator_timeout_ms: Milliseconds = Field(
        default=15_000, ge=1, description="how long a member tries to reach its coordinator before it reports it"
    )


class CursorSettings(_Section):
    """Cursors: where readers stand."""

    partitions: int = Field(
        default=0, ge=0, le=1000, description="partitions of __cursors, fixed once it exists; 0 = cursors are off"
    )
    auto_pause_time_ms: Milliseconds = Field(
        default=60_000, description="idle time after which its partitions pause; 0 = never"
    )


class ActivitySettings(_Section):
    """The activity stream: what happens to streams and groups."""

    enabled: bool = Field(default=False, description="write every event to the stream __activity")
    publish_timeout_ms: Milliseconds = Field(default=5_000, ge=1, description="how long a write may take")


class LimitSettings(_Section):
    """Bounds of the data plane, all finite; explained in specs/formats/seam.md."""

    queue_bytes: ByteCount = Field(default=32 << 20, ge=1 << 16, description="waiting appends of one partition")
    queue_records: int = Field(default=65_536, ge=1024, description="the same in records")
    inflight_bytes: ByteCount = Field(
        default=128 << 20, ge=1 << 20, description="uncommitted appends of the whole broker"
    )
    subscription_bytes: ByteCount = Field(default=1 << 20, ge=1 << 16, description="unsent bytes of one subscription")
    delivery_bytes: ByteCount = Field(
        default=256 << 20, ge=1 << 20, description="read ahead by all subscriptions; each gets an equal part at most"
    )
    connections: int = Field(default=4096, ge=1, le=1 << 20, description="gRPC connections")
    connections_per_address: int = Field(default=1024, ge=1, le=1 << 20, description="gRPC connections of one address")
    handshakes: int = Field(
        default=1024, ge=16, le=1 << 16, description="connections that have not greeted; one more ends the oldest"
    )
    handshake_ms: Milliseconds = Field(
        default=5_000, ge=100, le=60_000, description="how long a connection may take to greet"
    )
    streams_per_connection: int = Field(default=1024, ge=1, le=1 << 20, description="calls of one connection at once")
    connection_window_bytes: ByteCount = Field(
        default=4 << 20, ge=1 << 16, le=64 << 20, description="bytes of requests that one connection may send unread"
    )
    calls: int = Field(default=16_384, ge=1, le=1 << 22, description="open calls of all connections")
    request_bytes: ByteCount = Field(
        default=128 << 20, ge=1 << 20, description="request messages that have not arrived whole"
    )
    admin_requests: int = Field(default=1024, ge=1, le=1 << 16, description="admin requests without an answer")
    admin_request_bytes: ByteCount = Field(default=64 << 20, ge=1 << 16, description="bodies of waiting admin requests")
    descriptor_reserve: int = Field(
        default=256, ge=16, le=1 << 20, description="descriptors kept for files; connections get none of them"
    )
    subscriptions: int = Field(default=4096, ge=1, le=1 << 20, description="open Subscribe and DoGet calls")
    message_bytes: ByteCount = Field(default=4 << 20, ge=1 << 16, description="one inbound gRPC message")
    nats_pending_bytes: ByteCount = Field(default=128 << 20, ge=1 << 20, description="NATS messages not yet queued")
    grace_ms: Milliseconds = Field(default=60_000, description="how long files of deleted partitions are kept")
    journal_from_dirty_files: int = Field(
        default=4,
        ge=0,
        le=1 << 20,
        description="partitions to sync at once from which on their batches go to one journal file; 0 = never",
    )
    open_segments: int = Field(
        default=512, ge=1, le=1 << 20, description="sealed segments kept open for readers; active ones are not counted"
    )


class BrokerSettings(_Section):
    """Identity and addresses."""

    cluster_id: str = Field(default="bascule-default", min_length=1, max_length=255, description="name of the cluster")
    broker_id: str | None = Field(
        default=None, max_length=255, description="id of this broker; unset = made once and kept"
    )
    namespace: str = Field(default="liftbridge-default", min_length=1, description="prefix of internal NATS subjects")
    host: str = Field(default="127.0.0.1", min_length=1, description="bind address")
    port: int = Field(default=9292, ge=0, le=65535, description="bind port; 0 = a free one")
    advertised_host: str | None = Field(default=None, description="host shown to clients; unset = the bind address")
    advertised_port: int | None = Field(
        default=None, ge=0, le=65535, description="port shown; unset or 0 = the bound one"
    )
    runtime_threads: int = Field(
        default=0, ge=0, le=256, description="threads of the data plane; 0 = half of the cores, at least one"
    )
    drain_ms: Milliseconds = Field(default=5_000, description="how long a stop waits for calls to end")


class ScrubSettings(_Section):
    """Reading what nobody reads, so that damage is found while a backup still has it."""

    period_ms: Milliseconds = Field(
        default=7 * 86_400_000, description="every sealed segment is read and checked once in this time; 0 = never"
    )
    rate_bytes: ByteCount = Field(
        default=32 << 20, description="bytes a second, of the whole broker, that are read for it; 0 = none"
    )


class LogSettings(_Section):
    """Structured logs, to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="least level shown")
    format: Literal["auto", "json", "text"] = Field(
        default="auto", description="one JSON object a line, or plain lines; auto = plain lines on a terminal only"
    )


class Settings(_Section):
    """Everything a broker can be told."""

    data_dir: Path = Field(default=Path("bascule-data"), description="where everything durable lies")
    broker: BrokerSettings = BrokerSettings()
    nats: NatsSettings = NatsSettings()
    streams: StreamDefaults = StreamDefaults()
    encryption: EncryptionSettings = EncryptionSettings()
    groups: GroupSettings = GroupSettings()
    cursors: CursorSettings = CursorSettings()
    activity: ActivitySettings = ActivitySettings()
    limits: LimitSettings = LimitSettings()
    scrub: ScrubSettings = ScrubSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _cross_check(self) -> Self:
        if not self.nats.standalone and not self.nats.servers:
            raise ValueError("nats.servers is empty and nats.standalone is false: name a server or set standalone")
        if self.nats.password is not None and self.nats.password_file is not None:
            raise ValueError("nats.password and nats.password_file are both set: keep the file")
        return self


class Resolved(NamedTuple):
    """Settings and where each of them came from."""

    settings: Settings
    origins: Mapping[str, str]
    """Dotted key to origin, of those that are not defaults."""


class Layer(NamedTuple):
    """One source of settings: dotted or nested keys, and what to call it in errors."""

    origin: str
    values: Mapping[str, object]


def load(
    file: Path | None = None,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """The settings alone; see `resolve`."""
    return resolve(file, flags, environment).settings


def resolve(
    file: Path | None = None,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Resolved:
    """Resolve settings from the usual sources.

    Args:
        file: YAML file; `None` = none.
        flags: dotted keys to values, e.g. {"broker.port": 9292}; the strongest source. `None` values are left out.
        environment: variables; `None` = those of the process.

    Raises:
        UsageError: code `configuration_invalid`; names the key, the value, what is allowed, and where it came from.
    """
    environment = os.environ if environment is None else environment
    layers: list[Layer] = []
    if file is not None:
        layers.append(Layer(str(file), read_yaml(file)))
    for name, value in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX) and name not in NOT_SETTINGS:
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
            layers.append(Layer(f"environment variable {name}", {key: scalar(value)}))
    layers.append(Layer("flag", {key: value for key, value in (flags or {}).items() if value is not None}))
    return combine(layers)


def combine(layers: Iterable[Layer]) -> Resolved:
    """Resolve settings from layers, the weakest first.

    Raises:
        UsageError: as `resolve`.
    """
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        _merge(merged, origins, expand(layer.values), layer.origin)
    try:
        return Resolved(Settings.model_validate(merged), origins)
    except ValidationError as invalid:
        raise _refusal(invalid, origins) from None


def _refusal(invalid: ValidationError, origins: Mapping[str, str]) -> UsageError:
    """The first thing that is wrong, in one sentence."""
    first = invalid.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"])
    origin = next((origins[key] for key in (path, path.rpartition(".")[0]) if key in origins), "default")
    if first["type"] == "extra_forbidden":
        message = f'unknown setting "{path}" ({origin}){nearest(path, known_keys())}'
    else:
        reason = first["msg"].removeprefix("Value error, ")
        given = "…" if path in SECRETS or _has_password(path, first["input"]) else repr(first["input"])
        shown = "" if not path else f"{path} = {given} ({origin}): "
        message = f"{shown}{reason[:1].lower()}{reason[1:]}"
    return UsageError("configuration_invalid", message, {"key": path})


def _has_password(path: str, value: object) -> bool:
    return path.startswith("nats.servers") and "@" in str(value)


def nearest(key: str, known: Sequence[str]) -> str:
    """`; did you mean "…"?` when a known key is near, else nothing."""
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f'; did you mean "{near[0]}"?' if near else ""


def known_keys(model: type[BaseModel] = Settings, prefix: str = "") -> list[str]:
    """Every leaf key of the model, dotted, in order of declaration."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            keys += known_keys(kind, f"{prefix}{name}.")
        else:
            keys.append(f"{prefix}{name}")
    return keys


def read_yaml(file: Path) -> dict[str, object]:
    """The mapping that a YAML file holds; an empty file is an empty mapping.

    Raises:
        UsageError: code `configuration_invalid`: unreadable, not YAML, not a mapping.
    """
    try:
        document: object = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as failure:
        message = f"cannot read the configuration file {file}: {failure.strerror}"
        raise UsageError("configuration_invalid", message, {"file": str(file)}) from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as failure:
        # Besides its own, the parser lets out what numbers, times and nesting beyond all bounds raise.
        message = f"{file} is not valid YAML: {' '.join(str(failure).split())}"
        raise UsageError("configuration_invalid", message, {"file": str(file)}) from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        message = f"{file} must hold a mapping of settings, not {type(document).__name__}"
        raise UsageError("configuration_invalid", message, {"file": str(file)})
    return _named(cast("Mapping[object, object]", document))


def _named(document: Mapping[object, object]) -> dict[str, object]:
    """The same with keys as text: YAML allows others."""
    return {str(key): value for key, value in document.items()}


def expand(document: Mapping[str, object]) -> dict[str, object]:
    """Dotted keys become nesting; both may be mixed.

    Raises:
        UsageError: code `configuration_invalid`: a key is both a value and a section.
    """
    result: dict[str, object] = {}
    for key, value in document.items():
        *parents, leaf = key.split(".")
        if len(parents) > _DEEPEST:
            message = f'unknown setting "{key[:80]}…": no key has more than {_DEEPEST} sections'
            raise UsageError("configuration_invalid", message, {"key": key[:80]})
        level = result
        for parent in parents:
            below = level.setdefault(parent, {})
            if not isinstance(below, dict):
                raise UsageError("configuration_invalid", f'"{key}" is both a value and a section', {"key": key})
            level = cast("dict[str, object]", below)
        if isinstance(value, Mapping):
            _join(level, leaf, expand(_named(cast("Mapping[object, object]", value))))
        else:
            level[leaf] = value
    return result


def _join(level: dict[str, object], leaf: str, nested: dict[str, object]) -> None:
    """Put a section where another part of it may be already."""
    there = level.get(leaf)
    if isinstance(there, dict):
        there = cast("dict[str, object]", there)
        for key, value in nested.items():
            if isinstance(value, dict):
                _join(there, key, cast("dict[str, object]", value))
            else:
                there[key] = value
    else:
        level[leaf] = nested


def _merge(
    into: dict[str, Any], origins: dict[str, str], layer: Mapping[str, object], origin: str, prefix: str = ""
) -> None:
    for key, value in layer.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and isinstance(into.get(key, {}), dict):
            into.setdefault(key, {})
            _merge(into[key], origins, cast("dict[str, object]", value), origin, f"{path}.")
        else:
            into[key] = value
            origins[path] = origin


def scalar(text: str) -> object:
    """An environment variable's text as YAML would read it (numbers, booleans, lists)."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        return text
