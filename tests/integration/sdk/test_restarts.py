"""Clients while their broker is killed and restarted, and the test broker itself."""

import asyncio
import itertools
import os
import threading
from pathlib import Path

import bascule
import pytest
from bascule.client import Start
from bascule.errors import BrokerError, StateError, UnavailableError
from bascule.testing import broker, broker_async, broker_in_process


def test_a_client_and_its_subscription_come_back_after_a_kill(tmp_path: Path) -> None:
    with broker(durability="disk", directory=tmp_path) as running, running.connect(timeout=20) as client:
        # 1. a subscription is open and has read some records
        client.create_stream("s")
        client.publish_many("s", [b"%d" % number for number in range(100)])
        subscription = client.subscribe("s")
        seen = [record.offset for record in itertools.islice(subscription.records(), 100)]
        address = running.address
        # 2. the broker is killed and restarted at the same address
        running.kill()
        restart = threading.Timer(0.5, running.start)
        restart.start()
        # 3. both continue where they were
        receipt = client.publish("s", b"after")
        restart.join()
        assert running.address == address
        records = subscription.records()
        while (record := next(records)).value != b"after":
            seen.append(record.offset)
        subscription.close()
    assert receipt.offset == 100
    assert seen == list(range(100)), "no record is repeated or skipped"
    assert client.reconnects + subscription.reconnects >= 1


@pytest.mark.parametrize("start", ["earliest", 2])
@pytest.mark.parametrize("how", ["purged", "deleted and created again"])
def test_a_subscription_does_not_continue_in_another_incarnation(tmp_path: Path, how: str, start: Start) -> None:
    with broker(durability="disk", directory=tmp_path) as running, running.connect(timeout=20) as client:
        client.create_stream("s")
        client.publish_many("s", [b"old"] * 10)
        with client.subscribe("s", start=start) as subscription:
            batch = subscription.next_batch()
            assert batch is not None
            last = batch.offsets[-1]
            assert last >= 2
            # While it is disconnected, its records are purged, and fewer new ones are published.
            running.kill()
            running.start()
            if how == "purged":
                client.purge_stream("s")
            else:
                client.delete_stream("s")
                client.create_stream("s")
            client.publish_many("s", [b"new"] * 3)
            with pytest.raises(StateError, match="deleted or purged; read it from its beginning") as raised:
                subscription.next_batch(timeout=20)
        assert raised.value.code == "stream_not_found"
        assert [record.value for record in client.subscribe("s", stop="latest").records()] == [b"new"] * 3


def test_acknowledged_records_survive_a_kill(tmp_path: Path) -> None:
    with broker(durability="disk", directory=tmp_path) as running:
        with running.connect() as client:
            client.create_stream("s")
            client.publish_many("s", [b"v"] * 1000)
        running.kill()
        running.start()
        with running.connect() as client:
            assert client.get_partition("s").high_watermark == 1000
            assert sum(len(batch) for batch in client.subscribe("s", stop="latest")) == 1000


def test_no_process_and_no_file_remains() -> None:
    with broker() as running:
        directory, pid = running.directory, running.pid
        assert directory.exists()
        assert running.ready_seconds < 10
        assert "ready" in running.log
    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_given_directory_is_kept(tmp_path: Path) -> None:
    with broker(directory=tmp_path / "here"):
        pass
    assert (tmp_path / "here" / "broker.log").exists()
    assert (tmp_path / "here" / "data").is_dir()


def test_a_broker_that_cannot_start_reports_the_reason() -> None:
    with (
        pytest.raises(UnavailableError, match=r"unknown setting \"streams\.codek\""),
        broker(settings={"streams.codek": "lz4"}),
    ):
        pass


async def test_the_asynchronous_test_broker_works_alike() -> None:
    async with broker_async(settings={"streams.codec": "zstd"}) as running, running.connect_async() as client:
        await client.create_stream("s")
        await asyncio.gather(*(client.publish("s", b"v") for _ in range(50)))
        assert (await client.get_partition("s")).high_watermark == 50


async def test_a_cancelled_wait_loses_nothing() -> None:
    async with broker_async() as running, running.connect_async() as client:
        await client.create_stream("s")
        async with client.subscribe("s") as subscription:
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(subscription.next_batch(), 0.02)
            await client.publish("s", b"v")
            batch = None
            while batch is None:
                batch = await subscription.next_batch()
            assert batch.values == [b"v"]


async def test_closing_ends_a_wait() -> None:
    async with broker_async() as running, running.connect_async() as client:
        await client.create_stream("s")
        subscription = client.subscribe("s")
        await subscription.open()
        waiting = asyncio.create_task(subscription.next_batch(timeout=30))
        await asyncio.sleep(0.1)  # so that it waits in the native core
        await subscription.close()
        with pytest.raises(BrokerError) as raised:
            await asyncio.wait_for(waiting, 5)
        assert raised.value.code == "closed"


def test_a_broker_in_this_process_is_complete(tmp_path: Path) -> None:
    with broker_in_process(directory=tmp_path, durability="disk") as running:
        with running.connect() as client:
            client.create_stream("s")
            client.publish_many("s", [b"v"] * 100)
        address = running.address
        running.restart()
        assert running.address == address
        with running.connect() as client:
            assert client.get_partition("s").high_watermark == 100
    with pytest.raises(UnavailableError):
        bascule.connect(running.url, timeout=0.2)


def test_two_brokers_in_this_process_are_independent() -> None:
    with broker_in_process() as first, broker_in_process() as second:
        with first.connect() as client:
            client.create_stream("s")
        with second.connect() as client:
            assert client.list_streams() == []


def test_a_broker_in_this_process_that_cannot_start_reports_the_reason(tmp_path: Path) -> None:
    with (
        broker_in_process(directory=tmp_path),
        pytest.raises(StateError) as raised,
        broker_in_process(directory=tmp_path),
    ):
        pass
    assert raised.value.code == "data_directory_locked"
