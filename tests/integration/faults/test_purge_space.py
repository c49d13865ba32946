"""A purge frees space after the grace period, or at once if requested or if the disk is full."""

import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from bascule import testing
from bascule._liftbridge_pb import message

from tests.integration.cli.commands import run
from tests.waiting import until

from .mount import mounted
from .raw import EARLIEST, Raw

VALUE: Final = b"x" * 20_000
RECORDS: Final = 200
GRACE_MS: Final = 1_500


def removed_but_open(broker: testing.TestBroker) -> list[str]:
    """Deleted files of partitions that the broker still has open."""
    found: list[str] = []
    for descriptor in Path(f"/proc/{broker.pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:  # closed meanwhile
            continue
        if "/partitions/" in target and ".deleted-" in target:
            found.append(target)
    return found


def left_over(broker: testing.TestBroker) -> list[str]:
    partitions = broker.directory / "data" / "partitions"
    return [item.name for item in partitions.iterdir() if ".deleted-" in item.name]


@pytest.fixture
def started() -> Generator[testing.TestBroker]:
    with testing.broker(durability="disk", settings={"limits.grace_ms": GRACE_MS}) as broker:
        yield broker


def filled(raw: Raw, broker: testing.TestBroker) -> Any:
    """A stream with records, and a reader that waits at its end."""
    raw.create_stream("s")
    with broker.connect() as client:
        client.publish_many("s", [VALUE] * RECORDS)
        client.publish("s", b"last")
    reading = raw.subscribe(message("SubscribeRequest")(stream="s", startPosition=EARLIEST).SerializeToString())
    for _ in range(RECORDS + 2):  # one more for the handshake
        next(reading)
    return reading


def test_a_purge_closes_all_descriptors_and_removes_files_after_the_grace_period(started: testing.TestBroker) -> None:
    with Raw(started.address) as raw:
        reading = filled(raw, started)
        with started.connect() as client:
            assert client.purge_stream("s") == (RECORDS + 1, False)
        assert left_over(started), "they can be restored"
        assert removed_but_open(started) == []
        with pytest.raises(grpc.RpcError) as ended:
            next(reading)
        assert ended.value.code() is grpc.StatusCode.NOT_FOUND
        until(lambda: not left_over(started), 30.0)
        assert removed_but_open(started) == []


def test_now_skips_the_grace_period_and_reports_it(started: testing.TestBroker) -> None:
    with Raw(started.address) as raw:
        filled(raw, started)
        with started.connect() as client:
            assert client.purge_stream("s", now=True, dry_run=True) == (RECORDS + 1, True)
            assert left_over(started) == []
            assert client.purge_stream("s", now=True) == (RECORDS + 1, True)
            assert (left_over(started), removed_but_open(started)) == ([], [])
            assert client.publish("s", b"next").offset == 0
        shown = run("stream", "purge", "s", "--now", "--yes", "-o", "json", url=started.url)
        assert '"at_once": true' in shown.out
        assert left_over(started) == []


@pytest.fixture
def small(tmp_path: Path) -> Generator[testing.TestBroker]:
    """A broker on a disk of 40 MB, with a grace period that is longer than a test."""
    place = tmp_path / "mount"
    settings = {"limits.grace_ms": 3_600_000, "streams.segment_max_bytes": 4 << 20, "streams.nats_copy": "none"}
    with mounted(place, "-o", "size=40m"), testing.broker(durability="disk", directory=place, settings=settings) as it:
        yield it


def fill(raw: Raw, stream: str) -> None:
    for _ in range(4_000):
        try:
            raw.publish(stream, VALUE)
        except grpc.RpcError as failure:
            if failure.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            return
    raise AssertionError("the disk did not become full")


@pytest.mark.parametrize("by_command", [False, True])
def test_a_purge_on_a_full_disk_frees_it_at_once_and_writes_resume(small: testing.TestBroker, by_command: bool) -> None:
    with Raw(small.address) as raw:
        raw.create_stream("s")
        raw.create_stream("kept")
        raw.publish("kept", b"kept")
        reading = raw.subscribe(message("SubscribeRequest")(stream="s", startPosition=EARLIEST).SerializeToString())
        next(reading)
        for _ in range(3):
            fill(raw, "s")
            before = shutil.disk_usage(small.directory).free
            if by_command:
                shown = run("stream", "purge", "s", "--yes", "-o", "json", url=small.url)
                assert "the broker's disk is full: the files are removed at once" in shown.err
                assert '"at_once": true' in shown.out
            else:
                with small.connect() as client:
                    assert client.purge_stream("s").at_once
            assert (left_over(small), removed_but_open(small)) == ([], [])
            assert shutil.disk_usage(small.directory).free - before > 20 << 20
            assert raw.publish("s", VALUE) == 0
        assert [record.value for record in raw.read("kept")] == [b"kept"]
        assert "writes are refused for want of space" in small.log


def test_a_purge_after_the_disk_has_recovered_keeps_the_grace(small: testing.TestBroker) -> None:
    with Raw(small.address) as raw:
        raw.create_stream("s")
        raw.create_stream("other")
        fill(raw, "s")
        with small.connect() as client:
            assert client.purge_stream("s").at_once

        def recovered() -> bool:
            raw.publish("other", b"x")
            with small.connect() as client:
                return not client.purge_stream("s", dry_run=True).at_once

        until(recovered, 30.0)
        raw.publish("s", VALUE)
        with small.connect() as client:
            assert client.purge_stream("s") == (1, False)
        assert left_over(small)
