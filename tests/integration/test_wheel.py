"""The wheel in an empty environment, on a machine with neither Rust nor Java: a broker, a publish and a read."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from bascule.engine import BUILD_PROFILE

from tests.integration.faults.process import wait_for

ROOT: Final = Path(__file__).resolve().parents[2]
BIN: Final = Path(sys.executable).parent
PROFILES: Final = {"debug": "dev"}
"""Cargo's profiles by the names of their directories."""

LIMIT_S: Final = 150.0

pytestmark = pytest.mark.alone
"""Time limit in seconds: other cargo processes may lock the target directory."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as built by `make wheel`, with the profile that is already compiled."""
    target = tmp_path_factory.mktemp("wheels")
    profile = PROFILES.get(BUILD_PROFILE, BUILD_PROFILE)
    command = [BIN / "maturin", "build", "--quiet", "--profile", profile, "--out", target]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert built.returncode == 0, built.stderr
    (found,) = target.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables of a process in a virtual environment with only the wheel and its requirements."""
    home = tmp_path_factory.mktemp("empty") / "env"
    for command in (
        [BIN / "uv", "venv", "--quiet", "--python", sys.executable, home],
        [BIN / "uv", "pip", "install", "--quiet", "--python", home, f"bascule[standalone] @ {wheel.as_uri()}"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
    variables = {"PATH": str(home / "bin"), "HOME": str(home), "BASCULE_CONTEXTS": str(home / "contexts.yaml")}
    for program in ("cargo", "rustc", "java"):
        assert shutil.which(program, path=variables["PATH"]) is None
    return variables


def test_one_wheel_serves_every_python_from_3_11_on(wheel: Path) -> None:
    name, _, python, abi, platform = wheel.stem.split("-")
    assert (name, python, abi) == ("bascule", "cp311", "abi3")
    assert platform.startswith(("manylinux", "linux"))


def test_it_serves_a_publish_and_a_read(environment: dict[str, str], tmp_path: Path) -> None:
    def bascule(*arguments: str | Path) -> list[str]:
        return [shutil.which("bascule", path=environment["PATH"]) or "", *map(str, arguments)]

    def run(*arguments: str) -> str:
        done = subprocess.run(
            bascule(*arguments, "--url", url), env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    ready, log = tmp_path / "ready.json", tmp_path / "log"
    flags = ("--port", "0", "--http", "off", "--data-dir", tmp_path / "data", "--ready-file", ready)
    with log.open("wb") as output:
        process = subprocess.Popen(
            bascule("serve", "--standalone", *flags),
            env={**environment, "BASCULE_NATS__FIRST_PORT": "0"}, cwd=tmp_path, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        wait_for(lambda: ready.exists() or process.poll() is not None, 60, "ready")
        assert process.poll() is None, log.read_text()
        url = f"liftbridge://{json.loads(ready.read_text())['address']}"
        run("stream", "create", "s")
        run("produce", "s", "hello")
        assert run("consume", "s", "--start", "earliest", "--count", "1") == "hello\n"
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()


def test_it_does_not_need_what_only_spark_and_tests_need(environment: dict[str, str]) -> None:
    python = Path(environment["PATH"]) / "python"
    missing = (
        "import bascule, importlib.util as u; print([m for m in ('pyspark', 'pyarrow', 'grpc') if u.find_spec(m)])"
    )
    done = subprocess.run([python, "-c", missing], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
