"""What `archive` passes to the table that it writes."""

from types import SimpleNamespace
from typing import Any

import pytest
from bascule.lake.options import ArchiveOptions
from bascule.spark import archiving


class _Reader:
    """Stands for `spark.readStream`: each call returns it."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self


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
