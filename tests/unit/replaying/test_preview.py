"""Which sources of a replay can have records within its bounds."""

from datetime import UTC, datetime

import pytest
from bascule.lake.ranges import Source
from bascule.spark.replaying.options import Bounds
from bascule.spark.replaying.preview import Found

SINCE, UNTIL = 1_000_000, 3_000_000
"""Microseconds since 1970 of the first and of the last record."""


def found(*, known: bool = True) -> Found:
    times = [datetime.fromtimestamp(us / 1e6, UTC) if known else None for us in (SINCE, UNTIL)]
    return Found(Source("s", 1, 0), 0, 5, 5, 0, *times)


@pytest.mark.parametrize(
    ("since", "until", "inside"),
    [
        (None, None, True),
        (UNTIL, None, True),
        (UNTIL + 1, None, False),
        (None, SINCE, False),
        (None, SINCE + 1, True),
        (SINCE, UNTIL, True),
    ],
)
def test_a_source_whose_times_are_all_outside_is_left_out(
    since: int | None, until: int | None, *, inside: bool
) -> None:
    bounds = Bounds(None, None, since, until)
    assert found().may_be_in(bounds) is inside
    assert found(known=False).may_be_in(bounds), "times that are not known are compared record by record"
