"""The duties of a controller run while the office is held, after a barrier, and nowhere else."""

import asyncio

import pytest
from bascule._seam import Office as OfficeChange
from bascule.control.office import Office
from bascule.errors import OutcomeUnknownError


class Log:
    """Barriers that are late `late` times, then reached."""

    def __init__(self, late: int = 0) -> None:
        self.late = late
        self.reached = 0

    async def barrier(self, timeout_s: float) -> int:
        await asyncio.sleep(0)
        if self.late:
            self.late -= 1
            raise OutcomeUnknownError("metadata_timeout", f"not within {timeout_s}")
        self.reached += 1
        return 5


class Duty:
    """Notes when it runs."""

    def __init__(self) -> None:
        self.running = 0
        self.began = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self) -> None:
        self.running += 1
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.running -= 1
            self.began.clear()
            self.ended.set()


async def test_duties_begin_behind_a_barrier_and_end_with_the_office() -> None:
    log, duty = Log(late=2), Duty()
    office = Office(log, [duty])
    task = asyncio.create_task(office.run())
    office.on_change(OfficeChange(3, held=True))
    await asyncio.wait_for(duty.began.wait(), 5)
    assert (office.term, duty.running, log.reached) == (3, 1, 1)
    office.on_change(OfficeChange(3, held=False))
    await asyncio.wait_for(duty.ended.wait(), 5)
    assert (office.term, duty.running) == (0, 0)
    office.on_change(OfficeChange(5, held=True))
    await asyncio.wait_for(duty.began.wait(), 5)
    assert (office.term, log.reached) == (5, 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert duty.running == 0


async def test_another_term_begins_behind_a_barrier_of_its_own() -> None:
    log, duty = Log(), Duty()
    office = Office(log, [duty])
    task = asyncio.create_task(office.run())
    office.on_change(OfficeChange(3, held=True))
    await asyncio.wait_for(duty.began.wait(), 5)
    office.on_change(OfficeChange(3, held=False))
    office.on_change(OfficeChange(4, held=True))
    await asyncio.wait_for(duty.ended.wait(), 5)
    await asyncio.wait_for(duty.began.wait(), 5)
    assert (duty.running, log.reached) == (1, 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_duty_that_fails_ends_the_run_for_the_supervisor() -> None:
    async def fails() -> None:
        raise ValueError("a bug")

    office = Office(Log(), [fails])
    office.on_change(OfficeChange(1, held=True))
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(office.run(), 5)
    assert caught.group_contains(ValueError, match="a bug")
