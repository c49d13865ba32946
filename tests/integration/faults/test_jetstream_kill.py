"""JetStream publishers and kills of the broker: an id is stored once, even if it is sent repeatedly."""

# nats-py leaves some of its parameters without a type
# pyright: reportUnknownMemberType=false

import asyncio
import random
from collections import Counter
from pathlib import Path

import nats
import nats.errors
import pytest
from bascule import StreamOptions
from bascule.testing import TestBroker, broker
from nats.js.api import Header, PubAck
from nats.js.client import JetStreamContext
from nats.js.errors import Error as JetStreamError

KILLS = 4
IN_FLIGHT = 32
AGAIN = 20
STREAM = "orders"


async def publish(js: JetStreamContext, number: int) -> tuple[PubAck, int]:
    """The ack of an id, and the number of attempts."""
    for sent in range(1, 1000):
        try:
            body = str(number).encode()
            return await js.publish(STREAM, body, headers={Header.MSG_ID: f"order-{number}"}, timeout=1), sent
        except (nats.errors.Error, JetStreamError):
            # No answer, no responders yet, or the connection is being made again: the outcome is unknown.
            await asyncio.sleep(0.02)
    raise AssertionError(f"order-{number} was never acknowledged")


class Publisher:
    """Keeps publishes in flight until it is stopped."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js
        self._next = 0
        self._stopped = False
        self.acked: dict[int, int] = {}
        """Stream sequence by message number."""
        self.repeated = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(self._one_after_the_other())

    def stop(self) -> None:
        self._stopped = True

    async def _one_after_the_other(self) -> None:
        while not self._stopped:
            number, self._next = self._next, self._next + 1
            ack, sent = await publish(self._js, number)
            assert ack.seq is not None
            assert sent > 1 or not ack.duplicate, "a duplicate although it was sent once"
            self.repeated += bool(ack.duplicate)
            self.acked[number] = ack.seq


async def stored(running: TestBroker) -> list[bytes]:
    async with running.connect_async() as client, client.subscribe(STREAM, start="earliest", stop="latest") as records:
        return [record.value or b"" async for record in records.records()]


@pytest.mark.timeout(300)
async def test_every_id_is_stored_once_over_kills(tmp_path: Path) -> None:
    chance = random.Random(21)
    with broker(durability="disk", directory=tmp_path) as running:
        async with running.connect_async() as client:
            await client.create_stream(STREAM, STREAM, options=StreamOptions(nats_acks="jetstream"))
        connection = await nats.connect(running.nats_url, max_reconnect_attempts=-1, reconnect_time_wait=0.05)
        publisher = Publisher(connection.jetstream())
        publishing = asyncio.create_task(publisher.run())
        for _ in range(KILLS):
            target = len(publisher.acked) + 300
            while len(publisher.acked) < target:
                assert not publishing.done(), publishing.exception()
                await asyncio.sleep(0.01)
            await asyncio.sleep(chance.uniform(0, 0.1))  # the random moment of the kill
            running.kill()
            await asyncio.to_thread(running.start)
            # The last acknowledged message before the kill is known after it.
            for number in sorted(publisher.acked)[-AGAIN:]:
                ack, _ = await publish(connection.jetstream(), number)
                assert (ack.seq, ack.duplicate) == (publisher.acked[number], True)
        publisher.stop()
        await asyncio.wait_for(publishing, 120)
        await connection.close()
        values = await stored(running)
    counts = Counter(values)
    assert {value: count for value, count in counts.items() if count != 1} == {}
    for number, sequence in publisher.acked.items():
        assert values[sequence - 1] == str(number).encode()
    assert len(publisher.acked) > KILLS * 300
    print(f"{len(values)} stored, {publisher.repeated} of them answered as duplicates after a kill")
