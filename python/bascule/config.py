"""Settings of a broker: one model, from flag, then environment, then file, then default.

Sources, strongest first: keyword arguments (flags), environment variables (`BASCULE_…`, `__` between levels), a YAML file,
defaults. Unknown keys are refused with the nearest known one. Files speak human units ("30s", "64MiB"); code gets integers
with unit suffixes. The resolved document is immutable.
"""

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from bascule.errors import UsageError

__all__ = ["BrokerSettings", "NatsSettings", "Settings", "StreamDefaults", "load"]

ENVIRONMENT_PREFIX: Final = "BASCULE_"
_DURATIONS: Final = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6, "d": 8.64e7}
_SIZES: Final = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


def parse_duration_ms(value: object) -> object:
    """Milliseconds from "30s", "5m", "1h30m" or a bare number of milliseconds; other types pass through to the checker."""
    if not isinstance(value, str):
        return value
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|m|h|d)", value)
    if parts and re.fullmatch(r"(\s*\d+(?:\.\d+)?\s*(ns|us|ms|s|m|h|d))+\s*", value):
        return round(sum(float(number) * _DURATIONS[unit] for number, unit in parts))
    if re.fullmatch(r"\d+", value):
        return int(value)
    raise ValueError(f'{value!r} is no duration: write a number and a unit, e.g. "500ms", "30s", "5m", "12h", "7d"')


def parse_bytes(value: object) -> object:
    """Bytes from "64MiB", "1GB" or a bare number; other types pass through to the checker."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", value)
    if not match or match.group(2).lower() not in _SIZES:
        raise ValueError(f'{value!r} is no size: write a number and a unit, e.g. "512KiB", "64MiB", "1GiB"')
    return round(float(match.group(1)) * _SIZES[match.group(2).lower()])


Milliseconds = Annotated[int, BeforeValidator(parse_duration_ms), Field(ge=0)]
ByteCount = Annotated[int, BeforeValidator(parse_bytes), Field(ge=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NatsSettings(_Section):
    """How to reach NATS, or which nats-server to start."""

    standalone: bool = Field(default=False, description="start and supervise a nats-server as a child process")
    servers: tuple[str, ...] = Field(
        default=("nats://127.0.0.1:4222",), description="URLs of existing servers; unused when standalone"
    )
    user: str | None = Field(default=None, description="user name")
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
    cleaner_interval_ms: Milliseconds = Field(default=300_000, description="how often retention runs; 0 = 5 minutes")
    segment_max_bytes: ByteCount = Field(default=256 << 20, ge=1, description="roll at this size")
    segment_max_age_ms: Milliseconds | None = Field(
        default=None, description="roll at this age; unset = retention_max_age"
    )
    max_record_bytes: ByteCount = Field(default=1 << 20, ge=1, le=64 << 20, description="largest record as received")
    batch_max_messages: int = Field(default=1024, ge=1, le=1 << 20, description="records of one batch")


class LimitSettings(_Section):
    """Bounds of the data plane, all finite; explained in specs/formats/seam.md."""

    queue_bytes: ByteCount = Field(default=32 << 20, ge=1 << 16, description="waiting appends of one partition")
    queue_records: int = Field(default=65_536, ge=1024, description="the same in records")
    inflight_bytes: ByteCount = Field(
        default=128 << 20, ge=1 << 20, description="uncommitted appends of the whole broker"
    )
    subscription_bytes: ByteCount = Field(default=1 << 20, ge=1 << 16, description="unsent bytes of one subscription")
    connections: int = Field(default=4096, ge=1, description="gRPC connections")
    subscriptions: int = Field(default=4096, ge=1, description="open Subscribe and DoGet calls")
    message_bytes: ByteCount = Field(default=4 << 20, ge=1 << 16, description="one inbound gRPC message")
    nats_pending_bytes: ByteCount = Field(default=64 << 20, ge=1 << 20, description="NATS messages not yet queued")
    grace_ms: Milliseconds = Field(default=60_000, description="how long files of deleted partitions are kept")


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
    runtime_threads: int = Field(default=2, ge=1, le=256, description="threads of the data plane")
    drain_ms: Milliseconds = Field(default=5_000, description="how long a stop waits for calls to end")


class LogSettings(_Section):
    """Structured logs, to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="least level shown")
    format: Literal["json", "text"] = Field(default="json", description="one JSON object a line, or plain lines")


class Settings(_Section):
    """Everything a broker can be told."""

    data_dir: Path = Field(default=Path("bascule-data"), description="where everything durable lies")
    broker: BrokerSettings = BrokerSettings()
    nats: NatsSettings = NatsSettings()
    streams: StreamDefaults = StreamDefaults()
    limits: LimitSettings = LimitSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _cross_check(self) -> Self:
        if not self.nats.standalone and not self.nats.servers:
            raise ValueError("nats.servers is empty and nats.standalone is false: name a server or set standalone")
        return self


def load(
    file: Path | None = None,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Resolve settings.

    Args:
        file: YAML file; `None` = none.
        flags: dotted keys to values, e.g. {"broker.port": 9292}; the strongest source. `None` values are left out.
        environment: variables; `None` = those of the process.

    Raises:
        UsageError: code `configuration_invalid`; names the key, the value, what is allowed, and where it came from.
    """
    environment = os.environ if environment is None else environment
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    if file is not None:
        _merge(merged, origins, _expand(_read_yaml(file)), str(file))
    for name, value in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
            _merge(merged, origins, _expand({key: _scalar(value)}), f"environment variable {name}")
    for key, value in (flags or {}).items():
        if value is not None:
            _merge(merged, origins, _expand({key: value}), "flag")
    return _validate(merged, origins)


def _validate(merged: dict[str, Any], origins: dict[str, str]) -> Settings:
    try:
        return Settings.model_validate(merged)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        origin = next((origins[key] for key in (path, path.rpartition(".")[0]) if key in origins), "default")
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(path, known_keys(), n=1, cutoff=0.5)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            message = f'unknown setting "{path}" ({origin}){hint}'
        else:
            reason = first["msg"].removeprefix("Value error, ")
            shown = "" if not path else f"{path} = {first['input']!r} ({origin}): "
            message = f"{shown}{reason[:1].lower()}{reason[1:]}"
        raise UsageError("configuration_invalid", message, {"key": path}) from None


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


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as failure:
        message = f"cannot read the configuration file {file}: {failure.strerror}"
        raise UsageError("configuration_invalid", message, {"file": str(file)}) from None
    except (yaml.YAMLError, UnicodeDecodeError) as failure:
        message = f"{file} is not valid YAML: {' '.join(str(failure).split())}"
        raise UsageError("configuration_invalid", message, {"file": str(file)}) from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        message = f"{file} must hold a mapping of settings, not {type(document).__name__}"
        raise UsageError("configuration_invalid", message, {"file": str(file)})
    return document


def _expand(document: Mapping[Any, Any]) -> dict[str, Any]:
    """Dotted keys become nesting; both may be mixed."""
    result: dict[str, Any] = {}
    for key, value in document.items():
        *parents, leaf = str(key).split(".")
        level = result
        for parent in parents:
            level = level.setdefault(parent, {})
            if not isinstance(level, dict):
                raise UsageError("configuration_invalid", f'"{key}" is both a value and a section', {"key": str(key)})
        nested = _expand(value) if isinstance(value, Mapping) else value
        if isinstance(nested, dict) and isinstance(level.get(leaf), dict):
            level[leaf] = {**level[leaf], **nested}
        else:
            level[leaf] = nested
    return result


def _merge(
    into: dict[str, Any], origins: dict[str, str], layer: Mapping[str, Any], origin: str, prefix: str = ""
) -> None:
    for key, value in layer.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and isinstance(into.get(key, {}), dict):
            into.setdefault(key, {})
            _merge(into[key], origins, value, origin, f"{path}.")
        else:
            into[key] = value
            origins[path] = origin


def _scalar(text: str) -> object:
    """An environment variable's text as YAML would read it (numbers, booleans, lists)."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text
