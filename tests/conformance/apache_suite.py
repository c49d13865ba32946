"""Every call that one release of `apache-iggy` offers, in a process of its own: releases cannot be imported together.

Run as `apache_suite.py DIRECTORY FIRST ADDRESS PASSWORD STREAM`; FIRST is what the release calls the first of anything.
ADDRESS is `host:port`, or `quic://host:port`, or a connection string, with which the client logs in by itself.
An address of TCP and a comma before that are for releases which cannot make a client of QUIC: see `inside_runtime`.
"""

import asyncio
import inspect
import os
import sys
from datetime import timedelta
from typing import Any

LIMIT_S = 30


class Suite:
    """The calls, and what has to come of them."""

    def __init__(self, client: Any, iggy: Any, stream: str, first: int) -> None:
        self.client, self.iggy, self.stream, self.first = client, iggy, stream, first

    async def run(self) -> None:
        await self.streams_and_topics()
        await self.strategies()
        await self.fields()
        await self.refusals()
        await self.group()
        if hasattr(self.client, "describe_options"):
            await self.later()

    async def streams_and_topics(self) -> None:
        client, stream = self.client, self.stream
        assert await client.get_stream(stream) is None
        await client.create_stream(stream)
        made = await client.get_stream(stream)
        assert (made.name, made.topics_count, made.messages_count) == (stream, 0, 0)
        assert (await client.get_stream(made.id)).name == stream
        await client.create_topic(stream, "t", 3)
        topic = await client.get_topic(stream, "t")
        assert (topic.id, topic.name, topic.partitions_count) == (self.first, "t", 3)
        assert (await client.get_topic(made.id, topic.id)).name == "t"
        assert await client.get_topic(stream, "absent") is None
        assert (await client.get_stream(stream)).topics_count == 1

    async def send(self, *numbers: int, partition: int = 0, topic: str = "t") -> None:
        messages = [self.iggy.SendMessage(str(number)) for number in numbers]
        await self.client.send_messages(self.stream, topic, self.first + partition, messages)

    async def poll(self, strategy: Any, count: int = 100, *, partition: int = 0, commit: bool = False) -> list[int]:
        found = await self.messages(strategy, count, partition, commit=commit)
        return [int(message.payload()) for message in found]

    async def messages(self, strategy: Any, count: int, partition: int = 0, *, commit: bool = False) -> list[Any]:
        """What a poll returns; releases from 0.9 on name the consumer."""
        number = self.first + partition
        if hasattr(self.iggy, "Consumer"):
            found: list[Any] = await self.named_poll(
                self.iggy.Consumer.Single(self.first), strategy, count, partition=number, commit=commit
            )
        else:
            found = await self.client.poll_messages(self.stream, "t", number, strategy, count, commit)
        return found

    async def named_poll(
        self, consumer: Any, strategy: Any, count: int, *, partition: int | None, commit: bool
    ) -> list[Any]:
        found: list[Any] = await self.client.poll_messages(
            self.stream,
            "t",
            consumer=consumer,
            polling_strategy=strategy,
            count=count,
            auto_commit=commit,
            partition_id=partition,
        )
        return found

    async def strategies(self) -> None:
        strategy = self.iggy.PollingStrategy
        assert await self.poll(strategy.First()) == []
        await self.send(*range(10))
        await self.send(77, partition=2)
        assert await self.poll(strategy.First(), 3) == [0, 1, 2]
        assert await self.poll(strategy.Last(), 3) == [7, 8, 9]
        assert await self.poll(strategy.Offset(4), 2) == [4, 5]
        assert await self.poll(strategy.Offset(10)) == []
        assert await self.poll(strategy.Timestamp(0)) == [*range(10)]
        assert await self.poll(strategy.Next(), 4, commit=True) == [0, 1, 2, 3]
        assert await self.poll(strategy.Next(), 4) == [4, 5, 6, 7]
        assert await self.poll(strategy.Next(), 4, commit=True) == [4, 5, 6, 7]
        assert await self.poll(strategy.Next()) == [8, 9]
        assert await self.poll(strategy.First(), partition=1) == []
        assert await self.poll(strategy.First(), partition=2) == [77]
        assert (await self.client.get_topic(self.stream, "t")).messages_count == 11

    async def fields(self) -> None:
        first, second = (await self.messages(self.iggy.PollingStrategy.First(), 2))[:2]
        assert (first.offset(), second.offset()) == (0, 1)
        assert (first.payload(), first.length()) == (b"0", 1)
        assert first.checksum() != second.checksum()
        assert 0 < first.timestamp() <= second.timestamp()
        assert 0 < first.id() != second.id() > 0

    async def refusals(self) -> None:
        strategy = self.iggy.PollingStrategy
        failing = [
            self.client.create_stream(self.stream),
            self.client.create_topic(self.stream, "t", 1),
            self.client.create_topic(self.stream, "u", 1001),
            self.client.create_topic(f"absent-{self.stream}", "t", 1),
            self.send(1, partition=3),
            self.send(1, topic="absent"),
            self.send(),
            self.poll(strategy.First(), 0),
        ]
        for call in failing:
            try:
                await call
            except (RuntimeError, ValueError):
                continue
            raise AssertionError("a call that has to fail did not")
        assert await self.poll(strategy.First(), 1) == [0]

    async def group(self) -> None:
        """The high-level consumer: makes its group, joins it, commits, and is stopped."""
        commit = self.iggy.AutoCommit.When(self.iggy.AutoCommitWhen.PollingMessages())
        place = "g", self.stream, "t", None, self.iggy.PollingStrategy.Next(), 10, commit
        made = self.client.consumer_group(*place, poll_interval=timedelta(milliseconds=10))
        # Older releases return the consumer itself.
        consumer = await made if inspect.isawaitable(made) else made
        assert (consumer.name(), consumer.stream(), consumer.topic()) == ("g", self.stream, "t")
        seen, stop = list[int](), asyncio.Event()

        async def take(message: Any) -> None:
            seen.append(int(message.payload()))
            if len(seen) == 11:
                stop.set()

        await asyncio.wait_for(consumer.consume_messages(take, stop), LIMIT_S)
        assert sorted(seen) == sorted([*range(10), 77])
        await consumer.store_offset(3, self.first)
        await consumer.delete_offset(self.first)

    async def later(self) -> None:
        """What releases from 0.9 on offer beside."""
        await self.options()
        await self.partitionings()
        await self.users()
        await self.groups()
        client = self.client
        assert (await client.get_stats()).topics_count >= 1
        assert await client.send_binary_request(1, b"") == b""
        await self.refused(client.send_binary_request(60_000, b""))
        await client.update_stream(self.stream, f"{self.stream}-other")
        assert f"{self.stream}-other" in [stream.name for stream in await client.get_streams()]
        await client.update_stream(f"{self.stream}-other", self.stream)
        await client.purge_stream(self.stream)
        assert (await client.get_stream(self.stream)).messages_count == 0
        await client.delete_stream(self.stream)
        assert await client.get_stream(self.stream) is None

    async def refused(self, call: Any) -> None:
        try:
            await call
        except (RuntimeError, ValueError):
            return
        raise AssertionError("a call that has to fail did not")

    async def options(self) -> None:
        client, stream = self.client, self.stream
        keys = [option.key for option in await client.describe_options("topic")]
        assert {"segment_size", "enforce_fsync"} <= set(keys), keys
        assert await client.describe_options("stream") == []
        await client.create_topic(
            stream,
            "o",
            1,
            compression_algorithm="gzip",
            segment_size=1 << 24,
            max_topic_size=self.iggy.MaxTopicSize.Custom(2 << 30),
        )
        made = await client.get_topic(stream, "o")
        assert (made.name, made.compression_algorithm.lower()) == ("o", "gzip")
        assert len(made.options) == 3
        assert len(made.derived_options) + len(made.options) == len(keys)
        await self.refused(client.create_topic(stream, "p", 1, options={"owner": "x"}))
        await client.update_topic(stream, "o", "o2", compression_algorithm="none")
        assert [topic.name for topic in await client.get_topics(stream)] == ["t", "o2"]
        await client.create_partitions(stream, "o2", 2)
        await client.delete_partitions(stream, "o2", 1)
        assert (await client.get_topic(stream, "o2")).partitions_count == 2
        await client.purge_topic(stream, "o2")
        await client.delete_topic(stream, "o2")

    async def partitionings(self) -> None:
        client, partitioning = self.client, self.iggy.Partitioning
        for choice in (partitioning.balanced(), partitioning.messages_key("key"), partitioning.partition_id(0)):
            message = self.iggy.SendMessage("5", {"k": 7}, 9)
            sent = await client.send_messages(self.stream, "t", choice, [message])
            (place,) = sent.confirmations
            (found,) = await self.messages(self.iggy.PollingStrategy.Last(), 1, place.partition_id)
            assert (found.offset(), found.payload(), found.id()) == (place.base_offset, b"5", 9)
            assert found.user_headers() is not None

    async def users(self) -> None:
        client, name = self.client, f"u-{self.stream}"[-30:]
        made = await client.create_user(name, "secret")
        assert made.username == name
        assert made.id in [user.id for user in await client.get_users()]
        await client.update_permissions(name, self.iggy.Permissions(self.iggy.GlobalPermissions(read_streams=True)))
        assert (await client.get_user(name)).permissions.global_permissions.read_streams
        await client.change_password(name, "secret", "another")
        await client.update_user(name, f"{name}-b")
        await client.delete_user(made.id)
        assert await client.get_user(f"{name}-b") is None

    async def groups(self) -> None:
        client, place = self.client, (self.stream, "t")
        await client.create_consumer_group(*place, "h")
        await self.refused(client.leave_consumer_group(*place, "h"))
        await client.join_consumer_group(*place, "h")
        (member,) = (await client.get_consumer_group(*place, "h")).members
        assert member.partitions == [0, 1, 2]
        next_ = self.iggy.PollingStrategy.Next()
        group = self.iggy.Consumer.Group("h")
        seen = [await self.named_poll(group, next_, 2, partition=None, commit=True) for _ in range(3)]
        assert {message.partition_id() for polled in seen for message in polled} >= {0, 2}
        await client.leave_consumer_group(*place, "h")
        await client.delete_consumer_group(*place, "h")
        assert "h" not in [group.name for group in await client.get_consumer_groups(*place)]


def client_of(iggy: Any, address: str) -> Any:
    """A client that is not connected yet."""
    if address.startswith("iggy"):
        return iggy.IggyClient.from_connection_string(address)
    if address.startswith("quic://"):
        return iggy.IggyClient(iggy.QuicConfig(server_address=address.removeprefix("quic://")))
    return iggy.IggyClient(address)


async def inside_runtime(iggy: Any, address: str, password: str, stream: str, first: int) -> Any:
    """A client of QUIC of a release before 0.9, which needs a thread of the library's runtime to make its socket.

    The library calls the function that takes messages on such a thread: one message over TCP brings it there.
    """
    tcp, string = address.split(",")
    client = iggy.IggyClient(tcp)
    await client.connect()
    await client.login_user("iggy", password)
    place = f"{stream}-runtime", "t"
    await client.create_stream(place[0])
    await client.create_topic(*place, 1)
    await client.send_messages(*place, first, [iggy.SendMessage("1")])
    commit = iggy.AutoCommit.When(iggy.AutoCommitWhen.PollingMessages())
    how = "g", *place, None, iggy.PollingStrategy.Next(), 10, commit
    consumer = client.consumer_group(*how, poll_interval=timedelta(milliseconds=10))
    made, stop = list[Any](), asyncio.Event()

    async def end() -> None:
        stop.set()

    def take(_: Any) -> Any:
        made.append(iggy.IggyClient.from_connection_string(string))
        return end()

    consumer = await consumer if inspect.isawaitable(consumer) else consumer
    await asyncio.wait_for(consumer.consume_messages(take, stop), LIMIT_S)
    return made[0]


async def main() -> None:
    directory, first, address, password, stream = sys.argv[1:]
    sys.path.insert(0, directory)
    import apache_iggy as iggy  # type: ignore[import-not-found]  # noqa: PLC0415 - of the release that is named

    if "," in address:
        client = await inside_runtime(iggy, address, password, stream, int(first))
    else:
        client = client_of(iggy, address)
    await client.connect()
    await client.ping()
    if "@" not in address:
        await client.login_user("iggy", password)
    await asyncio.wait_for(Suite(client, iggy, stream, int(first)).run(), 4 * LIMIT_S)


if __name__ == "__main__":
    asyncio.run(main())
    os._exit(0)  # threads of the client may abort the process while the interpreter ends
