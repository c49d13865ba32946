"""Damage in the journal of a broker that lost its power: `bascule log verify` finds it, and the broker reports it."""

import csv
import io
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import bascule
import pytest
from bascule.cli import main
from bascule.errors import CorruptionError
from bascule.testing import TestBroker, broker

from .test_cli_log import flip, partition, publish_until_journaled, run

SETTINGS: Final[Mapping[str, object]] = {"limits.journal_from_dirty_files": 1}
BEHIND: Final = 6


def fill(running: TestBroker, data: Path) -> tuple[int, Path]:
    """Publish into the journal. How many records there were before, and the partitions as they were then."""
    with bascule.connect(running.url) as client:
        before = publish_until_journaled(client)
        copy = data.with_name("copy")
        shutil.copytree(data / "partitions", copy)
        for number in range(BEHIND):
            client.publish("orders", b"in the journal: %d" % number)
    return before, copy


@contextmanager
def killed(data: Path) -> Generator[tuple[TestBroker, int, Path]]:
    """A broker that was killed when it had published into the journal; with the output of `fill`."""
    with broker(durability="disk", directory=data.parent, settings=SETTINGS) as running:
        before, copy = fill(running, data)
        running.kill()
        yield running, before, copy


def cut_power(data: Path, copy: Path) -> Path:
    """What a power cut may leave. The journal's file with the records."""
    shutil.rmtree(data / "partitions")
    shutil.copytree(copy, data / "partitions")
    for path in (data / "journal").iterdir():
        if b"in the journal: " in path.read_bytes():
            return path
    pytest.fail("the records are not in the journal")


def lose(data: Path, copy: Path, number: int) -> Path:
    """The same, and a flipped bit in the frame of one record."""
    path = cut_power(data, copy)
    flip(path, path.read_bytes().index(b"in the journal: %d" % number))
    return path


def test_an_unreadable_journal_file_is_damage_and_one_without_its_beginning_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with killed(data) as (running, before, copy):
        file = cut_power(data, copy)
        overwrite(file, 0)
        assert only_finding(capsys, data) == (0, "derived", 0, str(file))
        overwrite(file, file.stat().st_size - 64)
        assert only_finding(capsys, data) == (1, "damage", 0, str(file))

        running.start()
        assert "no frame of the file can be read" in running.log
        assert not file.exists()
        assert file.with_name("damaged").stat().st_size > 0
        with bascule.connect(running.url) as client:
            assert client.publish("orders", b"after").offset >= before


def test_lost_records_at_the_end_of_the_newest_file_and_lost_end_markers_are_detected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with killed(data) as (running, before, copy):
        file = cut_power(data, copy)
        whole = file.read_bytes()
        end = len(whole)
        last_but_one = whole.find(b"in the journal: %d" % (BEHIND - 2))
        begin = whole.rfind(b"BSC1", 0, last_but_one) - 16
        # With one end marker the last round may be missing, in part or whole; without both that is not known.
        for mark in marks(end):
            file.write_bytes(whole[:mark] + bytes(32) + whole[mark + 32 :])
            code, kind, _, path = only_finding(capsys, data)
            assert (code, kind, path) == (0, "tail", str(file))
        file.write_bytes(whole[:begin] + bytes(end - begin))
        code, kind, position, _ = only_finding(capsys, data)
        assert (code, kind, position) == (1, "damage", begin)
        # As if the last two rounds had never been written, but for the marks.
        file.write_bytes(whole[:begin] + bytes(marks(end)[0] - begin) + whole[marks(end)[0] :])
        code, found = run(capsys, "verify", data)
        (row,) = found["findings"]
        assert (code, row["kind"], row["path"], found["damaged"]) == (1, "damage", str(file), True)
        assert row["position"] == begin

        running.start()
        assert f"the journal fails its checksum at position {row['position']} of {file}" in running.log
        assert "it was acknowledged" in running.log
        with bascule.connect(running.url) as client:
            assert served(client) == (list(range(before + BEHIND - 2)), [])


def marks(end: int) -> list[int]:
    """Where the marks lie in a journal file of that length."""
    return [end - 8192, end - 4096]


def only_finding(capsys: pytest.CaptureFixture[str], data: Path) -> tuple[int, str, int, str]:
    """Exit code of verify, and kind, position and file of what it finds."""
    code, found = run(capsys, "verify", data)
    (row,) = found["findings"]
    return code, row["kind"], row["position"], row["path"]


def overwrite(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes(64))


def served(client: bascule.Client) -> tuple[list[int], list[tuple[int, int]]]:
    """The offsets of a reader that continues after damage, and the ranges that are refused."""
    offsets: list[int] = []
    refused: list[tuple[int, int]] = []
    while True:
        start = max([0, *(offset + 1 for offset in offsets), *(end for _, end in refused)])
        try:
            offsets += (record.offset for record in client.subscribe("orders", start=start, stop="latest").records())
        except CorruptionError as damage:
            refused.append((int(damage.details["start"]), int(damage.details["end"])))
        else:
            return offsets, refused


def test_records_that_are_only_in_the_journal_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    with killed(data) as (running, before, copy):
        shutil.rmtree(data / "partitions")  # as after a power cut
        shutil.copytree(copy, data / "partitions")
        code, found = run(capsys, "inspect", partition(data))
        (log,) = found["logs"]
        end = max([log["checkpoint"]["durable"], *(segment["next_offset"] for segment in log["segments"])])
        frames = [(frame["start"], frame["end"]) for frame in log["journal"]["frames"]]
        assert (code, log["journal"]["end"], log["journal"]["lost"]) == (0, before + BEHIND, [])
        assert [end, *(stop for _, stop in frames)] == [*(start for start, _ in frames), before + BEHIND]
        assert main(["log", "inspect", str(data), "-o", "csv"]) == 0
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert [int(row["in_journal"]) for row in rows] == [0, before + BEHIND - end]
        assert main(["log", "inspect", str(partition(data)), "--batches"]) == 0
        assert f"the journal has offsets {end} to {before + BEHIND - 1} of" in capsys.readouterr().err

        running.start()
        with bascule.connect(running.url) as client:
            assert served(client) == (list(range(before + BEHIND)), [])


def test_records_lost_by_a_damaged_journal_are_reported_and_their_offsets_not_reused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with killed(data) as (running, before, copy):
        file = lose(data, copy, 2)
        gone = before + 2

        code, found = run(capsys, "verify", data)
        assert (code, found["damaged"], found["journal_frames"] >= BEHIND - 1) == (1, True, True)
        of_log = [row for row in found["findings"] if row["what"] == "a frame of the journal fails its checksum"]
        (lost,) = [row for row in of_log if row["start"] == gone]
        assert (lost["kind"], lost["end"], lost["path"]) == ("damage", gone + 1, str(file))
        code, alone = run(capsys, "verify", partition(data))
        assert (code, alone["journal"]) == (1, str(data / "journal"))
        shutil.copytree(data / "partitions", tmp_path / "elsewhere" / "partitions")
        code, elsewhere = run(capsys, "verify", partition(tmp_path / "elsewhere"))
        assert (code, elsewhere["journal"]) == (0, None)

        running.start()
        with bascule.connect(running.url) as client:
            offsets, refused = served(client)
            assert offsets == [offset for offset in range(before + BEHIND) if offset != gone]
            assert refused == [(gone, gone + 1)]
            assert client.publish("orders", b"after").offset == before + BEHIND
            (shown,) = client.describe_stream("orders").partitions[0].damaged
            assert (shown.start, shown.end, shown.fault, shown.path) == (gone, gone + 1, "journal", str(file))
            assert client.describe_broker().statistics["journal_damages"] == 1
        assert f"the journal fails its checksum at position {shown.position} of {file}" in running.log
