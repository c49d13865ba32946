"""Files of policies, and errors that name the file and the line."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bascule._methods import ACTIONS
from bascule.errors import UsageError

__all__ = ["nearest_action", "nearest_of", "read_text", "refusal"]

MAX_BYTES: Final = 16 << 20


def read_text(file: Path) -> str:
    """The text of a file.

    Raises:
        UsageError: `configuration_invalid`: unreadable, not UTF-8, or larger than 16 MiB.
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise refusal(file, f"it is larger than {MAX_BYTES} bytes")
        return content.decode()
    except OSError as failure:
        raise refusal(file, f"it cannot be read: {failure.strerror}") from None
    except UnicodeDecodeError:
        raise refusal(file, "it is not UTF-8 text") from None


def refusal(file: Path, reason: str, line: int | None = None) -> UsageError:
    """The error that names a file, and the line in it."""
    place = str(file) if line is None else f"{file}:{line}"
    return UsageError("configuration_invalid", f"the policy {place} cannot be used: {reason}", {"file": str(file)})


def nearest_action(name: str) -> str:
    """`; did you mean "…"?` if a known action is similar, otherwise the list of all actions."""
    return nearest_of(ACTIONS, name)


def nearest_of(known: Sequence[str], name: str) -> str:
    """As `nearest_action`, for other names."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f'; did you mean "{near[0]}"?' if near else f": known are {', '.join(known)}"
