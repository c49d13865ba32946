"""What `produce` reads: every form, and what is wrong with it."""

import io
import json

import pytest
from bascule import Record
from bascule.cli import inputs
from bascule.cli.inputs import BATCH, InputFormat, Item, Source, items, of_arguments
from bascule.cli.records import RecordFormat, record_writer
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
    source = Source(separator=b":", headers={"h": b"1"})
    assert read(b"a:b:c\n:d\n", source) == [Item(b"b:c", b"a", {"h": b"1"}), Item(b"d", b"", {"h": b"1"})]
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
        "headers": {"a": "1", "subject": "s", "reply": ""},
    }
    expected = [Item(b"text", b"\xff\x00", {"a": b"1"}, 2)]
    assert read(json.dumps(row).encode() + b"\n", form("ndjson")) == expected
    assert read(json.dumps([row]).encode(), form("json")) == expected
    assert read(json.dumps(row).encode(), form("json")) == expected
    head = "partition,offset,time,key,value,subject,headers\n"
    line = '2,7,t,"{""base64"": ""/wA=""}",text,s,"{""a"": ""1"", ""subject"": ""s""}"\n'
    assert read((head + line).encode(), form("csv")) == expected


@pytest.mark.parametrize(
    "value", [b'{"base64": "aGk="}', b'{"base64":"aGk="}', b'{"base64"', b'{"base64": "?"}', b"\xff"]
)
def test_csv_comes_back_as_it_was_whatever_it_looks_like(
    capfdbinary: pytest.CaptureFixture[bytes], value: bytes
) -> None:
    writer = record_writer(RecordFormat.CSV)
    writer.write(0, [Record(0, 1, value, value, "s", {})])
    writer.close()
    (item,) = read(capfdbinary.readouterr().out, form("csv"))
    assert (item.key, item.value) == (value, value)


def test_other_json_is_its_compact_text_and_a_key_may_be_given_for_all() -> None:
    source = Source(InputFormat.NDJSON, key=b"k", headers={"h": b"x"})
    assert read(b'{"value": {"a": [1, 2]}}\n{"value": "v", "key": "own", "headers": {"i": 1}}', source) == [
        Item(b'{"a":[1,2]}', b"k", {"h": b"x"}),
        Item(b"v", b"own", {"i": b"1", "h": b"x"}),
    ]


def test_csv_takes_line_ends_in_cells_and_reads_an_empty_key_as_none() -> None:
    assert read(b'value,key\n"two\nlines",\nb,k\n', form("csv")) == [Item(b"two\nlines"), Item(b"b", b"k")]


def test_a_line_of_many_reads_stays_one_and_its_length_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    long = bytes(range(11, 251)) * 2_000
    lines = [b"first", long, b"", long + b"2", b"last"]
    assert [item.value for item in read(b"\n".join(lines), form("text"))] == lines
    monkeypatch.setattr(inputs, "MOST_LINE", 400_000)
    with pytest.raises(UsageError, match="a line is longer than 400000 bytes"):
        read(b"\n".join(lines), form("text"))
    with pytest.raises(UsageError, match="a line is longer"):
        read(b"x" * 400_001 + b"\n", form("text"))


def test_batches_are_bounded_and_come_as_lines_arrive() -> None:
    sizes = [len(batch) for batch in items(io.BytesIO(b"x\n" * 10_000), form("text"))]
    assert sum(sizes) == 10_000
    assert max(sizes) <= BATCH

    class Trickle(io.RawIOBase):
        """A pipe that gives one piece at a time."""

        pieces = iter([b"a\nb", b"c\n", b"d"])

        def read1(self, _: int) -> bytes:
            return next(self.pieces, b"")

    batches = [[item.value for item in batch] for batch in items(Trickle(), form("text"))]  # pyright: ignore[reportArgumentType]
    assert [batch for batch in batches if batch] == [[b"a"], [b"bc"], [b"d"]]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("ndjson", b'{"value": "v"}\n{"val": 1}\n', 'line 2 is no JSON object with a "value"'),
        ("ndjson", b'{"value": "v", "keys": "k"}', 'line 1 has the unknown field "keys": known are headers, key, part'),
        ("json", b'{"value": "v", "stream": "s"}', 'record 1 has the unknown field "stream"'),
        ("ndjson", b"[1]\n", 'line 1 is no JSON object with a "value"'),
        ("ndjson", b"{nope\n", 'line 1 "{nope" is no JSON'),
        (
            "ndjson",
            b'{"value": "v", "headers": []}\n{"value": "v", "headers": [1]}',
            "line 2: headers is no JSON object",
        ),
        ("ndjson", b'{"value": "v", "partition": -1}', "line 1: partition is -1, not a number from 0"),
        ("ndjson", b'{"value": {"base64": "?"}}', 'line 1: "\\?" is no base64'),
        ("json", b'[{"value": "v"}, 5]', "record 2 is no JSON object"),
        ("json", b"", 'the input "" is no JSON'),
        ("base64", b"/wA=\nno!\n", 'line 2 "no!" is no base64'),
        ("hex", b"f\n", 'line 1 "f" is no hex'),
        ("hex", b"\xff\x1b[0m\n", "is no hex"),
        ("csv", b"key\nk\n", 'names no column "value"'),
        ("csv", b"value,key\na\n", "line 2 has another number of columns"),
        ("csv", b"value,headers\na,{\n", 'line 2 "{" is no JSON'),
        ("csv", b"value\n\xff\n", "the input is no CSV in UTF-8"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(name: str, data: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(data, form(name))


def test_arguments_are_records_in_the_forms_of_lines() -> None:
    ((first, second),) = of_arguments(["/wA=", "eA=="], form("base64"))
    assert (first.value, second.value) == (b"\xff\x00", b"x")
    with pytest.raises(UsageError, match='record 2 "!" is no base64'):
        list(of_arguments(["eA==", "!"], form("base64")))
    with pytest.raises(UsageError, match="--format csv is read from --file or standard input"):
        list(of_arguments(["a"], form("csv")))
