"""Builds and starts `crates/rig`, the program that drives the log engine without a broker."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PROFILE = os.environ.get("PROFILE", "fast")


@functools.cache
def driver(*features: str) -> Path:
    """The program with these features, built if it is not up to date."""
    command = ["cargo", "build", "--quiet", "--locked", "--profile", PROFILE, "--package", "bascule-rig"]
    target = REPOSITORY / "target"
    if features:
        target = target / "-".join(("rig", *features))  # so that the program without features is not overwritten
        command += ["--features", ",".join(features), "--target-dir", str(target)]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    return target / ("debug" if PROFILE == "dev" else PROFILE) / "bascule-rig"


@functools.cache
def shim() -> Path:
    """The preloaded library of `crates/shim`, built if it is not up to date."""
    command = ["cargo", "build", "--quiet", "--locked", "--profile", PROFILE, "--package", "bascule-shim"]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    return REPOSITORY / "target" / ("debug" if PROFILE == "dev" else PROFILE) / "libbascule_shim.so"


def arguments(command: str, **values: object) -> list[str]:
    """The command line of one run."""
    return [str(driver()), command, *words(**values)]


def words(**values: object) -> list[str]:
    """Arguments as the driver reads them: `key=value`."""
    return [f"{key}={value}" for key, value in values.items()]
