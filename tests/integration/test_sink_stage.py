"""Staging to a sink of a whole broker: partitions that are paused are resumed for it."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from bascule import Client, testing
from bascule.spark.sink.calls import Epoch, OpenedSink, SinkCalls, Target
from bascule.spark.sink.identity import Writer
from bascule.spark.sink.options import parse_sink_options
from pyarrow import flight

from tests.conformance.api import Api

TOKEN = "0123456789abcdef" * 2
WRITER = Writer(
    "foreach", "kept", "copy", "0b9d0e2c-5f0a-4c53-9d6c-0d6f4f0f2a11", "5c8e9a34-0a1b-4f6e-8a57-1f2e3d4c5b6a", 0
)


@pytest.fixture
def broker() -> Iterator[testing.TestBroker]:
    with testing.broker() as started:
        yield started


@pytest.fixture
def client(broker: testing.TestBroker) -> Iterator[Client]:
    with broker.connect() as connected:
        connected.create_stream("orders")
        yield connected


def calls(broker: testing.TestBroker) -> SinkCalls:
    options = {"address": broker.address, "stream": "orders", "sinkId": "copy", "publishTimeoutMs": "2000"}
    return SinkCalls(parse_sink_options(options, is_stream=False))


def stage(broker: testing.TestBroker, sink: OpenedSink, values: list[bytes]) -> dict[str, Any]:
    """The one result of a call."""
    staged = {"sink": sink.id, "generation": sink.generation, "epoch": 0, "token": TOKEN, "task": 0, "attempt": 64}
    descriptor = flight.FlightDescriptor.for_command(json.dumps({"stream": "orders", "stage": staged}).encode())
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    with flight.FlightClient(f"grpc://{broker.address}") as connection:
        writer, reader = connection.do_put(descriptor, batch.schema)
        with writer:
            writer.write_batch(batch)
            writer.done_writing()
            return json.loads(reader.read().to_pybytes())


def is_paused(broker: testing.TestBroker) -> bool:
    with Api(broker.address) as api:
        return api.stream("orders").partitions[0].paused


def test_a_paused_partition_is_woken_to_stage_and_to_confirm(broker: testing.TestBroker, client: Client) -> None:
    sink = calls(broker).open(WRITER, ("orders",))
    client.pause_stream("orders")
    assert is_paused(broker)
    answer = stage(broker, sink, [b"a", b"b"])
    assert not is_paused(broker)
    client.pause_stream("orders")
    target = Target("orders", answer["partition"], answer["incarnation"], answer["rows"], answer["digest"])
    epoch = Epoch((sink.id, sink.generation), TOKEN, (64,), (target,), 2, answer["digest"], "")
    calls(broker).publish(WRITER, epoch)
    assert not is_paused(broker)
