"""What signals do to a broker that runs."""

import os
import signal
import time

import pytest
from bascule.server.run import SAME_S, Signals


async def test_the_same_wish_twice_is_one_and_a_later_one_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, ended = 100.0, list[int]()
    signals = Signals()
    try:
        monkeypatch.setattr(time, "monotonic", lambda: now)
        monkeypatch.setattr(os, "_exit", ended.append)
        signals.on_signal(signal.SIGTERM)
        assert (signals.stop.is_set(), signals.name) == (True, "SIGTERM")
        now += SAME_S / 2
        signals.on_signal(signal.SIGTERM)
        signals.on_signal(signal.SIGINT)
        assert ended == []
        now += SAME_S
        signals.on_signal(signal.SIGTERM)
        assert ended == [130]
    finally:
        monkeypatch.undo()
        signals.close()
