"""A controller over a data plane in memory."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.control.rig import Rig, running


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with running() as it:
        yield it
