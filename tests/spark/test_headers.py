"""Headers in Flight and in Spark's reader: a list of pairs, for all headers of NATS publishers. No JVM."""

import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from bascule.spark.columns import arrow_schema
from bascule.spark.connection import StatusRequest
from bascule.spark.options import parse_options
from bascule.spark.reading import broker_of, read_ranges
from bascule.spark.resolving import resolve_ranges
from bascule.testing import TestBroker, broker
from harness import fl, pa

from tests.waiting import until

BLOCK = b"NATS/1.0\r\nb: 1\r\na: 2\r\nb: 3\r\nb: 1\r\nc:\r\n\r\n"
PAIRS = [("b", b"1"), ("a", b"2"), ("b", b"3"), ("b", b"1"), ("c", b"")]
RAW = b"NATS/1.0\r\n\xef\xee: \xe9t\xe9\r\nb: \xff\r\n\r\n"
RAW_PAIRS = [(None, b"\xe9t\xe9"), ("b", b"\xff")]


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker() as started:
        yield started


def publish(running: TestBroker, subject: str, *blocks: bytes) -> None:
    """Publish one message per header block on a separate connection, without a client library."""
    address = urlsplit(running.nats_url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=10) as connection:
        connection.sendall(b'CONNECT {"headers":true,"verbose":false}\r\n')
        for block in blocks:
            head = f"HPUB {subject} {len(block)} {len(block) + 1}\r\n".encode()
            connection.sendall(head + block + b"x\r\n")
        connection.sendall(b"PING\r\n")
        received = b""
        while b"PONG\r\n" not in received:
            received += connection.recv(4096)


def rows(table: Any) -> list[list[tuple[str | None, bytes]]]:
    """The pairs of every row, in order."""
    found = table.column("headers").to_pylist()
    return [[(header["key"], header["value"]) for header in headers] for headers in found]


@pytest.mark.parametrize(("name", "block", "pairs"), [("text", BLOCK, PAIRS), ("raw", RAW, RAW_PAIRS)])
def test_headers_keep_order_and_repeats(
    running: TestBroker, name: str, block: bytes, pairs: list[tuple[str | None, bytes]]
) -> None:
    stream = f"headers-{name}"
    with running.connect() as client:
        client.create_stream(stream, f"headers.{name}", exist_ok=True)
    publish(running, f"headers.{name}", block, b"NATS/1.0\r\n\r\n", block)
    options = parse_options({"address": running.address, "stream": stream})
    asked = broker_of(options)
    until(lambda: asked.status([StatusRequest(stream)])[stream].partitions[0].high_watermark == 3)
    expected = [pairs, [], pairs]
    ticket = json.dumps({"stream": stream, "partition": 0, "columns": ["headers"]}).encode()
    table = fl.FlightClient(f"grpc://{running.address}").do_get(fl.Ticket(ticket)).read_all()
    assert rows(table) == expected
    schema = arrow_schema(["headers"])
    batches = list(read_ranges(options, resolve_ranges(options), schema))
    assert rows(pa.Table.from_batches(batches, schema)) == expected
