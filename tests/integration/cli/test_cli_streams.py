"""`bascule stream` against a real broker: settings, states, damage, dry runs, all formats."""

# nats-py leaves some of its parameters without a type
# pyright: reportUnknownMemberType=false

import asyncio
import csv
import io
import json
import re
import time
from pathlib import Path
from typing import Any

import bascule
import nats
import pytest
import yaml
from bascule.cli import main
from bascule.client._core.connection_pool import ConnectionPool
from bascule.testing import TestBroker, broker

from tests.integration.cli.conftest import Run

FORMS = ["table", "json", "ndjson", "yaml", "csv"]


def settings(shown: dict[str, list[dict[str, object]]], column: str) -> dict[str, object]:
    return {str(row["name"]): row[column] for row in shown["settings"]}


def test_settings_are_given_shown_and_changed_while_it_runs(
    cli: Run, here: TestBroker, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # 1. all settings
    cli(
        "stream", "create", stream, "--partitions", "2", "--retention-max-age", "7d", "--retention-max-bytes", "1GB",
        "--retention-max-messages", "1000", "--cleaner-interval", "10m", "--segment-max-bytes", "1MiB",
        "--segment-max-age", "1h", "--compact-enabled", "--compact-parallelism", "2", "--auto-pause-time", "0s",
        "--no-auto-pause-disable-if-subscribers", "--min-isr", "1", "--concurrency-control", "--max-record-bytes",
        "64KiB", "--durability", "memory", "--codec", "zstd", "--nats-copy", "none", "--no-partition-by-subject",
    )  # fmt: skip
    asked = settings(cli("stream", "show", stream), "asked")
    assert asked == {
        "durability": "memory", "codec": "zstd", "nats_copy": "none", "nats_acks": "off",
        "partition_by_subject": False, "concurrency_control": True, "max_record_bytes": 65536, "retention_bytes": 10**9,
        "retention_messages": 1000, "retention_age_ms": 604_800_000, "cleaner_interval_ms": 600_000,
        "segment_bytes": 1 << 20, "segment_age_ms": 3_600_000, "compact_enabled": True, "compact_parallelism": 2,
        "auto_pause_ms": 0, "auto_pause_disable_if_subscribers": False, "min_isr": 1, "encryption": None,
        "retention_after_archive": None, "retention_after_archive_max_bytes": None,
        "retention_hold_max_bytes": None, "retention_hold_expiry_ms": None,
    }  # fmt: skip
    assert main(["stream", "show", stream]) == 0
    summary = capsys.readouterr().out
    assert "compact_enabled=yes" in summary
    assert "partition_by_subject=no" in summary
    # 2. a dry run changes nothing
    command = ("stream", "edit", stream, "--max-record-bytes", "1000", "--no-concurrency-control", "--reset", "min-isr")
    planned = cli(*command, "--dry-run")
    assert {(row["setting"], row["before"], row["after"], row["dry_run"]) for row in planned} == {
        ("max_record_bytes", 65536, 1000, True), ("concurrency_control", True, False, True), ("min_isr", 1, None, True),
    }  # fmt: skip
    assert settings(cli("stream", "show", stream), "asked") == asked
    # 3. a change applies at once, and repeating it changes nothing
    assert [row["dry_run"] for row in cli(*command)] == [False, False, False]
    with bascule.connect(here.url) as client:
        client.publish(stream, b"x" * 50)
        with pytest.raises(bascule.BrokerError, match="which accepts 1000"):
            client.publish(stream, b"x" * 2000)
    assert cli(*command[:5]) == []


def test_acks_for_jetstream_publishers_are_given_shown_and_changed(cli: Run, stream: str) -> None:
    cli("stream", "create", stream, "--subject", f"{stream}.>", "--nats-acks", "jetstream")
    for which in ("asked", "in_effect"):
        assert settings(cli("stream", "show", stream), which)["nats_acks"] == "jetstream"
    # Two streams that would ack one message, and one with two sequences, are rejected with the remedy.
    said = cli("stream", "create", f"{stream}-2", "--subject", f"{stream}.*", "--nats-acks", "jetstream", code=2)
    assert f"overlaps with {stream}.> of stream default/{stream}" in said
    assert "choose another subject" in said
    said = cli("stream", "create", f"{stream}-2", "--partitions", "2", "--nats-acks", "jetstream", code=2)
    assert "use a stream with one" in said
    cli("stream", "create", f"{stream}-2", "--subject", f"{stream}.*")
    said = cli("stream", "edit", f"{stream}-2", "--nats-acks", "jetstream", code=2)
    assert f"overlaps with {stream}.> of stream default/{stream}" in said
    (row,) = cli("stream", "edit", stream, "--nats-acks", "off")
    assert (row["setting"], row["before"], row["after"]) == ("nats_acks", "jetstream", "off")
    cli("stream", "edit", f"{stream}-2", "--nats-acks", "jetstream")


def test_settings_outlive_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with broker(directory=tmp_path) as running, bascule.connect(running.url) as client:
        monkeypatch.setenv("BASCULE_URL", running.url)
        assert main(["stream", "create", "s"]) == 0
        assert main(["stream", "edit", "s", "--codec", "lz4", "--retention-max-age", "1d"]) == 0
        running.kill()
        running.start()
        found = client.describe_stream("s")
        assert (found.settings["codec"], found.in_effect["retention_age_ms"]) == ("lz4", 86_400_000)


def test_settings_that_cannot_be_changed_are_rejected(here: TestBroker, stream: str) -> None:
    with bascule.connect(here.url) as client:
        client.create_stream(stream)
        for changes, said in (
            ({"encryption": True}, "encryption stays as the stream was created"),
            ({"codecs": "lz4"}, "codecs is not a setting of a stream, which has durability, codec"),
            ({"codec": "gzip"}, "the settings are not valid"),
            ({"codec": None}, "the settings are not valid"),
            ({"min_isr": -1}, "min_isr is -1, not between 0 and 255"),
            ({"min_isr": 2**70}, "min_isr is 1180591620717411303424, not a whole number of 64 bits"),
            ({"retention_age_ms": "1d"}, "the settings are not valid: retention_age_ms is '1d', not a whole number"),
        ):
            with pytest.raises(bascule.errors.UsageError, match=said):
                client.edit_stream(stream, changes)
        assert client.edit_stream(stream, {}) == (client.describe_stream(stream).settings,) * 2


def test_partitions_are_paused_resumed_and_made_read_only(cli: Run, here: TestBroker, stream: str) -> None:
    cli("stream", "create", stream, "--partitions", "3")

    def states() -> list[str]:
        return [row["state"] for row in cli("stream", "show", stream)["partitions"]]

    pause = ("stream", "pause", stream, "--partition", "2", "--partition", "0")
    assert cli(*pause, "--dry-run") == {"action": "pause", "name": stream, "partition_numbers": [0, 2], "dry_run": True}
    assert states() == ["open", "open", "open"]
    cli(*pause, "--resume-all")
    shown = cli("stream", "show", stream)
    assert ([row["state"] for row in shown["partitions"]], shown["resume_all"]) == (["paused", "open", "paused"], True)
    assert shown["partitions"][0]["high_watermark"] is None
    (row,) = [row for row in cli("stream", "list") if row["name"] == stream]
    assert row["state"] == "2 paused"
    assert cli("stream", "resume", stream, "--dry-run")["partition_numbers"] == [0, 2]
    assert states()[0] == "paused"
    assert cli("stream", "resume", stream, "--partition", "2")["partition_numbers"] == [2]
    assert states() == ["paused", "open", "open"]
    assert cli("stream", "resume", stream)["partition_numbers"] == [0]
    assert cli("stream", "resume", stream)["partition_numbers"] == []
    cli("stream", "readonly", stream, "--dry-run")
    cli("stream", "readonly", stream, "-p", "1")
    assert states() == ["open", "read-only", "open"]
    said = cli("produce", stream, "v", "-p", "1", code=6)
    assert f'partition 1 of stream "{stream}" is read-only: bascule stream readonly {stream} --off lets it' in said
    cli("stream", "readonly", stream, "--off")
    assert cli("produce", stream, "v", "-p", "1")["records"] == 1
    del here


@pytest.mark.parametrize("command", ["show", "edit", "pause", "resume", "readonly", "delete", "purge", "trim"])
def test_a_missing_stream_exits_with_3_and_is_named(command: str, cli: Run) -> None:
    more = {"edit": ["--min-isr", "1"], "trim": ["0", "--before", "1"]}.get(command, [])
    said = cli("stream", command, "never", *more, code=3)
    assert said.startswith('bascule: stream "never" does not exist')
    assert said.endswith("(stream_not_found)\n")


@pytest.mark.parametrize("command", ["pause", "resume", "readonly"])
def test_a_missing_partition_exits_with_3_and_the_range(command: str, cli: Run, stream: str) -> None:
    cli("stream", "create", stream, "--partitions", "2")
    said = cli("stream", command, stream, "--partition", "2", code=3)
    assert "has no partition 2: its partitions are numbered 0 to 1 (partition_not_found)" in said


def test_a_dry_run_of_a_creation_is_checked_by_the_broker(cli: Run, stream: str) -> None:
    assert cli("stream", "create", stream, "--subject", "a.>", "--dry-run")["dry_run"]
    cli("stream", "show", stream, code=3)
    said = cli("stream", "create", stream, "--subject", "a b", "--dry-run", code=2)
    assert "subject 'a b' is not a valid subject" in said
    more = ("stream", "create", stream, "--replication-factor", "3", "--dry-run")
    assert "cluster size 1" in cli(*more, code=2)
    assert "invalid AES key size 0" in cli("stream", "create", stream, "--encryption", "--dry-run", code=6)
    planned = cli("stream", "create", stream, "--dry-run", "--exist-ok")
    assert (planned["subject"], planned["partitions"], planned["dry_run"]) == (stream, 1, True)
    cli("stream", "create", stream)
    assert "already exists" in cli("stream", "create", stream, "--dry-run", code=6)
    cli("stream", "create", stream, "--dry-run", "--exist-ok")


def test_exist_ok_accepts_a_stream_that_matches(cli: Run, stream: str) -> None:
    created = cli("stream", "create", stream, "--subject", f"{stream}.*", "--partitions", "2")
    assert cli("stream", "create", stream, "--exist-ok") == created
    assert cli("stream", "create", stream, "--exist-ok", "--partitions", "2", "--retention-max-age", "1d") == created
    shown = cli("stream", "create", stream, "--exist-ok", "--dry-run")
    assert (shown["subject"], shown["partitions"], shown["dry_run"]) == (f"{stream}.*", 2, True), "as it is"
    for dry_run in ([], ["--dry-run"]):
        said = cli("stream", "create", stream, "--exist-ok", "--partitions", "3", *dry_run, code=6)
        assert f'stream "{stream}" already exists, and its number of partitions is 2, not 3' in said
    said = cli("stream", "create", stream, "--exist-ok", "--subject", "b", "--partition-by-subject", code=6)
    assert f"its subject is '{stream}.*', not 'b', its partition_by_subject is False, not True" in said


@pytest.mark.parametrize("command", [["show"], ["list"]])
@pytest.mark.parametrize("form", FORMS)
def test_every_output_format_works(
    command: list[str], form: str, cli: Run, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli("stream", "create", stream, "--exist-ok", "--partitions", "2")
    arguments = [stream] if command == ["show"] else []
    assert main(["stream", *command, *arguments, "--output", form]) == 0
    text = capsys.readouterr().out
    match form:
        case "json":
            assert json.loads(text)
        case "yaml":
            assert yaml.safe_load(text)
        case "ndjson":
            assert len([json.loads(line) for line in text.splitlines()]) >= 1
        case "csv":
            assert len(list(csv.DictReader(io.StringIO(text)))) >= 1
        case _:
            assert stream in text


def test_a_stream_is_shown_short_and_with_all_details(
    cli: Run, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli("stream", "create", stream, "--partitions", "2", "--codec", "zstd", "--retention-max-bytes", "10G")
    assert main(["stream", "show", stream]) == 0
    short = capsys.readouterr().out
    assert len(short.splitlines()) <= 14, short
    assert re.search(r"settings +.*retention_bytes=10737418240", short)
    assert "codec=zstd" in short
    assert "slow consumer" not in short
    assert main(["stream", "show", stream, "--all"]) == 0
    everything = capsys.readouterr().out
    assert "nats slow consumer" in everything
    assert "max_record_bytes" in everything
    assert {"settings", "nats_gaps", "damaged"} <= cli("stream", "show", stream).keys()


def test_an_edit_without_changes_is_reported(cli: Run, stream: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli("stream", "create", stream, "--codec", "zstd")
    for options, said in ((["--dry-run"], "nothing would change"), ([], "nothing changed")):
        assert main(["stream", "edit", stream, "--codec", "zstd", *options]) == 0
        assert capsys.readouterr().err == f"{said}: stream {stream} already has these settings\n"


def test_a_name_that_is_not_a_valid_subject_is_rejected_as_a_name(cli: Run) -> None:
    said = cli("stream", "create", "a b", code=2)
    assert "stream name 'a b'" in said or "Stream name 'a b'" in said, said
    assert "subject 'x y' is not a valid subject" in cli("stream", "create", "good", "--subject", "x y", code=2)


def test_streams_are_listed_with_one_call_for_all(cli: Run, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (stream, f"{stream}-2"):
        cli("stream", "create", name, "--partitions", "2")
    cli("produce", stream, "a", "b", "c", "--partition", "0")
    cli("stream", "trim", stream, "0", "--before", "2", "--yes")
    calls: list[object] = []
    run = ConnectionPool.run

    def counted(*given: Any, **options: Any) -> Any:
        calls.append(given)
        return run(*given, **options)

    monkeypatch.setattr(ConnectionPool, "run", counted)
    rows = {row["name"]: row["records"] for row in cli("stream", "list")}
    assert (len(calls), rows[stream], rows[f"{stream}-2"]) == (1, 1, 0), "one call for all streams"


def test_damage_is_shown_at_its_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with broker(directory=tmp_path) as running, bascule.connect(running.url) as client:
        monkeypatch.setenv("BASCULE_URL", running.url)
        client.create_stream("orders", options=bascule.StreamOptions(segment_max_bytes=10_000))
        for first in range(0, 300, 10):
            client.publish_many("orders", [b"value %d " % n * 20 for n in range(first, first + 10)])
        (partition,) = (tmp_path / "data" / "partitions").iterdir()
        segment = sorted(partition.glob("*.seg"))[1]
        content = bytearray(segment.read_bytes())
        content[64 + 200] ^= 1
        segment.write_bytes(content)
        with pytest.raises(bascule.errors.CorruptionError) as raised:
            list(client.subscribe("orders", stop="latest").records())
        found = client.describe_stream("orders").partitions[0]
        (damage,) = found.damaged
        assert (damage.start, damage.end) == (raised.value.details["start"], raised.value.details["end"])
        assert Path(damage.path).name == segment.name


def test_damage_counts_and_the_brokers_gaps_are_in_the_view(cli: Run, stream: str) -> None:
    cli("stream", "create", stream)
    shown = cli("stream", "show", stream)
    assert (shown["damaged"], shown["failures"], shown["partitions"][0]["damaged_offsets"]) == ([], [], 0)
    assert all(shown[name] >= 0 for name in ("nats_dropped_by_broker", "nats_slow_consumer", "nats_gaps"))


def test_messages_from_nats_that_were_not_stored_are_shown_with_their_partition(
    cli: Run, here: TestBroker, stream: str
) -> None:
    async def publish(subject: str, count: int) -> None:
        client = await nats.connect(here.nats_url)
        for _ in range(count):
            await client.publish(subject, b"x")
        await client.flush()
        await client.close()

    def until_dropped(count: int) -> dict[str, Any]:
        limit = time.monotonic() + 60
        while (shown := cli("stream", "show", stream))["nats_dropped"] < count:
            assert time.monotonic() < limit, shown
            time.sleep(0.05)
        return shown

    # One replica where two are required: all appends are rejected.
    cli("stream", "create", stream, "--partitions", "2", "--min-isr", "2")
    before = cli("stream", "show", stream)
    assert (before["nats_dropped"], [row["nats_dropped"] for row in before["partitions"]]) == (0, [0, 0])
    asyncio.run(publish(f"{stream}.1", 3))
    shown = until_dropped(3)
    assert [row["nats_dropped"] for row in shown["partitions"]] == [0, 3]
    assert shown["nats_dropped_by_broker"] >= before["nats_dropped_by_broker"] + 3
    # A paused stream has no record count.
    cli("stream", "pause", stream, "--partition", "1")
    assert [row["nats_dropped"] for row in cli("stream", "show", stream)["partitions"]] == [0, None]


def test_the_brokers_own_streams_keep_their_records_and_take_more(cli: Run, stream: str) -> None:
    cli("stream", "create", stream)
    cli("cursor", "set", "report", stream, "1")
    for command in (["trim", "--before", "1", "--yes", "__cursors", "0"], ["purge", "--yes", "__cursors"]):
        assert "Stream is reserved" in cli("stream", *command, code=2)
    said = cli("stream", "readonly", "__cursors", code=2)
    assert "__cursors is internal" in said
    cli("stream", "readonly", "__cursors", "--off")  # another client may have made it read-only
    cli("cursor", "set", "report", stream, "2")


def test_errors_of_a_paused_partition_have_the_remedy(cli: Run, stream: str) -> None:
    cli("stream", "create", stream)
    cli("produce", stream, "a", "b")
    cli("stream", "pause", stream)
    read = ("consume", stream, "--start", "earliest", "--stop", "latest")
    for command in (read, ("stream", "trim", stream, "0", "--before", "1", "--dry-run")):
        said = cli(*command, code=6)
        assert "is paused: " in said
        assert "bascule stream resume" in said
    (row,) = [row for row in cli("stream", "list") if row["name"] == stream]
    assert row["records"] is None
    cli("stream", "resume", stream)
    assert len(cli(*read)) == 2


def test_trim_and_purge_report_their_effect(cli: Run, stream: str) -> None:
    cli("stream", "create", stream)
    cli("produce", stream, "a", "b", "c")
    assert cli("stream", "trim", stream, "0", "--before", "2", "--dry-run")["log_start"] == 2
    assert cli("stream", "show", stream)["partitions"][0]["log_start"] == 0
    assert "add --yes" in cli("stream", "trim", stream, "0", "--before", "2", code=2)
    cli("stream", "trim", stream, "0", "--before", "2", "--yes")
    assert cli("stream", "show", stream)["partitions"][0]["log_start"] == 2
    assert "is not between 0 and the high watermark 3" in cli("stream", "trim", stream, "0", "--before", "4", code=2)
    (row,) = [row for row in cli("stream", "list") if row["name"] == stream]
    assert row["records"] == cli("stream", "delete", stream, "--dry-run")["records"] == 1
    assert cli("stream", "purge", stream, "--dry-run")["records"] == 1
    cli("stream", "purge", stream, "--yes")
    assert cli("stream", "show", stream)["partitions"][0]["log_end_offset"] == 0
