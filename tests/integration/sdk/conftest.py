"""One suite, two clients."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest
from bascule import Client
from bascule.testing import TestBroker

from tests.integration.sdk.blocking import Blocking


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest, running: TestBroker) -> Iterator[Client]:
    """A connected client of either kind."""
    if request.param == "sync":
        with running.connect() as connected:
            yield connected
        return
    loop = asyncio.new_event_loop()
    with Blocking(running.connect_async(), loop) as blocking:
        yield cast("Client", cast("Any", blocking))
    loop.close()
