"""What `archive` passes to the table that it writes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bascule.errors import UsageError
from bascule.lake import writing
from bascule.lake.options import ArchiveOptions
from bascule.spark import archiving, keeping
from bascule.spark.intervals import check_every


class _Reader:
    """Stands for `spark.readStream`: each call returns it."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self


@pytest.fixture(autouse=True)
def reached(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str]]:
    """The options by which brokers were asked before queries began."""
    asked: list[Mapping[str, str]] = []
    for module in (archiving, keeping):
        monkeypatch.setattr(module, "check_reached", lambda _, given: asked.append(given))
    return asked


@pytest.mark.parametrize(
    ("given", "complete"),
    [
        ({}, True),
        ({"onDataLoss": "fail"}, True),
        ({"onDataLoss": "skip"}, False),
        ({"ondataloss": " SKIP "}, False),
        ({"subject": "s.>"}, False),
    ],
)
def test_offsets_without_a_row_are_covered_only_if_no_record_can_be_left_out(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], complete: bool
) -> None:
    found: list[ArchiveOptions] = []
    monkeypatch.setattr(archiving, "start", lambda _, options, **__: found.append(options))
    spark: Any = SimpleNamespace(conf={"spark.sql.session.timeZone": "UTC"}, readStream=_Reader())
    archiving.archive(spark, to="/t", checkpoint="/c", stream="s", address="127.0.0.1:9292", **given)
    assert [options.complete for options in found] == [complete]


def test_paths_and_a_text_of_columns_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr(archiving, "start", lambda _, options, **more: found.append((options.path, more["checkpoint"])))
    spark: Any = SimpleNamespace(conf={"spark.sql.session.timeZone": "UTC"}, readStream=_Reader())
    columns = "stream, incarnation,partition,offset,timestamp, value"
    archiving.archive(spark, to=Path("/t"), checkpoint=Path("/c"), stream="s", columns=columns)
    assert found == [("/t", Path("/c"))]


def test_an_argument_that_is_given_as_an_option_is_named() -> None:
    spark: Any = SimpleNamespace(conf={"spark.sql.session.timeZone": "UTC"}, readStream=_Reader())
    with pytest.raises(UsageError, match="option partitionBy cannot be given to archive: the argument partition_by"):
        archiving.archive(spark, to="/t", checkpoint="/c", stream="s", partitionBy="date")


@pytest.mark.parametrize("function", [archiving.archive, keeping.keep_table])
@pytest.mark.parametrize("every", ["ten", "10", "10 sec", "10seconds", "", "seconds", "1 month"])
def test_a_time_without_a_number_and_a_unit_is_refused(function: Callable[..., Any], every: str) -> None:
    spark: Any = SimpleNamespace(conf={"spark.sql.session.timeZone": "UTC"}, readStream=_Reader())
    expected = f"^argument every is '{every}': it must be a number with a unit, as 10 seconds or 1 minute"
    with pytest.raises(UsageError, match=expected):
        _call(function, spark, {"every": every})


@pytest.mark.parametrize(
    "every", ["10 seconds", "1 minute", " 1 HOUR  30 minutes", "interval 2 days", "1.5 seconds", None]
)
def test_a_time_that_spark_reads_is_taken(every: str | None) -> None:
    check_every(every)


def _call(function: Callable[..., Any], spark: Any, given: dict[str, Any]) -> None:
    function(spark, **{"to": "/t", "checkpoint": "/c", "stream": "s", **given})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"format": "hudi"}, "argument format is 'hudi': it must be one of delta, parquet, iceberg"),
        ({"partition_by": "a b"}, "argument partition_by: 'a b' is not a column"),
        ({"to": "ftp://x"}, "argument to is 'ftp://x': it must be a local folder"),
        ({"columns": "offsets"}, "columns of an archive include"),
        ({"fileBytes": 1}, "option fileBytes is '1': it must be a size"),
        ({"fileByte": 1}, r"there is no option 'fileByte' \(did you mean fileBytes\?\)"),
        ({"archivePath": "ftp://x"}, "option archivePath is 'ftp://x'"),
        ({"DLQSTREAM": "d"}, "there is no option 'dlqStream' here: it is an option of writes"),
    ],
)
def test_an_error_names_what_the_call_was_given(given: dict[str, Any], sentence: str) -> None:
    spark: Any = SimpleNamespace(conf={"spark.sql.session.timeZone": "UTC"}, readStream=_Reader())
    with pytest.raises(UsageError, match=f"^{sentence}"):
        _call(archiving.archive, spark, given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"format": "hudi"}, "argument format is 'hudi': rows are merged"),
        ({"to": "t{stream}"}, "argument to is 't{stream}'"),
        ({"history": True, "format": "iceberg", "to": "a.b"}, "argument history is for Delta tables"),
    ],
)
def test_an_error_of_a_kept_table_names_what_the_call_was_given(given: dict[str, Any], sentence: str) -> None:
    spark: Any = SimpleNamespace(conf={"spark.sql.session.timeZone": "UTC"}, readStream=_Reader())
    with pytest.raises(UsageError, match=f"^{sentence}"):
        _call(keeping.keep_table, spark, given)


@pytest.mark.parametrize(
    ("checkpoint", "refusal"),
    [
        ("t", "the table .*/t is in the folder of the checkpoint"),
        (".", "the table .*/t is in the folder of the checkpoint"),
        ("t/checkpoint", "take its files for the table's: choose one beside it"),
        ("t/_checkpoint", ""),
        ("t2", ""),
    ],
)
def test_a_checkpoint_in_the_folder_of_a_table_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkpoint: str, refusal: str
) -> None:
    monkeypatch.setattr(writing, "check_tables", lambda *_: None)

    class Started(Exception):  # noqa: N818 - not an error
        pass

    class Frame:
        schema = None

        @property
        def writeStream(self) -> Any:  # noqa: N802 - Spark's name
            raise Started

    frame: Any = Frame()
    with pytest.raises(UsageError if refusal else Started, match=refusal or "^$"):
        writing.start(frame, ArchiveOptions(str(tmp_path / "t")), checkpoint=tmp_path / checkpoint)
