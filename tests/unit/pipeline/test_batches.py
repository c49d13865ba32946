"""The range of a batch run: what it reads, and by what targets recognise it."""

from dataclasses import replace
from typing import Any

import pytest
from bascule.pipeline import parse_job
from bascule.pipeline.batches import POSITIONS, BatchRange
from bascule.spark.options import parse_options
from bascule.spark.planning import Range

JOB: dict[str, Any] = {
    "name": "orders",
    "source": {"stream": "s", "startingTimestamp": "2026-11-26T00:00:00Z", "subject": "s.>"},
    "sql": "SELECT stream, partition, offset, value FROM source",
    "targets": [{"format": "delta", "path": "good"}],
    "mode": "batch",
}
RANGES = (Range("s", 0, 5, 9, 1), Range("s", 2, 4, 4, 1), Range("t", 0, 0, 1, 7))


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[Range]:
    found = list(RANGES)
    monkeypatch.setattr("bascule.pipeline.batches.whole_ranges", lambda _: found)
    return found


def of(**changed: Any) -> BatchRange:
    return BatchRange.of(parse_job({**JOB, **changed}))


def test_the_source_reads_exactly_the_range() -> None:
    options = {**JOB["source"], "address": "127.0.0.1:9292"}
    pinned = {name: text for name, text in options.items() if name not in POSITIONS}
    read = parse_options(pinned | BatchRange(RANGES, "").positions)
    assert read.selection.assigned == {"s": (0, 2), "t": (0,)}
    assert read.subject == "s.>"
    bounds = [
        (each.stream, each.partition, place.of(each.stream, each.partition).value)
        for each in RANGES
        for place in (read.starting, read.ending)
    ]
    assert bounds == [("s", 0, 5), ("s", 0, 9), ("s", 2, 4), ("s", 2, 4), ("t", 0, 0), ("t", 0, 1)]


def test_a_run_without_streams_reads_none() -> None:
    read = parse_options({"address": "127.0.0.1:9292"} | BatchRange((), "").positions)
    assert read.selection.pattern == "(?!)"


@pytest.mark.usefixtures("ranges")
def test_the_same_records_and_the_same_job_are_the_same_range() -> None:
    assert of().id == of().id
    assert of(source={"stream": "s", "subject": "s.>"}).id == of().id, "offsets count, not how they were chosen"
    assert of(targets=[{"format": "delta", "path": "other"}]).id == of().id, "a target may be added"
    assert str(of()).startswith('startingOffsets {"s": {"0": 5, "2": 4}, "t": {"0": 0}}, endingOffsets {"s": {"0": 9')


@pytest.mark.parametrize(
    "changed",
    [
        {"sql": "SELECT stream, partition, offset, key FROM source"},
        {"source": {"stream": "s"}},
        {"source": {"stream": "s", "subject": "s.>", "columns": "stream, partition, offset, value"}},
        {"source": {"stream": "s", "subject": "s.>", "view": "table"}},
        {"decode": {"key": "string"}},
        {"expectations": {"expect_or_drop": {"known": "offset > 1"}}},
    ],
)
@pytest.mark.usefixtures("ranges")
def test_a_job_that_gives_other_rows_is_another_range(changed: dict[str, Any]) -> None:
    assert of(**changed).id != of().id


@pytest.mark.usefixtures("ranges")
def test_a_table_of_another_key_is_another_range() -> None:
    view = {"stream": "s", "subject": "s.>", "view": "table"}
    assert of(source={**view, "tableKey": "key"}).id == of(source=view).id
    assert of(source={**view, "tableKey": "subject"}).id != of(source=view).id
    assert of(source={**view, "onMissingKey": "skip"}).id != of(source=view).id
    assert of(source={**view, "tableMaxBytes": "1MiB"}).id == of(source=view).id, "a limit changes no row"


@pytest.mark.parametrize("change", [{"start": 6}, {"end": 10}, {"incarnation": 2}])
def test_other_records_are_another_range(ranges: list[Range], change: dict[str, int]) -> None:
    before = of().id
    ranges[0] = replace(ranges[0], **change)
    assert of().id != before
