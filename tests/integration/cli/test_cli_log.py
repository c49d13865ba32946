"""`bascule log` on the data directory of a stopped broker, intact and damaged."""

import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import bascule
import pytest
from bascule.cli import main
from bascule.errors import CorruptionError
from bascule.testing import broker

VALUES = [b"value %d " % n * 20 for n in range(300)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a broker with one stream of several segments."""
    with broker(directory=tmp_path) as running, bascule.connect(running.url) as client:
        client.create_stream("orders", options=bascule.StreamOptions(segment_max_bytes=10_000))
        for first in range(0, len(VALUES), 10):
            client.publish_many("orders", VALUES[first : first + 10])
    return tmp_path / "data"


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, Any]:
    code = main(["log", *map(str, arguments), "--output", "json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else None


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def partition(data: Path) -> Path:
    (found,) = (data / "partitions").iterdir()
    return found


def test_an_intact_directory_verifies(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(capsys, "verify", data)
    assert (code, found["damaged"], found["findings"]) == (0, False, [])
    assert found["records"] > len(VALUES)  # includes the metadata log
    code, logs = run(capsys, "inspect", data)
    assert code == 0
    assert next(log["incarnation"] for log in logs["logs"]) == 1
    code, log = run(capsys, "inspect", partition(data), "--from", "100", "--limit", "2")
    assert next(batch["base_offset"] for batch in log["logs"][0]["batches"]) <= 100
    assert len(log["logs"][0]["batches"]) == 2


def test_damage_is_found_and_repaired_from_a_backup(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = sorted(partition(data).glob("*.seg"))[1]
    backup = tmp_path / "backup" / "data"
    saved = backup / "partitions" / partition(data).name
    saved.mkdir(parents=True)
    shutil.copy(data / "bascule.json", backup)
    for path in partition(data).iterdir():
        (saved / path.name).write_bytes(path.read_bytes())
    flip(segment, 64 + 200)
    code, found = run(capsys, "verify", data)
    assert (code, found["damaged"]) == (1, True)
    (damage,) = found["findings"]
    assert (damage["kind"], damage["path"], damage["position"]) == ("damage", str(segment), 64)
    assert damage["next"] == f"bascule log repair {data} --from BACKUP"
    code, plan = run(capsys, "repair", data, "--from", backup, "--dry-run")
    assert (code, plan["damaged"], plan["findings"]) == (0, False, []), "the state after the repair"
    assert run(capsys, "verify", data) == (1, found | {"seconds": ANY}), "a dry run changes nothing"
    code, done = run(capsys, "repair", data, "--from", backup)
    assert (code, done["damaged"], [action["what"] for action in done["actions"]]) == (0, False, ["restore"])
    assert plan["actions"] == done["actions"]
    code, found = run(capsys, "verify", data)
    assert (code, found["findings"]) == (0, [])


def test_a_single_log_is_repaired_from_its_copy_or_a_copy_of_the_directory(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup = tmp_path / "backup"
    shutil.copytree(data, backup)
    log = partition(data)
    for copy in (backup, backup / "partitions" / log.name):
        flip(sorted(log.glob("*.seg"))[1], 64 + 200)
        code, done = run(capsys, "repair", log, "--from", copy)
        assert (code, [action["what"] for action in done["actions"]]) == (0, ["restore"])


def test_an_invalid_backup_is_rejected_before_any_change(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(data, other)
    manifest = json.loads((other / "bascule.json").read_text())
    (other / "bascule.json").write_text(json.dumps({**manifest, "broker_id": "somebody-else"}))
    nameless = tmp_path / "nameless"
    shutil.copytree(data, nameless)
    (nameless / "bascule.json").unlink()
    (tmp_path / "empty").mkdir()
    log = partition(data)
    flip(sorted(log.glob("*.seg"))[1], 64 + 200)
    before = {file: file.read_bytes() for file in data.rglob("*") if file.is_file()}
    refused = [
        (data, tmp_path / "nosuch", 3, "is not a directory"),
        (data, tmp_path / "empty", 2, "has no readable bascule.json"),
        (data, nameless, 2, "has no readable bascule.json"),
        (data, other, 6, "is of broker somebody-else of cluster"),
        (data, data, 2, "is the directory to be repaired"),
        (log, other, 6, "is of broker somebody-else of cluster"),
        (log, tmp_path / "empty", 2, "is neither a data directory nor a copy of"),
        (log, data / "metadata" / "log", 2, "is neither a data directory nor a copy of"),
    ]
    for path, backup, code, said in refused:
        assert main(["log", "repair", str(path), "--from", str(backup)]) == code
        captured = capsys.readouterr()
        assert captured.out == ""
        assert said in captured.err
        assert str(backup) in captured.err
    assert {file: file.read_bytes() for file in data.rglob("*") if file.is_file()} == before


def publish_until_journaled(client: bascule.Client) -> int:
    """Create the stream, and publish to it until a sync round goes to the journal. Returns the number of records."""
    client.create_stream("orders")
    count = 0
    while not client.describe_broker().statistics["sync_journaled_rounds"]:
        client.publish("orders", b"before the journal was made")
        count += 1
    return count


def test_a_truncated_partition_stays_truncated_despite_the_journal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"limits.journal_from_dirty_files": 1}
    with broker(directory=tmp_path, durability="disk", settings=settings) as running:
        with bascule.connect(running.url) as client:
            before = publish_until_journaled(client)
            for value in VALUES[:30]:
                client.publish("orders", value)
        running.kill()
        files = sorted((tmp_path / "data" / "journal").iterdir())
        log = partition(tmp_path / "data")
        code, done = run(capsys, "repair", log, "--cut-at", str(before + 20))
        cut = [(action["what"], Path(action["path"]).name) for action in done["actions"]]
        assert (code, cut) == (0, [("cut", "journal"), ("cut", f"{0:020}.seg")])
        assert set(files) < set((tmp_path / "data" / "journal").iterdir()), "a cut has a file of its own"
        running.start()
        with bascule.connect(running.url) as client:
            read = [value for batch in client.subscribe("orders", stop="latest") for value in batch.values]
    assert read[before:] == VALUES[:20]


def test_a_missing_partition_is_detected(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = partition(data)
    gone.rename(data / "kept")
    code, found = run(capsys, "verify", data)
    assert (code, found["damaged"]) == (1, True)
    (finding,) = found["findings"]
    assert (finding["kind"], finding["path"]) == ("damage", str(gone))
    assert finding["what"] == "the partition was created here and its files are missing"
    code, repaired = run(capsys, "repair", data, "--dry-run")
    assert (code, [item["path"] for item in repaired["findings"]]) == (1, [str(gone)])
    # an empty directory is not a partition either
    gone.mkdir()
    code, found = run(capsys, "verify", data)
    assert (code, [item["path"] for item in found["findings"]]) == (1, [str(gone)])
    gone.rmdir()
    (data / "kept").rename(gone)
    assert run(capsys, "verify", data)[0] == 0


def test_metadata_is_not_repaired_from_an_older_backup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    with broker(directory=tmp_path) as running:
        with bascule.connect(running.url) as client:
            client.create_stream("first")
        running.stop()
        shutil.copytree(data, backup)
        running.start()
        with bascule.connect(running.url) as client:
            client.create_stream("second")
    log = data / "metadata" / "log"
    shutil.copytree(log, tmp_path / "newer")
    for path in log.iterdir():
        path.unlink()
    for dry_run in (["--dry-run"], []):
        assert main(["log", "repair", str(data), "--from", str(backup), *dry_run]) == 6
        said = capsys.readouterr().err
        assert "a newer metadata state exists. Nothing was touched" in said
        assert str(backup) in said
    assert list(log.iterdir()) == []
    # with intact metadata, partitions are repaired from the same backup
    shutil.copytree(tmp_path / "newer", log, dirs_exist_ok=True)
    assert main(["log", "repair", str(data), "--from", str(backup)]) == 0
    capsys.readouterr()


def test_a_running_broker_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with broker(directory=tmp_path):
        for command in ("verify", "inspect", "repair"):
            assert main(["log", command, str(tmp_path / "data")]) == 6
            assert "is used by a running broker" in capsys.readouterr().err
        assert main(["log", "verify", str(tmp_path / "data" / "metadata" / "log")]) == 6
    capsys.readouterr()
    assert main(["log", "verify", str(tmp_path / "nothing")]) == 3


def test_a_reader_gets_the_next_readable_offset_also_after_a_restart(tmp_path: Path) -> None:
    with broker(directory=tmp_path) as running:
        with bascule.connect(running.url) as client:
            client.create_stream("orders", options=bascule.StreamOptions(segment_max_bytes=10_000))
            for first in range(0, len(VALUES), 10):
                client.publish_many("orders", VALUES[first : first + 10])
            segment = sorted(partition(tmp_path / "data").glob("*.seg"))[1]
            flip(segment, 64 + 200)
            start = int(segment.stem)
            with pytest.raises(CorruptionError) as raised:
                list(client.subscribe("orders", stop="latest").records())
            end = raised.value.details["end"]
            assert (raised.value.code, raised.value.details["start"]) == ("damaged", start)
            assert start < end < len(VALUES)
            assert segment.name in str(raised.value)
            assert f"start at offset {end}" in str(raised.value)
            behind = [record.value for record in client.subscribe("orders", start=end, stop="latest").records()]
            assert behind == VALUES[end:]
        assert running.log.count("partition.damaged") == 1
        running.stop()
        running.start()
        assert running.log.count("partition.damaged") == 2
