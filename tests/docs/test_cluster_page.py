"""Follow the how-to "Run three brokers": three processes of `bascule serve`, one of which is killed and returns."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.reader import HOW_TO
from tests.docs.snippets import shell, snippets
from tests.integration.server.process import free_port

PAGE = HOW_TO / "cluster.md"
PORTS = ("7101", "7102", "7103", "9291", "9292", "9293")
LIMIT_S = 90.0


class Brokers:
    """The brokers that run, by id."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def serve(self, line: str) -> None:
        """Start a broker with a line of the page; does not wait."""
        found = re.fullmatch(r"BASCULE_BROKER__BROKER_ID=(\w+) bascule (serve .*)", line)
        assert found is not None, line
        name, arguments = found[1], found[2].split()
        ready = self.directory / f"{name}.json"
        ready.unlink(missing_ok=True)
        with (self.directory / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "bascule.cli", *arguments, "--ready-file", str(ready)],
                cwd=self.directory,
                env={**os.environ, "BASCULE_BROKER__BROKER_ID": name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_ready(self) -> None:
        """Wait until all that were started serve."""
        end = time.monotonic() + LIMIT_S
        for name, process in self.running.items():
            log = self.directory / f"{name}.log"
            while not (self.directory / f"{name}.json").exists():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.05)  # the file appears by itself; there is nothing to wait on

    def end(self, name: str, number: signal.Signals) -> int:
        """End a broker; its exit code."""
        process = self.running.pop(name)
        process.send_signal(number)
        return process.wait(LIMIT_S)


@contextmanager
def brokers(directory: Path) -> Generator[Brokers]:
    """Those that run at the end must stop in order."""
    started = Brokers(directory)
    try:
        yield started
        for name in tuple(started.running):
            assert started.end(name, signal.SIGTERM) == 0
    finally:
        for process in started.running.values():
            process.kill()
            process.wait()


@pytest.mark.slow
def test_the_page_is_followed_to_its_end(tmp_path: Path) -> None:
    ports = {port: str(free_port()) for port in PORTS}
    pattern = re.compile("|".join(PORTS))
    blocks = [item._replace(text=pattern.sub(lambda found: ports[found[0]], item.text)) for item in snippets(PAGE)]
    settings, *steps = blocks
    (tmp_path / "cluster.yaml").write_text(settings.text)
    printed: list[str] = []
    with brokers(tmp_path) as started:
        for step in steps:
            if "bascule serve" in step.text:
                started.serve(step.text.strip())
                continue
            started.wait_ready()
            if step.text.startswith("until"):
                assert started.end("b3", signal.SIGKILL) == -signal.SIGKILL
            printed.append(shell(step.text, tmp_path, {"COLUMNS": "300"}))
    founded, created, fenced, published, returned = printed
    assert [re.findall(rf"^{name} +(\w+)", founded, re.MULTILINE) for name in ("b1", "b2", "b3")] == [["live"]] * 3
    assert "orders" in created
    assert re.search(r"^b3 +fenced +20\d\d-", fenced, re.MULTILINE)
    assert [re.findall(rf"^{name} +(\w+)", fenced, re.MULTILINE) for name in ("b1", "b2")] == [["live"]] * 2
    assert published.splitlines()[-2:] == ["20.5", "21.0"]
    assert re.search(r"^b3 +live", returned, re.MULTILINE)
    assert {"orders", "payments"} <= set(returned.split())
