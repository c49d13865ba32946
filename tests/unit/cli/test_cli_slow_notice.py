"""A slow connection or call prints a notice, and nothing else does."""

import threading
from collections.abc import Callable

import pytest
from bascule.cli.slow_notice import SlowNotice


class Clock:
    """Timers that fire when `passes` is called."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def timer(self, _seconds: float, function: Callable[[], None]) -> "Clock.Timer":
        return Clock.Timer(self, function)

    def passes(self) -> None:
        for function in self.waiting:
            function()

    class Timer:
        daemon = False

        def __init__(self, clock: "Clock", function: Callable[[], None]) -> None:
            self.clock = clock
            self.function = function

        def start(self) -> None:
            self.clock.waiting.append(self.function)

        def cancel(self) -> None:
            self.clock.waiting.remove(self.function)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(threading, "Timer", found.timer)
    return found


def test_slow_connecting_and_a_slow_first_call_cause_a_notice(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    broker = SlowNotice(["a:1", "b:2"], 10)
    said = "bascule: no answer from a:1, b:2 yet; waiting for at most another 9 s\n"
    for meanwhile in (broker.connecting(), broker.calling()):
        with meanwhile:
            clock.passes()
        assert capsys.readouterr().err == said
    with broker.calling():
        clock.passes()
    assert capsys.readouterr().err == "", "it has answered once"


def test_waiting_outside_of_calls_causes_no_notice(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    broker = SlowNotice(["a:1"], 10)
    with broker.connecting():
        pass
    clock.passes()  # e.g. while waiting for standard input
    with pytest.raises(ValueError, match="refused"), broker.calling():
        raise ValueError("refused")
    with broker.calling():
        clock.passes()
    assert capsys.readouterr().err == "", "an error is an answer"
