"""DoPut republishes to NATS only on request."""

import asyncio
import json

import nats
import pyarrow as pa
import pytest
from bascule import testing
from pyarrow import flight


def put(address: str, stream: str, values: list[bytes], *, nats_copy: bool) -> None:
    batch = pa.record_batch([pa.array(values, pa.binary())], names=["value"])
    command = json.dumps({"stream": stream, "partition": 0, "nats_copy": nats_copy}).encode()
    with flight.FlightClient(f"grpc://{address}") as client:
        writer, answers = client.do_put(flight.FlightDescriptor.for_command(command), batch.schema)
        with writer:
            writer.write_batch(batch)
            writer.done_writing()
            assert answers.read() is not None


@pytest.mark.parametrize("copied", [True, False])
async def test_a_listener_gets_copies_of_a_put_only_on_request(copied: bool) -> None:
    with testing.broker() as broker:
        with broker.connect() as client:
            client.create_stream("puts", subject="puts")
        connection = await nats.connect(broker.nats_url)
        subscription = await connection.subscribe("puts")
        await connection.flush()
        await asyncio.to_thread(put, broker.address, "puts", [b"one", b"two"], nats_copy=copied)
        if copied:
            messages = [await subscription.next_msg(timeout=10) for _ in range(2)]
            assert b"one" in messages[0].data
            assert b"two" in messages[1].data
            assert all("Bascule-Origin" in (message.headers or {}) for message in messages)
        else:
            await connection.publish("puts", b"after")
            assert (await subscription.next_msg(timeout=10)).data == b"after"
        await connection.close()
