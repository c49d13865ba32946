"""Calls of `apache-iggy` 0.9.0 over HTTP, in a process of its own.

Run as `apache_http_suite.py DIRECTORY ADDRESS PASSWORD STREAM`.
"""

import asyncio
import os
import sys
from typing import Any

LIMIT_S = 60


async def suite(client: Any, iggy: Any, stream: str) -> None:
    """What the client offers over HTTP, and what has to come of it."""
    assert await client.get_stream(stream) is None
    await client.create_stream(stream)
    made = await client.get_stream(stream)
    assert (made.name, made.topics_count, made.messages_count) == (stream, 0, 0)
    await client.create_topic(stream, "t", 3)
    topic = await client.get_topic(stream, "t")
    assert (topic.id, topic.name, topic.partitions_count) == (0, "t", 3)
    assert await client.get_topic(stream, "absent") is None
    messages = [iggy.SendMessage(f"{number}", {"k": number}, 100 + number) for number in range(5)]
    sent = await client.send_messages(stream, "t", iggy.Partitioning.partition_id(1), messages)
    (place,) = sent.confirmations
    assert (place.partition_id, place.base_offset) == (1, 0)
    consumer, strategy = iggy.Consumer.Single(7), iggy.PollingStrategy

    async def poll(kind: Any, *, commit: bool = False) -> list[Any]:
        found: list[Any] = await client.poll_messages(
            stream, "t", consumer=consumer, polling_strategy=kind, count=3, auto_commit=commit, partition_id=1
        )
        return found

    found = await poll(strategy.First())
    assert [(item.offset(), item.payload(), item.id()) for item in found] == [
        (number, b"%d" % number, 100 + number) for number in range(3)
    ]
    assert found[0].user_headers() is not None
    assert [item.payload() for item in await poll(strategy.Next(), commit=True)] == [b"0", b"1", b"2"]
    assert [item.payload() for item in await poll(strategy.Next())] == [b"3", b"4"]
    assert [item.payload() for item in await poll(strategy.Last())] == [b"2", b"3", b"4"]
    await client.create_consumer_group(stream, "t", "g")
    assert (await client.get_consumer_group(stream, "t", "g")).members == []
    assert [group.name for group in await client.get_consumer_groups(stream, "t")] == ["g"]
    await client.delete_consumer_group(stream, "t", "g")
    await client.create_partitions(stream, "t", 2)
    await client.delete_partitions(stream, "t", 1)
    assert (await client.get_topic(stream, "t")).partitions_count == 4
    name = f"u-{stream}"[-30:]
    made = await client.create_user(name, "secret")
    await client.update_permissions(name, iggy.Permissions(iggy.GlobalPermissions(read_streams=True)))
    assert (await client.get_user(name)).permissions.global_permissions.read_streams
    await client.change_password(name, "secret", "another")
    await client.delete_user(made.id)
    assert (await client.get_stats()).topics_count >= 1
    try:
        await client.create_stream(stream)
    except (RuntimeError, ValueError):
        pass
    else:
        raise AssertionError("a stream that exists was created")
    await client.purge_topic(stream, "t")
    await client.delete_topic(stream, "t")
    await client.delete_stream(stream)
    assert await client.get_stream(stream) is None


async def main() -> None:
    directory, address, password, stream = sys.argv[1:]
    sys.path.insert(0, directory)
    import apache_iggy as iggy  # type: ignore[import-not-found]  # noqa: PLC0415 - of the directory that is named

    client = iggy.IggyClient.from_connection_string(f"iggy+http://iggy:{password}@{address}")
    await client.connect()
    await client.ping()
    await client.login_user("iggy", password)
    await asyncio.wait_for(suite(client, iggy, stream), LIMIT_S)


if __name__ == "__main__":
    asyncio.run(main())
    os._exit(0)  # threads of the client may abort the process while the interpreter ends
