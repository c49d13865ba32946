"""Runs the blocks of a page from top to bottom, in one directory, with a new broker."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self

import yaml

from tests.docs.snippets import ROOT, Snippet, snippets

__all__ = ["HOW_TO", "Reader", "Step", "unused"]

HOW_TO: Final = ROOT / "docs" / "how-to"
SERVE: Final = "bascule serve --standalone --data-dir bascule-data"
"""The command that starts the broker, unless the page starts one itself."""
RUN: Final = ("sh", "python")
SAVE: Final = re.compile(r"Save this as `([\w/.-]+)`:")
"""Text before a block that is saved as a file instead of run."""
STOP: Final = "Stop the broker"
"""Text before a block that stops the broker; the page starts it again with `bascule serve`."""
LIMIT_S: Final = 300.0
"""For one block: a job of the pipeline page can need more than 150 when two suites run beside it."""


class Step(NamedTuple):
    """A block that was run, and its output."""

    snippet: Snippet
    printed: str


class Reader:
    """Follows one page. Use it as a context manager: at the end its broker is stopped.

    Args:
        directory: an empty directory, where every block runs.
        page: name of the page in docs/how-to, or its whole path.
        replaced: text of the page that does not exist in the test, and its replacement; `{address}`, `{nats}`,
            `{http}` and `{iggy}` are those of the running broker.
        settings: the broker's, with dotted keys; ports are always free ones.
    """

    def __init__(
        self,
        directory: Path,
        page: str | Path,
        replaced: Mapping[str, str],
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.directory: Final = directory
        self.path: Final = HOW_TO / page
        self.replaced: Final = replaced
        self.ready: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._settings: Final = {
            "broker.port": 0,
            "http.listen": "127.0.0.1:0",
            "nats.first_port": 0,
            **(settings or {}),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def follow(self) -> list[Step]:
        """Run every block; each must succeed. Text before a block can stop the broker or save a file."""
        steps: list[Step] = []
        before = 0
        text = self.path.read_text().splitlines()
        for snippet in snippets(self.path):
            prose = "\n".join(text[before : snippet.line])
            before = snippet.line
            if (kept := SAVE.search(prose)) is not None:
                (self.directory / kept[1]).write_text(self.here(snippet.text))
                continue
            if snippet.language not in RUN:
                continue
            if STOP in prose:
                self.stop()
            elif not steps and not is_start(snippet):
                self.start(SERVE)
            steps.append(Step(snippet, self.run(snippet)))
        return steps

    def run(self, snippet: Snippet) -> str:
        """One block: the start of the broker, a shell script or a program."""
        if is_start(snippet):
            self.stop()
            self.start(snippet.text.strip())
            return ""
        text = self.here(snippet.text)
        program = (
            ["bash", "-euo", "pipefail", "-c"] if snippet.language == "sh" else [sys.executable, "-W", "error", "-c"]
        )
        ended = subprocess.run(
            [*program, text],
            cwd=self.directory,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        where = f"{snippet.page}:{snippet.line}"
        assert ended.returncode == 0, f"{where} ended with {ended.returncode}\n{text}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def here(self, text: str) -> str:
        """A block's text with the replacements for addresses and paths; without a broker, addresses stay as written."""
        for written, stands in self.replaced.items():
            if self.ready or "{" not in stands:
                text = text.replace(written, stands.format_map(self.ready))
        return text

    def environment(self) -> dict[str, str]:
        """Without settings from outside; commands without an address use the page's broker."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("BASCULE_", "LIFTBRIDGE_"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ours = {"PATH": path, "COLUMNS": "300", "BASCULE_CONTEXTS": str(self.directory / "contexts.yaml")}
        if self.ready:
            ours["BASCULE_URL"] = f"liftbridge://{self.ready['address']}"
        return {**kept, **ours}

    def start(self, line: str) -> None:
        """Start the broker with a command line of the page, and wait until it is ready.

        The broker takes one file of settings: the test's take the place of those in the page's file.
        """
        words = shlex.split(line)[1:]
        written: dict[str, object] = {}
        if "--config" in words:
            at = words.index("--config")
            written = dotted(yaml.safe_load((self.directory / words[at + 1]).read_text()))
            del words[at : at + 2]
        (self.directory / "settings.json").write_text(json.dumps(written | self._settings))
        ready = self.directory / "ready.json"
        ready.unlink(missing_ok=True)
        log = self.directory / "broker.log"
        added = ["--config", "settings.json", "--ready-file", str(ready)]
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bascule.cli", *words, *added],
                cwd=self.directory,
                env={name: value for name, value in self.environment().items() if name != "BASCULE_URL"},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        end = time.monotonic() + LIMIT_S
        while not ready.exists():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.02)  # the file appears by itself; there is nothing to wait on
        said = json.loads(ready.read_text())
        names = {"address": "address", "nats": "nats_url", "http": "http_address", "iggy": "iggy_address"}
        names |= {"iggy_http": "iggy_http_address", "iggy_quic": "iggy_quic_address"}
        self.ready = {name: said[key] for name, key in names.items() if said.get(key)}

    def stop(self) -> None:
        """Stop the broker, if one runs; it must end with 0."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(LIMIT_S) == 0, (self.directory / "broker.log").read_text()
        finally:
            process.kill()
            process.wait()
        self.ready = {}


def dotted(document: Mapping[str, object], above: str = "") -> dict[str, object]:
    """The settings of a file by their dotted keys."""
    flat: dict[str, object] = {}
    for key, value in document.items():
        flat |= dotted(value, f"{above}{key}.") if isinstance(value, Mapping) else {above + key: value}
    return flat


def is_start(snippet: Snippet) -> bool:
    """Whether a block starts the broker. That command stays in the foreground, so it has a block of its own."""
    starts = bool(re.search(r"^bascule serve\b", snippet.text, re.MULTILINE))
    assert not starts or len(snippet.text.strip().splitlines()) == 1, f"{snippet.page}:{snippet.line}"
    return starts


def unused(page: str | Path, replaced: Mapping[str, str]) -> list[str]:
    """Replacements whose text is not in the page any more."""
    text = "\n".join(snippet.text for snippet in snippets(HOW_TO / page))
    return [written for written in replaced if written not in text]
