"""Answers that their client asks for and does not read: their memory has a bound, and others are served."""

import struct
import urllib.request
from collections.abc import Callable, Generator
from typing import Final

import pytest
from bascule import testing
from bascule._liftbridge_pb import message
from pyarrow import flight

from .http2 import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, Http2, frame
from .process import wait_for
from .raw import Raw

PARTITIONS: Final = 200
CALLS: Final = 100
BUDGET: Final = 1 << 20
NO_WINDOW: Final = PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
ONE_BYTE: Final = PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1))
"""SETTINGS_INITIAL_WINDOW_SIZE: nothing of an answer is taken, or so little that all of it waits in HTTP/2."""

FLIGHT: Final = "/arrow.flight.protocol.FlightService/"
REQUESTS: Final[dict[str, Callable[[], bytes]]] = {
    "/proto.API/FetchMetadata": lambda: message("FetchMetadataRequest")(streams=["wide"]).SerializeToString(),
    f"{FLIGHT}GetFlightInfo": flight.FlightDescriptor.for_path("wide").serialize,
    f"{FLIGHT}ListFlights": lambda: b"",
    f"{FLIGHT}DoAction": lambda: b'\x0a\x07offsets\x12\x11{"stream":"wide"}',
}


@pytest.fixture(scope="module")
def broker() -> Generator[testing.TestBroker]:
    settings = {"limits.answer_bytes": BUDGET, "http.listen": "127.0.0.1:0"}
    with testing.broker(settings=settings) as running:
        with Raw(running.address) as raw:
            raw.create_stream("wide", partitions=PARTITIONS)
            raw.create_stream("narrow")
        yield running
        assert "panicked" not in running.log


def metric(broker: testing.TestBroker, name: str) -> int:
    with urllib.request.urlopen(f"http://{broker.http_address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next(int(float(line.split()[1])) for line in lines if line.startswith(f"{name} "))


@pytest.mark.parametrize("settings", [NO_WINDOW, ONE_BYTE], ids=["no window", "one byte"])
@pytest.mark.parametrize("path", REQUESTS)
def test_answers_that_are_not_read_take_their_share_and_no_more(
    broker: testing.TestBroker, path: str, settings: bytes
) -> None:
    request = REQUESTS[path]()
    body = b"\0" + struct.pack(">I", len(request)) + request
    refused = metric(broker, "bascule_calls_refused_total")
    with Http2(broker.address, greet=False) as unread, Raw(broker.address) as raw:
        unread.send(settings)
        for stream in range(1, 2 * CALLS, 2):
            block = unread.request(path)
            unread.send(frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, body))
        wait_for(lambda: metric(broker, "bascule_calls_refused_total") > refused, 60, "refused")
        assert BUDGET // 4 < metric(broker, "bascule_answer_bytes") <= BUDGET // 2
        raw.publish("narrow", b"others are served")
    wait_for(lambda: metric(broker, "bascule_answer_bytes") == 0, 60, "given back")
    with flight.FlightClient(f"grpc://{broker.address}") as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_path("wide"))
        assert len(info.endpoints) == PARTITIONS


def test_partitions_of_a_selection_are_named_once(broker: testing.TestBroker) -> None:
    command = b'{"stream": "narrow", "partitions": [%s]}'
    with flight.FlightClient(f"grpc://{broker.address}") as client:
        named = flight.FlightDescriptor.for_command(command % b"0")
        assert len(client.get_flight_info(named).endpoints) == 1
        many = flight.FlightDescriptor.for_command(command % b",".join([b"0"] * 1000))
        text = "1000 partitions are named, stream default/narrow has 1: name each once"
        with pytest.raises(ValueError, match=text):
            client.get_flight_info(many)


def test_a_list_of_streams_comes_in_pages_in_order(broker: testing.TestBroker) -> None:
    with Raw(broker.address) as raw:
        for number in range(150):
            raw.create_stream(f"page-{number:03}")
    with flight.FlightClient(f"grpc://{broker.address}") as client:
        found = [info.descriptor.path[1].decode() for info in client.list_flights(b"page-")]
        assert found == [f"page-{number:03}" for number in range(150)]
        assert [info.descriptor.path[1] for info in client.list_flights(b"narr")] == [b"narrow"]
        assert list(client.list_flights(b"nothing")) == []
