"""`bascule produce` and `consume` against a real broker: formats, partitions, positions, ends."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import bascule
import pytest
from bascule.cli import main
from bascule.testing import TestBroker

from tests.integration.cli.commands import environment, run
from tests.integration.cli.conftest import Run

BLOB = bytes(range(256))


def values(found: list[dict[str, object]]) -> list[object]:
    return [row["value"] for row in found]


@pytest.mark.parametrize("form", ["json", "ndjson", "csv"])
def test_produce_accepts_the_output_of_consume(  # noqa: PLR0917 (fixtures)
    form: str, cli: Run, here: TestBroker, stream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with bascule.connect(here.url) as client:
        for name in (stream, f"{stream}-copy"):
            client.create_stream(name, options=bascule.StreamOptions(partitions=2))
        client.publish(stream, BLOB, key=BLOB, headers={"h": BLOB}, partition=1)
        client.publish(stream, b'text, "quoted"\nlines', partition=0)
        assert main(["consume", stream, "-a", "--start", "earliest", "--stop", "latest", "--output", form]) == 0
        file = tmp_path / "records"
        file.write_text(capsys.readouterr().out)
        rows = cli("produce", f"{stream}-copy", "--file", str(file), "--format", form, "--partition-by", "record")
        assert [(row["partition"], row["records"]) for row in rows] == [(0, 1), (1, 1)]
        (first,) = client.subscribe(f"{stream}-copy", stop="latest").records()
        (second,) = client.subscribe(f"{stream}-copy", partition=1, stop="latest").records()
        assert (first.value, first.key) == (b'text, "quoted"\nlines', None)
        assert (second.value, second.key, second.header("h")) == (BLOB, BLOB, BLOB)


@pytest.mark.parametrize(("form", "text"), [("raw", b"a\nb"), ("base64", b"YQpi\n"), ("hex", b"610a62\n")])
def test_values_go_in_and_out_in_each_form(form: str, text: bytes, running: TestBroker, stream: str) -> None:
    assert run("stream", "create", stream, url=running.url).code == 0
    command = [sys.executable, "-m", "bascule.cli"]

    def through(*arguments: str) -> bytes:
        ended = subprocess.run(
            [*command, *arguments],
            input=text,
            capture_output=True,
            check=True,
            timeout=60,
            env=environment(running.url),
        )
        return ended.stdout

    through("produce", stream, "--format", form)
    out = through("consume", stream, "--start", "0", "-n", "1", "-o", form)
    assert out == text


def test_keys_and_round_robin_choose_partitions(cli: Run, stream: str) -> None:
    cli("stream", "create", stream, "--partitions", "3")
    by_key = cli("produce", stream, "foo:1", "hello:2", "foo:3", "--key-separator", ":", "--partition-by", "key")
    # CRC-32 of foo and hello modulo 3 (liftbridge §13.4)
    assert [(row["partition"], row["records"]) for row in by_key] == [(1, 1), (2, 2)]
    by_turn = cli("produce", stream, *"abcd", "--partition-by", "round-robin")
    assert [(row["partition"], row["records"]) for row in by_turn] == [(0, 2), (1, 1), (2, 1)]
    found = cli("consume", stream, "-p", "0", "-p", "2", "--start", "earliest", "--stop", "latest")
    assert sorted((row["partition"], row["value"]) for row in found) == [
        (0, "a"),
        (0, "d"),
        (2, "1"),
        (2, "3"),
        (2, "c"),
    ]
    planned = cli("produce", stream, *"abcd", "--partition-by", "round-robin", "--dry-run")
    assert [row["records"] for row in planned] == [2, 1, 1]
    assert "has no partition 3" in cli("produce", stream, "v", "--partition", "3", code=3)


def test_positions_and_directions(cli: Run, stream: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli("stream", "create", stream)
    cli("produce", stream, *"abcde")
    once = ("consume", stream, "--stop", "latest")
    assert values(cli(*once, "--start", "earliest", "--count", "2")) == ["a", "b"]
    assert values(cli(*once, "--start", "3")) == ["d", "e"]
    assert values(cli("consume", stream, "--start", "1", "--stop", "3")) == ["b", "c"]
    assert values(cli(*once, "--start", "-1h")) == ["a", "b", "c", "d", "e"]
    assert values(cli(*once, "--start", "latest")) == ["e"]
    assert values(cli("consume", stream, "--reverse")) == ["e", "d", "c", "b", "a"]
    assert values(cli("consume", stream, "--reverse", "--start", "3", "--stop", "1")) == ["d", "c"]
    assert cli("consume", stream, "--start", "new", "--idle", "200ms") == []
    assert cli("consume", stream, "--for", "200ms") == []
    for start, more, said in (
        ("100", (), f"offset 100 is beyond the end of partition 0 of {stream}: reading begins with the next record, "),
        ("2200-01-01T00:00:00Z", (), f"is in the future: reading of partition 0 of {stream} begins with the next"),
        ("100", ("--reverse", "-n", "1"), "reading begins with the last record, offset 4"),
        ("4", (), ""),
        ("5", (), ""),
    ):
        assert main(["consume", stream, "--start", start, "--idle", "100ms", *more]) == 0
        err = capsys.readouterr().err
        assert said in err
        assert bool(said) == bool(err)
    assert values(cli("consume", stream, "--start", "0", "-n", "5", "--rate", "500")) == ["a", "b", "c", "d", "e"]


def test_a_cursor_moves_after_the_printed_records(cli: Run, stream: str) -> None:
    cli("stream", "create", stream)
    cli("produce", stream, *"abcde")
    read = ("consume", stream, "--cursor", f"{stream}-reader", "--start", "earliest", "--stop", "latest")
    assert values(cli(*read, "--count", "2", "--no-commit")) == ["a", "b"]
    assert values(cli(*read, "--count", "2")) == ["a", "b"]
    assert cli("cursor", "get", f"{stream}-reader", stream)["offset"] == 1
    assert values(cli(*read, "--count", "2")) == ["c", "d"]
    assert values(cli(*read)) == ["e"]
    assert cli(*read) == []


def test_a_table_is_printed_before_its_cursor_moves(cli: Run, stream: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli("stream", "create", stream)
    cli("produce", stream, *"ab")
    command = ["consume", stream, "--cursor", f"{stream}-c", "--start", "earliest", "--stop", "latest", "-o", "table"]
    assert main(command) == 0
    assert "a" in capsys.readouterr().out
    assert cli("cursor", "get", f"{stream}-c", stream)["offset"] == 1


def test_a_paused_partition_is_reported_and_can_be_resumed(cli: Run, stream: str) -> None:
    cli("stream", "create", stream)
    cli("produce", stream, "a")
    cli("stream", "pause", stream)
    assert "is paused: " in cli("consume", stream, "--start", "0", "-n", "1", code=6)
    assert values(cli("consume", stream, "--start", "0", "-n", "1", "--resume")) == ["a"]


@pytest.mark.parametrize(
    ("options", "found"), [(["--start", "earliest"], ["a"]), ([], []), (["--partition", "1", "--start", "latest"], [])]
)
def test_a_paused_partition_is_resumed_and_read_to_its_end(
    cli: Run, stream: str, options: list[str], found: list[str]
) -> None:
    cli("stream", "create", stream, "--partitions", "2")
    cli("produce", stream, "a", "--partition", "0")
    for _ in range(2):
        cli("stream", "pause", stream)
        assert values(cli("consume", stream, "--resume", "--stop", "latest", *options)) == found


def test_a_bad_line_is_named_and_those_before_it_are_published(cli: Run, stream: str, tmp_path: Path) -> None:
    cli("stream", "create", stream)
    file = tmp_path / "lines"
    file.write_bytes(b'{"value": "v"}\n' * 3 + b"nonsense\n")
    said = cli("produce", stream, "--file", str(file), "--format", "ndjson", code=2)
    assert 'line 4 "nonsense" is not valid JSON' in said


@pytest.mark.parametrize("source", [(), ("--file", "-")])
def test_a_slow_pipe_is_published_line_by_line(source: tuple[str, ...], running: TestBroker, stream: str) -> None:
    assert run("stream", "create", stream, url=running.url).code == 0
    command = [sys.executable, "-m", "bascule.cli", "produce", stream, "-o", "json", *source]
    with (
        bascule.connect(running.url) as client,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(running.url)
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        with client.subscribe(stream, start="earliest") as subscription:
            assert next(iter(subscription.records())).value == b"first"
        process.stdin.write(b"second")
        process.stdin.close()
        assert json.loads(process.stdout.read())["records"] == 2
        assert process.wait(60) == 0


def test_ctrl_c_while_producing_reports_the_published_records(running: TestBroker, stream: str) -> None:
    assert run("stream", "create", stream, url=running.url).code == 0
    command = [sys.executable, "-m", "bascule.cli", "produce", stream]
    with (
        bascule.connect(running.url) as client,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(running.url)
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        with client.subscribe(stream, start="earliest") as subscription:
            assert next(iter(subscription.records())).value == b"first"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        # the record may be readable before its acknowledgement arrives
        said = process.stderr.read()
        assert re.fullmatch(rb"bascule: interrupted; at least [01] records before it are published\n", said)


def test_the_shell_completes_commands_and_streams(running: TestBroker, stream: str) -> None:
    assert run("stream", "create", stream, url=running.url).code == 0
    program = str(Path(sys.executable).with_name("bascule"))

    def offered(words: str) -> list[str]:
        asked = {"_BASCULE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        ended = subprocess.run(
            [program],
            capture_output=True,
            text=True,
            check=False,
            env={**environment(running.url), **asked},
            timeout=60,
        )
        assert ended.stderr == ""
        return ended.stdout.split()

    assert "stream" in offered("bascule str")
    # completion offers nothing if the broker does not answer at once: repeat until it does
    limit = time.monotonic() + 120
    while stream not in (found := offered(f"bascule stream show {stream[:8]}")) and time.monotonic() < limit:
        assert found == []
    assert stream in found
