"""Records written by each protocol and read by every one: who writes, who reads, and the page that shows it.

A reader returns its fields as text; times and derived ids, which differ from run to run, as what they are.
"""

import json
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

from bascule import Client
from bascule.testing import TestBroker as Broker
from harness import fl, put_batches

from tests.conformance import envelopes, iggy_long, iggy_raw
from tests.conformance.api import Api

pa: Any = import_module("pyarrow")

FIELDS: Final = (
    *("offset", "partition", "timestamp", "origin time", "id", "key", "value", "headers", "subject", "reply"),
)
ABSENT: Final = "–"
"""The reader has no such field."""
ID: Final = 0x0123456789ABCDEF0123456789ABCDEF
ORIGIN_NS: Final = 1_700_000_000_123_456_789
PASSWORD: Final = "a password of the test"
KINDS: Final = dict(
    enumerate(
        "raw string bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64".split(),  # noqa: SIM905 - shorter
        start=1,
    )
)
"""Iggy's kinds of header keys and values."""

Row = Mapping[str, str]
"""What a reader shows of one record, by field."""


@dataclass(frozen=True)
class Stored:
    """Times and id of a record as Flight has them, by which those of other readers are named."""

    receipt_ns: int
    origin_us: int | None
    id: int | None

    def time(self, ns: int) -> str:
        """What a time is."""
        names = {self.receipt_ns: "receipt, ns", self.receipt_ns // 1000 * 1000: "receipt, µs"}
        if self.origin_us is not None:
            names |= {self.origin_us * 1000: "origin, µs", ORIGIN_NS: "origin, ns"}
        return names.get(ns, f"another time: {ns}")

    def shown_id(self, number: int) -> str:
        """What an id is: the stored one, or derived if none is stored."""
        return "derived" if self.id is None else f"`{number:#x}`"


@dataclass(frozen=True)
class Writer:
    """A protocol that writes: what it sends, and how."""

    name: str
    stream: str
    sent: tuple[str, ...]
    """One text for each record."""
    write: Callable[[Broker, str], None]


Reader = Callable[[Broker, str, Sequence[Stored]], list[Row]]


def write_nats(broker: Broker, stream: str) -> None:
    """Two plain messages, without a client library."""
    address = urlsplit(broker.nats_url)
    block = b"NATS/1.0\r\nNats-Msg-Id: m-1\r\na: 1\r\nempty:\r\na: 2\r\n\xff: raw\r\n\r\n"
    message = f"HPUB {stream}.room answers {len(block)} {len(block) + 5}\r\n".encode() + block + b"value\r\n"
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=30) as connection:
        connection.sendall(b'CONNECT {"headers":true,"verbose":false}\r\n' + message)
        connection.sendall(f"PUB {stream}.room 0\r\n\r\nPING\r\n".encode())
        received = b""
        while b"PONG\r\n" not in received:
            received += connection.recv(4096)


def write_envelopes(broker: Broker, stream: str) -> None:
    """Two envelopes of Liftbridge's clients."""
    address = urlsplit(broker.nats_url)
    full = envelopes.publish(key=b"k", value=b"value", headers={"a": b"1", "empty": b""}, checksum=True)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=30) as connection:
        connection.sendall(b'CONNECT {"headers":true,"verbose":false}\r\n')
        for data in (full, envelopes.publish()):
            connection.sendall(f"PUB {stream}.room {len(data)}\r\n".encode() + data + b"\r\n")
        connection.sendall(b"PING\r\n")
        received = b""
        while b"PONG\r\n" not in received:
            received += connection.recv(4096)


def write_liftbridge(broker: Broker, stream: str) -> None:
    """Two calls of Publish."""
    with Api(broker.address) as api:
        api.publish(stream, b"value", key=b"k", headers={"a": b"1", "empty": b""})
        api.publish(stream, b"", key=b"")


def write_sdk(broker: Broker, stream: str) -> None:
    """Three records of the SDK: the fullest one, an empty one, and a tombstone."""
    with broker.connect() as client:
        headers = [("a", b"1"), ("empty", b""), ("a", b"2")]
        client.publish(stream, b"value", key=b"k", headers=headers, subject=f"{stream}.room", origin_time_ns=ORIGIN_NS)
        client.publish(stream, b"", key=b"")
        client.publish(stream, None, key=b"k")


def write_iggy_v1(broker: Broker, stream: str) -> None:
    """A message with its id and headers by a key, and one without any of them."""
    place = ("default", stream)
    headers = (
        iggy_raw.header("a", 2, b"1") + iggy_raw.header("n", 6, b"\7\0\0\0") + iggy_raw.header("raw", 1, b"\0\xff")
    )
    with iggy_raw.connected(broker.iggy_address, PASSWORD) as raw:
        raw.send(place, iggy_raw.by_key(b"k"), [b"value"], ids=[ID], headers=headers)
        raw.send(place, iggy_raw.to_partition(1), [b"value"])


def write_iggy_v2(broker: Broker, stream: str) -> None:
    """The batch of two messages that a published client was recorded to send."""
    with iggy_long.connected(broker.iggy_address, PASSWORD) as client:
        client.send(("default", stream), iggy_long.HELLO)


def write_flight(broker: Broker, stream: str) -> None:
    """Three rows of DoPut: the fullest one, one of empty values, and one of nulls."""
    header = pa.struct(
        [("key", pa.binary()), ("value", pa.binary()), ("key_kind", pa.uint8()), ("value_kind", pa.uint8())]
    )
    full = [(b"a", b"1", 2, 2), (b"n", b"\7\0\0\0", 2, 6), (b"\1\0", b"x", 5, 1), (b"a", b"", 2, 1)]
    names = ("key", "value", "key_kind", "value_kind")
    headers = [[dict(zip(names, one, strict=True)) for one in full], [], None]
    columns = {
        "value": pa.array([b"value", b"", None], pa.binary()),
        "key": pa.array([b"k", b"", None], pa.binary()),
        "headers": pa.array(headers, pa.list_(header)),
        "subject": pa.array([f"{stream}.room", None, None]),
        "reply": pa.array(["answers", "", None]),
        "id": pa.array([ID.to_bytes(16, "big"), bytes(16), None], pa.binary(16)),
        "origin_time": pa.array([ORIGIN_NS, None, None], pa.timestamp("ns", tz="UTC")),
    }
    put_batches(broker.address, {"stream": stream, "partition": 0}, [pa.RecordBatch.from_pydict(columns)])


WRITERS: Final = (
    Writer(
        "NATS, plain",
        "nats",
        (
            r"payload `value`, headers `Nats-Msg-Id: m-1`, `a: 1`, `empty:`, `a: 2`, one named `\xff`, reply `answers`",
            "an empty payload without headers, on `nats.room`",
        ),
        write_nats,
    ),
    Writer(
        "NATS, with Liftbridge's envelope",
        "envelope",
        ("key `k`, value `value`, headers `a: 1` and `empty:`, on `envelope.room`", "no field, on `envelope.room`"),
        write_envelopes,
    ),
    Writer(
        "Liftbridge, Publish",
        "liftbridge",
        ("key `k`, value `value`, headers `a: 1` and `empty:`", "an empty key and an empty value"),
        write_liftbridge,
    ),
    Writer(
        "SDK",
        "sdk",
        (
            "key `k`, value `value`, headers `a: 1`, `empty:`, `a: 2`, subject `sdk.room`, and an origin time",
            "an empty key and an empty value",
            "key `k`, value `None`",
        ),
        write_sdk,
    ),
    Writer(
        "Iggy, v1",
        "iggy1",
        (
            f"id `{ID:#x}`, key `k`, headers `a` (string), `n` (i32) and `raw` (raw), payload `value`",
            "payload `value`, id 0, to the first partition",
        ),
        write_iggy_v1,
    ),
    Writer(
        "Iggy, v2",
        "iggy2",
        ("an id, an origin time, header `k` (i32), payload `hello 1`", "an id, an origin time, payload `hello 2`"),
        write_iggy_v2,
    ),
    Writer(
        "Flight, DoPut",
        "flight",
        (
            f"every column; id `{ID:#x}`, headers `a` (string), `n` (i32), one whose key is an i16, and `a` again",
            "empty: key, value, list of headers, reply, and an id of zeros",
            "null in every column",
        ),
        write_flight,
    ),
)


def times(broker: Broker, stream: str) -> list[Stored]:
    """The times of every record."""
    rows = _scanned(broker, stream, ["timestamp_ns", "origin_time", "id"])
    return [
        Stored(
            row["timestamp_ns"],
            None if (origin := row["origin_time"]) is None else origin.value // 1000,
            None if row["id"] is None else int.from_bytes(row["id"], "big"),
        )
        for row in rows
    ]


def read_liftbridge(broker: Broker, stream: str, stored: Sequence[Stored]) -> list[Row]:
    """Subscribe, with the fields of Liftbridge alone."""
    with Api(broker.address) as api:
        return [
            _row(
                offset=item.offset,
                partition=item.partition,
                timestamp=time.time(item.timestamp),
                key=shown(item.key),
                value=shown(item.value),
                headers=_pairs(sorted(item.headers.items())),
                subject=_text(item.subject),
                reply=_text(item.replySubject),
            )
            for item, time in zip(api.read(stream), stored, strict=True)
        ]


def read_sdk(broker: Broker, stream: str, stored: Sequence[Stored]) -> list[Row]:
    """`subscribe` of the SDK."""
    with broker.connect() as client:
        return [
            _row(
                offset=item.offset,
                timestamp=time.time(item.timestamp_ns),
                key=shown(item.key),
                value=shown(item.value),
                headers=_pairs(item.headers),
                subject=_text(item.subject),
                reply=_text(item.reply),
                **{"origin time": _origin(time, item.origin_time_ns)},
            )
            for item, time in zip(_records(client, stream), stored, strict=True)
        ]


def read_flight(broker: Broker, stream: str, stored: Sequence[Stored]) -> list[Row]:
    """DoGet with every column."""
    names = ["offset", "partition", "timestamp", "origin_time", "id", "key", "value", "headers", "subject", "reply"]
    return [
        _columns(row, row["timestamp"].value, None if row["origin_time"] is None else row["origin_time"].value, time)
        for row, time in zip(_scanned(broker, stream, names), stored, strict=True)
    ]


def spark_reader(spark: Any) -> Reader:
    """A batch read with every column."""

    def read(broker: Broker, stream: str, stored: Sequence[Stored]) -> list[Row]:
        columns = "offset,partition,timestamp,origin_time,id,key,value,headers,subject,reply"
        frame = spark.read.format("bascule").option("address", broker.address).option("stream", stream)
        instants = (
            "*",
            "unix_micros(timestamp) * 1000 as receipt_ns",
            "unix_micros(origin_time) * 1000 as origin_ns",
        )
        found = frame.option("columns", columns).load().selectExpr(*instants).orderBy("offset").collect()
        return [
            _columns(row.asDict(recursive=True), row["receipt_ns"], row["origin_ns"], time)
            for row, time in zip(found, stored, strict=True)
        ]

    return read


def read_iggy_v1(broker: Broker, stream: str, stored: Sequence[Stored]) -> list[Row]:
    """A poll of a client of servers 0.4."""
    with iggy_raw.connected(broker.iggy_address, PASSWORD) as raw:
        polled = raw.poll(("default", stream))
        return [
            _row(
                offset=item.offset,
                partition=polled.partition,
                timestamp=time.time(item.timestamp_us * 1000),
                id=time.shown_id(item.id),
                value=shown(item.payload),
                headers=_pairs((name, value, KINDS[kind]) for name, (kind, value) in item.headers.items()),
            )
            for item, time in zip(polled.messages, stored, strict=True)
        ]


def read_iggy_v2(broker: Broker, stream: str, stored: Sequence[Stored]) -> list[Row]:
    """A poll of a client of servers 0.9."""
    with iggy_long.connected(broker.iggy_address, PASSWORD) as client:
        polled = client.poll(("default", stream))
        return [
            _row(
                offset=item.offset,
                partition=0,
                timestamp=time.time(item.timestamp_us * 1000),
                id=time.shown_id(item.id),
                value=shown(item.payload),
                headers=_pairs(_typed(item.headers)),
                **{"origin time": time.time(item.origin_us * 1000)},
            )
            for item, time in zip(polled, stored, strict=True)
        ]


def readers(spark: Any) -> dict[str, Reader]:
    """Every reader by its name."""
    return {
        "Liftbridge": read_liftbridge,
        "SDK": read_sdk,
        "Flight": read_flight,
        "Spark": spark_reader(spark),
        "Iggy v1": read_iggy_v1,
        "Iggy v2": read_iggy_v2,
    }


Seen = Mapping[str, Mapping[str, Sequence[Row]]]
"""What was read, by writer, reader and record."""


def page(seen: Seen) -> str:
    """The text of docs/reference/one-record.md."""
    parts = [HEAD]
    for writer in WRITERS:
        parts.append(f"## Written by {writer.name}\n")
        by_reader = seen[writer.name]
        for number, sent in enumerate(writer.sent):
            parts.append(f"Sent: {sent}.\n")
            parts.append(f"| | {' | '.join(by_reader)} |\n|---|{'---|' * len(by_reader)}")
            for field in FIELDS:
                cells = (rows[number].get(field, ABSENT) for rows in by_reader.values())
                parts.append(f"| {field} | {' | '.join(cells)} |")
            parts.append("")
    return "\n".join(parts)


HEAD: Final = """\
# One record in every protocol

This page shows what becomes of a record that one protocol writes and another reads. A test writes each record to a
stream of one partition in the namespace `default`, reads it by every protocol, and compares what it saw with this page
(`tests/spark/test_one_record.py`). Use it to see which fields survive between two kinds of clients.

- **–** means that the reader has no such field; **none** that the field is there and has no value; **empty** that it
  has zero bytes.
- **Times** are named: the time of *receipt* by the broker, or the *origin* time of the publisher, each in ns, or in µs,
  rounded down.
- **Headers** are name and value in order, for Iggy's clients with the kind of the value; *not text* stands for a name
  that is not shown. Iggy's clients are not shown headers whose name or value is empty or has more than 255 bytes, and
  those of v1 only names that are text.
- **Derived ids** are made by the broker from the record's place, and are the same at each read. The id of a plain NATS
  message is a hash of its header `Nats-Msg-Id`.
- The column *Liftbridge* has the fields of Liftbridge's own protocol. Its headers are a map, which has the last of
  equal names, and `subject` and `reply` beside the publisher's.
"""


def shown(value: bytes | None) -> str:
    """Bytes as a cell."""
    if value is None:
        return "none"
    return f"`{repr(bytes(value))[2:-1]}`" if value else "empty"


def _records(client: Client, stream: str) -> list[Any]:
    return list(client.subscribe(stream, stop="latest").records())


def _scanned(broker: Broker, stream: str, columns: list[str]) -> list[dict[str, Any]]:
    ticket = json.dumps({"stream": stream, "partition": 0, "columns": columns}).encode()
    with fl.FlightClient(f"grpc://{broker.address}") as client:
        table = client.do_get(fl.Ticket(ticket)).read_all()
    rows = table.to_pylist()
    for name in {"timestamp", "origin_time"} & set(columns):
        for row, instant in zip(rows, table.column(name), strict=True):
            row[name] = None if instant.as_py() is None else _Instant(instant.value * 1000)
    return rows


@dataclass(frozen=True)
class _Instant:
    value: int
    """Nanoseconds since 1970."""


def _columns(row: Mapping[str, Any], receipt_ns: int, origin_ns: int | None, time: Stored) -> Row:
    return _row(
        offset=row["offset"],
        partition=row["partition"],
        timestamp=time.time(receipt_ns),
        id="none" if row["id"] is None else time.shown_id(int.from_bytes(row["id"], "big")),
        key=shown(row["key"]),
        value=shown(row["value"]),
        headers=_pairs((header["key"], header["value"]) for header in row["headers"]),
        subject=_text(row["subject"]),
        reply="none" if row["reply"] is None else _text(row["reply"]),
        **{"origin time": _origin(time, origin_ns)},
    )


def _row(**cells: object) -> Row:
    return {name: str(value) for name, value in cells.items()}


def _origin(time: Stored, ns: int | None) -> str:
    return "none" if ns is None else time.time(ns)


def _text(text: str) -> str:
    return f"`{text}`" if text else "empty"


def _pairs(headers: Any) -> str:
    def one(name: str | bytes | None, value: bytes, kind: str = "") -> str:
        if isinstance(name, str):
            label = repr(name.encode(errors="surrogateescape"))[2:-1]
        else:
            label = "*not text*" if name is None else repr(name)[2:-1]
        label = label if label.startswith("*") else f"`{label}`"
        return f"{label}: {shown(value)}{f' ({kind})' if kind else ''}"

    return ", ".join(one(*header) for header in headers) or "none"


def _typed(block: bytes) -> list[tuple[str | bytes, bytes, str]]:
    """The headers of v2: kind, length and bytes of the key, then of the value."""
    at, parts = 0, list[tuple[int, bytes]]()
    while at < len(block):
        kind, size = block[at], int.from_bytes(block[at + 1 : at + 5], "little")
        parts.append((kind, block[at + 5 : at + 5 + size]))
        at += 5 + size
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [
        (key.decode() if key_kind == 2 else key, value, KINDS[value_kind])
        for (key_kind, key), (value_kind, value) in pairs
    ]
