"""What was given, as an error may show it."""

from typing import Final

__all__ = ["shown"]

MOST_SHOWN: Final = 60


def shown(value: bytes) -> str:
    """The beginning of some bytes as text that stays on its line."""
    text = value[:MOST_SHOWN].decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text) + "…" * (len(value) > MOST_SHOWN)
