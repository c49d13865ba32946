"""Finds out whether a configuration file of nats-server sets the listen address.

Without an address in its file the server would listen on all interfaces, and its flags override its file. So the broker
must know what the file sets before it passes flags. Other values are not interpreted; nats-server reports errors of the
file.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["ListenKeys", "listen_keys"]

_TOKEN: Final = re.compile(
    r"""(?P<end>[\n;,]) | (?P<skip>[^\S\n]+|\#[^\n]*|//[^\n]*) | (?P<open>[{\[(]) | (?P<close>[}\])])
      | (?P<text>"(?:\\.|[^"\\])*"|'[^']*') | (?P<word>(?:[^\s{}\[\]()"',:=;\#]|://)+) | (?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
_DEEPEST: Final = 8
"""Maximum depth of includes, which may form a circle."""


class ListenKeys(NamedTuple):
    """Whether a file sets the host and the port of its server."""

    host: bool
    port: bool


def listen_keys(file: Path, depth: int = 0) -> ListenKeys:
    """What `file` and its includes set. A file that cannot be read sets nothing."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ListenKeys(host=False, port=False)
    host = port = False
    for key, value in _statements(text):
        if key in ("host", "net"):
            host |= bool(value)
        elif key == "port":
            port |= value not in ("", "0", "-1")
        elif key == "listen":
            before, colon, number = value.rpartition(":")
            is_variable = value.startswith("$")
            host |= is_variable or bool(before if colon else False)
            port |= is_variable or number not in ("", "0", "-1")
        elif key == "include" and depth < _DEEPEST:
            below = listen_keys(file.parent / value, depth + 1)
            host, port = host or below.host, port or below.port
    return ListenKeys(host=host, port=port)


def _statements(text: str) -> Iterator[tuple[str, str]]:
    """Keys of the outermost level in lower case, with their values as text; blocks and lists have no value."""
    level, words = 0, list[str]()
    outermost = 1 if _begins_with_brace(text) else 0
    for found in _TOKEN.finditer(f"{text}\n"):
        kind, token = found.lastgroup, found.group()
        if kind == "open":
            level += 1
        elif kind == "close":
            level -= 1
        if kind == "end" or (kind in ("open", "close") and level <= outermost):
            if words and level == outermost:
                yield _statement(words)
            words = []
        elif level == outermost and kind in ("word", "text", "mark"):
            words.append(token)


def _statement(words: list[str]) -> tuple[str, str]:
    key, *rest = words
    value = "".join(word.strip("\"'") for word in rest).lstrip(":=")
    return key.strip("\"'").lower(), value


def _begins_with_brace(text: str) -> bool:
    for found in _TOKEN.finditer(text):
        if found.lastgroup not in ("end", "skip"):
            return found.group() == "{"
    return False
