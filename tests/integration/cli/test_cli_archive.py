"""`bascule archive erase` on a real broker: tombstones, questions, what is printed and refused."""

import zlib
from pathlib import Path
from typing import Any

import bascule
import pytest
from bascule.cli import main
from bascule.lake import ArchiveOptions
from bascule.testing import TestBroker

from tests.integration.cli.conftest import Run
from tests.unit.lake.query import Query, batch, options_of

COMMAND = ("archive", "erase")


@pytest.fixture
def stream(here: TestBroker, tmp_path: Path) -> Any:
    """A stream with three partitions, and an archive of two of them that has three records of `key-1`."""
    name = f"erase-{tmp_path.name}"[:60]
    with bascule.connect(here.url) as client:
        client.create_stream(name, options=bascule.StreamOptions(partitions=3))
    options = options_of("delta", tmp_path)
    Query(options).epoch(0, [batch(0, 6, stream=name)], [batch(0, 3, 1, stream=name)])
    return name, options


def records(here: TestBroker, stream: str, partition: int) -> list[tuple[bytes | None, bytes | None]]:
    with bascule.connect(here.url) as client, client.subscribe(stream, partition=partition, stop="latest") as found:
        return [(each.key, each.value) for each in found.records()]


def test_the_archive_loses_the_records_and_the_stream_gets_tombstones(
    cli: Run, here: TestBroker, stream: tuple[str, ArchiveOptions]
) -> None:
    name, options = stream
    preview = cli(*COMMAND, name, options.path, "--key", "key-1", "--dry-run")
    assert (preview["rows"], preview["files"], preview["dry_run"]) == (3, 2, True)
    partitions = sorted({0, 1, zlib.crc32(b"key-1") % 3})
    assert preview["tombstones"] == [{"partition": each, "offset": None} for each in partitions]
    assert all(records(here, name, number) == [] for number in range(3))
    done = cli(*COMMAND, name, options.path, "--key", "key-1", "--yes")
    assert (done["rows"], done["dry_run"]) == (3, False)
    assert done["tombstones"] == [{"partition": each, "offset": 0} for each in partitions]
    assert [records(here, name, each) for each in partitions] == [[(b"key-1", None)]] * len(partitions)
    assert b"key-1" not in {row[2] for row in Query(options).rows()}
    places = ", ".join(f"{each}/0" for each in partitions)
    assert any(
        f"the tombstones, which have the key (partition/offset {places})" in each for each in done["not_reached"]
    )
    assert cli(*COMMAND, name, options.path, "--key", "key-1", "--no-tombstone", "--yes")["rows"] == 0


def test_what_is_not_reached_is_printed(stream: tuple[str, ArchiveOptions], capsys: pytest.CaptureFixture[str]) -> None:
    name, options = stream
    assert main([*COMMAND, name, options.path, "--key", "6b65792d31", "--hex", "--no-tombstone", "--yes"]) == 0
    printed = capsys.readouterr().out
    assert f"3 records in 2 files of {options.path}: erased\n" in printed
    for text in (f"stream {name} itself", "bascule.lake.vacuum", "backups", "consumers"):
        assert f"not reached: {text}" in printed or text in printed
    assert "tombstone in" not in printed


def test_what_is_refused(cli: Run, here: TestBroker, stream: tuple[str, ArchiveOptions]) -> None:
    name, options = stream
    assert "add --yes" in cli(*COMMAND, name, options.path, "--key", "key-1", code=2)
    text = cli(*COMMAND, name, options.path, "--key", "key-1", "--subject", "a", "--yes", code=2)
    assert "a tombstone would remove the key's records of all subjects" in text
    assert "is not hexadecimal" in cli(*COMMAND, name, options.path, "--key", "xy", "--hex", "--yes", code=2)
    missing = cli(*COMMAND, name, f"{options.path}-no", "--key", "k", "--yes", code=6)
    assert "there is no delta table" in missing
    cli(*COMMAND, "no-such-stream", options.path, "--key", "key-1", "--yes", code=3)
    assert Query(options).rows() != [], "nothing was erased"
    assert records(here, name, 0) == []
