"""Background tasks: started again three times, then the broker ends."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from bascule.control import Supervisor, supervisor
from bascule.control.supervisor import RESTART_PAUSES_S
from bascule.errors import BrokerError, StateError

from tests.unit.control.fake_plane import until

SHORT = (0.001, 0.001, 0.001)


class Supervised:
    def __init__(self) -> None:
        self.failures: list[BrokerError] = []
        self.supervisor = Supervisor(self.failures.append, SHORT)
        self.starts = 0


@pytest.fixture
async def it() -> AsyncIterator[Supervised]:
    it = Supervised()
    yield it
    await it.supervisor.stop()


async def test_a_task_that_keeps_failing_is_started_four_times_and_then_reported_once(
    it: Supervised, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        it.starts += 1
        raise KeyError("bug")

    with caplog.at_level(logging.ERROR, "bascule.server.tasks"):
        it.supervisor.start("reconciler", work)
        await until(lambda: bool(it.failures))
        await asyncio.sleep(0.02)  # long enough for a start that must not come
    assert it.starts == 1 + len(RESTART_PAUSES_S) == 4
    assert [failure.code for failure in it.failures] == ["internal"]
    assert "reconciler" in str(it.failures[0])
    assert len(caplog.records) == 4
    assert all(record.exc_info for record in caplog.records), "each line has its stack"


async def test_a_task_that_returns_has_ended_too(it: Supervised) -> None:
    async def work() -> None:
        it.starts += 1

    it.supervisor.start("snapshots", work)
    await until(lambda: bool(it.failures))
    assert it.starts == 4


async def test_a_task_that_cancels_itself_has_ended_too(it: Supervised) -> None:
    async def work() -> None:
        it.starts += 1
        await asyncio.shield(cancelled)

    cancelled = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    it.supervisor.start("scrub", work)
    await until(lambda: bool(it.failures))
    assert it.starts == 4


async def test_an_error_with_a_code_keeps_it(it: Supervised) -> None:
    async def work() -> None:
        raise StateError("disk_full", "no room")

    it.supervisor.start("activity", work)
    await until(lambda: bool(it.failures))
    assert it.failures[0].code == "disk_full"


async def test_a_task_that_recovers_is_left_alone(it: Supervised) -> None:
    async def work() -> None:
        it.starts += 1
        if it.starts < 4:
            raise OSError("passing")
        await asyncio.Event().wait()

    it.supervisor.start("reconciler", work)
    await until(lambda: it.starts == 4)
    await asyncio.sleep(0.02)  # long enough for a failure that must not come
    assert not it.failures


async def test_a_task_that_ran_long_enough_has_all_its_restarts_again(
    it: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "RECOVERED_S", 0.005)

    async def work() -> None:
        it.starts += 1
        await asyncio.sleep(0.01)
        raise OSError("now and then")

    it.supervisor.start("reconciler", work)
    await until(lambda: it.starts > 8)
    assert not it.failures


async def test_a_task_that_ends_while_stopping_has_not_failed_and_is_not_started_again(it: Supervised) -> None:
    ending = asyncio.Event()

    async def work() -> None:
        it.starts += 1
        await ending.wait()

    it.supervisor.start("reconciler", work)
    await until(lambda: it.starts == 1)
    it.supervisor.begin_stop()
    ending.set()
    await it.supervisor.stop()
    assert (it.starts, it.failures) == (1, [])


async def test_a_task_that_is_kept_runs_until_the_last_stop(it: Supervised) -> None:
    ended: list[str] = []

    def work(name: str) -> supervisor.Work:
        async def run() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(name)

        return run

    for name in ("events", "scrub"):
        it.supervisor.start(name, work(name))
    await asyncio.sleep(0)
    await it.supervisor.stop(keep={"events"})
    assert ended == ["scrub"]
    await it.supervisor.stop()
    assert ended == ["scrub", "events"]
