"""A published client of Iggy that sends and polls one topic until its input ends, in a process of its own.

Run as `iggy_client.py DIRECTORY FIRST ADDRESS PASSWORD NAME STREAM TOPIC`; DIRECTORY has a release of `apache-iggy`,
empty = `iggy-py`. FIRST is what the release calls the first partition. Prints `acked VALUE`, `failed VALUE TEXT` and
`read VALUE`.
"""

import asyncio
import os
import sys
from typing import Any


def imported(directory: str) -> Any:
    """The client library."""
    if directory:
        sys.path.insert(0, directory)
        import apache_iggy  # type: ignore[import-not-found]  # noqa: PLC0415 - of the release that is named

        return apache_iggy
    import iggy_py  # noqa: PLC0415 - another one has the same names

    return iggy_py


async def sends(client: Any, iggy: Any, place: tuple[str, str, int], name: str) -> None:
    """Send one message after the other, each again until it is acknowledged."""
    number = 0
    while True:
        value = f"{name}-{number}"
        try:
            await client.send_messages(*place, [iggy.SendMessage(value)])
        except (RuntimeError, ValueError) as failure:
            print("failed", value, repr(failure), flush=True)
            await asyncio.sleep(0.05)
        else:
            print("acked", value, flush=True)
            number += 1


async def polls(client: Any, iggy: Any, place: tuple[str, str, int]) -> None:
    """Poll what follows the stored position, and have it stored."""
    stream, topic, partition = place
    while True:
        strategy = iggy.PollingStrategy.Next()
        try:
            if hasattr(iggy, "Consumer"):
                found = await client.poll_messages(
                    stream,
                    topic,
                    consumer=iggy.Consumer.Single(900),
                    polling_strategy=strategy,
                    count=20,
                    auto_commit=True,
                    partition_id=partition,
                )
            else:
                found = await client.poll_messages(stream, topic, partition, strategy, 20, True)
        except (RuntimeError, ValueError) as failure:
            print("failed", "poll", repr(failure), flush=True)
            found = []
        for message in found:
            print("read", message.payload().decode(), flush=True)
        await asyncio.sleep(0.01)


async def main() -> None:
    directory, first, address, password, name, stream, topic = sys.argv[1:]
    iggy = imported(directory)
    clients = [iggy.IggyClient(address), iggy.IggyClient(address)]
    for client in clients:
        await client.connect()
        await client.login_user("iggy", password)
    place = stream, topic, int(first)
    sending, polling = sends(clients[0], iggy, place, name), polls(clients[1], iggy, place)
    running = [asyncio.create_task(sending), asyncio.create_task(polling)]
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    done, _ = await asyncio.wait([*running, ended], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


if __name__ == "__main__":
    asyncio.run(main())
    os._exit(0)  # threads of the client may abort the process while the interpreter ends
