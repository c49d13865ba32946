"""What a configuration file of nats-server says about where it listens.

A file that names no address would have the server listen on every interface, and its flags win over its file: so the
broker must know what the file leaves open before it says anything. Values are not interpreted beyond that; what is
wrong with a file, nats-server says.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Told", "told_by"]

_TOKEN: Final = re.compile(
    r"""(?P<end>[\n;,]) | (?P<skip>[^\S\n]+|\#[^\n]*|//[^\n]*) | (?P<open>[{\[(]) | (?P<close>[}\])])
      | (?P<text>"(?:\\.|[^"\\])*"|'[^']*') | (?P<word>(?:[^\s{}\[\]()"',:=;\#]|://)+) | (?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
_DEEPEST: Final = 8
"""Files that include each other."""


class Told(NamedTuple):
    """Whether a file says on which address, and on which port, its server listens."""

    host: bool
    port: bool


def told_by(file: Path, depth: int = 0) -> Told:
    """What `file` and those that it includes say. A file that cannot be read says nothing."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Told(host=False, port=False)
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
            below = told_by(file.parent / value, depth + 1)
            host, port = host or below.host, port or below.port
    return Told(host=host, port=port)


def _statements(text: str) -> Iterator[tuple[str, str]]:
    """Keys of the outermost level in lower case, with their values as text; blocks and lists have none."""
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
