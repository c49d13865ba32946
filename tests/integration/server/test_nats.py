"""The broker's nats-server, which ends with the broker, is restarted and keeps its port; and absent servers."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any, cast

import nats
import pytest
from bascule import config, logs
from bascule.config import NatsSettings
from bascule.server import nats_child
from bascule.server.nats_child import NatsChild
from nats.errors import Error as NatsError

from tests.integration.server.process import (
    LIMIT_S,
    Process,
    call,
    end_offset,
    free_port,
    is_alive,
    launch,
    started,
)


async def publish(url: str, subject: str, count: int) -> None:
    """Plain messages of an ordinary NATS client."""
    client = await cast("Any", nats).connect(url)
    for number in range(count):
        await client.publish(subject, b"%d" % number)
    await client.flush()
    await client.close()


async def publish_one(url: str, subject: str, payload: bytes) -> None:
    client = await cast("Any", nats).connect(url)
    await client.publish(subject, payload)
    await client.flush()
    await client.close()


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(10):
        while is_alive(pid):  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.005)


async def until_stored(broker: Process, stream: str, count: int) -> None:
    async with broker.channel() as channel, asyncio.timeout(20):
        while await end_offset(channel, stream) < count:  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.01)


async def test_plain_messages_are_stored_and_survive_a_kill(tmp_path: Path) -> None:
    async with started(tmp_path) as first, first.channel() as channel:
        await call(channel, "CreateStream", name="s", subject="s.>")
        await publish(first.addresses["nats_url"], "s.a", 1000)
        await until_stored(first, "s", 1000)
        await first.end(signal.SIGKILL)
    async with started(tmp_path) as second, second.channel() as channel:
        assert await end_offset(channel, "s") == 1000
        assert second.addresses["nats_url"] == first.addresses["nats_url"]
        await publish(second.addresses["nats_url"], "s.a", 10)
        await until_stored(second, "s", 1010)


async def test_the_child_dies_with_a_killed_broker(tmp_path: Path) -> None:
    async with started(tmp_path) as broker:
        pid = broker.addresses["nats_pid"]
        assert is_alive(pid)
        await broker.end(signal.SIGKILL)
        await until_gone(pid)


async def test_a_killed_child_comes_back_on_its_port_and_ingest_resumes(tmp_path: Path) -> None:
    async with started(tmp_path) as broker, broker.channel() as channel:
        await call(channel, "CreateStream", name="s", subject="s")
        url = broker.addresses["nats_url"]
        await publish(url, "s", 10)
        await until_stored(broker, "s", 10)
        os.kill(broker.addresses["nats_pid"], signal.SIGKILL)
        await until_gone(broker.addresses["nats_pid"])
        stored = 10
        async with asyncio.timeout(30):
            while stored == 10:  # until the child is back and the broker listens again; earlier ones are lost
                try:
                    await publish(url, "s", 1)
                except (NatsError, OSError):
                    await asyncio.sleep(0.02)
                stored = await end_offset(channel, "s")
        await publish(url, "s", 100)
        await until_stored(broker, "s", stored + 100)
        assert any("is started again" in line["message"] for line in broker.lines())


async def test_a_broker_serves_without_nats_and_connects_later(tmp_path: Path) -> None:
    port = free_port()
    url = f"nats://127.0.0.1:{port}"
    async with started(tmp_path, nats__servers=[url]) as broker, broker.channel() as channel:
        await call(channel, "CreateStream", name="s", subject="s")
        assert any(line["level"] == "warning" and "ingest waits for NATS" in line["message"] for line in broker.lines())
        child = NatsChild(tmp_path / "nats", NatsSettings(port=port))
        child.start()
        try:
            await child.wait_ready()
            async with asyncio.timeout(20):
                while await end_offset(channel, "s") == 0:
                    await publish(url, "s", 1)
                    await asyncio.sleep(0.02)
        finally:
            child.stop()
        await call(channel, "FetchMetadata")


async def test_a_stored_port_that_is_in_use_is_replaced(tmp_path: Path) -> None:
    first = NatsChild(tmp_path, NatsSettings())
    first.start()
    await first.wait_ready()
    try:
        second = NatsChild(tmp_path, NatsSettings())
        assert second.url == first.url
        second.start()
        await second.wait_ready()
        assert second.url != first.url
        second.stop()
        assert first.pid is not None
    finally:
        first.stop()
    third = NatsChild(tmp_path, NatsSettings())
    assert third.url == second.url


async def test_the_log_of_the_child_is_forwarded_and_stop_is_idempotent(tmp_path: Path) -> None:
    child = NatsChild(tmp_path, NatsSettings())
    child.start()
    await child.wait_ready()
    pid = child.pid
    assert pid is not None
    child.stop()
    child.stop()
    assert not is_alive(pid)
    assert child.pid is None


async def test_a_defect_of_the_supervision_does_not_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child, emit, defects = NatsChild(tmp_path, NatsSettings()), logs.emit, [KeyError("bug")]

    def defective(level: int, target: str, message: str, **fields: object) -> None:
        if defects:
            raise defects.pop()
        emit(level, target, message, **fields)

    monkeypatch.setattr(nats_child, "emit", defective)
    child.start()
    try:
        async with asyncio.timeout(LIMIT_S):
            while defects:  # noqa: ASYNC110 - a thread takes them
                await asyncio.sleep(0.01)
            await child.wait_ready()
        pid = child.pid
        assert pid is not None
        with contextlib.suppress(ProcessLookupError):  # the bug closed its log, which may end it before
            os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(LIMIT_S):
            while child.pid in (pid, None):  # noqa: ASYNC110 - a thread starts the next one
                await asyncio.sleep(0.01)
        await child.wait_ready()
    finally:
        child.stop()


def presence_lines(broker: Process) -> list[tuple[str, str, str]]:
    return [
        (line["level"], line["broker"], line["namespace"])
        for line in broker.lines()
        if line["target"] == "bascule.nats.presence"
    ]


async def test_brokers_of_one_namespace_on_one_nats_warn_of_each_other(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    child = NatsChild(tmp_path / "nats", NatsSettings())
    child.start()
    try:
        await child.wait_ready()
        nats_at = {"nats__servers": [child.url]}
        async with (
            started(tmp_path / "a", broker__broker_id="a", broker__namespace="n", **nats_at) as a,
            started(tmp_path / "c", broker__broker_id="c", broker__namespace="other", **nats_at) as c,
            started(tmp_path / "b", broker__broker_id="b", broker__namespace="n", **nats_at) as b,
        ):
            async with asyncio.timeout(LIMIT_S):
                while not (presence_lines(a) and presence_lines(b)):  # noqa: ASYNC110 - lines of files
                    await asyncio.sleep(0.01)
            # invalid messages are ignored, and an announcement is logged once
            for payload in (
                b"",
                b"{}",
                b"x" * 10_000,
                b'{"broker":"d","session":"1"}',
                b'{"broker":"d","session":"1"}',
            ):
                await publish_one(child.url, "n.brokers", payload)
            async with asyncio.timeout(LIMIT_S):
                while min(len(presence_lines(a)), len(presence_lines(b))) < 2:  # noqa: ASYNC110 - lines of files
                    await asyncio.sleep(0.01)
            assert presence_lines(a) == [("warning", "b", "n"), ("warning", "d", "n")]
            assert presence_lines(b) == [("warning", "a", "n"), ("warning", "d", "n")]
            assert presence_lines(c) == []
    finally:
        child.stop()


async def test_a_start_that_requires_nats_ends_without_it(tmp_path: Path) -> None:
    url = f"nats://127.0.0.1:{free_port()}"
    process = await launch(tmp_path, nats__servers=[url], nats__required=True)
    assert await asyncio.wait_for(process.process.wait(), LIMIT_S) == 5
    said = f"nats_unavailable: nats.required is set and there is no connection to {url}; ingest waits for NATS: "
    assert said in process.log_file.read_text()
    assert not process.ready_file.exists()


async def test_a_new_standalone_broker_uses_the_default_nats_port_and_keeps_cursors(tmp_path: Path) -> None:
    given = config.load(None, {"nats.standalone": True, "data_dir": tmp_path / "data"}, {})
    assert (given.nats.first_port, given.cursors.partitions) == (4222, 1)
    explicit = {"nats.standalone": True, "nats.port": 0, "cursors.partitions": 0}
    assert config.load(None, explicit, {}).nats.first_port == 0
    assert config.load(None, explicit, {}).cursors.partitions == 0
    assert config.load(None, {}, {}).cursors.partitions == 0


async def test_the_first_port_is_taken_when_it_is_free_and_kept(tmp_path: Path) -> None:
    wanted = free_port()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    # A broker of another directory uses another port while this one is in use, and keeps it afterwards.
    async with started(tmp_path / "a", nats__first_port=wanted) as first:
        assert first.addresses["nats_url"] == f"nats://127.0.0.1:{wanted}"
        async with started(tmp_path / "b", nats__first_port=wanted) as second:
            other = second.addresses["nats_url"]
            assert other != first.addresses["nats_url"]
            assert any(f"port {wanted} is in use" in line["message"] for line in second.lines())
    async with started(tmp_path / "b", nats__first_port=wanted) as again:
        assert again.addresses["nats_url"] == other
