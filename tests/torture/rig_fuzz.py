"""S14: bad inputs for every parser of bytes: executions, crashes, hangs, memory over 512 MiB.

The short share replays the stored inputs with mutations (Rust: `crates/fuzz/tests/replay.rs`, which `make test` also
runs; Python here). The full run builds the Rust targets with coverage counters and runs each with libFuzzer until all
together reach the executions of the scoreboard; new inputs are stored in `fuzz/corpus`. The row is cumulative:
executions of earlier full runs count (`docs/reliability/S14.json`). A finding must be fixed before the next run can
pass: its inputs are stored and run first.
`BASCULE_FUZZ_MINUTES` bounds the full run (default 60).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

from tests.torture import fuzz_python, fuzz_rust
from tests.torture.result import Result, Scale, SkippedError

ROW = "S14"
FULL_EXECUTIONS = 20_000_000
SLOW = {"log_recover": 40, "flight_put": 8, "batch_build": 4, "grpc_frames": 4}
"""Slower targets, and their share of the executions."""


def run(scale: Scale) -> Result:
    """See the module."""
    return full() if scale is Scale.FULL else short()


def short() -> Result:
    """Stored inputs and mutations, about ten seconds for each language."""
    python = {name: fuzz_python.drive(name, 1.0) for name in fuzz_python.TARGETS}
    rust = replay()
    executions = rust + sum(driven.executions for driven in python.values())
    found = [failure for driven in python.values() for failure in driven.failures]
    return _result(executions, found, 100_000, {"rust": rust})


def replay() -> int:
    """Run the replay of the Rust targets. Returns its executions."""
    if shutil.which("cargo") is None:
        raise SkippedError("cargo is not installed: install a Rust toolchain")
    command = ["cargo", "test", "--quiet", "--locked", "--profile", "fast", "-p", "bascule-fuzz", "--", "--nocapture"]
    environment = os.environ | {"BASCULE_FUZZ_MS": "300"}
    ended = subprocess.run(command, cwd=fuzz_rust.ROOT, env=environment, capture_output=True, text=True, check=False)
    total = re.search(r"fuzz executions: (\d+)", ended.stdout)
    if ended.returncode or total is None:
        raise AssertionError(f"the replay of the stored inputs failed:\n{(ended.stdout + ended.stderr)[-3000:]}")
    return int(total[1])


def full() -> Result:
    """Run libFuzzer for every Rust target, then the Python targets."""
    seconds = float(os.environ.get("BASCULE_FUZZ_MINUTES", "60")) * 60
    driver, names = fuzz_rust.build(), fuzz_rust.targets()
    weights = {name: 1 / SLOW.get(name, 1) for name in names}
    share = FULL_EXECUTIONS * 1.05 / sum(weights.values())
    numbers: dict[str, float] = {}
    found: list[str] = []
    for name in names:
        done = fuzz_rust.fuzz(driver, name, int(share * weights[name]), seconds * 0.8 / len(names))
        numbers[name], numbers[f"{name}.peak_mib"] = done.executions, done.peak_mib
        found += done.found
        print(f"{name}: {done.executions} executions, {done.peak_mib} MiB, {len(done.found)} found", flush=True)
    for name in fuzz_python.TARGETS:
        driven = fuzz_python.drive(name, seconds * 0.2 / len(fuzz_python.TARGETS))
        numbers[f"python_{name}"] = driven.executions
        found += driven.failures
        print(f"python_{name}: {driven.executions} executions, {len(driven.failures)} found", flush=True)
    now = int(sum(count for name, count in numbers.items() if not name.endswith(".peak_mib")))
    numbers["executions_of_this_run"] = now
    return _result(now + earlier(), found, FULL_EXECUTIONS, numbers)


def earlier() -> int:
    """Executions of the full runs before this one."""
    try:
        kept = json.loads((fuzz_rust.ROOT / "docs" / "reliability" / f"{ROW}.json").read_text())
    except OSError:
        return 0
    return int(kept["numbers"]["executions"])


def _result(executions: int, found: list[str], least: int, numbers: dict[str, float]) -> Result:
    for failure in found:
        print(failure, flush=True)
    targets = len(fuzz_rust.targets()) + len(fuzz_python.TARGETS)
    return Result(
        row=ROW,
        title=f"bad inputs for {targets} parsers of bytes",
        figure=f"{executions:,} executions of {targets} targets; {len(found)} crashes, hangs or over 512 MiB",
        bar=f">= {least:,} executions; 0",
        passed=executions >= least and not found,
        numbers={"executions": executions, "found": len(found), "targets": targets, **numbers},
    )
