"""Every rig at short scale."""

import pytest

from tests.torture.__main__ import rigs
from tests.torture.result import Scale, SkippedError


@pytest.mark.timeout(900)
@pytest.mark.parametrize("row", rigs())
def test_a_rig_meets_its_bar(row: str) -> None:
    try:
        result = rigs()[row](Scale.SHORT)
    except SkippedError as reason:
        pytest.skip(f"{row}: {reason}")
    assert result.passed, f"{result.figure} (bar: {result.bar})"
