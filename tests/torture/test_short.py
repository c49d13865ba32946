"""Every rig at short scale."""

from typing import Any

import pytest

from tests.torture.__main__ import rigs
from tests.torture.result import Scale, SkippedError

_SLOW = frozenset({"S14", "SP1", "SP2"})
"""Rigs that take minutes at any scale: the one of fuzz targets compiles them, the others start Spark again and again.
The other tests pass each point of SP1 and SP2 once.
"""


def _rows() -> list[Any]:
    return [pytest.param(row, marks=pytest.mark.long if row in _SLOW else ()) for row in rigs()]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("row", _rows())
def test_a_rig_meets_its_bar(row: str) -> None:
    try:
        result = rigs()[row](Scale.SHORT)
    except SkippedError as reason:
        pytest.skip(f"{row}: {reason}")
    assert result.passed, f"{result.figure} (bar: {result.bar})"
