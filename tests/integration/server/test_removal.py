"""Compaction, trim and purge in a real broker, through all interfaces."""

import json
from pathlib import Path

import grpc.aio
import pytest
from bascule.client import Client
from bascule.errors import StateError, UsageError
from bascule.testing import broker
from bascule.testing.running import RunningBroker

from tests.integration.cli.commands import run
from tests.integration.server.process import call
from tests.waiting import until

QUICK = {"streams.cleaner_interval_ms": 200, "streams.retention_min_age_ms": 0}


def everything(client: Client) -> list[tuple[int, bytes | None, bytes | None]]:
    """The records from the earliest to the latest offset."""
    with client.subscribe("s", start="earliest", stop="latest") as records:
        return [(record.offset, record.key, record.value) for record in records.records()]


async def create_compacted(started: RunningBroker) -> None:
    async with grpc.aio.insecure_channel(started.address) as channel:
        await call(
            channel, "CreateStream", name="s", subject="s",
            compactEnabled={"value": True}, compactMaxGoroutines={"value": 3}, segmentMaxBytes={"value": 1024},
        )  # fmt: skip


async def test_a_compacted_stream_shows_the_latest_of_each_key_also_after_a_restart(tmp_path: Path) -> None:
    with broker(directory=tmp_path, durability="disk", settings=QUICK) as started:
        await create_compacted(started)
        with started.connect() as client:
            for round_ in range(20):
                for key in (b"a", b"b", None):
                    client.publish("s", f"{round_}".encode() * 20, key=key)
            last = {key: f"{19}".encode() * 20 for key in (b"a", b"b")}
            until(lambda: len(everything(client)) < 30, 20.0)
            found = everything(client)
            assert sum(key is None for _, key, _ in found) == 20, "records without a key stay"
            assert {key: value for _, key, value in found if key is not None} == last
            assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
        started.restart()
        with started.connect() as client:
            assert client.publish("s", b"next", key=b"a").offset == 60
            assert {key: value for _, key, value in everything(client) if key} == last | {b"a": b"next"}


def test_a_trim_is_checked_applied_and_durable(tmp_path: Path) -> None:
    with broker(directory=tmp_path) as started:
        with started.connect() as client:
            client.create_stream("s")
            for value in range(10):
                client.publish("s", b"%d" % value)
            with pytest.raises(UsageError, match="offset 11 is not between 0 and the high watermark 10"):
                client.trim_partition("s", 0, 11)
            with pytest.raises(StateError):
                client.trim_partition("s", 1, 0)
        trim = ("stream", "trim", "s", "0", "--before", "4")
        shown = run(*trim, "--dry-run", "-o", "json", url=started.url)
        assert json.loads(shown.out) == {
            "name": "s", "partition": 0, "log_start_before": 0, "log_start": 4, "dry_run": True,
        }  # fmt: skip
        refused = "bascule: there is no terminal to ask on: add --yes (invalid_argument)\n"
        assert run(*trim, url=started.url).err == refused
        assert run(*trim, "--yes", url=started.url).code == 0
        with started.connect() as client:
            until(lambda: everything(client)[0][0] == 4, 20.0)
        started.restart()
        with started.connect() as client:
            assert [offset for offset, _, _ in everything(client)] == [4, 5, 6, 7, 8, 9]
            client.trim_partition("s", 0, 10)
            assert client.publish("s", b"next").offset == 10
            until(lambda: everything(client)[0][0] == 10, 20.0)


def test_a_purge_restarts_at_offset_0_and_removes_everything(tmp_path: Path) -> None:
    with broker(directory=tmp_path) as started:
        with started.connect() as client:
            client.create_stream("s")
            for value in range(5):
                client.publish("s", b"%d" % value)
        shown = run("stream", "purge", "s", "--dry-run", "-o", "json", url=started.url)
        assert json.loads(shown.out)["records"] == 5
        assert run("stream", "purge", "s", url=started.url).code == 2
        assert run("stream", "purge", "s", "--yes", url=started.url).code == 0
        with started.connect() as client:
            assert client.publish("s", b"again").offset == 0
            assert everything(client) == [(0, None, b"again")]
            with pytest.raises(StateError):
                client.purge_stream("absent")
        started.restart()
        with started.connect() as client:
            assert everything(client) == [(0, None, b"again")]
