"""Turns on failpoints: those of the pipeline's processes by files, those of the broker in a build that has them."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import bascule
from bascule.failpoints import NAMES, Name

REPOSITORY: Final = Path(__file__).resolve().parents[1]
PROFILE: Final = os.environ.get("PROFILE", "fast")
TARGET: Final = REPOSITORY / "target"
BUILD: Final = TARGET / "native-failpoints"
MODULE: Final = "_native.abi3.so"

ARCHIVE: Final = tuple(name for name in NAMES if name.startswith("archive."))
"""The points of an archive, in the order in which an epoch reaches them."""

Action = Literal["kill", "fail", "hold"]


class Points:
    """The points of pipeline processes whose environment names this folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def arm(self, name: Name, action: Action) -> None:
        """Let the point act once."""
        wanted = self.folder / f"{name}.new"
        wanted.write_text(action)
        wanted.rename(self.folder / name)

    def is_armed(self, name: Name) -> bool:
        """Whether the point has not acted yet."""
        return (self.folder / name).exists()

    def is_held(self, name: Name) -> bool:
        """Whether a process waits at the point."""
        return (self.folder / f"{name}.held").exists()

    def clear(self) -> None:
        """Disarm all points, and let processes that wait continue."""
        for file in self.folder.iterdir():
            file.unlink(missing_ok=True)


@functools.cache
def modules() -> Path:
    """A folder for PYTHONPATH with the package as it is here, and a data plane that has failpoints; built if it is not
    up to date.
    """
    command = ["cargo", "build", "--quiet", "--locked", "--profile", PROFILE, "--package", "bascule-native-failpoints"]
    # The same name whoever runs this, since another one would compile everything again.
    environment = {**os.environ, "PYO3_PYTHON": str(Path(sys.prefix, "bin", "python"))}
    subprocess.run(command, cwd=REPOSITORY, check=True, env=environment)
    package = BUILD / "python" / "bascule"
    package.mkdir(parents=True, exist_ok=True)
    library = TARGET / ("debug" if PROFILE == "dev" else PROFILE) / "libnative_failpoints.so"
    source = Path(bascule.__file__).parent
    wanted = {file.name: file for file in source.iterdir() if file.name not in (MODULE, "__pycache__")}
    for name, target in {**wanted, MODULE: library}.items():
        place = package / name
        if place.is_symlink() and place.readlink() == target:
            continue
        fresh = package / f".{name}.{os.getpid()}"
        fresh.symlink_to(target)
        fresh.rename(place)
    for place in package.iterdir():
        if place.is_symlink() and not place.exists():
            place.unlink(missing_ok=True)
    return package.parent


@contextmanager
def broker_failpoints(points: str) -> Generator[None]:
    """Brokers that are started while the context lasts have these failpoints (`crates/log/src/failpoint.rs`).

    Args:
        points: `<name>=<action>` pairs with `;` between.
    """
    added = {"FAILPOINTS": points, "PYTHONPATH": str(modules())}
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


if __name__ == "__main__":
    modules()
