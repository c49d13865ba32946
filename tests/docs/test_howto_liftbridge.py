"""Follow the how-to "Move from Liftbridge": its commands, with a configuration file of Liftbridge."""

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bascule._liftbridge_pb import message
from bascule.cli.liftbridge.keys import KEYS

from tests.conformance.api import NONE, Api, values
from tests.docs.snippets import ROOT, commands, snippets

PAGE = ROOT / "docs" / "how-to" / "liftbridge.md"
LIMIT_S = 90.0
THEIRS = """\
listen: 127.0.0.1:0
logging.level: info
streams:
  retention.max.age: 1h
  compact.enabled: true
clustering:
  server.id: old-broker
  raft.snapshot.retain: 3
cursors.stream.partitions: 2
activity.stream.enabled: true
telemetry.enabled: true
"""
MODULES = {".venv/bin/liftbridge": "bascule.cli.liftbridge", ".venv/bin/bascule": "bascule.cli"}


def argv(line: str) -> list[str]:
    """A command line of the page, with this interpreter's programs."""
    program, *arguments = shlex.split(line)
    return [sys.executable, "-m", MODULES[program], *arguments]


@contextmanager
def running(command: list[str], directory: Path) -> Generator[tuple[str, Path]]:
    """A broker while the context lasts: its address, once it is ready, and its log. It must stop in order."""
    log = directory / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=directory, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
    try:
        yield wait_until_ready(process, log), log
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()


def wait_until_ready(process: "subprocess.Popen[bytes]", log: Path) -> str:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        for line in log.read_text().splitlines():
            if line.startswith("{") and (said := json.loads(line))["message"] == "ready":
                return said["address"]
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def test_the_page_is_followed_to_its_end(tmp_path: Path) -> None:
    start, translate = [line for snippet in snippets(PAGE, "sh") for line in commands(snippet)]
    (tmp_path / "liftbridge.yaml").write_text(THEIRS)
    # 1. the executable with their file: a client's day
    with running(argv(start), tmp_path) as (address, log), Api(address) as api:
        api.create("s")
        api.fill("s", 3)
        api.call("SetCursor", stream="s", cursorId="c", offset=1)
        (broker,) = api.call("FetchMetadata").brokers
        assert broker.id == "old-broker"
    notes = [line for line in log.read_text().splitlines() if line.startswith("liftbridge: ")]
    assert len(notes) == 1, "telemetry is accepted without a word"
    assert "clustering.raft.snapshot.retain" in notes[0]
    # 2. their file, translated, with a comment beside each setting
    subprocess.run(argv(translate), cwd=tmp_path, check=True, timeout=LIMIT_S)
    ours = tmp_path / "bascule.yaml"
    settings = [line for line in ours.read_text().splitlines() if line.startswith("  ")]
    assert settings
    assert all("  # " in line for line in settings)
    # 3. the same broker on the same data with a configuration of ours
    command = argv(f".venv/bin/bascule serve --standalone --config {ours} --data-dir data")
    with running(command, tmp_path) as (address, _), Api(address) as api:
        assert values(api.read("s")) == [b"0", b"1", b"2"]
        assert api.call("FetchCursor", stream="s", cursorId="c").offset == 1
        assert api.stream("__activity").name == "__activity"
        # 4. better than the original, as the page says
        api.create("spread", subject="spread.>", partitions=2, partitionBySubject={"value": True})
        api.publish("spread", ackPolicy=NONE)
        assert sorted(api.stream("spread").partitions) == [0, 1]


def test_a_key_that_is_not_offered_is_refused_with_the_reason(tmp_path: Path) -> None:
    refused = next(name for name, key in sorted(KEYS.items()) if key.reason and not key.setting)
    (tmp_path / "liftbridge.yaml").write_text(f"{refused}: 3\n")
    start = next(line for snippet in snippets(PAGE, "sh") for line in commands(snippet) if "liftbridge -c" in line)
    ended = subprocess.run(argv(start), cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert ended.returncode == 2
    assert refused in ended.stderr
    assert KEYS[refused].reason in ended.stderr


def test_the_page_names_what_exists() -> None:
    text = PAGE.read_text()
    for key in ("cursors.stream.partitions", "activity.stream.enabled"):
        assert f"`{key}`" in text
        assert key in KEYS
    field = message("CreateStreamRequest").DESCRIPTOR.fields_by_name["partitionBySubject"]
    assert f"`partitionBySubject` (field {field.number} of CreateStreamRequest)" in text
