"""Arrow Flight: tickets, descriptors and record batches damaged at every byte. Rejection or taken, never a defect."""

import json
import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc
import pyarrow as pa
import pytest
from bascule import testing

from .raw import UNBOUNDED, Raw

SERVICE: Final = "/arrow.flight.protocol.FlightService/"
STREAM: Final = "flying"
FLIPS: Final = (0x01, 0x04, 0x80, 0xFF)
REFUSED: Final = {
    grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED,
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def stream(broker: testing.TestBroker) -> None:
    with Raw(broker.address) as raw:
        raw.create_stream(STREAM)
        raw.publish(STREAM, b"first")


def field(number: int, body: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def encapsulated(message: pa.Buffer) -> tuple[bytes, bytes]:
    """Header and body of an IPC message."""
    data = message.to_pybytes()
    length = int.from_bytes(data[4:8], "little")
    return data[8 : 8 + length], data[8 + length :]


def put_messages() -> list[bytes]:
    """A valid DoPut: the schema with a descriptor, and one record batch with every kind of column."""
    headers = pa.map_(pa.string(), pa.binary())
    batch = pa.record_batch(
        {
            "value": pa.array([b"a", None, b""], pa.binary()),
            "key": pa.array(["k", None, "größe"], pa.string()),
            "headers": pa.array([[("h", b"1")], [], None], headers),
            "timestamp": pa.array([1, None, 3], pa.timestamp("us", "UTC")),
        }
    )
    descriptor = json.dumps({"stream": STREAM, "partition": 0}).encode()
    schema, _ = encapsulated(batch.schema.serialize())
    header, body = encapsulated(batch.serialize())
    return [field(1, b"\x08\x02" + field(2, descriptor)) + field(2, schema), field(2, header) + field(1000, body)]


def damaged(valid: bytes, most: int = 2_500) -> Iterator[bytes]:
    """As for requests; of long ones a sample that is the same in every run."""
    damages: list[tuple[int, int | None]] = [(at, byte ^ flip) for at, byte in enumerate(valid) for flip in FLIPS]
    damages += [(at, None) for at in range(len(valid))]
    chosen = damages if len(damages) <= most else random.Random(3).sample(damages, most)
    for at, byte in chosen:
        yield valid[:at] if byte is None else valid[:at] + bytes([byte]) + valid[at + 1 :]


def outcomes(
    address: str, calls: Iterable[Callable[[grpc.Channel], object]]
) -> Iterator[tuple[grpc.StatusCode | None, str]]:
    with grpc.insecure_channel(address, UNBOUNDED) as channel, ThreadPoolExecutor(8) as threads:

        def one(call: Callable[[grpc.Channel], object]) -> tuple[grpc.StatusCode | None, str]:
            try:
                call(channel)
            except grpc.RpcError as failure:
                return failure.code(), failure.details() or ""
            return None, ""

        yield from threads.map(one, calls)


def check(ends: list[tuple[grpc.StatusCode | None, str]]) -> None:
    assert any(code is None for code, _ in ends) or len(ends) < 50
    for code, sentence in ends:
        if code is not None:
            assert sentence, code
            assert "panicked" not in sentence
            # a message that is not protobuf at all is refused by the transport
            is_transport = code is grpc.StatusCode.INTERNAL and "failed to decode Protobuf" in sentence
            assert code in REFUSED or is_transport, (code, sentence)


@pytest.mark.parametrize("method", ["DoGet", "GetFlightInfo", "GetSchema", "DoAction", "ListFlights"])
def test_a_damaged_flight_request_is_rejected_or_valid(broker: testing.TestBroker, method: str) -> None:
    ticket = {
        "stream": STREAM,
        "partition": 0,
        "start": {"time_ns": 5},
        "end": "latest",
        "columns": ["offset", "value"],
    }
    command = {"stream": STREAM, "partitions": [0], "columns": ["value"], "subject": "fly.*", "start": {"last": 1}}
    action = {"stream": STREAM, "partitions": [0], "times": [{"partition": 0, "time_ns": 7}], "beyond": {"0": 0}}
    body = {
        "DoGet": field(1, json.dumps(ticket).encode()),
        "GetFlightInfo": b"\x08\x02" + field(2, json.dumps(command).encode()),
        "GetSchema": b"\x08\x02" + field(2, json.dumps(command).encode()),
        "DoAction": field(1, b"offsets") + field(2, json.dumps(action).encode()),
        "ListFlights": field(1, b"fly"),
    }[method]
    unary = method in {"GetFlightInfo", "GetSchema"}

    def ask(question: bytes) -> Callable[[grpc.Channel], object]:
        if unary:
            return lambda channel: channel.unary_unary(SERVICE + method)(question, timeout=10)
        return lambda channel: list(channel.unary_stream(SERVICE + method)(question, timeout=10))

    check(list(outcomes(broker.address, [ask(question) for question in (body, *damaged(body))])))


@pytest.mark.parametrize("which", [0, 1], ids=["schema", "batch"])
def test_a_damaged_batch_is_rejected_or_stored_completely(broker: testing.TestBroker, raw: Raw, which: int) -> None:
    valid = put_messages()
    before = len(raw.read(STREAM))

    def put(message: bytes) -> Callable[[grpc.Channel], object]:
        messages = [message if number == which else one for number, one in enumerate(valid)]
        return lambda channel: list(channel.stream_stream(SERVICE + "DoPut")(iter(messages), timeout=10))

    ends = list(outcomes(broker.address, [put(message) for message in (valid[which], *damaged(valid[which]))]))
    assert ends[0][0] is None, ends[0]
    check(ends)
    records = raw.read(STREAM)
    assert [record.offset for record in records] == list(range(len(records)))
    assert len(records) > before
