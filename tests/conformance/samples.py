"""The `liftbridge` command in a separate process, with a file, variables and flags of the original; and `bascule serve`
with the converted file.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from tests.conformance.api import Api
from tests.waiting import until

LIMIT_S: Final = 90.0


class Running:
    """A running broker: its address, its log, and the time until it answered a call."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path, began: float, credentials: Any = None) -> None:
        self.process: Final = process
        self._log: Final = log
        until(lambda: bool(self.events("ready")) or process.poll() is not None, LIMIT_S)
        assert process.poll() is None, self.log
        self.address = str(self.events("ready")[0]["address"])
        with Api(self.address, credentials) as api:
            api.call("FetchMetadata", timeout=LIMIT_S)
        self.seconds: Final = time.monotonic() - began

    @property
    def log(self) -> str:
        """Its output."""
        return self._log.read_text(errors="replace")

    def events(self, text: str) -> list[dict[str, Any]]:
        """The lines of its log with exactly this message."""
        lines = (json.loads(line) for line in self.log.splitlines() if line.startswith("{") and line.endswith("}"))
        return [line for line in lines if line["message"] == text]


@contextmanager
def liftbridge(
    directory: Path, text: str, *flags: str, variables: Mapping[str, str] | None = None, credentials: Any = None
) -> Generator[Running]:
    """Run a broker while the context lasts; it must stop cleanly. It uses a free port unless the text sets one.

    Its data are in `data`, unless the text sets a directory. `credentials`: of a client that may FetchMetadata.
    """
    file = directory / "liftbridge.yaml"
    file.write_text(text)
    data = () if "data.dir" in text else ("-d", str(directory / "data"))
    command = [sys.executable, "-m", "bascule.cli.liftbridge", "-c", str(file), *data, *flags]
    with _running(directory, command, variables or {}, credentials) as broker:
        yield broker


@contextmanager
def ours(directory: Path, variables: Mapping[str, str]) -> Generator[Running]:
    """Run `bascule serve` on the same data, with the file of `imported` and variables of Bascule."""
    file, data = str(directory / "ours.yaml"), str(directory / "data")
    command = [sys.executable, "-m", "bascule.cli", "serve", "--config", file, "--data-dir", data]
    with _running(directory, command, variables) as broker:
        yield broker


@contextmanager
def _running(
    directory: Path, command: list[str], variables: Mapping[str, str], credentials: Any = None
) -> Generator[Running]:
    log = directory / "log"
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("LIFTBRIDGE_", "BASCULE_"))
    }
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**environment, **variables}
        )
    try:
        yield Running(process, log, began, credentials)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()


def said_by(directory: Path, text: str, *flags: str, variables: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit code and last line of a start that fails."""
    file = directory / "liftbridge.yaml"
    file.write_text(text)
    command = [sys.executable, "-m", "bascule.cli.liftbridge", "-c", str(file), "-d", str(directory / "data"), *flags]
    environment = {**os.environ, **(variables or {})}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)
    return ended.returncode, ended.stderr.strip().splitlines()[-1]


LISTEN: Final = "listen: 127.0.0.1:0\n"
ALONE: Final = f"{LISTEN}nats.servers: [nats://127.0.0.1:1]\n"
"""Configuration without NATS, which these tests do not need."""


def imported(directory: Path) -> dict[str, Any]:
    """The settings of the file, converted by `bascule config import` and read again."""
    ours = directory / "ours.yaml"
    command = [sys.executable, "-m", "bascule.cli", "config", "import", str(directory / "liftbridge.yaml")]
    subprocess.run([*command, "--output", str(ours)], check=True, timeout=LIMIT_S)
    again = subprocess.run(
        [*command, "--output", str(ours)], check=False, timeout=LIMIT_S, capture_output=True, text=True
    )
    assert again.returncode == 2
    assert "name a file that does not exist yet" in again.stderr
    found = yaml.safe_load(ours.read_text())
    assert isinstance(found, dict)
    return found
