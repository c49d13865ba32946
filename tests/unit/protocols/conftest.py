"""A controller over a data plane in memory."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.control.rig import Rig, running
from tests.unit.protocols.sink_service import Service, serving


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with running() as it:
        yield it


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with running() as rig:
        yield await serving(rig)
