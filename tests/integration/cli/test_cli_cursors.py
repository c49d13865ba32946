"""`bascule cursor` and `bascule group` against a real broker."""

from pathlib import Path

import bascule
import pytest
from bascule.cli import main
from bascule.testing import TestBroker, broker

from tests.integration.cli.conftest import Run
from tests.integration.cli.groups import join


def test_a_position_is_set_found_listed_and_removed(cli: Run, stream: str) -> None:
    cli("stream", "create", stream, "--partitions", "2")
    cursor = f"c-{stream}"
    assert "see bascule cursor list (not_found)" in cli("cursor", "get", cursor, stream, code=3)
    planned = cli("cursor", "set", cursor, stream, "7", "--partition", "1", "--dry-run")
    assert (planned["before"], planned["after"], planned["dry_run"]) == (None, 7, True)
    cli("cursor", "get", cursor, stream, "--partition", "1", code=3)
    cli("cursor", "set", cursor, stream, "7", "--partition", "1")
    cli("cursor", "set", cursor, stream, "0")
    assert cli("cursor", "set", cursor, stream, "9", "--partition", "1")["before"] == 7
    assert cli("cursor", "get", cursor, stream, "--partition", "1") == {
        "cursor": cursor, "stream": stream, "partition": 1, "offset": 9,
    }  # fmt: skip
    listed = cli("cursor", "list", cursor)
    assert [(row["stream"], row["partition"], row["offset"]) for row in listed] == [(stream, 0, 0), (stream, 1, 9)]
    cli("cursor", "forget", cursor, stream, "--dry-run")
    assert "add --yes" in cli("cursor", "forget", cursor, stream, code=2)
    assert cli("cursor", "forget", cursor, stream, "--yes")["before"] == 0
    assert [row["partition"] for row in cli("cursor", "list", cursor)] == [1]
    # positions in a deleted stream are not valid
    cli("stream", "delete", stream, "--yes")
    assert cli("cursor", "list", cursor) == []


@pytest.mark.parametrize("command", [["get"], ["set", "5"], ["forget"]])
def test_missing_positions_exit_with_3(command: list[str], cli: Run, stream: str) -> None:
    verb, *offset = command
    assert 'stream "never"' in cli("cursor", verb, "c", "never", *offset, code=3)
    cli("stream", "create", stream)
    assert "has no partition 1" in cli("cursor", verb, "c", stream, *offset, "--partition", "1", code=3)


def test_ids_have_limits(cli: Run, stream: str) -> None:
    cli("stream", "create", stream)
    assert "cursor is empty" in cli("cursor", "get", "", stream, code=2)
    assert "1 to 1024 bytes" in cli("cursor", "set", "c" * 1025, stream, "0", code=2)
    assert "group is empty" in cli("group", "reset", "", "--to", "latest", code=2)


def test_a_broker_without_cursors_names_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with broker(directory=tmp_path) as running:
        monkeypatch.setenv("BASCULE_URL", running.url)
        assert main(["stream", "create", "s"]) == 0
        assert main(["group", "list"]) == 0
        capsys.readouterr()
        for command in (["cursor", "get", "c", "s"], ["cursor", "list"], ["group", "reset", "g", "--to", "latest"]):
            assert main(command) == 6
            assert "set cursors.partitions to 1 or more" in capsys.readouterr().err


def test_a_group_with_members_is_shown_and_not_reset(cli: Run, here: TestBroker, stream: str) -> None:
    group = f"g-{stream}"
    cli("stream", "create", stream, "--partitions", "2")
    cli("produce", stream, *"abcd", "--partition-by", "round-robin")
    with bascule.connect(here.url) as client:
        join(client, group, "one", stream)
        join(client, group, "two", stream)
        client.set_cursor(bascule.group_cursor(group), stream, 0, partition=1)
        shown = cli("group", "show", group)
        assert (shown["state"], shown["members"], shown["lag"]) == ("active", 2, 1)
        columns = ("partition", "next_offset", "high_watermark", "lag")
        rows = [tuple(row[name] for name in columns) for row in shown["positions"]]
        assert rows == [(0, None, 2, None), (1, 1, 2, 1)]
        members = cli("group", "members", group)
        assert [row["member"] for row in members] == ["one", "two"]
        assert sorted(place for row in members for place in row["reads"]) == [f"{stream}/0", f"{stream}/1"]
        (row,) = [row for row in cli("group", "list") if row["group"] == group]
        assert (row["state"], row["members"], row["partitions"]) == ("active", 2, 1)
        assert "has 2 members" in cli("group", "reset", group, "--to", "latest", "--yes", code=6)
        assert "has 2 members" in cli("group", "delete", group, "--yes", code=6)
        (moved,) = cli("group", "reset", group, "--to", "latest", "-p", "1", "--yes", "--force")
        assert (moved["before"], moved["after"]) == (1, 2)
        client.leave_group(group, "one")
        client.leave_group(group, "two")
    assert cli("group", "show", group)["state"] == "empty"
    assert "has no members" in cli("group", "members", group, code=3)
    (planned,) = cli("group", "delete", group, "--dry-run")
    assert (planned["stream"], planned["partition"], planned["next_offset"]) == (stream, 1, 2)
    assert cli("group", "show", group)["state"] == "empty", "a dry run deletes nothing"
    cli("group", "delete", group, "--yes")
    assert "does not exist" in cli("group", "show", group, code=3)
    assert "does not exist" in cli("group", "delete", group, "--yes", code=3)


def test_positions_of_a_group_are_moved(
    cli: Run, here: TestBroker, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    group = f"g-{stream}"
    cli("stream", "create", stream)
    cli("produce", stream, *"abc")
    with bascule.connect(here.url) as client:
        assert "name its streams with --stream" in cli("group", "reset", group, "--to", "latest", code=3)
        (planned,) = cli("group", "reset", group, "--to", "2", "--stream", stream, "--dry-run")
        assert (planned["before"], planned["after"], planned["dry_run"]) == (None, 2, True)
        reset = ["group", "reset", group, "--stream", stream, "--dry-run", "--to"]
        assert main([*reset, "2"]) == 0
        assert "had neither members nor positions so far" in capsys.readouterr().err
        cli("group", "show", group, code=3)
        assert "add --yes" in cli("group", "reset", group, "--to", "2", "--stream", stream, code=2)
        cli("group", "reset", group, "--to", "2", "--stream", stream, "--yes")
        assert client.fetch_cursor(bascule.group_cursor(group), stream) == 1
        for to, after in (("latest", 3), ("0", None), ("1", 1), ("-1h", None), ("2200-01-01T00:00:00Z", 3)):
            (moved,) = cli("group", "reset", group, "--to", to, "--stream", stream, "--yes")
            assert moved["after"] == after, to
        assert "is not in partition 0" in cli("group", "reset", group, "--to", "4", "--yes", code=2)
        far = cli("group", "reset", group, "--to", "2999-01-01T00:00:00Z", "--yes", code=2)
        assert "is not between the years 1678 and 2262" in far
        # a position before offset 0 cannot be stored
        assert main([*reset, "latest"]) == 0
        assert capsys.readouterr().err == ""
        assert main(["group", "reset", group, "--to", "earliest", "--yes"]) == 0
        assert "the group keeps no position" in capsys.readouterr().err
        assert client.fetch_cursor(bascule.group_cursor(group), stream) is None
        # nothing changes, so there is no question
        assert main([*reset[:-2], "--to", "earliest"]) == 0
        assert "the group still has no position" in capsys.readouterr().err
        client.trim_partition(stream, 0, 2)
        (moved,) = cli("group", "reset", group, "--to", "earliest", "--stream", stream, "--yes")
        assert (moved["after"], client.fetch_cursor(bascule.group_cursor(group), stream)) == (2, 1)
        cli("stream", "pause", stream)
        assert "bascule stream resume" in cli("group", "reset", group, "--to", "latest", "--yes", code=6)


def test_a_position_beyond_the_end_is_stored_with_a_warning(
    cli: Run, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli("stream", "create", stream)
    cli("produce", stream, "a")
    for offset, warned in (("0", False), ("1", True)):
        assert main(["cursor", "set", "c", stream, offset]) == 0
        assert (f"offset {offset} is beyond the last record" in capsys.readouterr().err) == warned


def test_a_record_that_is_too_large_is_rejected_with_its_size_and_the_limit(cli: Run, stream: str) -> None:
    cli("stream", "create", stream, "--max-record-bytes", "1000")
    said = cli("produce", stream, "a", "b" * 2000, code=2)
    assert "a record of 20" in said
    assert f'envelope included, is too large for stream "{stream}", which accepts 1000' in said
    assert f"bascule stream edit {stream} --max-record-bytes" in said
