"""Every rig, for its short share; those whose bar is not met reliably are skipped aloud until it is."""

from typing import Final

import pytest

from tests.torture.__main__ import rigs
from tests.torture.result import Scale, SkippedError

OPEN: Final = {
    "S15": "its bar is a ratio of times, for a quiet machine",
    "S21": "goodput was 67 to 72 % of the peak on a busy machine, the bar is 80 %",
}
"""Rows that `make torture` runs and `make test` does not, and why."""


@pytest.mark.parametrize("row", rigs())
def test_a_rig_meets_its_bar(row: str) -> None:
    if row in OPEN:
        pytest.skip(f"{row} is open: {OPEN[row]}; run make torture ROWS={row}")
    try:
        result = rigs()[row](Scale.SHORT)
    except SkippedError as reason:
        pytest.skip(f"{row}: {reason}")
    assert result.passed, f"{result.figure} (bar: {result.bar})"


def test_open_rows_exist() -> None:
    assert set(OPEN) <= set(rigs())
