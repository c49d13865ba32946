"""When `bascule consume` ends."""

import time
from collections.abc import Callable

import pytest
from bascule.cli.records.consume_loop import Limits, RecordPrinter
from bascule.cli.records.pace import Pace
from bascule.cli.records.record_writer import RecordFormat, record_writer
from bascule.client import Batch


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only the test advances."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def idle_for(seconds: float) -> RecordPrinter:
    printer = RecordPrinter(
        record_writer(RecordFormat.TEXT, None, None), Pace(None), Limits(None, None, seconds), is_late=False
    )
    printer.begin()
    return printer


def spending(clock: list[float], seconds: float | None, found: Batch | None = None) -> Callable[[float], Batch | None]:
    """A poll that takes this long; `None` = as long as requested."""

    def poll(asked: float) -> Batch | None:
        clock[0] += asked if seconds is None else seconds
        return found

    return poll


def test_only_waiting_without_records_is_idle(clock: list[float]) -> None:
    printer = idle_for(1.0)
    for _ in range(2):
        assert not printer.is_over
        printer.next_batch(spending(clock, None))
    assert printer.is_over


def test_a_slow_printer_does_not_end_it(clock: list[float]) -> None:
    printer = idle_for(1.0)
    batch = Batch.__new__(Batch)
    for _ in range(3):
        assert printer.next_batch(spending(clock, 0.1, batch)) is batch
        clock[0] += 60
        assert not printer.is_over


def test_reconnecting_does_not_count_as_idle(clock: list[float]) -> None:
    printer = idle_for(1.0)
    printer.next_batch(spending(clock, 30.0))
    assert not printer.is_over
