"""The Flight service, with pyarrow as client."""

import json
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from bascule.errors import BrokerError
from bascule.spark.connection import from_flight
from harness import Streams, fl, pa, put_batches

from tests.waiting import until

DEFAULT_COLUMNS = ["partition", "offset", "timestamp", "subject", "key", "value"]


def client(streams: Streams) -> Any:
    return fl.FlightClient(f"grpc://{streams.address}")


def get(streams: Streams, **ticket: Any) -> Any:
    document = {"stream": "s", "partition": 0, **ticket}
    return client(streams).do_get(fl.Ticket(json.dumps(document).encode())).read_all()


def offsets(streams: Streams, **ticket: Any) -> list[int]:
    return get(streams, columns=["offset"], **ticket).column("offset").to_pylist()


def refused(streams: Streams, **ticket: Any) -> BrokerError:
    with pytest.raises(Exception, match=r"\[[a-z_]+\]") as raised:
        get(streams, **ticket)
    return from_flight(raised.value)


def action(streams: Streams, body: Any) -> Any:
    results = list(client(streams).do_action(fl.Action("offsets", json.dumps(body).encode())))
    return json.loads(results[0].body.to_pybytes())


# -- planning
# -----------------------------------------------------------------------------------------------------------
def test_streams_are_listed_by_prefix_without_internal_ones(streams: Streams) -> None:
    for name in ("orders", "other", "__cursors"):
        streams.create(name)

    def names(prefix: bytes) -> list[str]:
        return [info.descriptor.path[1].decode() for info in client(streams).list_flights(prefix)]

    assert names(b"") == ["orders", "other"]
    assert names(b"ord") == ["orders"]
    assert names(b"__") == ["__cursors"]


def test_tickets_of_a_flight_always_mean_the_same_records(streams: Streams) -> None:
    streams.create("s", 2)
    streams.put("s", [b"a", b"b"])
    streams.put("s", [b"c"], 1)
    info = client(streams).get_flight_info(fl.FlightDescriptor.for_path("s"))
    assert (info.total_records, info.schema.names) == (3, DEFAULT_COLUMNS)
    streams.put("s", [b"later"])
    read = [
        client(streams).do_get(endpoint.ticket).read_all().column("value").to_pylist() for endpoint in info.endpoints
    ]
    assert read == [[b"a", b"b"], [b"c"]]


def test_a_command_selects_partitions_columns_and_ranges(streams: Streams) -> None:
    streams.create("s", 3)
    streams.put("s", [b"a", b"b", b"c"], 1)
    command = {"stream": "s", "partitions": [1], "columns": ["value", "offset"], "start": {"last": 2}, "end": 2}
    info = client(streams).get_flight_info(fl.FlightDescriptor.for_command(json.dumps(command).encode()))
    assert (len(info.endpoints), info.total_records) == (1, 1)
    assert client(streams).do_get(info.endpoints[0].ticket).read_all().to_pydict() == {"value": [b"b"], "offset": [1]}


# -- scans
# --------------------------------------------------------------------------------------------------------------
def test_ranges_are_half_open(streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"%d" % i for i in range(10)])
    assert offsets(streams) == list(range(10))
    assert offsets(streams, start=3, end=7) == [3, 4, 5, 6]
    assert offsets(streams, start=10) == []
    assert offsets(streams, start="latest") == []
    assert offsets(streams, start={"last": 2}) == [8, 9]
    assert offsets(streams, start={"last": 99}, end="latest") == list(range(10))
    assert offsets(streams, start=5, max_rows=2) == [5, 6]
    assert offsets(streams, start=7, end=3) == []


def test_times_select_by_receipt(streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"a"])
    middle = action(streams, {"stream": "s"})["partitions"][0]["last_timestamp_ns"] + 1
    until(lambda: time.time_ns() > middle, 10.0)
    streams.put("s", [b"b"])
    assert offsets(streams, start={"time_ns": middle}) == [1]
    assert offsets(streams, end={"time_ns": middle}) == [0]
    assert offsets(streams, start={"time_ns": time.time_ns() + 10**12}) == []
    times = [{"partition": 0, "time_ns": t} for t in (0, middle, 2**62)]
    assert [t["offset"] for t in action(streams, {"stream": "s", "times": times})["times"]] == [0, 1, None]


def test_columns_are_returned_in_order_and_subjects_are_filtered(streams: Streams) -> None:
    streams.create("s")
    subjects = ["s.a.x", "s.b.x", None, "s.a.y"]
    streams.put("s", [b"0", b"1", b"2", b"3"], subject=subjects, key=[None, b"k", b"", b"l"])
    table = get(streams, columns=["subject", "key", "value", "stream"])
    assert table.schema.names == ["subject", "key", "value", "stream"]
    assert table.column("subject").to_pylist() == ["s.a.x", "s.b.x", "s", "s.a.y"]
    assert table.column("key").to_pylist() == [None, b"k", None, b"l"]
    assert offsets(streams, subject="s.a.*") == [0, 3]
    assert offsets(streams, subject="s.>") == [0, 1, 3]
    assert offsets(streams, subject="nothing.here") == []
    assert get(streams, columns=[]).num_rows == 4


def test_large_scans_are_complete_and_in_large_batches(streams: Streams) -> None:
    streams.create("s")
    values = [bytes([i % 251]) * 500 for i in range(20_000)]
    for start in range(0, len(values), 5000):
        streams.put("s", values[start : start + 5000])
    reader = client(streams).do_get(fl.Ticket(b'{"stream":"s","partition":0}'))
    chunks = list(reader)
    assert [v for chunk in chunks for v in chunk.data.column("value").to_pylist()] == values
    assert all(chunk.data.column("value").nbytes < 2 << 20 for chunk in chunks)
    ends = [json.loads(chunk.app_metadata.to_pybytes())["next"] for chunk in chunks]
    assert ends == sorted(ends)
    assert ends[-1] == len(values)


def test_a_long_poll_returns_with_the_first_record(streams: Streams) -> None:
    streams.create("s")
    timer = threading.Timer(0.3, lambda: streams.put("s", [b"a"]))
    timer.start()
    began = time.monotonic()
    assert offsets(streams, wait_ms=10_000) == [0]
    assert 0.2 < time.monotonic() - began < 5
    timer.join()
    assert offsets(streams, start=1, wait_ms=50) == []


def test_a_following_scan_ends_at_its_end(streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"a"])
    timer = threading.Timer(0.2, lambda: streams.put("s", [b"b", b"c", b"d"]))
    timer.start()
    assert offsets(streams, follow=True, end=3) == [0, 1, 2]
    timer.join()


def test_a_cancelled_scan_releases_its_slot(streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"a"])
    reader = client(streams).do_get(fl.Ticket(b'{"stream":"s","partition":0,"follow":true}'))
    assert reader.read_chunk().data.num_rows == 1
    assert streams.engine.statistics()["subscriptions_open"] == 1
    reader.cancel()
    until(lambda: streams.engine.statistics()["subscriptions_open"] == 0, 10.0)


def test_a_following_scan_ends_when_its_stream_is_deleted(streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"a"])
    reader = client(streams).do_get(fl.Ticket(b'{"stream":"s","partition":0,"follow":true}'))
    reader.read_chunk()
    streams.delete("s")
    with pytest.raises(Exception, match="s/0 was deleted"):
        reader.read_chunk()


# -- refusals
# -----------------------------------------------------------------------------------------------------------
def test_errors_name_the_values(streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"a"])
    table: list[tuple[dict[str, Any], str, str]] = [
        ({"stream": "t"}, "stream_not_found", "stream default/t does not exist"),
        ({"partition": 4}, "partition_not_found", "default/s/4 does not exist: the stream has 1 partitions"),
        ({"start": 2}, "offset_out_of_range", "offset 2 is beyond the high watermark 1 of default/s/0"),
        ({"end": 2}, "offset_out_of_range", "offset 2 is beyond the high watermark 1 of default/s/0"),
        ({"incarnation": 99}, "incarnation_changed", "has incarnation 1, not 99"),
        ({"columns": ["vaule"]}, "invalid_argument", 'no column is named "vaule"'),
        ({"subject": "a..b"}, "invalid_argument", "a..b"),
        ({"strat": 1}, "invalid_argument", "unknown field `strat`"),
        ({"start": "soon"}, "invalid_argument", 'start "soon" is none of'),
        ({"wait_ms": 60_001}, "invalid_argument", "wait_ms 60001 is above 60000"),
        ({"follow": True, "end": "latest"}, "invalid_argument", "end must be null or an offset"),
    ]
    for ticket, code, sentence in table:
        refusal = refused(streams, **ticket)
        assert refusal.code == code
        assert sentence in str(refusal)


def test_removed_records_are_never_skipped_silently(streams: Streams) -> None:
    streams.create("s", segment_bytes=1 << 16)
    for _ in range(8):
        streams.put("s", [bytes(1000)] * 100)
    streams.set("s", retention_messages=250)
    until(lambda: streams.position("s")[0] > 0, 10.0)
    start, end = streams.position("s")
    refusal = refused(streams, start=0)
    assert refusal.code == "offset_out_of_range"
    assert str(refusal) == f"offset 0 is below the log start offset {start} of default/s/0"
    assert offsets(streams) == list(range(start, end))


def test_scans_beyond_the_limit_are_rejected(tmp_path: Path) -> None:
    streams = Streams(tmp_path / "few", subscriptions=1)
    try:
        streams.create("s")
        streams.put("s", [b"a"])
        reader = client(streams).do_get(fl.Ticket(b'{"stream":"s","partition":0,"follow":true}'))
        reader.read_chunk()
        refusal = refused(streams)
        assert refusal.code == "busy"
        assert "limits.subscriptions (1) subscriptions and scans are open" in str(refusal)
        reader.cancel()
        until(lambda: streams.engine.statistics()["subscriptions_open"] == 0, 10.0)
        assert offsets(streams) == [0]
    finally:
        streams.close()


def test_unsupported_methods_are_reported(streams: Streams) -> None:
    with pytest.raises(Exception, match="there is no action"):
        list(client(streams).do_action(fl.Action("nope", b"")))
    assert [kind.type for kind in client(streams).list_actions()] == ["offsets"]
    with pytest.raises(Exception, match="Handshake is not offered"):
        client(streams).authenticate_basic_token("a", "b")


@pytest.mark.parametrize(
    "command", ["CommandStatementQuery", "CommandGetTables", "CommandStatementUpdate", "TicketStatementQuery"]
)
def test_clients_of_flight_sql_get_an_error_with_the_alternative(streams: Streams, command: str) -> None:
    """Each message of Flight SQL is packed into a protobuf Any."""
    url = f"type.googleapis.com/arrow.flight.protocol.sql.{command}".encode()
    packed = b"\x0a" + bytes([len(url)]) + url + b"\x12\x0a\x0a\x08SELECT 1"
    descriptor = fl.FlightDescriptor.for_command(packed)
    connection = client(streams)
    schema = pa.schema([pa.field("value", pa.binary())])

    def put() -> None:
        writer, reader = connection.do_put(descriptor, schema)
        writer.done_writing()
        reader.read()
        writer.close()

    for call in (
        lambda: connection.get_flight_info(descriptor),
        lambda: connection.get_schema(descriptor),
        lambda: connection.do_get(fl.Ticket(packed)).read_all(),
        lambda: list(connection.do_action(fl.Action("CreatePreparedStatement", packed))),
        put,
    ):
        with pytest.raises(NotImplementedError, match=r"Flight SQL is not offered .*GetFlightInfo of the path"):
            call()


# -- history
# ------------------------------------------------------------------------------------------------------------
def test_the_record_before_an_offset_is_identified(streams: Streams) -> None:
    streams.create("s")
    for value in (b"a", b"b", b"c"):
        streams.put("s", [value, value])
    places = [{"partition": 0, "offset": offset} for offset in range(8)]
    answer = action(streams, {"stream": "s", "before": places})["before"]
    assert [(entry["partition"], entry["offset"]) for entry in answer] == [(0, offset) for offset in range(8)]
    links = [entry["link"] for entry in answer]
    assert links[0] is links[7] is answer[0]["timestamp_ns"] is None, "before the first, and beyond the high watermark"
    assert links[1] == links[2] != links[3] == links[4] != links[5] == links[6]
    times = pa.compute.cast(get(streams, columns=["timestamp"]).column("timestamp"), pa.int64()).to_pylist()
    assert [entry["timestamp_ns"] // 1000 for entry in answer[1:7]] == times


def test_a_ticket_is_rejected_if_the_log_was_replaced(streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"a", b"b"])
    link = action(streams, {"stream": "s", "before": [{"partition": 0, "offset": 2}]})["before"][0]["link"]
    assert offsets(streams, expect={"offset": 2, "link": link}) == [0, 1]
    assert offsets(streams, expect={"offset": 0, "link": link}) == [0, 1], "there is no record before offset 0"
    refusal = refused(streams, expect={"offset": 2, "link": link ^ 1})
    assert refusal.code == "history_changed"
    assert f"the batch before offset 2 has link {link}, the reader expects {link ^ 1}" in str(refusal)
    assert refused(streams, expect={"offset": 3, "link": link}).code == "offset_out_of_range"


# -- offsets
# ------------------------------------------------------------------------------------------------------------
def test_a_wait_over_several_streams_ends_with_the_first_of_them(streams: Streams) -> None:
    streams.create("s", 2)
    streams.create("t")
    known = [
        {"stream": "s", "wait_ms": 10_000, "beyond": {"0": 0, "1": 0}},
        {"stream": "t", "wait_ms": 10_000, "beyond": {"0": 0}},
    ]
    timer = threading.Timer(0.3, lambda: streams.put("t", [b"a"]))
    timer.start()
    began = time.monotonic()
    answers = action(streams, known)
    assert 0.2 < time.monotonic() - began < 5
    timer.join()
    assert [[p["high_watermark"] for p in answer["partitions"]] for answer in answers] == [[0, 0], [1]]


def test_a_new_partition_ends_a_wait_at_once(streams: Streams) -> None:
    streams.create("s", 2)
    began = time.monotonic()
    action(streams, {"stream": "s", "wait_ms": 10_000, "beyond": {"0": 0}})
    assert time.monotonic() - began < 5


# -- append
# -------------------------------------------------------------------------------------------------------------
def batch(values: list[bytes | None]) -> Any:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})


def test_results_have_offsets_in_order(streams: Streams) -> None:
    streams.create("s")
    batches = [batch([b"a", None]), batch([]), batch([b"c"])]
    results = put_batches(streams.address, {"stream": "s"}, batches)
    assert [(r["base_offset"], r["count"], r["duplicate"]) for r in results] == [
        (0, 2, False),
        (None, 0, False),
        (2, 1, False),
    ]
    assert results[2]["timestamp_ns"] >= results[0]["timestamp_ns"] > 0
    assert get(streams).column("value").to_pylist() == [b"a", None, b"c"]


def test_a_repeated_call_appends_nothing_twice(streams: Streams) -> None:
    streams.create("s")
    command = {"stream": "s", "producer": {"id": 7, "epoch": 1, "base_sequence": 0}}
    first = put_batches(streams.address, command, [batch([b"a", b"b"]), batch([b"c"])])
    again = put_batches(streams.address, command, [batch([b"a", b"b"]), batch([b"c"]), batch([b"d"])])
    assert [r["duplicate"] for r in first] == [False, False]
    assert [(r["base_offset"], r["duplicate"]) for r in again] == [(0, True), (2, True), (3, False)]
    assert get(streams).column("value").to_pylist() == [b"a", b"b", b"c", b"d"]


def test_a_gap_in_the_sequence_is_rejected(streams: Streams) -> None:
    streams.create("s")
    put_batches(streams.address, {"stream": "s", "producer": {"id": 7, "base_sequence": 0}}, [batch([b"a"])])
    with pytest.raises(Exception, match=r"\[sequence_gap\]"):
        put_batches(streams.address, {"stream": "s", "producer": {"id": 7, "base_sequence": 5}}, [batch([b"b"])])
    assert streams.position("s") == (0, 1)


@pytest.mark.parametrize(
    ("command", "columns", "sentence"),
    [
        ({"stream": "t"}, {"value": [b"a"]}, "stream default/t does not exist"),
        ({"stream": "s", "partition": 3}, {"value": [b"a"]}, "default/s/3 does not exist"),
        ({"stream": "s", "producer": {"id": 0, "base_sequence": 0}}, {"value": [b"a"]}, "producer id 0"),
        ({"stream": "s", "what": 1}, {"value": [b"a"]}, "unknown field `what`"),
        ({"stream": "s"}, {"key": [b"a"]}, "column value is missing"),
        ({"stream": "s"}, {"value": [b"a"], "colour": ["red"]}, '"colour" cannot be stored'),
        ({"stream": "s"}, {"value": [b"a"], "partition": [1]}, "column partition says"),
        ({"stream": "s"}, {"value": [1.5]}, "column value has type"),
    ],
)
def test_invalid_rows_are_rejected(
    streams: Streams, command: dict[str, Any], columns: dict[str, list[Any]], sentence: str
) -> None:
    streams.create("s")
    with pytest.raises(Exception, match=sentence):
        put_batches(streams.address, command, [pa.RecordBatch.from_pydict(columns)])
    assert streams.position("s") == (0, 0)


def test_damaged_messages_are_rejected_without_effect_on_others(
    streams: Streams, capfd: pytest.CaptureFixture[str]
) -> None:
    grpc: Any = import_module("grpc")
    streams.create("s")
    channel = grpc.insecure_channel(streams.address)
    call = channel.stream_stream("/arrow.flight.protocol.FlightService/DoPut")
    messages = flight_messages({"stream": "s"}, batch([b"value-%d" % i for i in range(20)]))
    assert len(list(call(iter(messages), timeout=10))) == 1
    schema, rows = messages
    outcomes: set[Any] = set()
    for at in range(0, len(rows), 3):
        for damaged in (rows[:at], rows[:at] + bytes([rows[at] ^ 0xFF]) + rows[at + 1 :]):
            try:
                list(call(iter([schema, damaged]), timeout=10))
            except grpc.RpcError as refusal:
                outcomes.add(refusal.code())
    assert outcomes <= {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL}
    assert grpc.StatusCode.INVALID_ARGUMENT in outcomes
    channel.close()
    before = streams.position("s")[1]
    assert streams.put("s", [b"still here"]) == before
    assert "panicked" not in capfd.readouterr().err


def flight_messages(command: dict[str, Any], rows: Any) -> list[bytes]:
    """The `FlightData` messages of a put, written by hand: descriptor (1), head (2), body (1000)."""

    def field(tag: bytes, content: bytes) -> bytes:
        length, size = b"", len(content)
        while size >= 0x80:
            length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
        return tag + length + bytes([size]) + content

    def message(encapsulated: bytes) -> tuple[bytes, bytes]:
        size = int.from_bytes(encapsulated[4:8], "little")
        return encapsulated[8 : 8 + size], encapsulated[8 + size :]

    descriptor = b"\x08\x02" + field(b"\x12", json.dumps(command).encode())
    schema, _ = message(rows.schema.serialize().to_pybytes())
    head, body = message(rows.serialize().to_pybytes())
    return [field(b"\x0a", descriptor) + field(b"\x12", schema), field(b"\x12", head) + field(b"\xc2\x3e", body)]
