"""Effects of signals on a running broker."""

import asyncio
import logging
import os
import signal
import time

import pytest
from bascule.server.run import SAME_S, Signals, log_unhandled


async def test_a_repeated_signal_counts_once_and_a_later_one_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_an_unhandled_exception_is_logged_with_its_stack(caplog: pytest.LogCaptureFixture) -> None:
    def defective() -> None:
        raise KeyError("bug")

    loop, later = asyncio.get_running_loop(), asyncio.Event()
    loop.set_exception_handler(log_unhandled)
    with caplog.at_level(logging.ERROR, "bascule.server"):
        loop.call_soon(defective)
        loop.call_soon(later.set)
        await later.wait()
    (record,) = caplog.records
    assert "bug" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError
