"""Input of `produce`: every format, and errors."""

import io
import json
from typing import Final

import pytest
from bascule import Record
from bascule.cli.records import record_reader
from bascule.cli.records.record_reader import BATCH, InputFormat, Item, Source, items, of_arguments
from bascule.cli.records.record_writer import RecordFormat, record_writer
from bascule.cli.render.results import time_text
from bascule.errors import UsageError


def read(data: bytes, source: Source) -> list[Item]:
    return [item for batch in items(io.BytesIO(data), source) for item in batch]


def form(name: str) -> Source:
    return Source(InputFormat(name))


def test_lines_keep_their_bytes_and_the_last_needs_no_end() -> None:
    values = [item.value for item in read(b"one\r\n\xff\x00\n\nlast", form("text"))]
    assert values == [b"one", b"\xff\x00", b"", b"last"]
    assert read(b"", form("text")) == []


def test_raw_is_one_record() -> None:
    assert [item.value for item in read(b"a\nb\n", form("raw"))] == [b"a\nb\n"]


@pytest.mark.parametrize(("name", "line"), [("base64", b"/wA="), ("hex", b"ff00")])
def test_encoded_lines_become_bytes(name: str, line: bytes) -> None:
    assert [item.value for item in read(line + b"\n", form(name))] == [b"\xff\x00"]


def test_a_key_stands_before_its_separator() -> None:
    source = Source(separator=b":", headers=(("h", b"1"),))
    assert read(b"a:b:c\n:d\n", source) == [Item(b"b:c", b"a", (("h", b"1"),)), Item(b"d", b"", (("h", b"1"),))]
    with pytest.raises(UsageError, match='line 2 "ab" has no key separator ":"'):
        read(b"a:b\nab\n", source)


def test_what_consume_prints_comes_back_as_it_was() -> None:
    row = {
        "partition": 2,
        "offset": 7,
        "time": "2026-01-31T12:00:00.000000Z",
        "key": {"base64": "/wA="},
        "value": "text",
        "subject": "s",
        "headers": {"a": "1", "b": ""},
        "origin_time": None,
    }
    expected = [Item(b"text", b"\xff\x00", (("a", b"1"), ("b", b"")), 2)]
    assert read(json.dumps(row).encode() + b"\n", form("ndjson")) == expected
    assert read(json.dumps([row]).encode(), form("json")) == expected
    assert read(json.dumps(row).encode(), form("json")) == expected
    head = "partition,offset,time,key,value,subject,headers\n"
    line = '2,7,t,"{""base64"": ""/wA=""}",text,s,"{""a"": ""1"", ""b"": """"}"\n'
    assert read((head + line).encode(), form("csv")) == expected


@pytest.mark.parametrize(
    "value", [b'{"base64": "aGk="}', b'{"base64":"aGk="}', b'{"base64"', b'{"base64": "?"}', b"\xff"]
)
def test_csv_round_trips_any_text(capfdbinary: pytest.CaptureFixture[bytes], value: bytes) -> None:
    writer = record_writer(RecordFormat.CSV)
    writer.write(0, [Record(0, 1, value, value, "s", [])])
    writer.close()
    (item,) = read(capfdbinary.readouterr().out, form("csv"))
    assert (item.key, item.value) == (value, value)


ODD: Final = [
    Record(0, 1_700_000_000_123_456_789, None, None, "s.a", []),
    Record(1, 2, b"k", b"", "s.b", [("a", b"1"), ("b", b""), ("a", b"2")]),
    Record(2, 3, b"\xff", b'cr\rlf\n"quoted",\r\n', "s", [("na\udcefve", b"\xff"), ("subject", b"own")]),
    Record(3, 4, b"null", b"null", "s", [("x", b"null")], "", -1),
    Record(4, 5, None, b'{"base64": null}', "s", []),
    Record(5, 6, b"long", b"x" * 200_000, "s", []),
]
"""Cases that are easily lost: null and empty, repeats, names that are not text, line ends, large values."""


@pytest.mark.parametrize("name", ["ndjson", "json", "csv"])
def test_what_consume_writes_produce_reads_back_exactly(capfdbinary: pytest.CaptureFixture[bytes], name: str) -> None:
    writer = record_writer(RecordFormat(name))
    writer.write(7, ODD)
    writer.close()
    source = Source(InputFormat(name), keeps_subject=True, keeps_time=True)
    found = read(capfdbinary.readouterr().out, source)
    times = [record.timestamp_ns if record.origin_time_ns is None else record.origin_time_ns for record in ODD]
    assert found == [
        Item(record.value, record.key, tuple(record.headers), 7, record.subject, time)
        for record, time in zip(ODD, times, strict=True)
    ]


def test_json_null_and_the_null_text_are_null_values() -> None:
    assert read(b'{"value": null}\n{"value": ""}\n', form("ndjson")) == [Item(None), Item(b"")]
    source = Source(separator=b":", null=b"NULL")
    assert read(b"a:NULL\nb:null\n", source) == [Item(None, b"a"), Item(b"null", b"b")]


@pytest.mark.parametrize("time_ns", [-(2**63), 2**63 - 1, -1, 0])
def test_a_time_of_64_bits_is_read_back_and_no_other(time_ns: int) -> None:
    source = Source(InputFormat.NDJSON, keeps_time=True)
    row = json.dumps({"value": "v", "origin_time": time_text(time_ns)}).encode()
    assert [item.time_ns for item in read(row, source)] == [time_ns]
    if abs(time_ns) > 1:
        row = json.dumps({"value": "v", "time": time_text(time_ns + (-1 if time_ns < 0 else 1))}).encode()
        with pytest.raises(UsageError, match=r"line 1: time is .*, not between the years 1677 and 2262"):
            read(row, source)


@pytest.mark.parametrize("time", ["noon", "2026-13-01T00:00:00Z", 5, ["x"]])
def test_a_time_to_be_kept_is_one(time: object) -> None:
    row = json.dumps({"value": "v", "time": time}).encode()
    assert read(row, form("ndjson")) == [Item(b"v")], "not checked unless it is kept"
    with pytest.raises(UsageError, match=r"line 1: time is .*, not a time like"):
        read(row, Source(InputFormat.NDJSON, keeps_time=True))


def test_other_json_is_its_compact_text_and_a_key_may_be_given_for_all() -> None:
    source = Source(InputFormat.NDJSON, key=b"k", headers=[("h", b"x")])
    assert read(b'{"value": {"a": [1, 2]}}\n{"value": "v", "key": "own", "headers": {"i": 1}}', source) == [
        Item(b'{"a":[1,2]}', b"k", (("h", b"x"),)),
        Item(b"v", b"own", (("i", b"1"), ("h", b"x"))),
    ]


def test_csv_takes_line_ends_in_cells_and_reads_an_empty_key_as_none() -> None:
    assert read(b'value,key\n"two\nlines",\nb,k\n', form("csv")) == [Item(b"two\nlines"), Item(b"b", b"k")]


def test_a_line_of_many_reads_stays_one_and_its_length_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    long = bytes(range(11, 251)) * 2_000
    lines = [b"first", long, b"", long + b"2", b"last"]
    assert [item.value for item in read(b"\n".join(lines), form("text"))] == lines
    monkeypatch.setattr(record_reader, "MAX_LINE", 400_000)
    with pytest.raises(UsageError, match="a line is longer than 400000 bytes"):
        read(b"\n".join(lines), form("text"))
    with pytest.raises(UsageError, match="a line is longer"):
        read(b"x" * 400_001 + b"\n", form("text"))


def test_batches_are_bounded_and_come_as_lines_arrive() -> None:
    sizes = [len(batch) for batch in items(io.BytesIO(b"x\n" * 10_000), form("text"))]
    assert sum(sizes) == 10_000
    assert max(sizes) <= BATCH

    class Trickle(io.RawIOBase):
        """A pipe that returns one piece at a time."""

        pieces = iter([b"a\nb", b"c\n", b"d"])

        def read1(self, _: int) -> bytes:
            return next(self.pieces, b"")

    batches = [[item.value for item in batch] for batch in items(Trickle(), form("text"))]  # pyright: ignore[reportArgumentType]
    assert [batch for batch in batches if batch] == [[b"a"], [b"bc"], [b"d"]]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("ndjson", b'{"value": "v"}\n{"val": 1}\n', 'line 2 is not a JSON object with a "value"'),
        ("ndjson", b'{"value": "v", "keys": "k"}', 'line 1 has the unknown field "keys": known are headers, key, off'),
        ("json", b'{"value": "v", "stream": "s"}', 'record 1 has the unknown field "stream"'),
        ("ndjson", b"[1]\n", 'line 1 is not a JSON object with a "value"'),
        ("ndjson", b"{nope\n", 'line 1 "{nope" is not valid JSON'),
        (
            "ndjson",
            b'{"value": "v", "headers": []}\n{"value": "v", "headers": [1]}',
            "line 2: headers is not a JSON object",
        ),
        ("ndjson", b'{"value": "v", "partition": -1}', "line 1: partition is -1, not a number from 0"),
        ("ndjson", b'{"value": {"base64": "?"}}', 'line 1: "\\?" is not valid base64'),
        ("json", b'[{"value": "v"}, 5]', "record 2 is not a JSON object"),
        ("json", b"", 'the input "" is not valid JSON'),
        ("base64", b"/wA=\nno!\n", 'line 2 "no!" is not valid base64'),
        ("hex", b"f\n", 'line 1 "f" is not valid hex'),
        ("hex", b"\xff\x1b[0m\n", "is not valid hex"),
        ("csv", b"key\nk\n", 'has no column "value"'),
        ("csv", b"value,key\na\n", "line 2 has another number of columns"),
        ("csv", b"value,headers\na,{\n", 'line 2 "{" is not valid JSON'),
        ("csv", b"value\n\xff\n", "the input is not valid CSV in UTF-8"),
    ],
)
def test_invalid_input_is_reported_with_its_line(name: str, data: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(data, form(name))


def test_arguments_are_records_in_the_forms_of_lines() -> None:
    ((first, second),) = of_arguments(["/wA=", "eA=="], form("base64"))
    assert (first.value, second.value) == (b"\xff\x00", b"x")
    with pytest.raises(UsageError, match='record 2 "!" is not valid base64'):
        list(of_arguments(["eA==", "!"], form("base64")))
    with pytest.raises(UsageError, match="--format csv is read from --file or standard input"):
        list(of_arguments(["a"], form("csv")))
