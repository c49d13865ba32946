"""Iggy's v1 with the published client for Python, unmodified."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bascule
import pytest
from bascule.testing import TestBroker, broker

from tests.names import fresh

iggy_py: Any = pytest.importorskip("iggy_py", reason="iggy-py 0.4.0 has wheels for CPython 3.11 only")

PASSWORD = "a password of the test"


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    file = tmp_path_factory.mktemp("iggy") / "password"
    file.write_text(PASSWORD + "\n")
    settings = {"iggy.listen": "127.0.0.1:0", "iggy.root_password_file": str(file), "cursors.partitions": 1}
    with broker(settings=settings) as running:
        yield running


@pytest.fixture
async def client(serving: TestBroker) -> Any:
    client = iggy_py.IggyClient(serving.iggy_address)
    await client.connect()
    await client.ping()
    await client.login_user("iggy", PASSWORD)
    return client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return fresh(request.node.name)


async def polled(
    client: Any, stream: str, topic: str, strategy: Any, *, count: int = 100, commit: bool = False
) -> list[int]:
    """What a poll of partition 1 returns, as numbers."""
    messages = await client.poll_messages(stream, topic, 1, strategy, count, commit)
    return [int(message.payload()) for message in messages]


async def send(client: Any, stream: str, topic: str, *numbers: int, partition: int = 1) -> None:
    await client.send_messages(stream, topic, partition, [iggy_py.SendMessage(str(number)) for number in numbers])


async def test_streams_and_topics_are_found_by_name_and_number(client: Any, name: str) -> None:
    assert await client.get_stream(name) is None
    await client.create_stream(name)
    stream = await client.get_stream(name)
    assert (stream.name, stream.topics_count, stream.messages_count) == (name, 0, 0)
    assert (await client.get_stream(stream.id)).name == name
    await client.create_topic(name, "t", 3)
    topic = await client.get_topic(name, "t")
    assert (topic.id, topic.name, topic.messages_count) == (1, "t", 0)
    assert (await client.get_topic(stream.id, 1)).name == "t"
    assert await client.get_topic(name, "absent") is None
    assert (await client.get_stream(name)).topics_count == 1
    with pytest.raises(RuntimeError):
        await client.create_stream(name)
    with pytest.raises(RuntimeError):
        await client.create_topic(name, "t", 1)


async def test_numbers_are_those_that_the_client_asks_for(client: Any, name: str) -> None:
    await client.create_stream(name, 7_000)
    await client.create_topic(name, "ninth", 1, None, 9)
    assert (await client.get_stream(7_000)).name == name
    assert (await client.get_topic(7_000, 9)).name == "ninth"


async def test_messages_come_back_by_every_strategy(client: Any, name: str) -> None:
    await client.create_stream(name)
    await client.create_topic(name, "t", 1)
    assert await polled(client, name, "t", iggy_py.PollingStrategy.First()) == []
    await send(client, name, "t", *range(10))
    strategy = iggy_py.PollingStrategy
    assert await polled(client, name, "t", strategy.First(), count=3) == [0, 1, 2]
    assert await polled(client, name, "t", strategy.Last(), count=3) == [7, 8, 9]
    assert await polled(client, name, "t", strategy.Offset(4), count=2) == [4, 5]
    assert await polled(client, name, "t", strategy.Offset(10)) == []
    assert await polled(client, name, "t", strategy.Timestamp(0)) == [*range(10)]
    assert await polled(client, name, "t", strategy.Next(), count=4, commit=True) == [0, 1, 2, 3]
    assert await polled(client, name, "t", strategy.Next(), count=4) == [4, 5, 6, 7]
    assert await polled(client, name, "t", strategy.Next(), count=4, commit=True) == [4, 5, 6, 7]
    assert await polled(client, name, "t", strategy.Next()) == [8, 9]


async def test_a_polled_message_has_all_of_its_fields(client: Any, name: str) -> None:
    await client.create_stream(name)
    await client.create_topic(name, "t", 1)
    await send(client, name, "t", 5, 6)
    first, second = await client.poll_messages(name, "t", 1, iggy_py.PollingStrategy.First(), 10, False)
    assert (first.offset(), second.offset()) == (0, 1)
    assert first.payload() == b"5"
    assert first.length() == 1
    assert first.state() == iggy_py.MessageState.Available
    assert first.checksum() != 0
    assert 0 < first.timestamp() <= second.timestamp()
    assert 0 < first.id() < second.id()
    at = second.timestamp() + 1
    assert await polled(client, name, "t", iggy_py.PollingStrategy.Timestamp(at)) == []


async def test_each_partition_has_its_own_messages(client: Any, name: str) -> None:
    await client.create_stream(name)
    await client.create_topic(name, "t", 2)
    await send(client, name, "t", 1, partition=1)
    await send(client, name, "t", 2, partition=2)
    for partition in (1, 2):
        messages = await client.poll_messages(name, "t", partition, iggy_py.PollingStrategy.First(), 10, False)
        assert [message.payload() for message in messages] == [str(partition).encode()]
    assert (await client.get_topic(name, "t")).messages_count == 2


async def test_what_cannot_be_done_is_raised_and_the_connection_stays(client: Any, name: str) -> None:
    await client.create_stream(name)
    await client.create_topic(name, "t", 1)
    failing = [
        send(client, name, "t", 1, partition=2),
        send(client, name, "absent", 1),
        send(client, name, "t"),
        polled(client, name, "t", iggy_py.PollingStrategy.First(), count=0),
        client.create_topic("absent-" + name, "t", 1),
        client.create_topic(name, "u", 1001),
        client.login_user("iggy", "wrong password"),
    ]
    for command in failing:
        with pytest.raises((RuntimeError, ValueError)):
            await command
    await send(client, name, "t", 1)
    assert await polled(client, name, "t", iggy_py.PollingStrategy.First()) == [1]


async def test_messages_and_offsets_survive_a_kill(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    settings = {
        "iggy.listen": "127.0.0.1:0",
        "iggy.root_password_file": str(tmp_path / "password"),
        "cursors.partitions": 1,
    }
    with broker(settings=settings, directory=tmp_path / "broker", durability="disk") as running:
        client = iggy_py.IggyClient(running.iggy_address)
        await client.connect()
        await client.login_user("iggy", PASSWORD)
        await client.create_stream("s", 3)
        await client.create_topic("s", "t", 1)
        await send(client, "s", "t", *range(5))
        assert await polled(client, "s", "t", iggy_py.PollingStrategy.Next(), count=2, commit=True) == [0, 1]
        await asyncio.to_thread(running.kill)
        await asyncio.to_thread(running.start)
        again = iggy_py.IggyClient(running.iggy_address)
        await again.connect()
        await again.login_user("iggy", PASSWORD)
        assert (await again.get_stream(3)).name == "s"
        # An automatic offset may not be committed yet: then messages are read again, and none is passed over.
        assert await polled(again, "s", "t", iggy_py.PollingStrategy.Next()) in ([2, 3, 4], [0, 1, 2, 3, 4])


async def test_a_user_does_what_its_rights_allow_and_the_connection_stays(
    client: Any, serving: TestBroker, name: str
) -> None:
    await client.create_stream(name)
    await client.create_topic(name, "t", 1)
    await send(client, name, "t", 1, 2)
    with bascule.connect(serving.url) as admin:
        admin.create_iggy_user(name[-40:], "its own password", [bascule.IggyGrant(("poll_messages",), name)])
    own = iggy_py.IggyClient(serving.iggy_address)
    await own.connect()
    with pytest.raises(RuntimeError):
        await own.login_user(name[-40:], "another")
    await own.login_user(name[-40:], "its own password")
    first = iggy_py.PollingStrategy.First()
    assert await polled(own, name, "t", first) == [1, 2]
    with pytest.raises(RuntimeError):
        await send(own, name, "t", 3)
    with pytest.raises(RuntimeError):
        await own.create_stream(name + "-other")
    assert await polled(own, name, "t", first) == [1, 2]
