"""Parsing of positions, and limits of the rate."""

import time
from datetime import UTC, datetime

import pytest
from bascule.cli.records.pace import Pace
from bascule.cli.records.positions import parse_start, parse_stop, parse_time
from bascule.errors import UsageError

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def now() -> datetime:
    return NOW


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("new", "new"),
        ("0", 0),
        ("17", 17),
        ("2026-01-31T12:00:00Z", NOW),
        ("-15m", datetime(2026, 1, 31, 11, 45, tzinfo=UTC)),
        ("-1h30m", datetime(2026, 1, 31, 10, 30, tzinfo=UTC)),
    ],
)
def test_a_start_is_a_word_an_offset_or_a_time(text: str, position: object) -> None:
    assert parse_start(text, now) == position


@pytest.mark.parametrize("text", ["", "sometime", "-5", "--", "-99999999999d", "٣", "new-ish", "2026-13-01"])
def test_an_invalid_position_is_rejected_with_the_valid_forms(text: str) -> None:
    with pytest.raises(UsageError, match="is not one of: earliest, latest, new, an offset, a time like"):
        parse_start(text, now)
    with pytest.raises(UsageError, match="is not one of: latest, an offset, a time like"):
        parse_stop(text, now)
    with pytest.raises(UsageError, match="is not a time like"):
        parse_time("--to", text, now)


def test_a_time_without_a_zone_is_local_and_reported_with_its_offset(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        found = parse_start("2026-11-25 01:19", now)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found == datetime(2026, 11, 24, 19, 49, tzinfo=UTC)
    said = 'bascule: --start "2026-11-25 01:19" has no time zone: local time, 2026-11-25T01:19:00+05:30\n'
    assert capsys.readouterr().err == said
    parse_stop("2026-11-25T01:19:00Z", now)
    assert capsys.readouterr().err == ""


def test_a_stop_may_be_left_out() -> None:
    assert parse_stop(None) is None
    assert parse_stop("latest") == "latest"
    assert parse_stop("5") == 5
    assert parse_time("--to", "-15m", now) == datetime(2026, 1, 31, 11, 45, tzinfo=UTC)


class Clock:
    """A clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.time = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


def test_a_rate_is_kept_by_waiting() -> None:
    clock = Clock()
    pace = Pace(100, clock, clock.sleep)
    assert pace.batch(4096) == 10
    for _ in range(10):
        pace.count(10)
    assert clock.time == pytest.approx(101.0)
    clock.time += 5  # late: no wait
    pace.count(10)
    assert len(clock.slept) == 10


def test_without_a_rate_nothing_waits_and_a_slow_one_goes_one_by_one() -> None:
    clock = Clock()
    free = Pace(None, clock, clock.sleep)
    free.count(10**9)
    assert (free.batch(4096), clock.slept) == (4096, [])
    assert Pace(0.5, clock, clock.sleep).batch(4096) == 1
