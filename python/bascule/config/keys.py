"""Keys of settings, dotted or nested: known keys, and the nearest one to an unknown key."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, cast, get_args

from pydantic import BaseModel, SecretStr

from bascule.config.sections import Settings
from bascule.errors import UsageError

__all__ = ["expand", "is_text", "known_keys", "leaves", "named", "nearest"]

_TEXT: Final = frozenset({str, SecretStr, Path})
"""Types of text settings."""

_DEEPEST: Final = 8
"""Maximum depth of sections."""


def nearest(key: str, known: Sequence[str]) -> str:
    """`; did you mean "…"?` if a known key is similar, otherwise empty."""
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f'; did you mean "{near[0]}"?' if near else ""


def known_keys(model: type[BaseModel] = Settings, prefix: str = "") -> list[str]:
    """All leaf keys of the model, dotted, in order of declaration."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            keys += known_keys(kind, f"{prefix}{name}.")
        else:
            keys.append(f"{prefix}{name}")
    return keys


def is_text(key: str, model: type[BaseModel] = Settings) -> bool:
    """Whether a dotted key names a text setting: then the value of a variable is not parsed, e.g. `1e5` or `yes`."""
    first, _, rest = key.partition(".")
    field = model.model_fields.get(first)
    if field is None:
        return False
    kind = field.annotation
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return is_text(rest, kind)
    kinds: set[object] = {kind, *get_args(kind)}
    return not rest and not _TEXT.isdisjoint(kinds)


def named(document: Mapping[object, object]) -> dict[str, object]:
    """A copy with keys as text, because YAML allows other types."""
    return {str(key): value for key, value in document.items()}


def leaves(document: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Flatten nested keys to dotted ones, with their values; empty sections are left out."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield from leaves(cast("dict[str, object]", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def expand(document: Mapping[str, object]) -> dict[str, object]:
    """Nest dotted keys; both forms may be mixed.

    Raises:
        UsageError: code `configuration_invalid`: a key is both a value and a section, or is given twice.
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
            _join(level, leaf, expand(named(cast("Mapping[object, object]", value))))
        elif leaf in level:
            raise _twice(key)
        else:
            level[leaf] = value
    return result


def _join(level: dict[str, object], leaf: str, nested: dict[str, object]) -> None:
    """Merge a section into one that may already exist."""
    if leaf not in level:
        level[leaf] = nested
        return
    there = level[leaf]
    if not isinstance(there, dict):
        raise _twice(leaf)
    there = cast("dict[str, object]", there)
    for key, value in nested.items():
        if isinstance(value, dict):
            _join(there, key, cast("dict[str, object]", value))
        elif key in there:
            raise _twice(key)
        else:
            there[key] = value


def _twice(key: str) -> UsageError:
    text = f'"{key}" is given twice, dotted and as a section: keep one of them'
    return UsageError("configuration_invalid", text, {"key": key})
