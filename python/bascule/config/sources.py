"""Sources of settings: layers of dotted or nested keys, the strongest last, merged into one checked document."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from pydantic import ValidationError

from bascule._yaml import FAILURES, load_yaml, yaml_problem
from bascule.config.keys import expand, is_text, known_keys, named, nearest
from bascule.config.sections import SECRETS, Settings
from bascule.errors import UsageError

__all__ = ["Layer", "Resolved", "combine", "load", "read_yaml", "resolve", "scalar"]

ENVIRONMENT_PREFIX: Final = "BASCULE_"
NATS_PORT: Final = 4222
"""The default port of NATS, which publishers use."""

NOT_SETTINGS: Final = frozenset({"BASCULE_URL", "BASCULE_CONTEXT", "BASCULE_CONTEXTS"})
"""Variables with the prefix that belong to clients, not to the broker."""


class Resolved(NamedTuple):
    """Settings and the origin of each."""

    settings: Settings
    origins: Mapping[str, str]
    """Dotted key to origin, for settings that are not defaults."""


class Layer(NamedTuple):
    """One source of settings: its name in errors, and its dotted or nested keys."""

    origin: str
    values: Mapping[str, object]


def load(
    file: Path | None = None,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """The settings without origins; see `resolve`."""
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
        UsageError: code `configuration_invalid`; names the key, the value, its origin and the allowed values.
    """
    environment = os.environ if environment is None else environment
    layers: list[Layer] = []
    if file is not None:
        layers.append(Layer(str(file), read_yaml(file)))
    for name, value in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX) and name not in NOT_SETTINGS:
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
            layers.append(Layer(f"environment variable {name}", {key: value if is_text(key) else scalar(value)}))
    layers.append(Layer("flag", {key: value for key, value in (flags or {}).items() if value is not None}))
    resolved = combine(layers)
    if not resolved.settings.nats.standalone:
        return resolved
    return combine([Layer("default of a standalone broker", _standalone(resolved.settings)), *layers])


def _standalone(settings: Settings) -> dict[str, object]:
    """Defaults of a broker with a standalone nats-server."""
    defaults: dict[str, object] = {"cursors.partitions": 1}
    if "port" not in settings.nats.model_fields_set:
        defaults["nats.first_port"] = NATS_PORT
    return defaults


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


def _refusal(invalid: ValidationError, origins: Mapping[str, str]) -> UsageError:
    """The first error, in one sentence."""
    first = invalid.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"])
    above = [path, path.rpartition(".")[0]]
    below = [key for key in origins if key.startswith(f"{path}.")]
    origin = next((origins[key] for key in [*above, *below] if key in origins), "default")
    if first["type"] == "extra_forbidden":
        message = f'unknown setting "{path}" ({origin}){nearest(path, known_keys())}'
    else:
        reason = first["msg"].removeprefix("Value error, ")
        given = "…" if path in SECRETS or _has_password(path, first["input"]) else repr(first["input"])
        # A section is not shown: it may contain a secret.
        shown = "" if not path or isinstance(first["input"], dict) else f"{path} = {given} ({origin}): "
        message = f"{shown}{reason[:1].lower()}{reason[1:]}"
    return UsageError("configuration_invalid", message, {"key": path})


def _has_password(path: str, value: object) -> bool:
    return path.startswith("nats.servers") and "@" in str(value)


def read_yaml(file: Path, *, as_written: bool = False) -> dict[str, object]:
    """Read the mapping in a YAML file; an empty file is an empty mapping. `as_written`: numbers, booleans, times stay
    text.

    Raises:
        UsageError: code `configuration_invalid`: unreadable, not YAML, a repeated key, or not a mapping.
    """
    try:
        document: object = load_yaml(file.read_text(encoding="utf-8"), as_written=as_written)
    except OSError as failure:
        message = f"cannot read the configuration file {file}: {failure.strerror}"
        raise UsageError("configuration_invalid", message, {"file": str(file)}) from None
    except FAILURES as failure:
        message = f"{file} is not valid YAML: {yaml_problem(failure)}"
        raise UsageError("configuration_invalid", message, {"file": str(file)}) from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        message = f"{file} must contain a mapping of settings, not {type(document).__name__}"
        raise UsageError("configuration_invalid", message, {"file": str(file)})
    return named(cast("Mapping[object, object]", document))


def scalar(text: str) -> object:
    """The value of an environment variable, parsed as YAML (numbers, booleans, lists)."""
    try:
        return load_yaml(text)
    except FAILURES:
        return text
