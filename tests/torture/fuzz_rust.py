"""The Rust fuzz targets: built with coverage counters, run by libFuzzer; few new inputs are stored."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.torture.result import SkippedError

ROOT: Final = Path(__file__).resolve().parents[2]
CORPUS: Final = ROOT / "fuzz" / "corpus"
TRIPLE: Final = "x86_64-unknown-linux-gnu"
COUNTERS: Final = (
    "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
    " -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
    " -Cllvm-args=-sanitizer-coverage-trace-compares"
)
"""Compiler flags of cargo-fuzz, without a sanitizer, because the code has no unsafe blocks."""
RSS_MIB: Final = 512
TIMEOUT_S: Final = 10
LARGEST_INPUT: Final = 4096
MOST_KEPT: Final = 80
"""Maximum number of stored inputs of one target, in addition to its seeds and former failures."""


@dataclass(frozen=True)
class Fuzzed:
    """The result of one target."""

    name: str
    executions: int
    seconds: float
    peak_mib: int
    found: tuple[str, ...]
    """One sentence for each crash, hang or memory excess."""


def targets() -> list[str]:
    """Names of the Rust targets, from the folders of their stored inputs."""
    return sorted(path.name for path in CORPUS.iterdir() if not path.name.startswith("python_"))


def build() -> Path:
    """Build the driver. Returns its path.

    Raises:
        SkippedError: there is no Rust toolchain, or the machine is not supported.
    """
    if shutil.which("cargo") is None:
        raise SkippedError("cargo is not installed: install a Rust toolchain")
    target = ROOT / "target" / "fuzz"
    environment = os.environ | {"RUSTFLAGS": COUNTERS, "CARGO_TARGET_DIR": str(target)}
    command = ["cargo", "build", "--quiet", "--release", "--target", TRIPLE]
    built = subprocess.run(command, cwd=ROOT / "fuzz", env=environment, capture_output=True, text=True, check=False)
    if built.returncode:
        raise SkippedError(f"the fuzz driver does not build: {built.stderr[-400:]}")
    return target / TRIPLE / "release" / "any"


def fuzz(driver: Path, name: str, executions: int, seconds: float) -> Fuzzed:
    """Run one target until one of the limits; new inputs that add coverage are stored beside the old ones."""
    with tempfile.TemporaryDirectory(prefix="bascule-fuzz-") as folder:
        grown, artifacts = Path(folder, "corpus"), Path(folder, "artifacts")
        grown.mkdir()
        artifacts.mkdir()
        log = _run(
            driver, name,
            f"-runs={executions}", f"-max_total_time={int(seconds)}", f"-artifact_prefix={artifacts}/",
            f"-rss_limit_mb={RSS_MIB}", f"-timeout={TIMEOUT_S}", f"-max_len={LARGEST_INPUT}", "-print_final_stats=1",
            str(grown), str(CORPUS / name),
        )  # fmt: skip
        found = tuple(_keep(name, path) for path in sorted(artifacts.iterdir()))
        minimise(driver, name, grown)
    done, peak, speed = (
        _stat(log, stat) for stat in ("number_of_executed_units", "peak_rss_mb", "average_exec_per_sec")
    )
    return Fuzzed(name, done, done / max(speed, 1), peak, found)


def minimise(driver: Path, name: str, grown: Path) -> None:
    """Move the inputs in `grown` that add coverage to the stored inputs."""
    _run(driver, name, "-merge=1", f"-rss_limit_mb={RSS_MIB}", str(CORPUS / name), str(grown))
    prune(name)


def prune(name: str) -> None:
    """Keep the smallest new inputs: the repository has a start corpus, not all inputs."""
    found = [path for path in (CORPUS / name).iterdir() if not path.name.startswith(("seed-", "found-", "index-"))]
    for path in sorted(found, key=lambda path: (path.stat().st_size, path.name))[MOST_KEPT:]:
        path.unlink()


def _run(driver: Path, name: str, *arguments: str) -> str:
    environment = os.environ | {"BASCULE_FUZZ_TARGET": name}
    ended = subprocess.run(
        [str(driver), *arguments], env=environment, capture_output=True, text=True, errors="replace", check=False
    )
    return ended.stderr


def _stat(log: str, name: str) -> int:
    found = re.search(rf"stat::{name}:\s*(\d+)", log)
    return int(found[1]) if found else 0


def _keep(name: str, artifact: Path) -> str:
    """Store a failed input where the replay finds it."""
    kept = CORPUS / name / f"found-{artifact.name}"
    shutil.copyfile(artifact, kept)
    return f"{name}: {artifact.name.partition('-')[0]} on {kept.relative_to(ROOT)}"
