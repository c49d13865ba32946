"""The stub of the native module and the module: `make verify` compares them, and every kind of difference fails."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
STUB: Final = ROOT / "python" / "bascule" / "_native.pyi"
EXCEPTIONS: Final = ROOT / "deploy" / "stub-exceptions.txt"


def compare(stub: Path) -> "subprocess.CompletedProcess[str]":
    """Run the command of `make verify` with another stub."""
    command = [sys.executable, "-m", "mypy.stubtest", "bascule._native", "--allowlist", str(EXCEPTIONS), "--concise"]
    environment = {**os.environ, "MYPYPATH": str(stub.parents[1]), "NO_COLOR": "1"}
    return subprocess.run(command, env=environment, cwd=stub.parents[1], capture_output=True, text=True, check=False)


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """A copy of the stub, in a separate package."""
    package = tmp_path / "bascule"
    package.mkdir()
    (package / "__init__.pyi").touch()
    copy = package / "_native.pyi"
    copy.write_text(STUB.read_text())
    return copy


def test_the_stub_describes_the_module(stub: Path) -> None:
    found = compare(stub)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("    def beat(self)", "    def beats(self)", "bascule._native.Engine.beats is not present at runtime"),
        ("    def beat(self)", "    def _beat(self)", "bascule._native.Engine.beat is not present in stub"),
        ("def beat(self)", "def beat(self, extra: int)", "bascule._native.Engine.beat is inconsistent"),
        ("expected_offset: int = -1", "expected_offset: int = -2", "bascule._native.Outgoing.push is inconsistent"),
        ("class NativeError(", "class OtherError(", "bascule._native.NativeError is not present in stub"),
    ],
)
def test_a_difference_fails(stub: Path, old: str, new: str, name: str) -> None:
    text = STUB.read_text()
    assert old in text
    stub.write_text(text.replace(old, new, 1))
    found = compare(stub)
    assert found.returncode == 1
    assert name in found.stdout
