"""How a task keeps its epoch from expiring while it has no row to send."""

import logging
import threading
import time

import pytest
from bascule.errors import BrokerError, StateError, UnavailableError
from bascule.spark.sink.renewal import Renewal


class Broker:
    """Takes renewals, and fails with each of `failures` first."""

    def __init__(self, *failures: BrokerError, wanted: int = 3) -> None:
        self.failures = list(failures)
        self.renewed = 0
        self.wanted = wanted
        self.enough = threading.Event()

    def renew(self) -> None:
        self.renewed += 1
        if self.renewed >= self.wanted:
            self.enough.set()
        if self.failures:
            raise self.failures.pop(0)


def test_an_epoch_is_renewed_while_its_task_is_silent() -> None:
    broker = Broker()
    with Renewal(broker.renew, 0.001) as renewal:
        assert broker.enough.wait(30.0), "nothing was sent, and nobody called"
        renewal.check()
    ended = broker.renewed
    time.sleep(0.02)  # twenty times the interval
    assert broker.renewed <= ended + 1, "one renewal may be on its way when the task ends"


def test_a_broker_that_is_not_reachable_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(UnavailableError("unavailable", "no broker answered"))
    with caplog.at_level(logging.WARNING), Renewal(broker.renew, 0.001) as renewal:
        assert broker.enough.wait(30.0)
        renewal.check()
    assert "no broker answered" in caplog.records[0].getMessage()


def test_a_refused_renewal_ends_the_task_at_its_next_row() -> None:
    broker = Broker(StateError("sink_not_found", "sink s does not exist"), wanted=1)
    with Renewal(broker.renew, 0.001) as renewal:
        assert broker.enough.wait(30.0)
        deadline_s = time.monotonic() + 30.0
        with pytest.raises(StateError, match="sink s does not exist"):  # noqa: PT012 - the thread notes it a moment later
            while time.monotonic() < deadline_s:
                renewal.check()
                time.sleep(0.001)
    assert broker.renewed == 1
