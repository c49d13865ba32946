"""Input as an error message may show it."""

from typing import Final

__all__ = ["shown"]

MAX_SHOWN: Final = 60


def shown(value: bytes) -> str:
    """The first `MAX_SHOWN` bytes as text on one line; other characters become `?`."""
    text = value[:MAX_SHOWN].decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text) + "…" * (len(value) > MAX_SHOWN)
