"""Named connections, kept in a file of the user: `$BASCULE_CONTEXTS`, else `bascule/contexts.yaml` in the directory of
configuration files (`$XDG_CONFIG_HOME`, else `~/.config`).

    current: staging
    contexts:
      staging:
        url: liftbridge://10.0.0.5:9292
        timeout: 20
        protected: true

The file contains no secrets: a URL names the files of certificates and keys. It is replaced atomically, and readable by
its owner only.
"""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

import yaml

from bascule._yaml import FAILURES, load_yaml, yaml_problem
from bascule.client.tooling import addresses, protection
from bascule.errors import StateError, UsageError

__all__ = ["Context", "Contexts", "path"]

MAX_NAME: Final = 63
_KEYS: Final = frozenset({"url", "timeout", "protected"})


@dataclass(frozen=True, slots=True)
class Context:
    """One named connection."""

    url: str
    timeout: float | None = None
    """Seconds for a call; `None` = the default of the command."""
    protected: bool = False
    """Whether destructive commands ask for the name of the object."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """The content of the file."""

    current: str = ""
    """Name of the current context; empty = none."""
    contexts: Mapping[str, Context] = field(default_factory=dict[str, Context])

    @classmethod
    def load(cls) -> "Contexts":
        """Read the file; no contexts if it does not exist.

        Raises:
            UsageError: code `configuration_invalid`, naming the file and the error.
        """
        file = path()
        try:
            document: object = load_yaml(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls()
        except (OSError, *FAILURES) as failure:
            is_system = isinstance(failure, OSError)
            reason = failure.strerror if is_system else f"it is not valid YAML: {yaml_problem(failure)}"
            raise _invalid(f"cannot read {file}: {reason}") from failure
        if document is None:
            return cls()
        mapping = _mapping(document, f"{file}")
        named = _mapping(mapping.get("contexts") or {}, f"{file}: contexts")
        contexts = {str(name): _context(f"{file}: contexts.{name}", value) for name, value in named.items()}
        current = str(mapping.get("current") or "")
        return cls(current, contexts)

    def save(self) -> None:
        """Replace the file atomically.

        Raises:
            OSError: it cannot be written.
        """
        entries = {
            name: {
                key: value
                for key, value in {
                    "url": item.url,
                    "timeout": item.timeout,
                    "protected": item.protected or None,
                }.items()
                if value is not None
            }
            for name, item in sorted(self.contexts.items())
        }
        file = path()
        file.parent.mkdir(parents=True, exist_ok=True)
        # readable by its owner only
        with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=f".{file.name}.", delete=False) as new:
            new.write(yaml.safe_dump({"current": self.current, "contexts": entries}, sort_keys=False))
        Path(new.name).replace(file)

    def find(self, name: str) -> Context:
        """The context of this name.

        Raises:
            StateError: code `not_found`.
        """
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            text = f'context "{name}" does not exist: known are {known}; see bascule context add'
            raise StateError("not_found", text, {"context": name})
        return self.contexts[name]

    def with_(self, name: str, context: Context, *, current: bool) -> "Contexts":
        """A copy with one context added or replaced.

        Raises:
            UsageError: code `invalid_argument`: the name, the URL or the timeout.
        """
        if not 1 <= len(name) <= MAX_NAME or not all(letter.isalnum() or letter in "-_." for letter in name):
            text = f'"{name[:80]}" is not the name of a context: use 1 to {MAX_NAME} letters, digits, "-", "_" and "."'
            raise UsageError("invalid_argument", text)
        addresses(context.url)
        protection(context.url)
        if context.timeout is not None and context.timeout <= 0:
            raise UsageError("invalid_argument", f"the timeout is {context.timeout}: it must be above 0 seconds")
        chosen = name if current else self.current
        return replace(self, current=chosen, contexts={**self.contexts, name: context})

    def without(self, name: str) -> "Contexts":
        """A copy without one context.

        Raises:
            StateError: code `not_found`.
        """
        self.find(name)
        rest = {key: value for key, value in self.contexts.items() if key != name}
        return replace(self, current="" if self.current == name else self.current, contexts=rest)


def path() -> Path:
    """The path of the file."""
    chosen = os.environ.get("BASCULE_CONTEXTS")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "bascule" / "contexts.yaml"


def _context(where: str, value: object) -> Context:
    document = _mapping(value, where)
    unknown = sorted(set(document) - _KEYS)
    if unknown:
        raise _invalid(f"{where}: unknown key {unknown[0]}; known are {', '.join(sorted(_KEYS))}")
    url, timeout, protected = document.get("url"), document.get("timeout"), document.get("protected", False)
    if not isinstance(url, str):
        raise _invalid(f"{where}.url is {url!r}: it must be the URL of a broker")
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or timeout <= 0):
        raise _invalid(f"{where}.timeout is {timeout!r}: it must be a number of seconds above 0")
    if not isinstance(protected, bool):
        raise _invalid(f"{where}.protected is {protected!r}: it must be true or false")
    return Context(url, timeout, protected)


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _invalid(f"{where} must be a mapping, not {type(value).__name__}")
    return cast("dict[str, Any]", value)


def _invalid(text: str) -> UsageError:
    return UsageError("configuration_invalid", text)
