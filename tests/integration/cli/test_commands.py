"""The `bascule` command against a real broker."""

import csv
import io
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from bascule.testing import TestBroker, broker

from tests.integration.cli.commands import environment, run


def test_a_stream_from_birth_to_death(running: TestBroker, stream: str) -> None:
    url = running.url
    # 1. create, once
    created = run("stream", "create", stream, "--subject", f"{stream}.>", "-o", "json", url=url)
    assert (created.code, created.err) == (0, "")
    assert json.loads(created.out)["subject"] == f"{stream}.>"
    again = run("stream", "create", stream, url=url)
    assert (again.code, again.out) == (6, "")
    assert again.err.startswith("bascule: ")
    assert again.err.count("\n") == 1
    assert run("stream", "create", stream, "--exist-ok", url=url).code == 0
    # 2. produce from arguments, lines and a file
    assert json.loads(run("produce", stream, "one", "two", "-o", "json", url=url).out)["last_offset"] == 1
    lines = run("produce", stream, "--key-separator", ":", "-H", "h=1", stdin="k:three\nk:four\n", url=url)
    assert lines.code == 0
    # 3. consume in all formats
    text = run("consume", stream, "--start", "earliest", "--stop", "latest", url=url)
    assert (text.code, text.out) == (0, "one\ntwo\nthree\nfour\n")
    as_json = json.loads(run("consume", stream, "--start", "2", "--count", "1", "-o", "json", url=url).out)
    assert [(row["offset"], row["key"], row["value"], row["headers"]["h"]) for row in as_json] == [
        (2, "k", "three", "1")
    ]
    as_yaml = yaml.safe_load(run("consume", stream, "--start", "latest", "-n", "1", "-o", "yaml", url=url).out)
    assert as_yaml[0]["value"] == "four"
    rows = csv.DictReader(io.StringIO(run("consume", stream, "--start", "0", "--stop", "2", "-o", "csv", url=url).out))
    assert [row["value"] for row in rows] == ["one", "two"]
    # 4. show, list, delete
    shown = json.loads(run("stream", "show", stream, "-o", "json", url=url).out)
    assert (shown["name"], shown["partitions"][0]["high_watermark"]) == (stream, 4)
    listed = {row["name"]: row["records"] for row in json.loads(run("stream", "list", "-o", "json", url=url).out)}
    assert listed[stream] == 4
    asked = run("stream", "delete", stream, url=url)
    assert (asked.code, asked.err) == (2, "bascule: there is no terminal to ask on: add --yes (invalid_argument)\n")
    assert run("stream", "delete", stream, "--yes", url=url).code == 0
    assert run("stream", "show", stream, url=url).code == 3


def test_a_dry_run_asks_the_broker_and_changes_nothing(running: TestBroker, stream: str) -> None:
    url = running.url
    assert json.loads(run("stream", "create", stream, "--dry-run", "-o", "json", url=url).out)["dry_run"]
    assert run("stream", "show", stream, url=url).code == 3
    assert run("stream", "delete", stream, "--dry-run", url=url).code == 3
    assert run("produce", stream, "v", "--dry-run", url=url).code == 3
    assert run("stream", "create", stream, url=url).code == 0
    assert run("stream", "create", stream, "--dry-run", url=url).code == 6
    assert run("produce", stream, "v", "--dry-run", "--partition", "1", url=url).code == 3
    assert json.loads(run("produce", stream, "v", "--dry-run", "-o", "json", url=url).out)["records"] == 1
    assert run("stream", "delete", stream, "--dry-run", url=url).code == 0
    assert json.loads(run("stream", "show", stream, "-o", "json", url=url).out)["partitions"][0]["high_watermark"] == 0


def test_bytes_are_passed_unchanged(running: TestBroker, stream: str) -> None:
    blob = bytes(byte for byte in range(256) if byte != 10)
    for command, data in ((["produce"], blob + b"\n"), (["consume", "--start", "earliest", "-n", "1"], None)):
        if data:
            assert run("stream", "create", stream, url=running.url).code == 0
        ended = subprocess.run(
            [sys.executable, "-m", "bascule.cli", command[0], stream, *command[1:]],
            input=data,
            capture_output=True,
            check=True,
            timeout=60,
            env=environment(running.url),
        )
        if data is None:
            assert ended.stdout == blob + b"\n"


def test_an_absent_broker_exits_with_5() -> None:
    ended = run("stream", "list", "--timeout", "0.3", url="liftbridge://127.0.0.1:1")
    assert (ended.code, ended.out) == (5, "")
    assert re.fullmatch(r"bascule: .*127\.0\.0\.1:1.*\n", ended.err)


def test_a_closed_pipe_causes_no_traceback(running: TestBroker, stream: str) -> None:
    assert run("stream", "create", stream, url=running.url).code == 0
    assert run("produce", stream, stdin="line\n" * 50_000, url=running.url).code == 0
    command = [sys.executable, "-m", "bascule.cli", "consume", stream, "--start", "earliest", "--stop", "latest"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(running.url)
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1


def test_a_closed_pipe_ends_a_waiting_consumer(running: TestBroker, stream: str) -> None:
    assert run("stream", "create", stream, url=running.url).code == 0
    assert run("produce", stream, "first", url=running.url).code == 0
    command = shlex.join([sys.executable, "-m", "bascule.cli", "consume", stream, "--start", "earliest"])
    script = f"{command} | head -1; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(
        ["bash", "-c", script], capture_output=True, check=False, timeout=120, env=environment(running.url)
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == (b"first\n", b"", 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("form", "printed"), [("text", [b"first\n", b""]), ("json", [b"[\n", b"\n]\n"])])
def test_a_signal_ends_a_consumer_silently_with_130(
    running: TestBroker, stream: str, form: str, printed: list[bytes], number: signal.Signals
) -> None:
    assert run("stream", "create", stream, url=running.url).code == 0
    assert run("produce", stream, "first", url=running.url).code == 0
    command = [sys.executable, "-m", "bascule.cli", "consume", stream, "--start", "earliest", "--output", form]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(running.url)
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == printed[0]
        process.send_signal(number)
        assert process.wait(60) == 130
        assert process.stdout.read().endswith(printed[1])
        assert process.stderr.read() == b""


def test_bench_measures_and_cleans_up(running: TestBroker) -> None:
    ended = run("bench", "--records", "5000", "--size", "100", "-o", "json", url=running.url)
    assert (ended.code, ended.err) == (0, "")
    unary, batches, subscribe = json.loads(ended.out)
    assert (batches["records"], subscribe["records"]) == (5000, 5000 + unary["records"])
    assert all(row["records_s"] > 0 for row in (unary, batches, subscribe))
    assert unary["p50_ms"] <= unary["p99_ms"]
    assert "bench-" not in run("stream", "list", url=running.url).out


def test_serve_on_a_terminal_prints_addresses_and_three_commands(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "bascule.cli", "serve", "--standalone", "--port", "0", "--data-dir"]
    with subprocess.Popen(
        [*command, str(tmp_path / "data")], stdout=follower, stderr=subprocess.DEVNULL, env=environment()
    ) as process:
        text = ""
        limit = time.monotonic() + 30
        with os.fdopen(leader, "rb", buffering=0) as screen:
            while text.count("--url") < 3 and time.monotonic() < limit:
                text += screen.read(4096).decode()
            process.terminate()
            assert process.wait(20) == 0
    assert "bascule is ready after" in text
    url = re.search(r"liftbridge://127\.0\.0\.1:\d+", text)
    assert url is not None
    assert text.count(f"--url {url.group()}") == 3
    assert len(re.findall(r"^ +(?:echo 'first light' \| )?\S*bascule \w+", text, re.MULTILINE)) == 3


def test_the_ready_file_appears_and_a_signal_ends_it_with_0(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    command = [sys.executable, "-m", "bascule.cli", "serve", "--standalone", "--port", "0"]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data"), "--ready-file", str(ready)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        limit = time.monotonic() + 30
        while not ready.exists() and time.monotonic() < limit:
            time.sleep(0.01)
        document = json.loads(ready.read_text())
        assert document["pid"] == process.pid
        addresses = {"address", "nats_url", "http_address", "iggy_address", "iggy_http_address"}
        addresses |= {"iggy_quic_address"}
        assert set(document) == addresses | {"pid", "ready_seconds"}
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out) == (0, b"")
    assert all(json.loads(line)["message"] for line in err.splitlines()), "logs are JSON away from a terminal"


def test_a_second_broker_on_the_directory_is_one_line_and_exit_code_6(tmp_path: Path) -> None:
    with broker(directory=tmp_path) as first:
        second = run("serve", "--standalone", "--port", "0", "--data-dir", str(tmp_path / "data"))
        assert (second.code, second.out) == (6, "")
        assert second.err.splitlines()[-1].startswith("bascule: ")
        port = first.address.rpartition(":")[2]
        taken = run("serve", "--standalone", "--port", port, "--data-dir", str(tmp_path / "other"))
        assert taken.code == 6
        assert port in taken.err.splitlines()[-1]


def test_the_liftbridge_command_serves(tmp_path: Path) -> None:
    configuration = tmp_path / "liftbridge.yaml"
    configuration.write_text("listen: 127.0.0.1:0\nnats.embedded: true\ntelemetry.enabled: false\n")
    command = [
        sys.executable,
        "-m",
        "bascule.cli.liftbridge",
        "-c",
        str(configuration),
        "-data-dir",
        str(tmp_path / "d"),
    ]
    with subprocess.Popen(
        [*command, "-raft-bootstrap-seed"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stderr is not None
        address = ""
        for line in process.stderr:
            event = json.loads(line)
            if event["message"] == "ready":
                address = event["address"]
                break
        assert run("stream", "create", "s", url=f"liftbridge://{address}").code == 0
        process.send_signal(signal.SIGINT)
        process.stderr.read()
        assert process.wait(20) == 0
