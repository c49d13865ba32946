"""Rendering of results in five formats."""

import csv
import io
import json
from dataclasses import dataclass

import pytest
import yaml
from bascule import Record
from bascule.cli.records.record_writer import RecordFormat, record_writer
from bascule.cli.render.output import OutputFormat, plain, render
from bascule.errors import UsageError


@dataclass(frozen=True)
class Row:
    name: str
    count: int
    tags: tuple[str, ...]
    fine: bool
    note: str | None = None


ROWS = [Row("a", 1, ("x", "y"), True), Row("b,c", 22, (), False, 'said "no"')]
PLAIN: list[dict[str, object]] = [
    {"name": "a", "count": 1, "tags": ["x", "y"], "fine": True, "note": None},
    {"name": "b,c", "count": 22, "tags": [], "fine": False, "note": 'said "no"'},
]
RECORDS = [
    Record(0, 1_700_000_000_000_001_999, None, b"plain", "s.a", []),
    Record(1, 1_700_000_000_000_002_000, b"k", b"\xff\x00", "s.b", [("h", b"1")]),
]


def printed(capsys: pytest.CaptureFixture[str], result: object, form: OutputFormat) -> str:
    render(result, form)
    return capsys.readouterr().out


def test_json_yaml_and_ndjson_carry_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(printed(capsys, ROWS, OutputFormat.JSON)) == PLAIN
    assert yaml.safe_load(printed(capsys, ROWS, OutputFormat.YAML)) == PLAIN
    assert [json.loads(line) for line in printed(capsys, ROWS, OutputFormat.NDJSON).splitlines()] == PLAIN


def test_csv_survives_commas_and_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(printed(capsys, ROWS, OutputFormat.CSV))))
    assert [row["name"] for row in rows] == ["a", "b,c"]
    assert rows[1] == {"name": "b,c", "count": "22", "tags": "[]", "fine": "false", "note": 'said "no"'}


def test_tables_show_words_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    table = printed(capsys, ROWS, OutputFormat.TABLE)
    assert "x, y" in table
    assert "yes" in table
    assert "None" not in table
    single = printed(capsys, ROWS[0], OutputFormat.TABLE)
    assert single.splitlines()[0].split() == ["name", "a"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[/x]", "[/x]"),
        ("a[b]c", "a[b]c"),
        ("[red]cur", "[red]cur"),
        (":smile:", ":smile:"),
        ("[link=http://x]y", "[link=http://x]y"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("two\nlines\ttab", "two\\nlines\\ttab"),
        ("a\u202eb\u200b", "a\\u202eb\\u200b"),
        ("é 漢 🙂", "é 漢 🙂"),
    ],
)
def test_tables_show_text_as_it_is_and_what_cannot_be_seen(
    capsys: pytest.CaptureFixture[str], text: str, shown: str
) -> None:
    row = Row(text, 1, (text,), True)
    assert shown in printed(capsys, [row], OutputFormat.TABLE)
    single = printed(capsys, row, OutputFormat.TABLE)
    assert single.splitlines()[0] == f"name   {shown}"
    assert single.splitlines()[2] == f"tags   {shown}"


WIDE: list[dict[str, object]] = [{"name": "n" * 50, "high_watermark": 1_234_567, "path": "p" * 60, "segments": []}]


def test_a_piped_table_does_not_cut_cells(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    header, rule, row = printed(capsys, WIDE, OutputFormat.TABLE).splitlines()
    assert header.split("  ")[0] == "name"
    assert "high watermark" in header
    assert set(rule) == {"─", " "}
    assert row.split() == ["n" * 50, "1234567", "p" * 60]


def test_a_table_too_wide_for_the_terminal_prints_one_field_per_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    fields = printed(capsys, WIDE, OutputFormat.TABLE).splitlines()
    assert [line.split("  ")[0] for line in fields] == ["name", "high watermark", "path", "segments", ""]
    assert fields[1].split()[-1] == "1234567"
    narrow = printed(capsys, ROWS, OutputFormat.TABLE).splitlines()
    assert narrow[0].split() == ["name", "count", "tags", "fine", "note"]


def test_an_empty_result_is_reported_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    render([], OutputFormat.TABLE)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "nothing found\n")
    assert printed(capsys, [], OutputFormat.JSON) == "[]\n"
    assert printed(capsys, [], OutputFormat.CSV) == ""


def test_bytes_that_are_not_text_are_printed_as_base64() -> None:
    assert plain([b"text", b"\xff\x00"]) == ["text", {"base64": "/wA="}]


def write(capfdbinary: pytest.CaptureFixture[bytes], form: RecordFormat, records: list[Record]) -> bytes:
    writer = record_writer(form)
    for record in records:
        writer.write(3, [record])
    writer.close()
    writer.close()
    return capfdbinary.readouterr().out


def test_records_as_text_are_their_values_untouched(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert write(capfdbinary, RecordFormat.TEXT, RECORDS) == b"plain\n\xff\x00\n"


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (RecordFormat.RAW, b"plain\xff\x00"),
        (RecordFormat.BASE64, b"cGxhaW4=\n/wA=\n"),
        (RecordFormat.HEX, b"706c61696e\nff00\n"),
    ],
)
def test_values_are_printed_in_each_encoding(
    capfdbinary: pytest.CaptureFixture[bytes], form: RecordFormat, said: bytes
) -> None:
    assert write(capfdbinary, form, RECORDS) == said


def test_a_template_says_what_stands_where(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    records = [RECORDS[1], Record(7, 5, None, None, "s.c", [("a", b"1"), ("a", b"\xff")])]
    writer = record_writer(r"%p/%o %k=%v %h %s\t%t %%")
    writer.write(3, records)
    assert capfdbinary.readouterr().out.splitlines() == [
        b'3/1 k=\xff\x00 {"h":"1"} s.b\t2023-11-14T22:13:20.000002000Z %',
        b'3/7 =null [["a","1"],["a",{"base64":"/w=="}]] s.c\t1970-01-01T00:00:00.000000005Z %',
    ]
    writer = record_writer(r"%v\0\n", null="-")
    writer.write(0, records)
    assert capfdbinary.readouterr().out == b"\xff\x00\0\n-\0\n", "one line end is enough"
    for text in ("%x", "%v %", r"\q"):
        with pytest.raises(UsageError, match="is not valid; use %p, %o, %k, %h, %v, %t, %s"):
            record_writer(text)


def test_a_null_value_is_printed_as_null_in_text(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    null = [Record(0, 1, b"k", None, "s", []), Record(1, 1, b"k", b"", "s", [])]
    for form, options, said in (
        (RecordFormat.TEXT, {}, b"null\n\n"),
        (RecordFormat.TEXT, {"null": "NIL"}, b"NIL\n\n"),
        (RecordFormat.HEX, {}, b"\n\n"),
        (RecordFormat.RAW, {}, b""),
    ):
        writer = record_writer(form, **options)
        writer.write(0, null)
        assert capfdbinary.readouterr().out == said
    assert b"null" in write(capfdbinary, RecordFormat.TABLE, null)
    with pytest.raises(UsageError, match="--null works with text"):
        record_writer(RecordFormat.JSON, null="")


def test_keys_are_printed_before_values_with_a_separator(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    writer = record_writer(RecordFormat.TEXT, "=")
    writer.write(0, RECORDS)
    assert capfdbinary.readouterr().out == b"=plain\nk=\xff\x00\n"
    for form in (RecordFormat.RAW, RecordFormat.JSON):
        with pytest.raises(UsageError, match="--key-separator works with --output text, base64 and hex"):
            record_writer(form, "=")


def test_records_in_structured_forms_are_the_same(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    time = "2023-11-14T22:13:20"
    binary = {"base64": "/wA="}
    expected: list[dict[str, object]] = [
        {
            "partition": 3,
            "offset": 0,
            "time": f"{time}.000001999Z",
            "key": None,
            "value": "plain",
            "subject": "s.a",
            "headers": {},
            "origin_time": None,
        },
        {
            "partition": 3,
            "offset": 1,
            "time": f"{time}.000002000Z",
            "key": "k",
            "value": binary,
            "subject": "s.b",
            "headers": {"h": "1"},
            "origin_time": None,
        },
    ]
    assert json.loads(write(capfdbinary, RecordFormat.JSON, RECORDS)) == expected
    assert json.loads(write(capfdbinary, RecordFormat.JSON, [])) == []
    assert yaml.safe_load(write(capfdbinary, RecordFormat.YAML, [])) == []
    assert yaml.safe_load(write(capfdbinary, RecordFormat.YAML, RECORDS)) == expected
    lines = write(capfdbinary, RecordFormat.NDJSON, RECORDS).splitlines()
    assert [json.loads(line) for line in lines] == expected
    rows = list(csv.DictReader(io.StringIO(write(capfdbinary, RecordFormat.CSV, RECORDS).decode())))
    assert [row["offset"] for row in rows] == ["0", "1"]
    assert b"s.b" in write(capfdbinary, RecordFormat.TABLE, RECORDS)
