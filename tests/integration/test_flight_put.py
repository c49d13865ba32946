"""Flight's DoPut to a stream of several partitions: each row is stored in its partition."""

import json
import zlib
from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from bascule import Client, StreamOptions, testing
from pyarrow import flight

PARTITIONS = 3
NUMBERS = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.TestBroker]:
    with testing.broker() as started:
        yield started


@pytest.fixture
def client(broker: testing.TestBroker) -> Iterator[Client]:
    with broker.connect() as connected:
        yield connected


@pytest.fixture
def stream(client: Client) -> str:
    name = f"put-{next(NUMBERS)}"
    client.create_stream(name, options=StreamOptions(partitions=PARTITIONS))
    return name


def rows(values: list[bytes], **columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **columns})


def put(
    broker: testing.TestBroker, descriptor: flight.FlightDescriptor | dict[str, Any], *batches: pa.RecordBatch
) -> list[dict[str, Any]]:
    """Append in one call; returns the results."""
    if isinstance(descriptor, dict):
        descriptor = flight.FlightDescriptor.for_command(json.dumps(descriptor).encode())
    answers: list[dict[str, Any]] = []
    with flight.FlightClient(f"grpc://{broker.address}") as connection:
        writer, reader = connection.do_put(descriptor, batches[0].schema)
        with writer:
            for batch in batches:
                writer.write_batch(batch)
            writer.done_writing()
            while (answer := reader.read()) is not None:
                answers.append(json.loads(answer.to_pybytes()))
    return answers


def stored(client: Client, stream: str) -> list[list[bytes | None]]:
    """The values of each partition, in order."""
    contents: list[list[bytes | None]] = []
    for partition in range(PARTITIONS):
        with client.subscribe(stream, partition=partition, stop="latest") as subscription:
            contents.append([record.value for record in subscription.records()])
    return contents


def by_key(key: str) -> int:
    return zlib.crc32(key.encode()) % PARTITIONS


def test_keyed_rows_use_the_same_partition_as_the_sdk(broker: testing.TestBroker, client: Client, stream: str) -> None:
    keys = [f"key-{number % 10}" for number in range(60)]
    values = [b"%d" % number for number in range(60)]
    halves = [rows(values[part], key=pa.array(keys[part])) for part in (slice(30), slice(30, 60))]
    answers = put(broker, flight.FlightDescriptor.for_path(stream), *halves)
    expected = [[v for k, v in zip(keys, values, strict=True) if by_key(k) == n] for n in range(PARTITIONS)]
    assert all(expected), "the keys do not reach all partitions"
    assert stored(client, stream) == expected
    assert [answer["partition"] for answer in answers] == [0, 1, 2] * 2
    for number in range(PARTITIONS):
        first, second = (answer for answer in answers if answer["partition"] == number)
        assert (first["base_offset"], second["base_offset"]) == (0, first["count"])
        assert first["count"] + second["count"] == len(expected[number])
    for key in set(keys):
        receipt = client.publish(stream, b"sdk", key=key)
        assert receipt.partition == by_key(key)


def test_rows_without_a_key_stay_together_in_a_call_and_calls_take_turns(
    broker: testing.TestBroker, client: Client, stream: str
) -> None:
    chosen: list[int] = []
    for _ in range(PARTITIONS):
        keys = pa.array([None, b""], pa.binary())
        answers = put(broker, {"stream": stream}, rows([b"a", b"b"], key=keys), rows([b"c", b"d"], key=keys))
        assert [(answer["base_offset"], answer["count"]) for answer in answers] == [(0, 2), (2, 2)]
        chosen += {answer["partition"] for answer in answers}
    assert sorted(chosen) == [0, 1, 2], "one partition per call, and a different one for each"
    assert stored(client, stream) == [[b"a", b"b", b"c", b"d"]] * PARTITIONS


def test_a_column_names_the_partition_and_null_means_by_key(
    broker: testing.TestBroker, client: Client, stream: str
) -> None:
    numbers = pa.array([2, None, 0, 2], pa.int32())
    keys = pa.array(["k", "k", None, None])
    put(broker, {"stream": stream}, rows([b"a", b"b", b"c", b"d"], key=keys, partition=numbers))
    expected: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
    for value, number in zip((b"a", b"b", b"c", b"d"), (2, by_key("k"), 0, 2), strict=True):
        expected[number].append(value)
    assert stored(client, stream) == expected


def test_a_partition_that_the_request_names_gets_every_row(
    broker: testing.TestBroker, client: Client, stream: str
) -> None:
    keys = pa.array([f"key-{number}" for number in range(10)])
    answers = put(broker, {"stream": stream, "partition": 1}, rows([b"x"] * 10, key=keys), rows([], key=keys[:0]))
    assert [(a["partition"], a["base_offset"], a["count"]) for a in answers] == [(1, 0, 10), (1, None, 0)]
    assert stored(client, stream) == [[], [b"x"] * 10, []]


@pytest.mark.parametrize(
    ("more", "columns", "sentence"),
    [
        ({"producer": {"id": 7, "base_sequence": 0}}, {}, "producer needs partition: .* has 3 partitions"),
        ({"incarnation": 7}, {}, "incarnation needs partition: .* has 3 partitions"),
        ({}, {"partition": [0, 3]}, "column partition says 3 in row 1, but the stream has the partitions 0 to 2"),
        ({}, {"partition": [0, -1]}, "column partition says -1 in row 1"),
        ({}, {"partition": ["0", "1"]}, "column partition has type Utf8, accepted are integers"),
        ({"partition": 0}, {"partition": [0, None]}, 'column partition says "null" in row 1'),
    ],
)
def test_invalid_batches_are_rejected_and_nothing_is_stored(
    broker: testing.TestBroker,
    client: Client,
    stream: str,
    *,
    more: dict[str, Any],
    columns: dict[str, list[Any]],
    sentence: str,
) -> None:
    arrays = {name: pa.array(column) for name, column in columns.items()}
    with pytest.raises(pa.ArrowInvalid, match=sentence):
        put(broker, {"stream": stream, **more}, rows([b"a", b"b"], **arrays))
    assert stored(client, stream) == [[]] * PARTITIONS


def test_an_idempotent_producer_names_its_partition(broker: testing.TestBroker, client: Client, stream: str) -> None:
    command = {"stream": stream, "partition": 2, "producer": {"id": 7, "base_sequence": 0}}
    for duplicate in (False, True):
        (answer,) = put(broker, command, rows([b"a", b"b"]))
        assert (answer["partition"], answer["base_offset"], answer["duplicate"]) == (2, 0, duplicate)
    assert stored(client, stream) == [[], [], [b"a", b"b"]]


def test_a_read_only_partition_refuses_batches_with_a_row_for_it_and_gets_no_turn(
    broker: testing.TestBroker, client: Client, stream: str
) -> None:
    client.set_readonly(stream, partitions=[1])
    numbers = pa.array([0, 1, 2], pa.int8())
    with pytest.raises(pa.ArrowInvalid, match=rf"{stream}/1 is read-only \[readonly\]"):
        put(broker, {"stream": stream}, rows([b"a", b"b", b"c"], partition=numbers))
    assert stored(client, stream) == [[]] * PARTITIONS
    chosen = {put(broker, {"stream": stream}, rows([b"a"]))[0]["partition"] for _ in range(PARTITIONS)}
    assert chosen == {0, 2}


def test_a_repeated_call_of_a_producer_stores_nothing_twice(
    broker: testing.TestBroker, client: Client, stream: str
) -> None:
    batches = [rows([b"%d" % i]) for i in range(7)]
    command = {"stream": stream, "partition": 0, "producer": {"id": (1 << 63) - 1, "base_sequence": 0}}
    first = put(broker, command, *batches)
    # Five batches are known.
    tail = {**command, "producer": {"id": (1 << 63) - 1, "base_sequence": 2}}
    again = put(broker, tail, *batches[2:])
    assert [(a["base_offset"], a["duplicate"]) for a in again] == [(offset, True) for offset in range(2, 7)]
    with pytest.raises((flight.FlightError, pa.ArrowException), match=r"7 is next \[sequence_gap\]"):
        put(broker, command, *batches)
    assert [a["base_offset"] for a in first] == list(range(7))
    assert stored(client, stream)[0] == [b"%d" % i for i in range(7)]


@pytest.mark.parametrize("producer", [0, 1 << 63, (1 << 64) - 1])
def test_ids_of_sinks_are_refused_from_clients(broker: testing.TestBroker, stream: str, producer: int) -> None:
    command = {"stream": stream, "partition": 0, "producer": {"id": producer, "base_sequence": 0}}
    with pytest.raises((flight.FlightError, pa.ArrowException), match="invalid_argument"):
        put(broker, command, rows([b"a"]))


def test_what_is_read_can_be_written_again(broker: testing.TestBroker, stream: str) -> None:
    header = pa.struct([("key", pa.binary()), ("value", pa.binary()), ("key_kind", pa.int32())])
    written = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"a", None, b""], pa.binary()),
            "key": pa.array([b"k", None, b"l"], pa.binary()),
            "headers": pa.array([[(b"\xff", b"1", 1), (None, b"2", None)], [], [(b"text", None, 2)]], pa.list_(header)),
            "reply": pa.array(["r.1", None, None]),
            "id": pa.array([bytes(range(16)), None, bytes(16)], pa.binary(16)),
            "origin_time": pa.array([1_700_000_000_000_000, None, -1], pa.timestamp("us", "UTC")),
        }
    )
    put(broker, {"stream": stream, "partition": 0}, written)
    columns = ["subject", "key", "value", "stream", "headers", "reply", "id", "origin_time"]

    def read(partition: int) -> pa.Table:
        ticket = {"stream": stream, "partition": partition, "columns": columns}
        with flight.FlightClient(f"grpc://{broker.address}") as connection:
            return connection.do_get(flight.Ticket(json.dumps(ticket))).read_all()

    once = read(0)
    put(broker, {"stream": stream, "partition": 1}, *once.to_batches())
    assert read(1) == once
    row = once.to_pylist()[0]
    assert (row["reply"], row["id"], row["headers"]) == (
        "r.1",
        bytes(range(16)),
        [{"key": None, "value": b"1"}, {"key": None, "value": b"2"}],
    )
