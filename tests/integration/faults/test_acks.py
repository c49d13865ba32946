"""An ack waits for the sync. The preloaded library of `crates/shim` delays each sync."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from bascule import testing

from tests.conformance.api import ALL, LEADER, Api
from tests.torture.driver import shim

SYNC_S: Final = 0.3
"""Pause before each sync of the broker: an earlier ack did not wait for one."""


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """A broker with slow syncs."""
    monkeypatch.setenv("LD_PRELOAD", str(shim()))
    monkeypatch.setenv("SHIM_PATH", str(tmp_path))
    monkeypatch.setenv("SHIM_SYNC_DELAY_US", str(int(SYNC_S * 1e6)))
    with testing.broker(durability="disk", directory=tmp_path) as running, Api(running.address) as api:
        yield api


@pytest.mark.parametrize("policy", [LEADER, ALL])
def test_with_either_policy_an_ack_waits_for_the_sync(slow: Api, policy: int) -> None:
    slow.create("s")
    for offset in range(0, 6, 2):
        began = time.monotonic()
        assert slow.publish("s", b"alone", ackPolicy=policy) == offset
        assert time.monotonic() - began >= SYNC_S
        began = time.monotonic()
        (answer,) = slow.publish_async([{"stream": "s", "correlationId": "c", "ackPolicy": policy}])
        assert (answer.ack.offset, answer.ack.ackPolicy) == (offset + 1, policy)
        assert time.monotonic() - began >= SYNC_S
