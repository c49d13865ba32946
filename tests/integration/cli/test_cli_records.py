"""`produce` reads the output of `consume`, and both use all partitions by default."""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import bascule
import pytest
from bascule.cli import main
from bascule.testing import TestBroker

from tests.integration.cli.commands import environment
from tests.integration.cli.conftest import Run
from tests.integration.cli.groups import join

ODD: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
    (b"k", None, []),
    (b"k", b"", [("h", b"")]),
    (b"k", b"null", []),
    (None, b"a\r", [("h", b"1"), ("h", b"2"), ("g", b"\xff\r\n")]),
    (b"\r\n", b"\n", []),
    (b'","', b" \t", [(" spaced ", b'"')]),
    (bytes(range(256)), bytes(range(256)), [("na\u00efve", bytes(range(256)))]),
    (b"{}", b"{}", []),
    (b"k", b"\xef\xbb\xbfbom", []),
]
"""Key, value, headers."""


@pytest.mark.parametrize("form", ["json", "ndjson", "csv"])
def test_records_come_back_as_they_were(  # noqa: PLR0917 (fixtures)
    form: str, cli: Run, here: TestBroker, stream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy, file = f"{stream}-copy", tmp_path / "records"
    with bascule.connect(here.url) as client:
        for name in (stream, copy):
            client.create_stream(name, options=bascule.StreamOptions(partitions=3))
        for number, (key, value, headers) in enumerate(ODD):
            subject = f"elsewhere.{number}" if number % 2 else None
            client.publish(stream, value, key=key, headers=headers, partition=number % 3, subject=subject)
        assert main(["consume", stream, "--start", "earliest", "--stop", "latest", "--output", form]) == 0
        file.write_bytes(capsys.readouterr().out.encode())
        keep = [word for name in ("partition", "subject", "time") for word in ("--keep", name)]
        cli("produce", copy, "--file", str(file), "--format", form, *keep)
        for partition in range(3):
            before, after = (
                list(client.subscribe(name, partition=partition, start="earliest", stop="latest").records())
                for name in (stream, copy)
            )
            assert len(before) == len(ODD) // 3
            assert [(r.key, r.value, r.headers, r.subject) for r in after] == [
                (r.key, r.value, r.headers, r.subject) for r in before
            ]
            assert [r.origin_time_ns for r in after] == [r.timestamp_ns for r in before]


def test_output_to_a_pipe_is_utf_8_in_any_locale(here: TestBroker, stream: str) -> None:
    with bascule.connect(here.url) as client:
        client.create_stream(stream)
        client.publish(stream, "10 €")
    locale = {**environment(here.url), "PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-m", "bascule.cli", "consume", stream, "--start", "earliest", "--stop", "latest"]
    for form in ("json", "ndjson", "csv"):
        found = subprocess.run([*command, "--output", form], env=locale, capture_output=True, timeout=60, check=True)
        assert "10 €".encode() in found.stdout


def test_without_a_partition_keys_decide_and_all_are_read(cli: Run, stream: str) -> None:
    cli("stream", "create", stream, "--partitions", "3")
    rows = cli("produce", stream, "foo:1", "hello:2", "foo:3", "--key-separator", ":")
    # CRC-32 of foo and hello modulo 3 (liftbridge §13.4)
    assert [(row["partition"], row["records"]) for row in rows] == [(1, 1), (2, 2)]
    found = cli("consume", stream, "--start", "earliest", "--idle", "300ms")
    assert sorted((row["partition"], row["value"]) for row in found) == [(1, "2"), (2, "1"), (2, "3")]


def test_records_of_the_last_of_many_partitions_are_found_and_followed(here: TestBroker, stream: str) -> None:
    command = [sys.executable, "-m", "bascule.cli", "consume", stream, "--start", "earliest", "--idle", "2s"]
    with bascule.connect(here.url) as client:
        client.create_stream(stream, options=bascule.StreamOptions(partitions=50))
        client.publish(stream, b"first", partition=49)
        with subprocess.Popen(
            [*command, "--output", "%p %o %k %v"], stdout=subprocess.PIPE, env=environment(here.url)
        ) as reading:
            assert reading.stdout is not None
            assert reading.stdout.readline() == b"49 0  first\n"
            client.publish(stream, b"second", partition=31)
            assert reading.stdout.readline() == b"31 0  second\n"
            assert reading.wait(60) == 0
            assert reading.stdout.read() == b""


def test_a_subject_filter_leaves_out_other_records(cli: Run, here: TestBroker, stream: str) -> None:
    with bascule.connect(here.url) as client:
        client.create_stream(stream)
        for subject in ("a.eu.1", "a.us.1", None, "a.eu"):
            client.publish(stream, subject or "own", subject=subject)
        with client.subscribe(stream, start="earliest", stop="latest", subject="a.*.1") as found:
            assert [record.subject for record in found.records()] == ["a.eu.1", "a.us.1"]
    once = ("consume", stream, "--stop", "latest")
    assert [row["value"] for row in cli(*once, "--start", "earliest", "--subject", "a.eu.>")] == ["a.eu.1"]
    assert [row["value"] for row in cli(*once, "--start", "earliest", "--subject", stream)] == ["own"]
    assert [row["value"] for row in cli("consume", stream, "--reverse", "--subject", "a.*.*")] == ["a.us.1", "a.eu.1"]
    assert "to filter by" in cli(*once, "--start", "earliest", "--subject", "a..b", code=2)


def test_a_group_continues_at_its_position(cli: Run, here: TestBroker, stream: str) -> None:
    cli("stream", "create", stream, "--partitions", "2")
    cli("produce", stream, *"abcd", "--partition-by", "round-robin")
    group = ("consume", stream, "--group", f"{stream}-g", "--start", "earliest", "--idle", "1s")
    assert sorted(row["value"] for row in cli(*group)) == ["a", "b", "c", "d"]
    assert cli(*group) == []
    cli("produce", stream, "e")
    assert [row["value"] for row in cli(*group)] == ["e"]
    for others in (["--partition", "0"], ["--cursor", "c"], ["--reverse"], ["--stop", "latest"]):
        assert others[0] in cli(*group, *others, code=2)
    with bascule.connect(here.url) as client:
        join(client, f"{stream}-other", "member", stream)
        cli("consume", stream, "--group", f"{stream}-other", "--idle", "100ms")


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_a_time_without_a_zone_is_local_and_shown_with_its_offset(  # noqa: PLR0917 (fixtures)
    cli: Run,
    stream: str,
    zone: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    restore: Callable[[], None] = time.tzset
    request.addfinalizer(restore)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    cli("stream", "create", stream)
    cli("produce", stream, "a")
    hence = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() + 3600))
    ago = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() - 3600))
    assert [row["value"] for row in cli("consume", stream, "--start", ago, "--stop", "latest")] == ["a"]
    assert cli("consume", stream, "--start", hence, "--idle", "100ms") == []
    capsys.readouterr()
    assert main(["consume", stream, "--start", ago, "--stop", "latest"]) == 0
    assert f"{ago}:00{time.strftime('%z')[:3]}:00" in capsys.readouterr().err.replace("T", " ")


def test_a_line_with_a_repeated_name_is_rejected(cli: Run, stream: str, tmp_path: Path) -> None:
    cli("stream", "create", stream)
    (tmp_path / "twice.ndjson").write_text('{"value": "a"}\n{"value": "b", "value": "c"}\n')
    said = cli("produce", stream, "--file", str(tmp_path / "twice.ndjson"), "--format", "ndjson", code=2)
    assert re.search(r"line 2.*value.*twice", said), said


def test_a_record_without_a_partition_is_rejected_if_each_needs_one(cli: Run, stream: str, tmp_path: Path) -> None:
    cli("stream", "create", stream, "--partitions", "3")
    (tmp_path / "some.ndjson").write_text('{"value": "a", "partition": 2}\n{"value": "b"}\n')
    file = ("--file", str(tmp_path / "some.ndjson"), "--format", "ndjson")
    for options in (["--keep", "partition"], ["--partition-by", "record"]):
        assert "names no partition" in cli("produce", stream, *file, *options, code=2)
    assert cli("consume", stream, "--start", "earliest", "--stop", "latest") == []
