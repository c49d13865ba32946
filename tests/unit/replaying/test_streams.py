"""A stream as the source of a copy or a re-drive."""

from collections.abc import Iterator
from typing import Any

import pytest
from bascule.errors import StateError
from bascule.lake.ranges import Source
from bascule.spark.options import parse_options
from bascule.spark.replaying import streams
from bascule.spark.replaying.lanes import Part
from bascule.spark.replaying.streams import COLUMNS, StreamReader

READER = StreamReader(parse_options({"stream": "orders", "timeZone": "UTC"}), COLUMNS)


def reading(monkeypatch: pytest.MonkeyPatch, failure: StateError) -> str:
    def read(*_: Any) -> Iterator[Any]:
        yield "batch"
        raise failure

    monkeypatch.setattr(streams, "read_ranges", read)
    with pytest.raises(StateError) as raised:
        list(READER.read(Part(Source("orders", 7, 0), 3, 9)))
    assert (raised.value.code, raised.value.details) == (failure.code, failure.details)
    return str(raised.value)


@pytest.mark.parametrize("advice", ["", "; the records before it were removed: set onDataLoss to skip to continue"])
def test_records_that_were_removed_have_a_remedy_that_a_copy_has(monkeypatch: pytest.MonkeyPatch, advice: str) -> None:
    what = "[offset_out_of_range] offset 3 is below the log start offset 5 of default/orders/0"
    found = reading(monkeypatch, StateError("offset_out_of_range", f"{what}{advice}", {"log_start": 5}))
    assert found.startswith(f"{what}; its records were removed before they were read")
    assert "begin another one, with another id and checkpoint" in found
    assert "onDataLoss" not in found


def test_other_errors_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reading(monkeypatch, StateError("incarnation_changed", "orders was created again")) == (
        "orders was created again"
    )
