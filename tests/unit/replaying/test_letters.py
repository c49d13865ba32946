"""Dead letters taken apart: which headers are the record's own, and what a letter says about itself."""

from importlib import import_module
from typing import Any

import pytest
from bascule.errors import StateError
from bascule.spark.replaying.letter_rows import Filter, LetterShape
from bascule.spark.replaying.letters import Letters
from bascule.spark.replaying.options import Bounds
from bascule.spark.replaying.rows import Shape

pa: Any = import_module("pyarrow")

PAIR = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
OF_A_JOB = [("stream", "orders"), ("partition", "0"), ("error_class", "MalformedJson"), ("query_name", "job")]
OF_THE_SINK = [("stream", "large"), ("error_class", "record_too_large"), ("sink", "s"), ("value_bytes", "9")]


def provenance(said: list[tuple[str, str]]) -> list[tuple[str | None, bytes]]:
    return [(f"bascule.dlq.{name}", text.encode()) for name, text in said]


RECORDS: list[list[tuple[str | None, bytes]]] = [
    [("own", b"1"), ("own", b"2"), *provenance(OF_A_JOB)],
    [],
    provenance(OF_THE_SINK),
    [("bascule.redrive.id", b"old"), (None, b"x"), *provenance(OF_A_JOB), *provenance(OF_THE_SINK)],
    [("bascule.dlq.error_class", b"written by a user")],
]


@pytest.fixture(params=["whole", "sliced", "filtered"])
def letters(request: pytest.FixtureRequest) -> Letters:
    if request.param == "whole":
        return Letters(array(RECORDS))
    if request.param == "sliced":
        return Letters(array([[("stream", b"y")], *RECORDS, [("z", b"z")]]).slice(1, len(RECORDS)))
    return Letters(array([RECORDS[0], *RECORDS]).filter(pa.array([False] + [True] * len(RECORDS))))


def array(records: list[list[tuple[str | None, bytes]]]) -> Any:
    return pa.array([[{"key": key, "value": value} for key, value in record] for record in records], pa.list_(PAIR))


def test_a_letter_has_the_header_with_the_stream(letters: Letters) -> None:
    assert letters.are_letters.to_pylist() == [True, False, True, True, False]


def test_only_the_last_provenance_is_that_of_the_letter(letters: Letters) -> None:
    assert letters.said("stream").to_pylist() == ["orders", None, "large", "large", None]
    assert letters.said("error_class").to_pylist() == [
        "MalformedJson",
        None,
        "record_too_large",
        "record_too_large",
        None,
    ]
    assert letters.said("query_name").to_pylist() == ["job", None, None, None, None]
    assert letters.said("partition").to_pylist() == ["0", None, None, None, None]
    assert letters.said("value_bytes").to_pylist() == [None, None, "9", "9", None]


def test_a_record_has_its_own_headers_and_then_those_that_are_added(letters: Letters) -> None:
    added = {"bascule.redrive.id": pa.array(list("abcde")), "n": pa.array(list("01234"))}
    found = [[(each["key"], each["value"]) for each in record] for record in letters.records(added).to_pylist()]
    own = [[("own", b"1"), ("own", b"2")], [], [], [(None, b"x"), *provenance(OF_A_JOB)], []]
    expected = [
        [*headers, ("bascule.redrive.id", b"abcde"[n : n + 1]), ("n", b"01234"[n : n + 1])]
        for n, headers in enumerate(own)
    ]
    for number in (0, 2, 3):
        assert found[number] == expected[number]


def test_no_letters_give_no_records() -> None:
    letters = Letters(array([]))
    assert letters.are_letters.to_pylist() == []
    assert letters.said("stream").to_pylist() == []
    assert letters.records({"a": pa.array([], pa.string())}).to_pylist() == []


MALFORMED: list[list[tuple[str | None, bytes]]] = [
    provenance(OF_A_JOB),
    provenance([("stream", "large"), ("id", "0g")]),
    [*provenance([("stream", "large")]), ("bascule.dlq.subject", b"\xff"), ("bascule.dlq.error_class", b"\xfe")],
    [("bascule.dlq.stream", b"\xff")],
    provenance([("stream", "large"), ("id", "00ff")]),
    [("own", b"\xff"), *provenance([("stream", "large"), ("id", "abc")])],
    [("bascule.dlq.id", b"no letter")],
]


def test_a_letter_with_headers_that_cannot_be_read_is_malformed() -> None:
    letters = Letters(array(MALFORMED))
    assert letters.are_malformed.to_pylist() == [False, True, True, True, False, True, False]
    assert letters.said("stream").to_pylist() == ["orders", "large", "large", None, "large", "large", None]
    assert letters.said("error_class").to_pylist() == ["MalformedJson", *[None] * 6]
    assert [(sentence, mask.to_pylist().index(True)) for sentence, mask in letters.flaws if any(mask.to_pylist())] == [
        ("its header bascule.dlq.stream is not UTF-8", 3),
        ("its header bascule.dlq.subject is not UTF-8", 2),
        ("its header bascule.dlq.id is not a hexadecimal number of whole bytes", 1),
    ]
    assert not any(Letters(array(RECORDS)).are_malformed.to_pylist())
    assert Letters(array([])).are_malformed.to_pylist() == []


def batch(records: list[list[tuple[str | None, bytes]]]) -> Any:
    count = len(records)
    columns = {name: pa.nulls(count, pa.binary()) for name in ("key", "reply", "id")}
    times = pa.array(range(count), pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_pydict(
        {
            **columns,
            "offset": pa.array(range(7, 7 + count), pa.int64()),
            "timestamp": times,
            "subject": pa.array(["letters"] * count, pa.string()),
            "value": pa.array([b"%d" % number for number in range(count)], pa.binary()),
            "headers": array(records),
        }
    )


def shape(*, skips: bool, until_us: int | None = None) -> LetterShape:
    names = ("offset", "timestamp", "subject", "key", "value", "headers", "reply", "id")
    records = Shape(names, keeps_partition=False, may_lose_names=False, bounds=Bounds(until_us=until_us))
    return LetterShape(records, Filter(), "fix-1", "dead", None, skips_cut=False, skips_malformed=skips)


def test_a_malformed_letter_is_refused_by_its_place_or_left_out() -> None:
    expected = "the dead letter dead/3 offset 8 is malformed: its header bascule.dlq.id is not a hexadecimal number"
    with pytest.raises(StateError, match=expected) as found:
        shape(skips=False).rows(batch(MALFORMED), 3)
    assert found.value.code == "record_invalid"
    assert found.value.details == {"stream": "dead", "partition": 3, "offset": 8}
    rows, offsets = shape(skips=True).rows(batch(MALFORMED), 3)
    assert (offsets.to_pylist(), rows.column("stream").to_pylist()) == ([7, 11], ["orders", "large"])
    assert rows.column("id").to_pylist() == [None, b"\x00\xff"]


def test_a_letter_outside_the_times_is_not_refused() -> None:
    _, offsets = shape(skips=False, until_us=1).rows(batch(MALFORMED), 3)
    assert offsets.to_pylist() == [7]
