"""Files and directories that only the broker's own user may use, as the data plane makes them."""

import os
from pathlib import Path

__all__ = ["make_private_directory", "write_private"]

DIRECTORY_MODE, FILE_MODE = 0o700, 0o600


def make_private_directory(path: Path) -> None:
    """Make a directory and those above it that are missing. One that is there stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    for missing in reversed([item for item in (path, *path.parents) if not item.exists()]):
        missing.mkdir(mode=DIRECTORY_MODE, exist_ok=True)


def write_private(path: Path, text: str) -> None:
    """Write a file; one that is there keeps its mode.

    Raises:
        OSError: it cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
