"""Bounds of sinks at a whole broker: quota, disk, tasks times partitions, and who may write to a sink."""

import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bascule import Client, testing
from bascule.client import StreamOptions
from bascule.errors import BrokerError

from tests.integration.faults.mount import mounted
from tests.integration.sink_writer import Piece, SinkWriter, batch


@pytest.fixture
def broker() -> Iterator[testing.TestBroker]:
    with testing.broker(durability="disk") as started:
        yield started


def values(client: Client, stream: str = "orders", partitions: int = 1) -> list[bytes]:
    """Every value of a stream, sorted."""
    found = [
        record.value
        for number in range(partitions)
        for record in client.subscribe(stream, partition=number, stop="latest").records()
    ]
    return sorted(value for value in found if value is not None)


def rows(first: int, count: int, size: int = 1000) -> list[bytes]:
    """Values that differ, of `size` bytes."""
    return [(b"%08d" % number).ljust(size, b".") for number in range(first, first + count)]


def refused(raised: pytest.ExceptionInfo[BrokerError]) -> tuple[str, str]:
    return raised.value.code, str(raised.value)


def test_an_epoch_above_the_quota_is_refused_and_staged_again_after_the_quota_is_raised(
    broker: testing.TestBroker,
) -> None:
    writer = SinkWriter(broker.address)
    with broker.connect() as client:
        client.create_stream("orders")
        writer.open()
        client.set_sink_quota("copy", 64 << 10)
        first = writer.stage([batch(rows(0, 40))])
        with pytest.raises(BrokerError) as raised:
            writer.stage([batch(rows(40, 40))], task=1)
        code, sentence = refused(raised)
        assert code == "sink_quota"
        said = r"sink default/copy needs (\d+) bytes .*, and its quota is 65536: an administrator may raise the sink's "
        needed = re.fullmatch(said + "quota", sentence)
        assert needed is not None, sentence
        assert int(needed[1]) > 65_536
        staged = client.sink("copy").staged_bytes
        assert 40_000 < staged < 48_000, "the piece of the other task, and nothing of the refused call"
        client.set_sink_quota("copy", 1 << 20)
        second = writer.stage([batch(rows(40, 40))], task=1)
        assert writer.publish([*first, *second], tasks=2)
        assert values(client) == rows(0, 80)
        # a quota below what is staged refuses what comes, and loses nothing
        third = writer.stage([batch(rows(80, 40))], epoch=1)
        client.set_sink_quota("copy", 1)
        with pytest.raises(BrokerError, match="quota is 1:"):
            writer.stage([batch(rows(120, 1))], epoch=1, task=1)
        assert writer.publish(third, epoch=1)
        assert values(client) == rows(0, 120)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[testing.TestBroker, Path]]:
    """A broker on a file system of 96 MiB, of which 10 % may be staged, and that file system."""
    place = tmp_path / "mount"
    settings = {"streams.segment_max_bytes": 1 << 20, "log.level": "info"}
    with (
        mounted(place, "-o", "size=96m"),
        testing.broker(durability="disk", directory=place, settings=settings) as made,
    ):
        yield made, place


def leave(place: Path, free: int) -> Path:
    """A file that leaves so many bytes free."""
    filler = place / "filler"
    with filler.open("ab", buffering=0) as file:
        while (left := _free(place) - free) > 0:
            file.write(b"\0" * min(left, 1 << 20))
    return filler


def _free(place: Path) -> int:
    about = os.statvfs(place)
    return about.f_bavail * about.f_frsize


def test_a_full_disk_refuses_to_stage_and_to_publish_and_loses_nothing(small: tuple[testing.TestBroker, Path]) -> None:
    broker, place = small
    writer = SinkWriter(broker.address)
    with broker.connect() as client:
        client.create_stream("orders")
        writer.open()
        pieces = writer.stage([batch(rows(0, 4000))])
        filler = leave(place, 2 << 20)
        # 1. no room to store the staged rows in the log: nothing is decided
        with pytest.raises(BrokerError) as raised:
            writer.publish(pieces)
        code, sentence = refused(raised)
        assert code == "sink_pieces_missing"
        assert "publishing stores" in sentence
        assert "bytes a second time, and" in sentence
        # 2. no room for a piece: the call leaves nothing
        before = client.sink("copy").staged_bytes
        with pytest.raises(BrokerError) as raised:
            writer.stage([batch(rows(4000, 4000))], task=1)
        assert refused(raised) == ("disk_full", "no space is left to stage rows")
        assert client.sink("copy").staged_bytes == before
        assert [*place.rglob("stage/*.tmp")] == []
        # 3. with space again, the same attempt continues
        filler.unlink()
        pieces = [*pieces, *_again(lambda: writer.stage([batch(rows(4000, 4000))], task=1))]
        assert writer.publish(pieces, tasks=2)
        assert values(client) == rows(0, 8000)


def _again(call: Callable[[], list[Piece]]) -> list[Piece]:
    """The result of a call that may find the disk full for a while."""
    limit = time.monotonic() + 90
    while True:
        try:
            return call()
        except BrokerError as failure:
            if failure.code != "disk_full" or time.monotonic() > limit:
                raise
            time.sleep(0.2)  # no event reports free space


@pytest.mark.slow
def test_200_tasks_write_to_64_partitions_in_one_epoch(broker: testing.TestBroker) -> None:
    """12,800 pieces of one epoch: every row is stored once, in bounded time and memory."""
    tasks, partitions, each = 200, 64, 640
    writer = SinkWriter(broker.address, publish_timeout_ms=120_000)
    with broker.connect() as client:
        client.create_stream("orders", options=StreamOptions(partitions=partitions))
        writer.open()

        def stage(task: int) -> list[Piece]:
            numbers = [number % partitions for number in range(each)]
            content = batch(rows(task * each, each, 100), partition=numbers)
            return writer.stage([content], task=task)

        started = time.monotonic()
        with ThreadPoolExecutor(16) as pool:
            pieces = [piece for answers in pool.map(stage, range(tasks)) for piece in answers]
        staged = time.monotonic()
        assert len(pieces) == tasks * partitions
        writer.publish(pieces, tasks=tasks)
        published = time.monotonic()
        found = values(client, partitions=partitions)
        assert len(found) == tasks * each
        assert found == rows(0, tasks * each, 100)
        with Path(f"/proc/{broker.pid}/status").open() as status:
            peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) >> 10
    print(f"staged in {staged - started:.1f} s, published in {published - staged:.1f} s, peak {peak} MiB")
    assert peak < 400
