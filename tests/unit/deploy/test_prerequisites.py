"""Prerequisites of the targets: Java is needed for Spark only."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """Variables with a PATH that has everything except Java."""
    for program in ("cargo", "rustc", "cc"):
        found = shutil.which(program)
        assert found is not None
        (tmp_path / program).symlink_to(found)
    return {**os.environ, "PATH": str(tmp_path)}


def check(environment: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "deploy/prerequisites.py"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_java_is_required_only_for_spark(without_java: dict[str, str]) -> None:
    assert check(without_java).returncode == 0
    asked = check(without_java, "--java")
    assert asked.returncode == 1
    assert asked.stderr.startswith("missing: java is not on the PATH, and Spark needs it: ")


@pytest.mark.parametrize(("target", "wanted"), [("run", False), ("build", False), ("wheel", False), ("test", True)])
def test_targets_require_java_only_if_they_run_spark(target: str, wanted: bool) -> None:
    planned = subprocess.run(
        ["make", "--dry-run", "--always-make", target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ("prerequisites.py --java" in planned.stdout) == wanted
