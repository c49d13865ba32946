"""Private file systems of tests."""

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["mounted"]


@contextmanager
def mounted(place: Path, *options: str) -> Generator[None]:
    """A private tmpfs; skips the test if mounting is not allowed."""
    place.mkdir(exist_ok=True)
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", *options, "none", place], capture_output=True, text=True, check=False
    )
    if mount.returncode:
        pytest.skip(f"NOT TESTED: mounting a file system is not allowed here: {mount.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)
