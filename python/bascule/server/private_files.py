"""Creates files and directories that only the broker's user may access, as the data plane does."""

import os
from pathlib import Path

__all__ = ["make_private_directory", "write_private"]

DIRECTORY_MODE, FILE_MODE = 0o700, 0o600


def make_private_directory(path: Path) -> None:
    """Create a directory and its missing parents. An existing one is not changed.

    Raises:
        OSError: it cannot be created.
    """
    for missing in reversed([item for item in (path, *path.parents) if not item.exists()]):
        missing.mkdir(mode=DIRECTORY_MODE, exist_ok=True)


def write_private(path: Path, text: str) -> None:
    """Write a file; an existing one keeps its mode.

    Raises:
        OSError: it cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
